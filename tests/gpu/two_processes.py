"""Goal: a prompt machine and a token machine, two processes on one GPU, answer as one process does, and the KV is sent
from the prompt machine to the token machine layer by layer while the prompt is computed.

Method: a synthetic model's file is written (bench-gpu-model write); the same greedy requests go to a cluster of two
machines on the device and to one machine that does both; answers must be equal, every layer must have travelled, no
transfer may have failed. Then prompts run one at a time: measures the time of a prompt, and the part of the transfer
that computing did not hide.

    two_processes.py BENCH DEVICE[,DEVICE] SHAPE [PROMPT_TOKENS [ANSWER_TOKENS [RUNS]]]

(two devices: the prompt machine's and the token machine's, such as "cuda:0,cpu") prints lines of "name value".
CLEAVE_BINARY is the program, CLEAVE_CUDA_PLUGIN the plugin.
"""

import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cluster"))
from cluster import Cluster  # noqa: E402

SHAPES = {"tiny": (2, 512), "1b": (16, 128256), "8b": (32, 128256)}  # Layers and vocabulary.


def tokens(seed, count, vocabulary):
    return [(seed * 7919 + k * (31 + seed)) % (vocabulary - 300) + 257 for k in range(count)]


def ask(cluster, prompt, answer_tokens):
    reply = cluster.post("/v1/completions", {"prompt": prompt, "max_tokens": answer_tokens, "min_tokens": answer_tokens,
                                             "temperature": 0, "logprobs": 1})
    choice = reply["choices"][0]
    return choice["text"], choice["logprobs"]["tokens"], choice["logprobs"]["token_logprobs"]


def config(model, pools, devices):
    machines = {name: {"device": device, **({} if device == "cpu" else {"fallback": False})}
                for name, device in devices.items()}
    return {"model": model, "pools": pools, "machines": machines,
            "kv": {"dtype": "f16", "memory": os.environ.get("CLEAVE_GPU_KV", "2GiB"), "prefix_cache": False},
            "scheduler": {"prompt_batch_tokens": 2048, "adaptive_pools": False, "takeover_delay_ms": 120000}}


def measured(cluster, name):
    return cluster.metric(name + "_sum"), cluster.metric(name + "_count")


def wait_for(cluster, name, want):
    """Machines report their counters from time to time."""
    deadline = time.monotonic() + 300
    while cluster.metric(name) != want:
        assert time.monotonic() < deadline, (name, cluster.metric(name), want)
        time.sleep(0.05)


def run_requests(cluster, prompts, answer_tokens):
    return [ask(cluster, prompt, answer_tokens) for prompt in prompts]


def near(ours, theirs):
    """Counts equal tokens up to a position where two tokens were equally likely; after it, the answers cannot be
    compared."""
    for i, (mine, other) in enumerate(zip(ours[1], theirs[1])):
        assert abs(ours[2][i] - theirs[2][i]) < 0.05, (i, mine, other, ours[2][i], theirs[2][i])
        if mine != other:
            return i
    return len(ours[1])


def main():
    bench, devices, shape = sys.argv[1:4]
    prompt_device, token_device = (devices.split(",") * 2)[:2]
    prompt_tokens, answer_tokens, runs = [int(text) for text in sys.argv[4:] + ["300", "8", "3"][len(sys.argv) - 4:]]
    layers, vocabulary = SHAPES[shape]
    with tempfile.TemporaryDirectory(prefix="cleave-gpu-", dir=os.environ.get("CLEAVE_GPU_FOLDER")) as folder:
        model = os.path.join(folder, "model.gguf")
        subprocess.run([bench, "write", shape, "bf16", model], check=True)
        lengths = [5, 16, 33, prompt_tokens // 2 + 1, prompt_tokens]
        prompts = [tokens(seed, count, vocabulary) for seed, count in enumerate(lengths)]
        with Cluster(config(model, {"mixed": ["m0"]}, {"m0": prompt_device}), timeout=300) as one:
            alone = run_requests(one, prompts, answer_tokens)
        pools = {"prompt": ["p0"], "token": ["t0"]}
        with Cluster(config(model, pools, {"p0": prompt_device, "t0": token_device}), timeout=300) as two:
            answers = run_requests(two, prompts, answer_tokens)
            same = [near(mine, other) for mine, other in zip(answers, alone)]
            assert sum(same) >= len(same) * answer_tokens * 0.9, same
            wait_for(two, "cleave_transfer_layers_total", layers * len(prompts))
            names = ("cleave_request_prompt_seconds", "cleave_request_transfer_seconds",
                     "cleave_request_exposed_transfer_seconds")
            before = [measured(two, name) for name in names]
            bytes_before = two.metric("cleave_transfer_bytes_total")
            run_requests(two, [tokens(100 + i, prompt_tokens, vocabulary) for i in range(runs)], 2)
            mean = [(after[0] - first[0]) / (after[1] - first[1])
                    for after, first in zip([measured(two, name) for name in names], before)]
            wait_for(two, "cleave_transfer_layers_total", layers * (len(prompts) + runs))
            kv_bytes = (two.metric("cleave_transfer_bytes_total") - bytes_before) / runs
            assert two.metric("cleave_transfers_failed_total") == 0, two.logged()
            straight = 0 # Bytes that were copied between the two device memories directly.
            if "cpu" not in (prompt_device, token_device) and os.environ.get("CLEAVE_KV_WRITE") is None:
                straight = two.metric("cleave_transfer_bytes_total")
            wait_for(two, "cleave_kv_ipc_bytes_total", straight)
            paths = [line.split("link to t0 is up: ")[1].strip() for line in two.logged().splitlines()
                     if "p0: link to t0 is up: " in line]
            two.wait_all_free()
            print(f"answers equal {sum(same)} of {len(same) * answer_tokens} tokens\n"
                  f"transfer_prompt_tokens {prompt_tokens}\ntransfer_prompt_ms {mean[0] * 1e3:.3f}\n"
                  f"transfer_ms {mean[1] * 1e3:.3f}\ntransfer_exposed_ms {mean[2] * 1e3:.3f}\n"
                  f"transfer_bytes {kv_bytes:.0f}\ntransfer_path {paths[0]}\n"
                  f"transfer_copying_ms {two.metric('cleave_kv_ipc_seconds_total') * 1e3:.3f} "
                  f"of {straight:.0f} bytes, all requests")
            assert two.stop() == 0, two.logged()


main()
