"""Goal: an answer keeps its bytes when it moves: its token machine drains and hands it over, or is killed, also for a
request with an adapter, and for a model with attention windows on machines of two ranks.

Method: a cluster with two token machines. Streams are held on one of them, which then drains, or dies. Texts must be those
of an undisturbed run of an equal cluster. A hand-over must find the answer's KV in the draining machine's prefix cache: all
full blocks of the prompt, because answers move in their first decode step."""

import json
import os
import signal
import tempfile

from cluster import DEFAULT_MODEL, Cluster, Stream, need_model, wait_until
from test_adapters import write_models
from tiny_model import write

ANSWER = 60
LAYERS, WINDOW, BLOCK = 14, 40, 16


def admin(cluster, path):
    status, _, data = cluster.request("POST", path)
    assert status in (200, 202), (path, status, data)
    return json.loads(data)


def streams_on_first(cluster, bodies, gate):
    """Returns streams whose answers token-0 generates. Its process `gate` is held in their first decode step."""
    wanted = {("prompt-0", "token-0"), ("prompt-0", "token-1"), ("token-0", "token-1")}

    def state():
        return json.loads(cluster.request("GET", "/admin/state")[2])

    wait_until(lambda: wanted <= {(each["from"], each["to"]) for each in state()["links"] if each["up"]}, "links",
               cluster=cluster)
    admin(cluster, "/admin/drain/token-1")
    cluster.hold(gate)
    streams = [Stream(cluster, body).wait_events(1) for body in bodies]
    wait_until(lambda: state()["requests"]["decoding"] == len(bodies), "all answers have begun", cluster=cluster)
    cluster.wait_held(gate)
    admin(cluster, "/admin/undrain/token-1")
    return streams


def check(what, config, bodies, found=1, gate="token-0"):
    """found: tokens that the hand-overs must find at least."""
    config = {"threads": 1, "transport": {"silence_ms": 60000}, "pools": {"prompt": 1, "token": 2},
              "scheduler": {"placement": "split"}, **config}
    with Cluster(config, gates=True) as cluster:
        want = [cluster.post("/v1/completions", body)["choices"][0]["text"] for body in bodies]
    with Cluster(config, gates=True) as cluster:
        streams = streams_on_first(cluster, bodies, gate)
        admin(cluster, "/admin/drain/token-0")
        wait_until(lambda: cluster.metric("cleave_requests_handed_over_total") == len(bodies), "all answers have left",
                   cluster=cluster)
        cluster.release()
        for stream, text in zip(streams, want):
            stream.expect(text, what + ", handed over")
        wait_until(lambda: cluster.metric("cleave_prefix_cache_hits_tokens_total", machine="token-0") >= found,
                   f"{found} tokens are found", cluster=cluster)
        assert cluster.metric("cleave_requests_resumed_total") == 0
        cluster.wait_all_free()
    with Cluster(config, gates=True) as cluster:
        streams = streams_on_first(cluster, bodies, gate)
        os.kill(cluster.children()["token-0"], signal.SIGKILL)
        cluster.release()
        for stream, text in zip(streams, want):
            stream.expect(text, what + ", killed")
        assert cluster.metric("cleave_requests_resumed_total") == len(bodies)
        cluster.wait_all_free()
    print(f"{what}: {len(bodies)} answers handed over, and resumed after a kill", flush=True)


def body_of(index, prompt, **more):
    return {"prompt": prompt, "max_tokens": ANSWER, "ignore_eos": True, "temperature": 0.8, "seed": index, **more}


with tempfile.TemporaryDirectory(prefix="cleave-moves-") as place:
    folder = write_models(place)
    check("adapters", {"model": folder, "adapters": f"all={place}/all, some={place}/some",
                       "kv": {"memory": "16MiB", "block_tokens": 8}},
          [body_of(index, "abcdefghijklmnopqrstuvwxyz" * 2, model=name) for index, name in enumerate(("all", "some"))])
    need_model()
    model = os.path.join(place, "windows.gguf")
    write(DEFAULT_MODEL, model, LAYERS, window=WINDOW, context=4096)
    # Prompts of 330 and 327 tokens: the answers begin in the middle of a block, far behind the first window.
    prompts = [[(index * 7919 + k * 31) % 40000 + 100 for k in range(330 - 3 * index)] for index in range(2)]
    check("windows on two ranks", {"model": model, "kv": {"memory": "32MiB", "block_tokens": BLOCK},
                                   "machines": {name: {"tensor_parallel": 2} for name in ("prompt-0", "token-0", "token-1")}},
          [body_of(index, prompt) for index, prompt in enumerate(prompts)],
          found=sum(len(prompt) // BLOCK * BLOCK for prompt in prompts), gate="token-0/0")
