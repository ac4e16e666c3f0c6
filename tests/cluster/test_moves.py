"""Goal: an answer keeps its bytes when it moves: its token machine drains and hands it over, or is killed, also for a
request with an adapter.

Method: a cluster with two token machines. Streams are held on one of them, which then drains, or dies. Texts must be those
of an undisturbed run of an equal cluster. A hand-over must find the answer's KV in the draining machine's prefix cache."""

import json
import os
import signal
import tempfile

from cluster import Cluster, Stream, wait_until
from test_adapters import write_models

ANSWER = 60


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


def check(what, config, bodies, gate="token-0"):
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
        wait_until(lambda: cluster.metric("cleave_prefix_cache_hits_tokens_total", machine="token-0") > 0, "KV was found",
                   cluster=cluster)
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
