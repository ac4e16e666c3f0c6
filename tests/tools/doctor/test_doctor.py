"""Goal: `cleave doctor` reports which features the computer has and which it lacks, in the same way as text and as
JSON, and its exit status is its verdict. This also holds on a computer without shared memory, with no network device
except loopback, with one core, with a UCX that does not start, and with GPUs, one of which hangs.

Method: runs the binary (argument) directly, in namespaces that remove features (if root may make namespaces), and with
the fake device's library (argument) as the library for CUDA.
"""

import concurrent.futures
import json
import os
import subprocess
import sys

BINARY, PLUGIN = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
# Time limit of one check: long enough for a computer of any speed, except where a check hangs on purpose.
ENOUGH_S, HANGS_S = 120, 3


def doctor(*args, prefix=(), status=0, timeout_s=ENOUGH_S, **environment):
    done = subprocess.run([*prefix, BINARY, "doctor", "--timeout-s", str(timeout_s), *args], capture_output=True, text=True,
                          timeout=300, env={**os.environ, "CLEAVE_CUDA_PLUGIN": "/nowhere", **environment})
    assert status in (None, done.returncode), (done.returncode, done.stdout, done.stderr)
    assert done.stderr == "", done.stderr
    return json.loads(done.stdout) if "--json" in args else done.stdout


MINUTE_US = 60e6


def plausible(measured):
    """Returns whether the numbers are plausible for any computer, however busy."""
    return 1e5 < measured["bandwidth_bytes_per_s"] < 1e13 and 0 < measured["layer_us"] < MINUTE_US


def as_it_is():
    found = doctor("--json")
    assert found["can_serve"] and found["why_not"] is None, found
    host = found["host"]
    assert host["cores"] == os.cpu_count() and host["cores_usable"] == len(os.sched_getaffinity(0)), host
    assert host["memory_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE"), host
    assert host["compute"] and host["available_bytes"] <= host["memory_bytes"], host
    with open("/proc/sys/kernel/shmmni") as file:
        assert host["shmmni"] == int(file.read()), host
    with open("/proc/cpuinfo") as file:
        flags = file.read().split("flags", 1)[-1].split("\n", 1)[0].split()
    for feature in (host["features"] or "").split():
        assert feature in flags, (feature, flags)
    assert ("avx2" in flags) == ("avx2" in (host["features"] or "")), host
    assert found["gpus"]["list"] == [] and "CLEAVE_CUDA_PLUGIN names /nowhere" in found["gpus"]["error"], found
    assert "tcp/lo" in found["ucx"]["resources"] and found["ucx"]["version"].count(".") == 2, found["ucx"]
    ways = {path["transport"]: path for path in found["paths"]["list"]}
    assert "tcp" in ways, ways
    for path in ways.values():
        assert plausible(path) and path["layer_bytes"] == 1 << 20 and 0 < path["latency_us"] < MINUTE_US, path
    text = doctor()
    for part in (host["processor"], host["compute"], "CLEAVE_CUDA_PLUGIN names /nowhere", found["ucx"]["version"],
                 *(path["path"] for path in ways.values())):
        assert part in text, (part, text)
    assert text.splitlines()[-1].startswith("can serve   yes"), text
    portable = doctor("--json", CLEAVE_ISA="portable")
    assert portable["host"]["compute"].startswith("portable"), portable["host"]
    print(text, end="")


