"""Goal: /v1/embeddings gives each text one vector, the same on every placement, near that of another program.

Method: the same texts on machines of every kind, with small batches so that long texts are computed in chunks; all bits
must be equal, also when the machine is killed in between. tests/data/embeddings.json has llama.cpp's vectors for the
default model. Bodies that cannot be answered are refused by name.

usage: test_embeddings.py [few]
"""

import base64
import json
import math
import os
import signal
import struct
import sys
import threading

from cluster import DATA, DEFAULT_MODEL, Cluster, Failure, need_model, wait_until

FEW = "few" in sys.argv[1:]
TEXTS = ["The cat sat on the mat.", "A", "Many words. " * 90, "日本語 😀", ""]
CHUNKS = {"scheduler": {"prompt_batch_tokens": 32}}
PLACES = {
    "one machine": {"pools": {"mixed": 1}},
    "chunks of 32": {"pools": {"mixed": 1}, **CHUNKS},
    "prompt and token machine, no prefix cache": {"kv": {"prefix_cache": False, "memory": "64MiB"}, **CHUNKS},
    "stages": {"pools": {"mixed": ["m0"]}, "machines": {"m0": {"stages": 3}}, **CHUNKS},
    "ranks": {"pools": {"mixed": ["m0"]}, "machines": {"m0": {"tensor_parallel": 3}}},
}


def vectors(cluster, **body):
    return [entry["embedding"] for entry in cluster.post("/v1/embeddings", body)["data"]]


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def config(pooling, **more):
    return {"server": {"embeddings": pooling}, "kv": {"memory": "64MiB"}, **more}


def check_places():
    want = {}
    for name, place in list(PLACES.items())[:2 if FEW else None]:
        for pooling in ("last", "mean"):
            with Cluster(config(pooling, **place)) as cluster:
                have = vectors(cluster, input=TEXTS)
                assert vectors(cluster, input=TEXTS) == have, name
                cluster.wait_all_free()
            expected = want.setdefault(pooling, have)
            # Ranks add in another order.
            assert (min(map(cosine, expected, have)) > 0.999 if name == "ranks" else expected == have), (
                name, pooling, list(map(cosine, expected, have)))
            assert all(abs(math.sqrt(sum(x * x for x in vector)) - 1) < 1e-5 for vector in have), name
        print(f"{name}: {len(have)} vectors of {len(have[0])} elements", flush=True)
    assert want["last"] != want["mean"] and want["last"][1] == want["mean"][1]  # One token.
    return want


def check_bodies(want):
    with Cluster(config("mean")) as cluster:
        plain = vectors(cluster, input=TEXTS[0])
        assert plain == [want["mean"][0]]
        packed = vectors(cluster, input=TEXTS[0], encoding_format="base64")[0]
        floats = struct.unpack(f"<{len(plain[0])}f", base64.b64decode(packed))
        assert [float(f"{x:.9g}") for x in floats] == plain[0]
        short = vectors(cluster, input=TEXTS[0], dimensions=20)[0]
        assert len(short) == 20 and cosine(short, plain[0][:20]) > 0.999999
        ids = cluster.post("/tokenize", {"prompt": TEXTS[0]})["tokens"]
        reply = cluster.post("/v1/embeddings", {"input": [ids, TEXTS[0]], "user": "x"})
        assert [entry["embedding"] for entry in reply["data"]] == plain * 2
        assert [entry["index"] for entry in reply["data"]] == [0, 1] and reply["object"] == "list"
        assert reply["usage"] == {"prompt_tokens": 2 * len(ids), "total_tokens": 2 * len(ids)}, reply["usage"]
        check_refused(cluster, len(plain[0]))


def check_refused(cluster, length):
    for body, part in (({}, "input is missing"), ({"input": []}, "0 entries"), ({"input": ["a"] * 65}, "65 entries"),
                       ({"input": {}}, "input"), ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
                       ({"input": "a", "dimensions": 0}, "dimensions"), ({"input": "a", "dimensions": length + 1}, f"{length} elements"),
                       ({"input": "a", "model": "nope"}, "nope"), ({"input": "a b " * 9000}, "maximum context length"),
                       ({"input": "a", "stream": True}, "stream"), ({"input": [[49152]]}, "49152")):
        try:
            cluster.post("/v1/embeddings", body)
            raise AssertionError(body)
        except Failure as failure:
            assert failure.status in (400, 404) and part in str(failure), (body, str(failure))


def check_settings():
    """The default model's files name no pooling."""
    for setting, part in (("auto", "its files name no pooling"), ("off", "they are off")):
        with Cluster(config(setting, pools={"mixed": 1})) as cluster:
            try:
                vectors(cluster, input="a")
                raise AssertionError(setting)
            except Failure as failure:
                assert failure.status == 400 and part in str(failure), failure


def check_killed(want):
    """A machine dies while it computes: the vectors come from another one."""
    with Cluster(config("mean", pools={"prompt": 2, "token": 1}, **CHUNKS), gates=True) as cluster:
        for name in ("prompt-0", "prompt-1"):
            cluster.hold(name, layer=3)
        found = []
        asking = threading.Thread(target=lambda: found.extend(vectors(cluster, input=TEXTS)))
        asking.start()
        wait_until(lambda: cluster.held("prompt-0") or cluster.held("prompt-1"), "a machine computes", cluster=cluster)
        victim = "prompt-0" if cluster.held("prompt-0") else "prompt-1"
        os.kill(cluster.children()[victim], signal.SIGKILL)
        for name in ("prompt-0", "prompt-1"):
            cluster.release(name)
        asking.join()
        assert found == want["mean"], cluster.logged()
        cluster.wait_all_free()


def check_reference():
    with open(os.path.join(DATA, "embeddings.json")) as file:
        reference = json.load(file)
    for pooling in ("mean", "last"):
        with Cluster(config(pooling, model=DEFAULT_MODEL, pools={"mixed": 1})) as cluster:
            have = vectors(cluster, input=reference["texts"])
        near = [cosine(a, b) for a, b in zip(have, reference[pooling])]
        assert min(near) > 0.999, (pooling, near)
        print(f"{pooling}: cosine with llama.cpp at least {min(near):.5f}", flush=True)


def main():
    need_model()
    want = check_places()
    check_bodies(want)
    if FEW:
        return
    check_settings()
    check_killed(want)
    check_reference()


main()
