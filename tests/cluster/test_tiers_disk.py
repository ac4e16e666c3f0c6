"""Goal: a disk that has no room for a tier's file (kv/tiers/file), or becomes full, costs only the tier: one line of the
log says why, `cleave_kv_tier_up` is 0, the requests that run meanwhile have the answers of a cluster without tiers, and
the tier works again when the machine starts on a disk with room.

Method: a small tmpfs in a mount namespace of the test, and threads that send the requests of tier_cases.py all the time,
to a machine whose KV memory is too small for them. (1) The file is larger than the disk. (2) Other files fill the disk
beside the file, which has its room. (3) The file loses its room on a full disk: the test punches a hole into it, so that
it is as on a file system that cannot reserve room.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile

from cluster import Cluster, need_model, skip, wait_until
from tier_cases import CONFIG, MEMORY, Load, answer, cases

DISK, FILE = 24 << 20, 12 << 20
INDEX = 65536  # The file's header and index are before this place.


def config(folder, size):
    return {**CONFIG, "pools": {"prompt": 0, "token": 0, "mixed": 1},
            "kv": {"memory": "8MiB", "tiers": {"wait_ms": 60000, "file": {"path": folder, "size": f"{size}"}}}}


def tier(cluster, name):
    return cluster.metric(f"cleave_kv_tier_{name}", tier="file")


def free(disk):
    state = os.statvfs(disk)
    return state.f_bavail * state.f_bsize


def fill(disk):
    """Writes a file until the disk is full, and returns its path."""
    path = os.path.join(disk, "filler")
    with open(path, "ab", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    assert free(disk) == 0
    return path


def off_lines(cluster):
    return [line for line in cluster.logged().splitlines() if "is off until the machine starts again" in line]


@contextlib.contextmanager
def loaded(settings, wanted):
    """A cluster that gets requests all the time."""
    with Cluster(settings) as cluster:
        load = Load(cluster, wanted)
        yield cluster, load
        load.wait_rounds()
        load.end()
        cluster.wait_all_free()


def check_too_small(disk, wanted):
    before = free(disk)
    with loaded(config(disk, 2 * DISK), wanted) as (cluster, load):
        load.wait_for(lambda: off_lines(cluster), "the tier is off")
    lines = off_lines(cluster)
    assert len(lines) == 1 and f"no space for {2 * DISK} bytes: No space left on device" in lines[0], lines
    assert free(disk) == before, (free(disk), before)  # Nothing is kept of what was reserved.
    print("too small: " + lines[0].split(": ", 1)[1], flush=True)


def check_full_disk(disk, wanted):
    with loaded(config(disk, FILE), wanted) as (cluster, load):
        load.wait_for(lambda: tier(cluster, "hits_tokens_total") > 0, "KV is loaded")
        assert tier(cluster, "up") == 1
        filler = fill(disk)
        before = {name: tier(cluster, name) for name in ("hits_tokens_total", "stored_bytes_total")}
        load.wait_for(lambda: all(tier(cluster, name) > before[name] for name in before), "KV is stored and loaded")
        assert tier(cluster, "up") == 1 and not off_lines(cluster), cluster.logged()
        # Now the file has no room any more.
        path = os.path.join(disk, "mixed-0.kv")
        hole = ["--punch-hole", "--offset", str(INDEX), "--length", str(FILE - INDEX)]
        subprocess.run(["fallocate", *hole, path], check=True)
        fill(disk)
        load.wait_for(lambda: tier(cluster, "up") == 0, "the tier is off")
        load.wait_rounds()
        lines = off_lines(cluster)
        assert len(lines) == 1 and f"{path}: cannot be written: No space left on device" in lines[0], lines
        print("full: " + lines[0].split(": ", 1)[1], flush=True)
        hits = tier(cluster, "hits_tokens_total")
        load.wait_rounds()
        assert tier(cluster, "hits_tokens_total") == hits, "a tier that is off is not asked"
        # There is room again, and the machine is started again.
        os.unlink(filler)
        pid = cluster.children()["mixed-0"]
        os.kill(pid, signal.SIGKILL)
        load.wait_for(lambda: cluster.children().get("mixed-0", pid) != pid and tier(cluster, "up") == 1, "the tier works")
        hits = tier(cluster, "hits_tokens_total")
        load.wait_for(lambda: tier(cluster, "hits_tokens_total") > hits, "KV is loaded again")
        assert len(off_lines(cluster)) == 1, cluster.logged()


def main():
    need_model()
    if sys.argv[1:] != ["inside"]:
        if shutil.which("unshare") is None or shutil.which("fallocate") is None:
            skip("unshare or fallocate is not installed (Debian: util-linux)")
        words = ["unshare", *(["--user", "--map-root-user"] if os.geteuid() != 0 else []), "--mount"]
        with tempfile.TemporaryDirectory(prefix="cleave-test-") as disk:
            mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk]
            if subprocess.run([*words, *mount], check=False, capture_output=True).returncode != 0:
                skip("this user cannot mount a tmpfs in a mount namespace")
        os.execvp("unshare", [*words, sys.executable, sys.argv[0], "inside"])
    with Cluster({**CONFIG, "kv": {"memory": MEMORY}}) as plain:
        wanted = [answer(plain, body)[0] for body in cases()]
    with tempfile.TemporaryDirectory(prefix="cleave-test-") as disk:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", disk], check=True)
        try:
            check_too_small(disk, wanted)
            check_full_disk(disk, wanted)
        finally:
            subprocess.run(["umount", "-l", disk], check=True)
    print("ok")


main()