def with_gpus():
    found = doctor("--json", CLEAVE_CUDA_PLUGIN=PLUGIN, CLEAVE_FAKE_DEVICE="count=2,room_bytes=1000000000")
    gpus = found["gpus"]["list"]
    assert [gpu["device"] for gpu in gpus] == ["cuda:0", "cuda:1"], found["gpus"]
    for gpu in gpus:
        assert gpu["kv_transfer"] == "ipc" and gpu["kv_transfer_why"] == "fake is not CUDA memory", gpu
        assert gpu["free_bytes"] == gpu["total_bytes"] == 1000000000 and "fake device" in gpu["text"], gpu
    assert "there are 2" in found["gpus"]["error"], found["gpus"]
    copies = found["gpus"]["copies"]
    assert [(copy["from"], copy["to"]) for copy in copies] == [("cuda:0", "cuda:0"), ("cuda:0", "cuda:1")], copies
    for copy in copies: # One process wrote the bytes, another one compared them.
        assert copy["path"] == "fake ipc" and copy["error"] is None and copy["not_ipc_why"] is None, copy
        assert plausible(copy), copy
    text = doctor(CLEAVE_CUDA_PLUGIN=PLUGIN, CLEAVE_FAKE_DEVICE="count=1")
    assert "cuda:0: fake device" in text and "travels ipc: fake is not CUDA memory" in text, text
    assert "cuda:0 to another process on it: fake ipc: " in text, text
    for reason, options in (("fake cannot open its memory: peer access is not supported", "count=1,refuse=1"),
                            ("fake cannot open its memory: no handle of a fake device", "count=1,garbage=1")):
        copy = doctor("--json", CLEAVE_CUDA_PLUGIN=PLUGIN, CLEAVE_FAKE_DEVICE=options)["gpus"]["copies"][0]
        assert "staged" in copy["path"] and copy["not_ipc_why"] == reason and copy["error"] is None, copy
    staged = doctor("--json", CLEAVE_CUDA_PLUGIN=PLUGIN, CLEAVE_FAKE_DEVICE="count=1,alone=1")["gpus"]
    assert staged["list"][0]["kv_transfer"] == "staged" and "staged" in staged["copies"][0]["path"], staged
    # A device that hangs, or that crashes the process that opens it, is reported, and the other checks continue. UCX
    # and the paths have the same time limit as the device, so on a slow computer the test tries a longer limit.
    timeout_s = HANGS_S
    while True:
        found = doctor("--json", status=None, timeout_s=timeout_s, CLEAVE_CUDA_PLUGIN=PLUGIN,
                       CLEAVE_FAKE_DEVICE="count=1,stick_after=3")
        hangs = doctor("--json", status=None, timeout_s=timeout_s, CLEAVE_CUDA_PLUGIN=PLUGIN,
                       CLEAVE_FAKE_DEVICE="count=1,hang=1")
        if found["gpus"]["copies"] and found["can_serve"] and hangs["can_serve"] or timeout_s > 100:
            break
        timeout_s *= 3
    stuck = found["gpus"]["copies"][0]
    assert stuck["error"] is not None and stuck["path"] is None and found["can_serve"], stuck
    assert hangs["can_serve"] and f"no answer within {timeout_s * 1000} ms" in hangs["gpus"]["error"], hangs["gpus"]
    dies = doctor("--json", CLEAVE_CUDA_PLUGIN=PLUGIN, CLEAVE_FAKE_DEVICE="count=1,crash=1")
    assert dies["can_serve"] and "it has died" in dies["gpus"]["error"], dies["gpus"]


def minimal():
    """No System V segments, no /dev/shm, no network device except loopback, one core."""
    script = ("mount --make-rprivate / && mount -t tmpfs -o size=4k tmpfs /dev/shm && echo 0 > /proc/sys/kernel/shmmni "
              "&& ip link set lo up && exec taskset -c 0 \"$@\"")
    prefix = ["unshare", "--ipc", "--mount", "--net", "sh", "-c", script, "minimal"]
    if subprocess.run([*prefix, "true"], capture_output=True).returncode != 0:
        print("SKIP in part: no namespaces can be made here")
        return
    found = doctor("--json", prefix=prefix)
    assert found["can_serve"], found
    assert found["host"]["shmmni"] is None and found["host"]["cores_usable"] == 1, found["host"]
    assert [path["transport"] for path in found["paths"]["list"]] == ["tcp"], found["paths"]
    assert "no System V segment" in found["paths"]["note"], found["paths"]
    assert not any(each.startswith("tcp/") and each != "tcp/lo" for each in found["ucx"]["resources"]), found["ucx"]
    assert "no System V segments can be made" in doctor(prefix=prefix)


def cannot_serve():
    found = doctor("--json", status=1, CLEAVE_KV_WRITE="nonsense")
    assert not found["can_serve"] and "KV could not be sent" in found["why_not"], found
    last = doctor(status=1, CLEAVE_KV_WRITE="nonsense").splitlines()[-1]
    assert last.startswith("can serve   no: KV could not be sent"), last
    # Without UCX, KV travels over TCP. Machines do not read UCX_TLS.
    found = doctor("--json", UCX_TLS="nonsense")
    assert found["can_serve"] and found["paths"]["list"], found


def command_line():
    for args, part in ((["--colour"], "--colour"), (["file"], "file"), (["--json=1"], "--json"),
                       (["--timeout-s", "0"], "--timeout-s")):
        done = subprocess.run([BINARY, "doctor", *args], capture_output=True, text=True, timeout=300)
        assert done.returncode == 2 and part in done.stderr and done.stdout == "", (args, done)
    done = subprocess.run([BINARY, "doctor", "--help"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "usage: cleave doctor" in done.stdout, done
    assert "doctor" in subprocess.run([BINARY, "help"], capture_output=True, text=True, timeout=300).stdout


with concurrent.futures.ThreadPoolExecutor(4) as pool:  # The threads mostly wait.
    for checked in [pool.submit(check) for check in (with_gpus, as_it_is, minimal, cannot_serve, command_line)]:
        checked.result()
