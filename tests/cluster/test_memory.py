"""Goal: after any work, a machine holds at most 30 MiB (tiny model: 19 MiB) in addition to its KV-cache and the model's
weights, and the gateway at most 30 MiB in all. Method: one prompt, one token and one mixed machine of two threads each.
The test counts memory that only the process itself has and has written (private dirty pages, also when swapped out),
idle and after prompts of 2048 tokens and 48 requests at a time. Pages of library files do not count, because processes
share them and they differ between computers. Mappings of the configured size count as KV, also a writer's mapping of
another machine's KV. Transparent huge pages are off for the cluster: they round each piece of memory up to 2 MiB."""

import ctypes
import os
import re

from cluster import DEFAULT_MODEL, MODEL, Cluster, Stream, need_model

MIB = 1 << 20
KV_BYTES = 256 * MIB
TINY = MODEL != DEFAULT_MODEL
# A vocabulary of 49,152 tokens as a tree for constrained output takes 3 MiB. A batch's rows of the default model take
# 10 MiB more than the tiny model's.
BEYOND_MAX_MIB = 19 if TINY else 30
GATEWAY_MAX_MIB = 30
PR_SET_THP_DISABLE = 41
KINDS = ("heap and anonymous", "shared memory", "files")


def mappings(pid):
    """Returns (name, size, private dirty, resident) of each mapping, in bytes."""
    found = []
    with open(f"/proc/{pid}/smaps") as file:
        for line in file:
            head = re.match(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ *(.*)", line)
            if head:
                found.append([head.group(1), 0, 0, 0])
            else:
                key, value = line.split(":", 1)
                index = {"Size": 1, "Private_Dirty": 2, "Swap": 2, "Rss": 3}.get(key)
                if index:
                    found[-1][index] += int(value.split()[0]) * 1024
    return found


def kind(name):
    if not name.startswith("/"):
        return KINDS[0]
    return KINDS[1] if name.startswith(("/SYSV", "/memfd", "/dev/shm", "/dev/zero")) else KINDS[2]


def show(cluster, when):
    """Returns {process: private MiB in addition to KV and, for a machine, the weights}, and prints them with their
    parts."""
    beyond = {}
    for name, pid in {"gateway": cluster.process.pid, **cluster.children()}.items():
        parts, kv = dict.fromkeys(KINDS, 0), 0
        for mapping, size, dirty, resident in mappings(pid):
            if abs(size - KV_BYTES) <= 4 * MIB:
                kv += resident
            else:
                parts[kind(mapping)] += dirty
        weights = 0 if name == "gateway" else os.path.getsize(MODEL)
        beyond[name] = (sum(parts.values()) - weights) / MIB
        text = ", ".join(f"{part} {count / MIB:.1f}" for part, count in parts.items())
        print(f"{when} {name}: {text}, KV {kv / MIB:.1f} MiB; beyond {beyond[name]:.1f}")
        assert name == "gateway" or kv > 0, "the mapping of the KV-cache is not found"
    return beyond


def check(beyond):
    for name, mib in beyond.items():
        assert mib <= (GATEWAY_MAX_MIB if name == "gateway" else BEYOND_MAX_MIB), f"{name}: {mib:.1f} MiB"


need_model()
os.environ.pop("MALLOC_PERTURB_", None)  # Meson sets this variable; malloc would write to every page that it returns.
ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)  # The cluster inherits this.
config = {"threads": 2, "kv": {"memory": KV_BYTES}, "pools": {"prompt": 1, "token": 1, "mixed": 1},
          # Four times the default; and the held machine gets no prompts, however slow the computer is.
          "scheduler": {"prompt_batch_tokens": 2048, "machine_pending_ms": 0}}
with Cluster(config, gates=True) as cluster:
    cluster.post("/v1/completions", {"prompt": "Hello", "max_tokens": 3})
    check(show(cluster, "idle"))

    def body(index, prompt_tokens, tokens):
        prompt = [(index * 7 + k * 13) % 40000 + 100 for k in range(prompt_tokens)]
        return {"prompt": prompt, "max_tokens": tokens, "temperature": 1.0, "top_p": 0.9, "logprobs": 5,
                "ignore_eos": True}

    def operate(what, *names):
        for name in names:
            assert cluster.request("POST", f"/admin/{what}/{name}")[0] == 200

    operate("drain", "mixed-0")
    cluster.post("/v1/completions", body(100, 2048, 2))
    streams = cluster.held_streams("token-0", [body(index, 64, 6) for index in range(48)])  # All in one batch.
    cluster.release()
    for stream in streams:
        assert stream.end().error is None, stream.error
    operate("undrain", "mixed-0")
    operate("drain", "prompt-0", "token-0")
    streams = [Stream(cluster, body(100, 2048, 2))]
    streams += [Stream(cluster, body(index, 64, 12)) for index in range(48)]
    for stream in streams:
        assert stream.end().error is None, stream.error
    check(show(cluster, "after load"))
