"""Goal: a machine whose stage is a group of GPUs (tensor_parallel) answers as one GPU does, with any kind of machine
for the other phase. Ranks on devices of two kinds are refused in one line. A rank that dies ends its machine, whose
requests continue on other machines.

Method: a synthetic model's file is written (bench-gpu-model write); the same greedy requests go to one machine on one
device, and to prompt and token machines of one and two ranks, on GPUs and on CPUs. Tokens are equal up to ties.

    ranks.py BENCH [few]

few: only one pair of machines, drawn by CLEAVE_SEED, and no ranks on devices of two kinds.
CLEAVE_BINARY is the program; CLEAVE_CUDA_PLUGIN the plugin, CLEAVE_NCCL the library, CUDA_EMULATED_DEVICES 2 on an
emulator.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cluster"))
from cluster import Cluster  # noqa: E402

LAYERS, VOCABULARY, TOKENS = 2, 512, 8  # Of the shape "tiny".
GPUS = {"device": "cuda:0", "fallback": False, "tensor_parallel": 2}
GPU = {"device": "cuda:1", "fallback": False}
CPUS = {"device": "cpu", "tensor_parallel": 2, "threads": 2}
PAIRS = {"2 GPUs and 2 GPUs": (GPUS, GPUS), "2 GPUs and one": (GPUS, GPU), "one GPU and 2": (GPU, GPUS),
         "2 GPUs and 2 CPUs": (GPUS, CPUS)}


def config(model, **machines):
    return {"model": model, "pools": {"mixed": list(machines)} if len(machines) == 1 else {"prompt": ["p0"], "token": ["t0"]},
            "machines": machines, "kv": {"dtype": "f16", "memory": "64MiB", "prefix_cache": False},
            "scheduler": {"adaptive_pools": False}}


def prompts():
    return [[(seed * 7919 + k * (31 + seed)) % (VOCABULARY - 300) + 257 for k in range(count)]
            for seed, count in enumerate((5, 33, 150))]


def ask(cluster, prompt):
    reply = cluster.post("/v1/completions", {"prompt": prompt, "max_tokens": TOKENS, "min_tokens": TOKENS, "temperature": 0,
                                             "logprobs": 1})
    choice = reply["choices"][0]["logprobs"]
    return choice["tokens"], choice["token_logprobs"]


def near(ours, theirs):
    """Counts equal tokens up to a position where two tokens were equally likely."""
    for i, (mine, other) in enumerate(zip(ours[0], theirs[0])):
        assert abs(ours[1][i] - theirs[1][i]) < 0.05, (i, mine, other, ours[1][i], theirs[1][i])
        if mine != other:
            return i
    return len(ours[0])


def check_pair(what, model, pair, alone):
    with Cluster(config(model, p0=pair[0], t0=pair[1]), timeout=300) as cluster:
        same = sum(near(ask(cluster, prompt), other) for prompt, other in zip(prompts(), alone))
        assert same >= 0.9 * len(alone) * TOKENS, (what, same)
        assert cluster.metric("cleave_transfers_failed_total") == 0, cluster.logged()
        ranks = {dict(labels)["rank"] for (name, labels), _ in cluster.metrics().items() if name == "cleave_stage_rows_total"}
        assert ranks == {"0", "1"}, ranks
        cluster.wait_all_free()
        assert cluster.stop() == 0, cluster.logged()
    print(f"{what}: {same} of {len(alone) * TOKENS} tokens as on one GPU", flush=True)


def check_kinds(model):
    """The second device does not exist, so that rank falls back to the CPU. The first rank cannot connect to a CPU
    rank."""
    stage = {"tensor_parallel": 2, "devices": ["cuda:0", "cuda:7"]}
    try:
        with Cluster(config(model, m0={"stages": [stage]}), timeout=300) as cluster:
            raise AssertionError(cluster.logged())
    except RuntimeError as error:
        said = "stage m0/1: it computes on cpu, rank 0 on cuda: want devices of one kind for all ranks"
        assert said in str(error), error
    print("ranks of two kinds are refused", flush=True)


def check_death(model):
    """A rank is killed while a request runs. Its machine ends with the other rank, and restarts."""
    with Cluster(config(model, m0=GPUS), timeout=300) as cluster:
        want = ask(cluster, prompts()[1])
        before = {**cluster.children(), **cluster.stages()}
        got = []
        request = threading.Thread(target=lambda: got.append(ask(cluster, prompts()[1])))
        request.start()
        os.kill(before["m0/1"], signal.SIGKILL)
        request.join(300)
        assert got and near(got[0], want) == TOKENS, (got, want, cluster.logged())
        after = {**cluster.children(), **cluster.stages()}
        assert not set(before.values()) & set(after.values()) and len(after) == 3, (before, after)
        assert "stage m0/1 " in cluster.logged(), cluster.logged()
    print("a rank that is killed: its machine comes back with new ones, the request has the same tokens", flush=True)


def main():
    bench = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="cleave-gpu-") as folder:
        model = os.path.join(folder, "model.gguf")
        subprocess.run([bench, "write", "tiny", "bf16", model], check=True)
        with Cluster(config(model, m0={"device": "cuda:0", "fallback": False}), timeout=300) as one:
            alone = [ask(one, prompt) for prompt in prompts()]
        few = "few" in sys.argv[2:]
        seed = int(os.environ.get("CLEAVE_SEED") or time.time_ns() % (1 << 31))
        print(f"seed: CLEAVE_SEED={seed}", flush=True)
        for what, pair in [list(PAIRS.items())[seed % len(PAIRS)]] if few else PAIRS.items():
            check_pair(what, model, pair, alone)
        if not few:
            check_kinds(model)
        check_death(model)


main()
