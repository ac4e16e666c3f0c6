"""Goal: KV in a GPU's memory travels as KV in the host's does: on prompt machines, token machines or both, over shared
memory and TCP, through stages and hand-overs, with the same bytes; machines that are killed and devices that fail cost
time, not tokens, and nothing stays behind.
Method: clusters of real processes with the fake device of tests/device (argument: its library), whose memory nobody
can touch, in place of the library for CUDA; answers are compared with those of a cluster without devices."""

import json
import os
import signal
import sys
import threading
import time

from cluster import Cluster, need_model

PROMPTS = [f"Write {n} sentences about the sea. " * (3 * n) for n in range(1, 7)]
KV = {"memory": "128MiB", "dtype": "i16"}
PLUGIN = os.path.abspath(sys.argv[1])


def body(prompt, tokens=40):
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 0.7, "seed": 42, "ignore_eos": True}


def run(cluster, victim=None, tokens=40):
    texts = [[] for _ in PROMPTS]

    def read(index):
        for event in cluster.stream("/v1/completions", body(PROMPTS[index], tokens)):
            texts[index].append(event["choices"][0]["text"])

    threads = [threading.Thread(target=read, args=(i,)) for i in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    if victim is not None:
        time.sleep(0.4)
        os.kill(cluster.children()[victim], signal.SIGKILL)
    for thread in threads:
        thread.join(200)
        assert not thread.is_alive(), "a stream hangs\n" + cluster.logged()
    return ["".join(text) for text in texts]


def machines(prompts, tokens, transport=None, prompt_keys=None, token_keys=None, **more):
    names = {"prompt": [f"p{i}" for i in range(prompts)], "token": [f"t{i}" for i in range(tokens)]}
    keys = {name: prompt_keys or {} for name in names["prompt"]} | {name: token_keys or {} for name in names["token"]}
    return {"pools": names, "machines": keys, "kv": KV, "transport": transport or {}, **more}


def device(options, config, **more):
    os.environ["CLEAVE_FAKE_DEVICE"] = options
    return Cluster(config, **more)


GPU = {"device": "cuda:0"}
MIXES = {
    "GPU to CPU": machines(1, 1, prompt_keys=GPU),
    "CPU to GPU": machines(1, 1, token_keys=GPU),
    "GPU to GPU": machines(1, 1, prompt_keys=GPU, token_keys=GPU),
    "GPU to CPU over TCP": machines(1, 1, {"tls": "tcp"}, prompt_keys=GPU),
    "CPU to GPU over TCP": machines(1, 1, {"tls": "tcp"}, token_keys=GPU),
    "GPU to GPU over TCP": machines(1, 1, {"tls": "tcp"}, prompt_keys=GPU, token_keys=GPU),
    "GPU to GPU in one piece": machines(1, 1, prompt_keys=GPU, token_keys=GPU) | {"kv": {**KV, "transfer": "one-piece"}},
    "stages of GPU and CPU": machines(1, 1, prompt_keys={"stages": [GPU, {"device": "cpu"}]},
                                      token_keys={"stages": [{"device": "cpu"}, GPU]}),
}


def check_metrics(cluster, name, config):
    """Which way it went, and how much was copied."""
    staged = {}
    for (metric, labels), value in cluster.metrics().items():
        if metric.startswith("cleave_kv_staged_") or metric == "cleave_kv_way":
            staged[metric, dict(labels)["machine"]] = value
    written = cluster.metric("cleave_transfer_bytes_total")
    for machine, keys in config["machines"].items():
        gpu = "cuda" in json.dumps(keys)
        assert staged["cleave_kv_way", machine] == (2 if gpu else 0), (name, staged)
        stages = "stages" in keys
        sends = machine[0] == "p"
        out = staged["cleave_kv_staged_out_bytes_total", machine]
        came = staged["cleave_kv_staged_in_bytes_total", machine]
        if not gpu:
            assert out == came == 0, (name, staged)
        elif not stages:
            assert (out, came) == ((written, 0) if sends else (0, written)), (name, written, staged)
            assert staged[f"cleave_kv_staged_{'out' if sends else 'in'}_seconds_total", machine] > 0, staged
        else: # activations, too
            assert out + came > 0, (name, staged)


def mixes(want):
    for name, config in MIXES.items():
        with device("delay_us=300", config) as cluster:
            assert run(cluster) == want, (name, cluster.logged())
            again = run(cluster) # with what the prefix caches have
            assert again == want, (name, cluster.logged())
            cluster.wait_all_free()
            check_metrics(cluster, name, config)
            assert cluster.stop() == 0, cluster.logged()
            assert "check failed" not in cluster.logged(), cluster.logged() # all memory came back
        print(f"{name}: the same bytes")


def drained(want):
    """A token machine is drained: its answers go on at the other one, with their KV or without."""
    config = machines(1, 2, prompt_keys=GPU, token_keys=GPU, scheduler={"handover_tokens_min": 16})
    with device("delay_us=100", config) as cluster:
        result = []
        thread = threading.Thread(target=lambda: result.append(run(cluster, tokens=200)))
        thread.start()
        while cluster.metric("cleave_machine_generated_tokens_total", machine="t0") < 60:
            time.sleep(0.02)
        status, _, reply = cluster.request("POST", "/admin/drain/t0")
        assert status in (200, 202), (status, reply)
        thread.join(200)
        assert result and [text[:len(w)] for text, w in zip(result[0], want)] == want, cluster.logged()
        print(f"drained: {cluster.metric('cleave_transfer_bytes_total', machine='t0'):.0f} bytes handed over")
        cluster.wait_all_free()


def killed(want):
    config = machines(2, 2, {"tls": "tcp"}, prompt_keys=GPU, token_keys=GPU)
    with device("delay_us=2000", config) as cluster:
        for victim in ("t0", "p0"):
            assert run(cluster, victim) == want, (victim, cluster.logged())
            deadline = time.monotonic() + 60
            while cluster.metric("cleave_machine_up", machine=victim) != 1:
                assert time.monotonic() < deadline, cluster.logged()
                time.sleep(0.05)
            cluster.wait_all_free()
        print(f"killed: the same bytes, {cluster.metric('cleave_requests_resumed_total'):.0f} resumed")


def failing(want):
    """Each device fails after so many copies, and its machine is started again."""
    config = machines(2, 2, {"tls": "tcp"}, prompt_keys=GPU, token_keys=GPU)
    config["kv"] = {**KV, "prefix_cache": False}
    with device("delay_us=200,fail_after=250", config) as cluster:
        for _ in range(3):
            assert run(cluster) == want, cluster.logged()
        log = cluster.logged()
        failures = log.count("an illegal memory access")
        assert failures > 0, log
        print(f"devices that fail: the same bytes, {log.count('the device has failed')} machines ended, "
              f"{cluster.metric('cleave_requests_resumed_total'):.0f} requests resumed")
        cluster.wait_all_free()


def emulated():
    """The backend for CUDA itself, on an emulated GPU: its KV is read by the CPU, and the CPU's by it. Its numbers are
    its own; what is asked has one answer."""
    request = {"prompt": "The capital of France is the city of", "max_tokens": 2, "temperature": 0, "logprobs": 0}
    want = None
    for name, prompt_keys, token_keys in (("CPU to CPU", {}, {}), ("GPU to CPU", GPU, {}), ("CPU to GPU", {}, GPU)):
        config = machines(1, 1, prompt_keys=prompt_keys, token_keys=token_keys)
        config["kv"] = {**KV, "dtype": "f16"}
        with Cluster(config) as cluster:
            choice = cluster.post("/v1/completions", request)["choices"][0]
            got = choice["text"], choice["logprobs"]["token_logprobs"]
            want = want or got
            assert got[0] == want[0], (name, got, want)
            assert all(abs(a - b) < 0.3 for a, b in zip(got[1], want[1])), (name, got, want)
            if name != "CPU to CPU":
                assert "Emulated GPU" in cluster.logged(), cluster.logged()
                check_metrics(cluster, name, config)
            print(f"emulated, {name}: {got}")


def main():
    need_model()
    os.environ["CLEAVE_CUDA_PLUGIN"] = PLUGIN
    if "emulated" in sys.argv[2:]:
        emulated()
        return
    with Cluster(machines(1, 1)) as cluster:
        want = run(cluster)
    for test in (mixes, drained, killed, failing):
        if len(sys.argv) < 3 or test.__name__ in sys.argv[2:]:
            test(want)


main()
