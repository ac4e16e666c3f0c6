"""Goal: if a machine fails in any phase of a request, the client still reads the bytes of an undisturbed run, and in
the end all blocks are free.

Method: one request at a time on two prompt and two token machines. To bring the request to a phase, the machines that
its next step needs are stopped before the request begins, or held at a gate. Then its prompt machine or its token
machine is killed, or stopped until it counts as silent. Further: machines that are slow (stopped again and again, but
never for transport/silence_ms), and full disks, on which the gateway and its machines can write neither log nor events.

usage: test_phases.py [few|slow]
few: each phase once, each machine and each signal twice, in pairs that every run draws anew; slow: slow machines and
full disks.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from cluster import Cluster, Stream, need_model, send_signal, wait_until

LONG = "The history of computing spans many centuries. " * 40  # 321 tokens, six batches of CONFIG
TOKENS = 30
# On a slow computer a machine may be silent for a second or two without having been stopped. It then counts as dead for
# a while, which the checks here tolerate.
SILENCE_MS = 3000
CONFIG = {"pools": {"prompt": 2, "token": 2}, "kv": {"memory": "128MiB", "prefix_cache": False}, "threads": 1,
          "scheduler": {"prompt_batch_tokens": 64}, "transport": {"heartbeat_ms": 200, "silence_ms": SILENCE_MS}}


def state(cluster):
    return json.loads(cluster.request("GET", "/admin/state")[2])


def start(cluster, prompt=LONG, tokens=TOKENS):
    """Starts a stream. The same prompt and number of tokens always give the same text."""
    return Stream(cluster, {"prompt": prompt, "max_tokens": tokens, "temperature": 0.7, "seed": 5, "ignore_eos": True})


def machine_of(cluster, phase):
    """Returns the machine that has the request's prompt (`phase` "prompt") or its answer ("token"); None = neither."""
    for machine in state(cluster)["machines"]:
        if machine["routed_prompts" if phase == "prompt" else "routed_decodes"] > 0:
            return machine["name"]
    return None


def in_state(cluster, name):
    return state(cluster)["requests"][name] == 1


def names_of(pool):
    return [f"{pool}-{i}" for i in range(CONFIG["pools"][pool])]


def hold_pool(cluster, pool):
    """Makes the machines of the pool stop in the middle of their next batch."""
    for name in names_of(pool):
        cluster.hold(name, layer=15)


def wait_batch(cluster, pool, count):
    """After hold_pool: lets the pool's machine that has the request continue until it is held in its batch number
    `count`."""
    for batch in range(1, count + 1):
        wait_until(lambda: any(cluster.held(name) for name in names_of(pool)), f"a {pool} machine is held", cluster=cluster)
        if batch < count:
            hold_pool(cluster, pool)


# Phases that are reached without a gate: (the pool whose machines are stopped before the request begins, whether the request
# is in the phase).
STOPPED = {
    "queued": ("token", lambda cluster: in_state(cluster, "queued") and machine_of(cluster, "token")),
    "reserved": ("prompt", lambda cluster: in_state(cluster, "prefilling")),
}
# Phases that are reached at a gate: (the pool of the machine that is held, the number of the batch in whose middle).
HELD = {"layers": ("prompt", 3), "decoding": ("token", 8)}
PHASES = [*STOPPED, *HELD]


class TooLate(Exception):
    """A stopped machine counted as silent before the request was in its phase. The argument is the stream."""


def reach(cluster, phase, children):
    """Starts the request and brings it to the phase. Returns (the stream, the machines that are stopped)."""
    if phase in HELD:
        pool, batch = HELD[phase]
        hold_pool(cluster, pool)
        stream = start(cluster)
        wait_batch(cluster, pool, batch)
        return stream, []
    pool, reached = STOPPED[phase]
    for name in names_of(pool):
        os.kill(children[name], signal.SIGSTOP)
    stream = start(cluster)
    wait_until(lambda: reached(cluster) or not all_up(cluster), phase, cluster=cluster)
    if not reached(cluster) or not all_up(cluster):
        raise TooLate(stream)
    return stream, names_of(pool)


def all_up(cluster):
    return cluster.metric("cleave_machine_up") == 4


def one(cluster, phase, victim, number, want):
    for _ in range(5):
        try:
            return once(cluster, phase, victim, number, want)
        except TooLate as late:
            print(f"{phase}: a stopped machine counted as silent too early; again", flush=True)
            late.args[0].expect(want, phase)
            wait_until(lambda: all_up(cluster), f"{phase}: all machines are up again", cluster=cluster)
            cluster.wait_all_free()
    raise AssertionError(f"{phase}: not reached")


