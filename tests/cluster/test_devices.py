"""Goal: KV in a GPU's memory is sent like KV in the host's memory, with the same bytes: from and to prompt machines and
token machines, over shared memory and TCP, through stages and hand-overs. Killed machines and failed devices cost time
but no tokens, and leave nothing behind.

Method: clusters of real processes. Their device library is the fake device of tests/device, whose memory no test and no
host can access; answers are compared with those of a cluster without devices.

usage: test_devices.py FAKE-DEVICE-LIBRARY few|all
       test_devices.py EMULATED-CUDA-LIBRARY emulated [all]
few: some of the paths, and one machine that is killed; emulated: the CUDA backend itself, on emulated GPUs.
"""

import json
import os
import signal
import sys
import tempfile
import threading

from cluster import DEFAULT_MODEL, Cluster, need_model, send_signal, wait_passes, wait_until
from test_stages import state, up
from tiny_model import write

PROMPTS = [f"Write {n} sentences about the sea. " * (3 * n) for n in range(1, 7)]
TOKENS = 24
KV = {"memory": "24MiB", "dtype": "i16"}
PLUGIN, WHAT = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "few"
ALL = "all" in sys.argv[2:]


def body(prompt, tokens):
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 0.7, "seed": 42, "ignore_eos": True}


def run(cluster, meanwhile=None, tokens=TOKENS):
    """Returns the answers to all prompts, which are streamed at once. meanwhile: is called while the streams run."""
    texts = [[] for _ in PROMPTS]

    def read(index):
        for event in cluster.stream("/v1/completions", body(PROMPTS[index], tokens)):
            texts[index].append(event["choices"][0]["text"])

    threads = [threading.Thread(target=read, args=(i,)) for i in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    if meanwhile is not None:
        meanwhile(lambda: any(thread.is_alive() for thread in threads))
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive(), "a stream hangs\n" + cluster.logged()
    return ["".join(text) for text in texts]


def while_it_works(cluster, name, act):
    """An action for run(): calls act(pid) while this machine has work. The machine is stopped first, so that it cannot
    finish its work before. If all streams end before, act is not called."""
    def meanwhile(running):
        pid = cluster.children()[name]
        while running():
            if not has_work(cluster, name):
                continue
            os.kill(pid, signal.SIGSTOP)
            try:
                if has_work(cluster, name):
                    act(pid)
                    return
            finally:
                send_signal(pid, signal.SIGCONT)
    return meanwhile


def has_work(cluster, name):
    machine = next(machine for machine in state(cluster)["machines"] if machine["name"] == name)
    return machine["routed_prompts"] + machine["routed_decodes"] > 0


def machines(prompts, tokens, transport=None, prompt_keys=None, token_keys=None, scheduler=None):
    names = {"prompt": [f"p{i}" for i in range(prompts)], "token": [f"t{i}" for i in range(tokens)]}
    keys = {name: prompt_keys or {} for name in names["prompt"]} | {name: token_keys or {} for name in names["token"]}
    # A machine that a slow computer rarely runs must not count as dead, and no machine may help the other pool.
    return {"pools": names, "machines": keys, "kv": KV, "threads": 1,
            "transport": {"silence_ms": 120000, **(transport or {})},
            "scheduler": {"adaptive_pools": False, **(scheduler or {})}}


def start(config):
    """Starts a cluster and waits until all its machines are up. (A gateway is ready earlier: as soon as some machines
    can serve.)"""
    cluster = Cluster(config)
    try:
        wait_until(lambda: up(cluster), "all machines are up", cluster=cluster)
    except BaseException:
        cluster.stop()
        raise
    return cluster


def device(options, config, ucx=None):
    """ucx: how KV is sent where the devices could copy it directly; None = by the devices."""
    os.environ["CLEAVE_FAKE_DEVICE"] = options
    os.environ.pop("CLEAVE_KV_WRITE", None)
    if ucx:
        os.environ["CLEAVE_KV_WRITE"] = ucx
    return start(config)


GPU = {"device": "cuda:0"}
MIXES = {
    "GPU to CPU": machines(1, 1, prompt_keys=GPU),
    "CPU to GPU": machines(1, 1, token_keys=GPU),
    "GPU to GPU": machines(1, 1, prompt_keys=GPU, token_keys=GPU),
    "GPU to CPU over TCP": machines(1, 1, {"ucx_transports": "none"}, prompt_keys=GPU),
    "CPU to GPU over TCP": machines(1, 1, {"ucx_transports": "none"}, token_keys=GPU),
    "GPU to GPU over TCP": machines(1, 1, {"ucx_transports": "none"}, prompt_keys=GPU, token_keys=GPU),
    "GPU to GPU in one piece": machines(1, 1, prompt_keys=GPU, token_keys=GPU) | {"kv": {**KV, "transfer": "one-piece"}},
    "stages of GPUs": machines(1, 1, prompt_keys={"stages": [GPU, GPU]}, token_keys={"stages": [GPU, GPU, GPU]}),
    "stages of GPU and CPU": machines(1, 1, prompt_keys={"stages": [GPU, {"device": "cpu"}]},
                                      token_keys={"stages": [{"device": "cpu"}, GPU]}),
}
FEW = ("GPU to CPU", "CPU to GPU over TCP", "GPU to GPU", "stages of GPUs", "stages of GPU and CPU")


def check_metrics(cluster, name, config, way=3):
    """Checks over which path KV was sent, and how much was copied. way: the path between machines with a GPU."""
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
        elif name != "stages of GPUs": # Activations are copied too.
            assert out + came > 0, (name, staged)


def mixes(want):
    for name in MIXES if ALL else FEW:
        config = MIXES[name]
        with device("delay_us=300", config) as cluster:
            assert run(cluster) == want, (name, cluster.logged())
            again = run(cluster)  # This time with the KV of the prefix caches.
            assert again == want, (name, cluster.logged())
            cluster.wait_all_free()
            wait_passes(lambda: check_metrics(cluster, name, config))
            if name == "stages of GPUs":  # Neither KV nor activations pass through the host.
                assert cluster.metric("cleave_kv_staged_out_bytes_total") == 0, cluster.logged()
                wait_until(lambda: cluster.metric("cleave_kv_ipc_bytes_total") > cluster.metric("cleave_transfer_bytes_total"),
                           "activations are counted with the KV", cluster=cluster)
                wait_until(lambda: "activations travel by fake ipc" in cluster.logged(), "the way of activations")
            assert cluster.stop() == 0, cluster.logged()
            assert "check failed" not in cluster.logged(), cluster.logged()  # All device memory has been freed.
        print(f"{name}: the same bytes", flush=True)


def refused(want):
    """The devices cannot or must not open each other's memory: KV is staged, and a log line for each direction gives
    the reason."""
    # Only machines that may change pools have links in both directions.
    config = machines(1, 1, prompt_keys=GPU, token_keys=GPU, scheduler={"adaptive_pools": True})
    reason = "fake cannot open its memory: peer access is not supported"
    ways = (("refuse=1", None, 3, 2), ("", "am", 2, 0), ("alone=1", None, 2, 0), ("", "put", 2, 0))
    for options, ucx, way, lines in ways if ALL else ways[:2]:
        with device("delay_us=100," + options, config, ucx) as cluster:
            assert run(cluster) == want, (options, cluster.logged())
            cluster.wait_all_free()  # The machines have reported all their work.
            written = cluster.metric("cleave_transfer_bytes_total")
            assert cluster.metric("cleave_kv_way", machine="p0") == way, (options, ucx)
            assert cluster.metric("cleave_kv_ipc_bytes_total") == 0
            assert cluster.metric("cleave_kv_staged_out_bytes_total", machine="p0") == written
            assert cluster.metric("cleave_kv_staged_in_bytes_total", machine="t0") == written
            wait_until(lambda: cluster.logged().count(reason) >= lines, "a log line for each direction", cluster=cluster)
            assert cluster.stop() == 0, cluster.logged()
            assert cluster.logged().count(reason) == lines, cluster.logged()
        print(f"refused ({options or ucx}): the same bytes", flush=True)
    os.environ.pop("CLEAVE_KV_WRITE", None)


def admin(cluster, path):
    status, _, reply = cluster.request("POST", path)
    assert status in (200, 202), (status, reply)


def drained(want):
    """A token machine is drained: its answers continue on the other machine, with their KV."""
    config = machines(1, 2, prompt_keys=GPU, token_keys=GPU, scheduler={"handover_tokens_min": 8})
    with device("delay_us=100", config) as cluster:
        for attempt in range(20):
            drain = while_it_works(cluster, "t0", lambda pid: admin(cluster, "/admin/drain/t0"))
            texts = run(cluster, drain, 4 * TOKENS)
            assert [text[:len(w)] for text, w in zip(texts, want)] == want, cluster.logged()
            handed_over = cluster.metric("cleave_transfer_bytes_total", machine="t0")
            if handed_over > 0:
                break
            admin(cluster, "/admin/undrain/t0")
        assert handed_over > 0, cluster.logged()
        print(f"drained: {handed_over:.0f} bytes handed over in attempt {attempt + 1}", flush=True)
        cluster.wait_all_free()


def killed(want):
    config = machines(2, 2, {"ucx_transports": "none"}, prompt_keys=GPU, token_keys=GPU)
    for ucx in (None, "am") if ALL else (None,):  # From device to device, and staged.
        killed_by(want, config, ucx)


def killed_by(want, config, ucx):
    with device("delay_us=2000", config, ucx) as cluster:
        for victim in ("t0", "p0"):
            before = cluster.metric("cleave_requests_resumed_total")
            for _ in range(20):
                kill = while_it_works(cluster, victim, lambda pid: os.kill(pid, signal.SIGKILL))
                pid = cluster.children()[victim]
                assert run(cluster, kill) == want, (victim, cluster.logged())
                wait_until(lambda: up(cluster) and len(cluster.children()) == 4, f"{victim} is back", cluster=cluster)
                cluster.wait_all_free()
                if cluster.metric("cleave_requests_resumed_total") > before:
                    break
            assert cluster.children()[victim] != pid
            assert cluster.metric("cleave_requests_resumed_total") > before, cluster.logged()
        assert (cluster.metric("cleave_kv_ipc_bytes_total") > 0) == (ucx is None)
        print(f"killed ({ucx or 'ipc'}): the same bytes, {cluster.metric('cleave_requests_resumed_total'):.0f} resumed",
              flush=True)


def failing(want):
    """Each device fails after a number of copies, and its machine restarts."""
    config = machines(2, 2, {"ucx_transports": "none"}, prompt_keys=GPU, token_keys=GPU)
    config["kv"] = {**KV, "prefix_cache": False}
    # From device to device, KV is sent in few copies.
    for ucx, copies in ((None, 40), ("am", 250)) if ALL else ((None, 40),):
        failing_by(want, config, ucx, copies)


def failing_by(want, config, ucx, copies):
    with device(f"delay_us=200,fail_after={copies}", config, ucx) as cluster:
        for _ in range(3 if ALL else 2):
            assert run(cluster) == want, cluster.logged()
        log = cluster.logged()
        failures = log.count("an illegal memory access")
        assert failures > 0, log
        print(f"devices that fail ({ucx or 'ipc'}): the same bytes, {log.count('the device has failed')} machines ended, "
              f"{cluster.metric('cleave_requests_resumed_total'):.0f} requests resumed", flush=True)
        cluster.wait_all_free()


def emulated(model):
    """The CUDA backend itself, on emulated GPUs: the CPU reads KV that the backend wrote, and the reverse; KV is sent
    from the device memory of one process to that of another, on one device and between two. The backend's numbers
    differ slightly from the CPU's, in embeddings too; between GPUs the path makes no difference."""
    # The one of 300 prompts whose answer is clear: both tokens are exp(3.3) times as likely as the second most likely
    # token.
    prompt = [(7 * 997 + k * 389) % 40000 + 100 for k in range(9)]
    request = {"prompt": prompt, "max_tokens": 2, "temperature": 0, "logprobs": 0}
    want = straight = vector = None
    other = {"device": "cuda:1"}
    ways = (("CPU to CPU", {}, {}, {}, 0), ("GPU to CPU", GPU, {}, {}, 3), ("CPU to GPU", {}, GPU, {}, 3),
            ("GPU to GPU", GPU, GPU, {}, 3), ("GPU to GPU, staged", GPU, GPU, {"CLEAVE_KV_WRITE": "am"}, 2),
            ("two GPUs", GPU, other, {"CUDA_EMULATED_DEVICES": "2", "CUDA_EMULATED_BATCHES": "none"}, 3),
            ("GPUs without access", GPU, GPU, {"CUDA_EMULATED_IPC": "none"}, None))
    for name, prompt_keys, token_keys, environment, way in ways if ALL else ways[:4]:
        # Small batches and little KV: on CPUs without protection keys the emulator changes the protection of all device
        # memory around each kernel.
        scheduler = {"adaptive_pools": way is None,  # Adaptive pools give both directions a link.
                     "prompt_batch_tokens": 16, "prompt_fill_tokens": 16, "batch_sequences_max": 4}
        config = machines(1, 1, prompt_keys=prompt_keys, token_keys=token_keys, scheduler=scheduler)
        config["model"] = model
        config["kv"] = {"memory": "4MiB", "dtype": "f16"}
        config["server"] = {"embeddings": "mean"}
        os.environ.update(environment)
        with start(config) as cluster:
            choice = cluster.post("/v1/completions", request)["choices"][0]
            got = choice["text"], choice["logprobs"]["token_logprobs"]
            want = want or got
            assert got[0] == want[0], (name, got, want)
            assert all(abs(a - b) < 0.3 for a, b in zip(got[1], want[1])), (name, got, want)
            [entry] = cluster.post("/v1/embeddings", {"input": prompt})["data"]  # Of length 1.
            vector = vector or entry["embedding"]
            near = sum(a * b for a, b in zip(vector, entry["embedding"]))
            assert near > 0.99, (name, near)
            wait_until(lambda: cluster.logged().count("Emulated GPU") >= len([1 for keys in (prompt_keys, token_keys) if keys]),
                       "the machines say on which device they compute", cluster=cluster)
            if way is None:
                assert cluster.metric("cleave_kv_ipc_bytes_total") == 0
                wait_until(lambda: cluster.logged().count("cannot open its memory: cudaIpcOpenMemHandle: ") == 2,
                           "a log line for each direction", cluster=cluster)
            elif way > 0:
                wait_passes(lambda: check_metrics(cluster, name, config, way))
            if prompt_keys and token_keys:
                straight = straight or got
                assert got == straight, (name, got, straight)
                if way == 3:
                    wait_until(lambda: "link to t0 is up: cuda ipc" in cluster.logged(), "the link's path", cluster=cluster)
        for variable in environment:
            del os.environ[variable]
        print(f"emulated, {name}: {got}", flush=True)


def main():
    need_model()
    os.environ["CLEAVE_CUDA_PLUGIN"] = PLUGIN
    if WHAT == "emulated":
        with tempfile.TemporaryDirectory(prefix="cleave-models-") as folder:
            path = os.path.join(folder, "four-layers.gguf")
            write(DEFAULT_MODEL, path, 4)
            emulated(path)
        return
    with start(machines(1, 1)) as cluster:
        want = run(cluster)
    for test in (mixes, refused, drained, killed, failing):
        if WHAT in ("few", "all", test.__name__):
            test(want)


if __name__ == "__main__":
    main()
