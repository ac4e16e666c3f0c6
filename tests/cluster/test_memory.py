"""Goal: a machine holds at most 30 MiB beyond its KV-cache and the size of the model's file, whatever it has served,
and the gateway at most 40 MiB in all. Method: one prompt, one token and one mixed machine of two threads each; the
resident memory of each process as the kernel counts it, idle and after prompts of 2048 tokens and 48 requests at a
time. What is counted are pages that were touched, so it hardly depends on time; KV is what lies in mappings of its
configured size, the writers' views of other machines' KV among them."""

import os
import re
import threading

from cluster import MODEL, Cluster, need_model

MIB = 1 << 20
KV_BYTES = 512 * MIB
BEYOND_MAX_MIB = 30
GATEWAY_MAX_MIB = 40


def kv_bytes(pid):
    found = size = 0
    with open(f"/proc/{pid}/smaps") as file:
        for line in file:
            match = re.match(r"(Size|Rss): +(\d+) kB", line)
            if match and match.group(1) == "Size":
                size = int(match.group(2)) * 1024
            elif match and abs(size - KV_BYTES) <= 4 * MIB:
                found += int(match.group(2)) * 1024
    return found


def resident(pid):
    """Page by page (smaps_rollup), and the kernel's running sums of its parts, which may be some pages off."""
    with open(f"/proc/{pid}/smaps_rollup") as rollup, open(f"/proc/{pid}/status") as status:
        text = rollup.read() + status.read()
    return {key: int(count) * 1024 for key, count in re.findall(r"^(Rss\w*):\s+(\d+) kB", text, re.MULTILINE)}


def show(cluster, when):
    """{process: MiB beyond KV and, of a machine, the file}, printed with what it is made of."""
    beyond = {}
    for name, pid in {"gateway": cluster.process.pid, **cluster.children()}.items():
        parts, kv = resident(pid), kv_bytes(pid)
        file_bytes = 0 if name == "gateway" else os.path.getsize(MODEL)
        beyond[name] = (parts["Rss"] - kv - file_bytes) / MIB
        text = " ".join(f"{key} {count / MIB:.1f}" for key, count in parts.items())
        print(f"{when} {name}: {text} KV {kv / MIB:.1f} MiB; beyond {beyond[name]:.1f}")
    return beyond


def check(beyond):
    for name, mib in beyond.items():
        assert mib <= (GATEWAY_MAX_MIB if name == "gateway" else BEYOND_MAX_MIB), f"{name}: {mib:.1f} MiB"


need_model()
os.environ.pop("MALLOC_PERTURB_", None)  # meson sets it; malloc would touch every page that it hands out
config = {"threads": 2, "kv": {"memory": KV_BYTES}, "pools": {"prompt": 1, "token": 1, "mixed": 1},
          "scheduler": {"prompt_batch_tokens": 2048}}  # four times the default
with Cluster(config) as cluster:
    cluster.post("/v1/completions", {"prompt": "Hello", "max_tokens": 3})
    check(show(cluster, "idle"))

    def request(index, prompt_tokens, tokens):
        prompt = [(index * 7 + k * 13) % 40000 + 100 for k in range(prompt_tokens)]
        cluster.post("/v1/completions", {"prompt": prompt, "max_tokens": tokens, "temperature": 1.0, "top_p": 0.9,
                                         "logprobs": 5, "ignore_eos": True})

    for index in range(4):
        request(index, 2048, 2)
    threads = [threading.Thread(target=request, args=(index, 64, 48)) for index in range(48)]
    threads += [threading.Thread(target=request, args=(index, 2048, 4)) for index in range(100, 104)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(show(cluster, "after load"))