def once(cluster, phase, victim, number, want):
    """Brings the request to `phase`; then its prompt machine or its token machine gets the signal."""
    children = cluster.children()
    down = cluster.metric("cleave_requests_resumed_total")
    what = f"{victim} machine, {number.name}, {phase}"
    try:
        stream, stopped = reach(cluster, phase, children)
        name = machine_of(cluster, victim)
        if name is None:  # The prompt is done: any machine of the pool will do.
            name = names_of(victim)[0]
        starts = cluster.metric("cleave_machine_starts_total", machine=name)
        os.kill(children[name], number)
        hit = time.monotonic()
        for other in stopped:
            if other != name:
                send_signal(children[other], signal.SIGCONT)
        cluster.release()
        # A killed machine can be up again between two looks at the metrics.
        wait_until(lambda: cluster.metric("cleave_machine_up", machine=name) == 0 or
                   cluster.metric("cleave_machine_starts_total", machine=name) > starts,
                   f"{what}: it is noticed", cluster=cluster)
        seen = time.monotonic() - hit
        stream.expect(want, what)
    finally:
        cluster.release()
        for pid in children.values():
            send_signal(pid, signal.SIGCONT)
    wait_until(lambda: all_up(cluster), f"{what}: it comes back", cluster=cluster)
    cluster.wait_all_free()
    resumed = cluster.metric("cleave_requests_resumed_total") - down
    assert resumed > 0 or victim == "prompt" and phase == "decoding", (what, cluster.logged())
    print(f"{what}: the same bytes, seen after {seen:.2f} s, resumed {resumed:.0f} times", flush=True)


def undisturbed(cluster):
    stream = start(cluster).end()
    assert stream.error is None and stream.text, stream.error
    return stream.text


def cases(few):
    ends = [(victim, number) for victim in ("prompt", "token") for number in (signal.SIGKILL, signal.SIGSTOP)]
    if not few:
        return [(phase, *end) for phase in PHASES for end in ends]
    seed = int(os.environ.get("CLEAVE_SEED") or time.time_ns() % (1 << 31))
    print(f"seed: CLEAVE_SEED={seed}", flush=True)
    random.Random(seed).shuffle(ends)
    return [(phase, *end) for phase, end in zip(PHASES, ends)]


def check_phases(few):
    with Cluster(CONFIG, gates=True) as cluster:
        want = undisturbed(cluster)
        for phase, victim, number in cases(few):
            one(cluster, phase, victim, number, want)


def check_slow():
    """A machine that runs a third of the time is slow, not dead."""
    config = {**CONFIG, "transport": {"heartbeat_ms": 200, "silence_ms": 60000}}
    with Cluster(config, gates=True, pace_us=10000) as cluster:
        want = undisturbed(cluster)
        for name in ("token-0", "prompt-1"):
            pid = cluster.children()[name]
            streams = [start(cluster) for _ in range(3)]
            while any(stream.is_alive() for stream in streams):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(0.2)
                send_signal(pid, signal.SIGCONT)
                time.sleep(0.1)
            for stream in streams:
                stream.expect(want, f"{name} is slow")
            assert cluster.children()[name] == pid and f"machine {name} is down" not in cluster.logged()
            cluster.wait_all_free()
        print("slow machines: the same bytes, and none was taken for dead", flush=True)


def check_full_disks():
    """Writes to standard error, which the gateway and the machines share, fail; then writes to the event log, until
    there is room again."""
    with Cluster(CONFIG, prefix=("sh", "-c", 'exec "$0" "$@" 2>/dev/full'), gates=True) as cluster:
        want = undisturbed(cluster)
        hold_pool(cluster, "prompt")
        stream = start(cluster)
        wait_batch(cluster, "prompt", 2)
        os.kill(cluster.children()[machine_of(cluster, "prompt")], signal.SIGKILL)
        cluster.release()
        stream.expect(want, "stderr is full")
        wait_until(lambda: all_up(cluster), "it comes back", cluster=cluster)
        assert cluster.request("POST", "/admin/reload")[0] == 200
        assert cluster.stop() == 0 and cluster.logged() == ""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        print("SKIP in part: the small disk needs root and mount")
        return
    with tempfile.TemporaryDirectory() as disk:
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], check=False,
                          capture_output=True).returncode != 0:
            print("SKIP in part: the small disk: tmpfs cannot be mounted here")
            return
        try:
            small_disk(disk)
        finally:
            subprocess.run(["umount", "-l", disk], check=True)


def small_disk(disk):
    events, filler = os.path.join(disk, "events.jsonl"), os.path.join(disk, "filler")
    with Cluster({**CONFIG, "log": {"events_file": events}}) as cluster:
        want = undisturbed(cluster)
        for _ in range(2):
            with open(filler, "wb", buffering=0) as file:
                try:
                    while file.write(b"x" * 100):
                        pass
                except OSError:
                    pass
            dropped = cluster.metric("cleave_events_dropped_total")
            while cluster.metric("cleave_events_dropped_total") < dropped + 20:
                stream = start(cluster, "short", 4)
                assert stream.end().error is None and stream.text, stream.error
            os.unlink(filler)
            stream = start(cluster)
            stream.expect(want, "there is room again")
        dropped = cluster.metric("cleave_events_dropped_total")
        assert cluster.stop() == 0
        with open(events) as file:
            lines = [json.loads(line) for line in file]  # No line is cut.
        gaps = [line["dropped"] for line in lines if "dropped" in line]
        assert len(gaps) >= 2 and sum(gaps) == dropped >= 40, (gaps, dropped)  # The last page takes some lines.
        assert "event" in lines[-1], lines[-1]
        print(f"small disk: {sum(gaps)} lines of the event log dropped and counted, {len(lines)} written")


if __name__ == "__main__":
    need_model()
    if "slow" in sys.argv:
        check_full_disks()
        check_slow()
    else:
        check_phases("few" in sys.argv)
