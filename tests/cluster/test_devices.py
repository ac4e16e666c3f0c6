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


def device(options, config, ucx=None, **more):
    """ucx: what KV goes by where it could go from device to device."""
    os.environ["CLEAVE_FAKE_DEVICE"] = options
    os.environ.pop("CLEAVE_KV_WRITE", None)
    if ucx:
        os.environ["CLEAVE_KV_WRITE"] = ucx
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
    "stages of GPUs": machines(1, 1, prompt_keys={"stages": [GPU, GPU]}, token_keys={"stages": [GPU, GPU, GPU]}),
    "stages of GPU and CPU": machines(1, 1, prompt_keys={"stages": [GPU, {"device": "cpu"}]},
                                      token_keys={"stages": [{"device": "cpu"}, GPU]}),
}


def check_metrics(cluster, name, config, way=3):
    """Which way it went, and how much was copied. way: of machines with a GPU."""
    staged = {}
    for (metric, labels), value in cluster.metrics().items():
        if metric.startswith(("cleave_kv_staged_", "cleave_kv_ipc_")) or metric == "cleave_kv_way":
            staged[metric, dict(labels)["machine"]] = value
    written = cluster.metric("cleave_transfer_bytes_total")
    straight = way == 3 and all("cuda" in keys.get("device", "") for keys in config["machines"].values())
    for machine, keys in config["machines"].items():
        gpu = "cuda" in json.dumps(keys)
        stages = "stages" in keys
        assert staged["cleave_kv_way", machine] == (way if gpu else 0), (name, staged)
        if not stages:
            copied = staged["cleave_kv_ipc_bytes_total", machine]
            assert copied == (written if straight and machine[0] == "p" else 0), (name, written, staged)
        if straight:
            assert staged["cleave_kv_staged_out_bytes_total", machine] == 0, (name, staged)
            assert staged["cleave_kv_staged_in_bytes_total", machine] == 0, (name, staged)
            assert machine[0] == "t" or staged["cleave_kv_ipc_seconds_total", machine] > 0, (name, staged)
            continue
        sends = machine[0] == "p"
        out = staged["cleave_kv_staged_out_bytes_total", machine]
        came = staged["cleave_kv_staged_in_bytes_total", machine]
        if not gpu:
            assert out == came == 0, (name, staged)
        elif not stages:
            assert (out, came) == ((written, 0) if sends else (0, written)), (name, written, staged)
            assert staged[f"cleave_kv_staged_{'out' if sends else 'in'}_seconds_total", machine] > 0, staged
        elif name != "stages of GPUs": # activations, too
            assert out + came > 0, (name, staged)


def mixes(want):
    for name, config in MIXES.items():
        with device("delay_us=300", config) as cluster:
            assert run(cluster) == want, (name, cluster.logged())
            again = run(cluster) # with what the prefix caches have
            assert again == want, (name, cluster.logged())
            cluster.wait_all_free()
            check_metrics(cluster, name, config)
            if name == "stages of GPUs": # KV and activations: nothing through the host
                assert cluster.metric("cleave_kv_staged_out_bytes_total") == 0, cluster.logged()
                assert cluster.metric("cleave_kv_ipc_bytes_total") > cluster.metric("cleave_transfer_bytes_total")
                assert "activations travel by fake ipc" in cluster.logged(), cluster.logged()
            assert cluster.stop() == 0, cluster.logged()
            assert "check failed" not in cluster.logged(), cluster.logged() # all memory came back
        print(f"{name}: the same bytes")


def refused(want):
    """The devices cannot open each other's memory, or are not to: staged, with a line for each direction that says why."""
    config = machines(1, 1, prompt_keys=GPU, token_keys=GPU)
    reason = "fake cannot open its memory: peer access is not supported"
    for options, ucx, way, lines in (("refuse=1", None, 3, 2), ("alone=1", None, 2, 0), ("", "put", 2, 0),
                                     ("", "am", 2, 0)):
        with device("delay_us=100," + options, config, ucx) as cluster:
            assert run(cluster) == want, (options, cluster.logged())
            written = cluster.metric("cleave_transfer_bytes_total")
            assert cluster.metric("cleave_kv_way", machine="p0") == way, (options, ucx)
            assert cluster.metric("cleave_kv_ipc_bytes_total") == 0
            assert cluster.metric("cleave_kv_staged_out_bytes_total", machine="p0") == written
            assert cluster.metric("cleave_kv_staged_in_bytes_total", machine="t0") == written
            assert cluster.logged().count(reason) == lines, cluster.logged()
        print(f"refused ({options or ucx}): the same bytes")
    os.environ.pop("CLEAVE_KV_WRITE", None)


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
    for ucx in (None, "am"): # device to device, and staged
        killed_by(want, config, ucx)


