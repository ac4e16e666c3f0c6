"""Goal: a prompt that begins like an earlier one is computed from there on only, `cached_tokens` says so, and its
answer is the one that a cluster without a prefix cache gives. Method: the same requests to a cluster with the cache and
to one without: a prompt twice, prompts with a shared beginning, prompts of whole blocks, several choices, prompts with
scores, streams, both ways of pushing KV; conversations, whose prompts begin with an answer; then more prompts than memory holds, and clients that leave. Afterwards every
block is free or cached."""

import json
import os
import threading
import time

from cluster import Cluster, need_model

BLOCK = 16


def tokens(start, count):
    return [(start * 31 + k * 13) % 40000 + 100 for k in range(count)]


def cached(usage):
    return usage["prompt_tokens_details"]["cached_tokens"]


def answer(cluster, prompt, **more):
    body = {"prompt": prompt, "max_tokens": 6, "temperature": 0.8, "seed": 7, "logprobs": 2, **more}
    reply = cluster.post("/v1/completions", body)
    return [choice["text"] for choice in reply["choices"]], [c["logprobs"] for c in reply["choices"]], reply["usage"]


def cases():
    """(prompt, cached tokens of it when the ones before it have been served, more of the request)."""
    shared = tokens(1, 200)
    yield shared, 0, {}
    yield shared, 192, {}
    yield shared[:150] + tokens(2, 90), 144, {}
    yield shared[:150] + tokens(3, 700), 144, {}  # the rest is more than a batch holds
    yield shared[:150] + tokens(3, 700), 848 - 848 % BLOCK, {}
    yield shared[:192], 176, {}  # whole blocks: the last token is computed all the same
    yield shared[:16], 0, {}
    yield shared[:17], 16, {}
    yield shared[:15], 0, {}
    yield [shared, tokens(4, 100)], 192, {}  # two prompts: one is new
    yield shared, 192, {"n": 2}
    yield shared[:40], 0, {"echo": True}  # scores are computed
    yield shared[:40], 32, {}
    yield tokens(5, 40), 0, {"max_tokens": 1}  # nothing is decoded elsewhere
    yield tokens(5, 60), 32, {"max_tokens": 1}


def check_answers(with_cache, without):
    hits = 0
    for prompt, want, more in cases():
        got, plain = answer(with_cache, prompt, **more), answer(without, prompt, **more)
        assert got[:2] == plain[:2], (len(prompt), more, got, plain)
        assert cached(got[2]) == want, (len(prompt), more, got[2], want)
        assert cached(plain[2]) == 0
        hits += want
    return hits


def check_stream(cluster):
    body = {"prompt": tokens(1, 200), "max_tokens": 3, "stream_options": {"include_usage": True}}
    usage = [event["usage"] for event in cluster.stream("/v1/completions", body)][-1]
    assert cached(usage) == 192 and usage["prompt_tokens"] == 200, usage


def wait_hits(cluster, least):
    """Machines say their figures ten times a second at most."""
    deadline = time.monotonic() + 10
    while True:
        told = cluster.metric("cleave_prefix_cache_hits_tokens_total")
        if told >= least or time.monotonic() > deadline:
            return told
        time.sleep(0.05)


def talk(cluster, turns=3):
    """A conversation: each prompt is all that was said, and something new. What each turn answered and had cached."""
    said, answers, found = tokens(40, 100), [], []
    for turn in range(turns):
        body = {"prompt": said, "max_tokens": 50, "ignore_eos": True, "temperature": 0.8, "seed": 3,
                "return_token_ids": True}
        reply = cluster.post("/v1/completions", body)
        answer_ids = reply["choices"][0]["token_ids"]
        answers.append(answer_ids)
        found.append((cached(reply["usage"]), len(said)))
        said = said + answer_ids + tokens(41 + turn, 30)
    return answers, found


def wait_held(cluster, ratio):
    """So many times the bytes that were pushed were not, for the token machine had them."""
    deadline = time.monotonic() + 10
    while True:
        held, pushed = (cluster.metric(f"cleave_transfer_{name}bytes_total") for name in ("held_", ""))
        if held > 0 and abs(held / pushed - ratio) < 1e-9:
            return
        assert time.monotonic() < deadline, (held, pushed, ratio)
        time.sleep(0.05)


def check_conversations(plain):
    """One machine finds its own answers; of two, the one that generates them is not sent them again."""
    answers = talk(plain)[0]
    with Cluster({"pools": {"prompt": 0, "token": 0, "mixed": 1}}) as one:
        got, found = talk(one)
        assert got == answers
        # Of the last answer, all but its last token has K and V: 100 + 49, then 180 + 49.
        assert [hit for hit, _ in found] == [0, 144, 224], found
        one.wait_all_free()
    with Cluster() as two:
        got, found = talk(two)
        assert got == answers
        assert [hit for hit, _ in found] == [0, 96, 176], found  # the prompt machine has what it computed
        # The token machine has the first 149 // 16 and 229 // 16 blocks of the prompts.
        blocks = sum((count + BLOCK - 1) // BLOCK for _, count in found)
        wait_held(two, (9 + 14) / (blocks - 9 - 14))
        two.wait_all_free()


def check_cheapest(plain):
    """With `policy` prefix the next turn goes to the machine that decoded the last one: it computes what is new."""
    said, config = tokens(50, 200), {"scheduler": {"policy": "prefix"}, "log": {"events_file": "events.jsonl"}}
    with Cluster(config) as cluster:
        for turn in range(3):
            body = {"prompt": said, "max_tokens": 60, "ignore_eos": True, "temperature": 0.8, "seed": 5,
                    "return_token_ids": True}
            reply, wanted = (each.post("/v1/completions", body) for each in (cluster, plain))
            ids = reply["choices"][0]["token_ids"]
            assert ids == wanted["choices"][0]["token_ids"]
            have = (len(said) - 30 - 1) // BLOCK * BLOCK  # all that was said before, but for its last token
            assert cached(reply["usage"]) == (have if turn > 0 else 0), (turn, len(said), reply["usage"])
            said = said + ids + tokens(51 + turn, 30)
            cluster.wait_all_free()  # the answer's blocks are cached when its machine has ended it
            wait_told(cluster, (len(said) - 31) // 128)
        assert cluster.metric("cleave_transfer_bytes_total", machine="token-0") == 0
        cluster.wait_all_free()


def wait_told(cluster, count):
    """The token machine has told of so many beginnings that it holds."""
    deadline = time.monotonic() + 10
    while True:
        machines, told = {}, 0
        with open(os.path.join(cluster.folder.name, "events.jsonl")) as log:
            lines = [json.loads(line) for line in log if line.endswith("\n")]
        for line in lines:
            if "name" in line:
                machines[line["machine"]] = line["name"]
            if line.get("event") == "cached" and machines[line.get("machine", 0)] == "token-0":
                told += len(line["prefix"])
        if told >= count:
            return
        assert time.monotonic() < deadline, (told, count)
        time.sleep(0.05)


def check_full(cluster, want):
    """Prompts of 40 blocks each on a machine that holds fewer than it is sent, some of whose clients leave."""
    def leave(index):
        connection = cluster.connect()
        connection.request("POST", "/v1/completions", '{"prompt": %s, "max_tokens": 9}' % tokens(index, 630),
                           cluster.headers)
        connection.close()

    for turn in range(2):
        threads = [threading.Thread(target=leave, args=(index,)) for index in range(20, 26)]
        for thread in threads:
            thread.start()
        for index in range(20, 28):
            assert answer(cluster, tokens(index, 640))[:2] == want[index], (turn, index)
        for thread in threads:
            thread.join()
    blocks = cluster.wait_all_free()
    assert blocks["cached"] > 0, blocks


need_model()
with Cluster({"kv": {"prefix_cache": False}}) as plain_cluster:
    check_conversations(plain_cluster)
    check_cheapest(plain_cluster)
    wanted = {index: answer(plain_cluster, tokens(index, 640))[:2] for index in range(20, 28)}
    for path in ("layerwise", "one-piece"):
        with Cluster({"kv": {"transfer": path}}) as cached_cluster:
            found = check_answers(cached_cluster, plain_cluster)
            check_stream(cached_cluster)
            cached_cluster.wait_all_free()
            # A second choice finds its prompt too, unless it is in the same batch, and counts on the machine only.
            told = wait_hits(cached_cluster, found + 192)
            assert told in (found + 192, found + 192 * 2), (found, told)
            assert cached_cluster.metric("cleave_prefix_cache_queries_tokens_total") > told
            assert cached_cluster.blocks()["cached"] > 0
    assert plain_cluster.metric("cleave_prefix_cache_queries_tokens_total") == 0
    assert plain_cluster.wait_all_free()["cached"] == 0
with Cluster({"kv": {"memory": 20 << 20}}) as full_cluster:
    check_full(full_cluster, wanted)