def killed_by(want, config, ucx):
    with device("delay_us=2000", config, ucx) as cluster:
        for victim in ("t0", "p0"):
            assert run(cluster, victim) == want, (victim, cluster.logged())
            deadline = time.monotonic() + 60
            while cluster.metric("cleave_machine_up", machine=victim) != 1:
                assert time.monotonic() < deadline, cluster.logged()
                time.sleep(0.05)
            cluster.wait_all_free()
        assert (cluster.metric("cleave_kv_ipc_bytes_total") > 0) == (ucx is None)
        print(f"killed ({ucx or 'ipc'}): the same bytes, {cluster.metric('cleave_requests_resumed_total'):.0f} resumed")


def failing(want):
    """Each device fails after so many copies, and its machine is started again."""
    config = machines(2, 2, {"tls": "tcp"}, prompt_keys=GPU, token_keys=GPU)
    config["kv"] = {**KV, "prefix_cache": False}
    for ucx, copies in ((None, 40), ("am", 250)): # what is copied from device to device is few copies
        failing_by(want, config, ucx, copies)


def failing_by(want, config, ucx, copies):
    with device(f"delay_us=200,fail_after={copies}", config, ucx) as cluster:
        for _ in range(3):
            assert run(cluster) == want, cluster.logged()
        log = cluster.logged()
        failures = log.count("an illegal memory access")
        assert failures > 0, log
        print(f"devices that fail ({ucx or 'ipc'}): the same bytes, {log.count('the device has failed')} machines ended, "
              f"{cluster.metric('cleave_requests_resumed_total'):.0f} requests resumed")
        cluster.wait_all_free()


def emulated():
    """The backend for CUDA itself, on emulated GPUs: its KV is read by the CPU, and the CPU's by it, and travels from one
    process's device memory to another's, on one device and on two. Its numbers are its own; what is asked has one answer,
    and between GPUs the way makes no difference."""
    request = {"prompt": "The capital of France is the city of", "max_tokens": 2, "temperature": 0, "logprobs": 0}
    want = straight = None
    other = {"device": "cuda:1"}
    for name, prompt_keys, token_keys, environment, way in (
            ("CPU to CPU", {}, {}, {}, 0), ("GPU to CPU", GPU, {}, {}, 3), ("CPU to GPU", {}, GPU, {}, 3),
            ("GPU to GPU", GPU, GPU, {}, 3), ("GPU to GPU, staged", GPU, GPU, {"CLEAVE_KV_WRITE": "am"}, 2),
            ("two GPUs", GPU, other, {"CUDA_EMULATED_DEVICES": "2", "CUDA_EMULATED_BATCHES": "none"}, 3),
            ("GPUs without access", GPU, GPU, {"CUDA_EMULATED_IPC": "none"}, None)):
        config = machines(1, 1, prompt_keys=prompt_keys, token_keys=token_keys)
        config["kv"] = {**KV, "dtype": "f16"}
        os.environ.update(environment)
        with Cluster(config) as cluster:
            choice = cluster.post("/v1/completions", request)["choices"][0]
            got = choice["text"], choice["logprobs"]["token_logprobs"]
            want = want or got
            assert got[0] == want[0], (name, got, want)
            assert all(abs(a - b) < 0.3 for a, b in zip(got[1], want[1])), (name, got, want)
            if name != "CPU to CPU":
                assert "Emulated GPU" in cluster.logged(), cluster.logged()
            if way is None:
                assert cluster.metric("cleave_kv_ipc_bytes_total") == 0
                assert cluster.logged().count("cannot open its memory: cudaIpcOpenMemHandle: ") == 2, cluster.logged()
            elif way > 0:
                check_metrics(cluster, name, config, way)
            if prompt_keys and token_keys:
                straight = straight or got
                assert got == straight, (name, got, straight)
                assert way != 3 or "link to t0 is up: cuda ipc" in cluster.logged(), cluster.logged()
            print(f"emulated, {name}: {got}")
        for variable in environment:
            del os.environ[variable]


def main():
    need_model()
    os.environ["CLEAVE_CUDA_PLUGIN"] = PLUGIN
    if "emulated" in sys.argv[2:]:
        emulated()
        return
    with Cluster(machines(1, 1)) as cluster:
        want = run(cluster)
    for test in (mixes, refused, drained, killed, failing):
        if len(sys.argv) < 3 or test.__name__ in sys.argv[2:]:
            test(want)


main()
