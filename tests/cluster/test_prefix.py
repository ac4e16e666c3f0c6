"""Goal: when a prompt begins like an earlier one, only the rest is computed, `cached_tokens` says how much was found,
and the answer is that of a cluster without a prefix cache.

Method: the same requests to a cluster with the cache and to one without: a prompt twice, prompts with a shared
beginning, prompts of whole blocks, several choices, prompts with scores, streams, both ways of pushing KV;
conversations, whose prompts begin with an answer. Then more prompts than memory holds, and clients that leave.
Afterwards every block is free or cached.
"""

import json
import os
import threading

from cluster import Cluster, need_model, wait_until

BLOCK = 16
BATCH = 64
# A machine that a slow computer rarely runs must not count as dead, because it would lose its cache.
CONFIG = {"threads": 1, "scheduler": {"prompt_batch_tokens": BATCH}, "transport": {"silence_ms": 60000}}
MEMORY = "64MiB"
FULL = range(20, 26)  # Prompts for a machine that holds only one of them.
FULL_TOKENS = 240


def tokens(start, count):
    return [(start * 31 + k * 13) % 40000 + 100 for k in range(count)]


def cached(usage):
    return usage["prompt_tokens_details"]["cached_tokens"]


def answer(cluster, prompt, **more):
    body = {"prompt": prompt, "max_tokens": 6, "temperature": 0.8, "seed": 7, "logprobs": 2, **more}
    reply = cluster.post("/v1/completions", body)
    return [choice["text"] for choice in reply["choices"]], [c["logprobs"] for c in reply["choices"]], reply["usage"]


def cases():
    """Yields (prompt, number of its tokens that are cached after the prompts before it, more of the request)."""
    shared = tokens(1, 200)
    yield shared, 0, {}
    yield shared, 192, {}
    yield shared[:150] + tokens(2, 90), 144, {}
    yield shared[:150] + tokens(3, 2 * BATCH), 144, {}  # The rest is larger than a batch.
    yield shared[:150] + tokens(3, 2 * BATCH), (150 + 2 * BATCH - 1) // BLOCK * BLOCK, {}
    yield shared[:192], 176, {}  # Whole blocks: the last token is computed all the same.
    yield shared[:16], 0, {}
    yield shared[:17], 16, {}
    yield shared[:15], 0, {}
    yield [shared, tokens(4, 100)], 192, {}  # Two prompts, one of them new.
    yield shared, 192, {"n": 2}
    yield shared[:40], 0, {"echo": True}  # Scored tokens are computed.
    yield shared[:40], 32, {}
    yield tokens(5, 40), 0, {"max_tokens": 1}  # No other machine decodes.
    yield tokens(5, 60), 32, {"max_tokens": 1}


def check_answers(with_cache, plain_answers):
    hits = 0
    for (prompt, want, more), plain in zip(cases(), plain_answers):
        got = answer(with_cache, prompt, **more)
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
    """Returns the number of found tokens as soon as at least this many are reported. Machines report with a delay."""
    wait_until(lambda: cluster.metric("cleave_prefix_cache_hits_tokens_total") >= least, f"{least} tokens are found",
               cluster=cluster)
    return cluster.metric("cleave_prefix_cache_hits_tokens_total")


def talk(cluster, turns=3):
    """A conversation: each prompt is the conversation so far and something new. Returns the answers, and for each
    prompt (tokens found in the cache, tokens)."""
    said, answers, found = tokens(40, 100), [], []
    for turn in range(turns):
        body = {"prompt": said, "max_tokens": 50, "ignore_eos": True, "temperature": 0.8, "seed": 3,
                "return_token_ids": True}
        reply = cluster.post("/v1/completions", body)
        answer_ids = reply["choices"][0]["token_ids"]
        answers.append(answer_ids)
        found.append((cached(reply["usage"]), len(said)))
        said = said + answer_ids + tokens(41 + turn, 30)
        cluster.wait_all_free()  # The answer's blocks are cached once its machine has ended the request.
    return answers, found


def wait_held(cluster, ratio):
    """Waits until this ratio is reported: bytes that were not pushed because the token machine had them, to bytes that
    were pushed."""
    def reached():
        held, pushed = (cluster.metric(f"cleave_transfer_{name}bytes_total") for name in ("held_", ""))
        return held > 0 and abs(held / pushed - ratio) < 1e-9
    wait_until(reached, f"held to pushed is {ratio}", cluster=cluster)


def check_conversations(plain):
    """A single machine finds its own answers. With two machines, the one that generated an answer does not receive its
    KV again."""
    answers = talk(plain)[0]
    with Cluster({**CONFIG, "kv": {"memory": MEMORY}, "pools": {"prompt": 0, "token": 0, "mixed": 1}}) as one:
        got, found = talk(one)
        assert got == answers
        # All tokens of the last answer except its last one have K and V: 100 + 49, then 180 + 49.
        assert [hit for hit, _ in found] == [0, 144, 224], found
        one.wait_all_free()
    with Cluster({**CONFIG, "kv": {"memory": MEMORY}}) as two:
        got, found = talk(two)
        assert got == answers
        assert [hit for hit, _ in found] == [0, 96, 176], found  # The prompt machine has the blocks that it computed.
        # The token machine has the first 149 // 16 and 229 // 16 blocks of the prompts.
        blocks = sum((count + BLOCK - 1) // BLOCK for _, count in found)
        wait_held(two, (9 + 14) / (blocks - 9 - 14))
        two.wait_all_free()


def check_cheapest(plain):
    """With `policy` prefix the next turn goes to the machine that decoded the last turn, which then computes only the
    new tokens. It goes to a machine that computed an earlier prompt if that machine is faster by the rates measured so
    far (on a busy computer). tests/scheduler/test_cheapest.c checks the choice itself, with given rates."""
    earlier = []  # Tokens in blocks of the prompts so far, without each prompt's last token.
    said, config = tokens(50, 200), {**CONFIG, "kv": {"memory": MEMORY}, "log": {"events_file": "events.jsonl"},
                                     "scheduler": {"policy": "prefix", "prompt_batch_tokens": BATCH}}
    with Cluster(config) as cluster:
        for turn in range(3):
            body = {"prompt": said, "max_tokens": 60, "ignore_eos": True, "temperature": 0.8, "seed": 5,
                    "return_token_ids": True}
            reply, wanted = (each.post("/v1/completions", body) for each in (cluster, plain))
            ids = reply["choices"][0]["token_ids"]
            assert ids == wanted["choices"][0]["token_ids"]
            have = (len(said) - 30 - 1) // BLOCK * BLOCK  # The conversation so far, without its last token.
            assert cached(reply["usage"]) in ([have, *earlier] if turn > 0 else [0]), (turn, len(said), reply["usage"])
            earlier.append((len(said) - 1) // BLOCK * BLOCK)
            said = said + ids + tokens(51 + turn, 30)
            cluster.wait_all_free()  # The answer's blocks are cached once its machine has ended the request.
            wait_told(cluster, (len(said) - 31) // 128)
        assert cluster.metric("cleave_transfer_bytes_total", machine="token-0") == 0
        cluster.wait_all_free()


def wait_told(cluster, count):
    """Waits until the token machine has reported that it holds at least this number of prefixes."""
    def reported():
        machines, found = {}, 0
        with open(os.path.join(cluster.folder.name, "events.jsonl")) as log:
            lines = [json.loads(line) for line in log if line.endswith("\n")]
        for line in lines:
            if "name" in line:
                machines[line["machine"]] = line["name"]
            if line.get("event") == "cached" and machines[line.get("machine", 0)] == "token-0":
                found += len(line["prefix"])
        return found
    wait_until(lambda: reported() >= count, f"{count} beginnings are reported", cluster=cluster)


def check_full(cluster, want):
    """The machine can hold only one of these prompts; some of their clients leave."""
    def leave(index):
        connection = cluster.connect()
        connection.request("POST", "/v1/completions",
                           '{"prompt": %s, "max_tokens": 9}' % tokens(index, FULL_TOKENS - 10), cluster.headers)
        connection.close()

    for turn in range(2):
        threads = [threading.Thread(target=leave, args=(index,)) for index in FULL[:4]]
        for thread in threads:
            thread.start()
        for index in FULL:
            assert answer(cluster, tokens(index, FULL_TOKENS))[:2] == want[index], (turn, index)
        for thread in threads:
            thread.join()
    blocks = cluster.wait_all_free()
    assert blocks["cached"] > 0, blocks


def check_tenants():
    """F-8 of the security review: a key's requests find no prefixes of another key's requests, in either pool, unless
    the keys are in one group. A request finds only prefixes with its cache_salt."""
    keys = {"keys": [{"name": name, "key": f"sk-{name}-0123456789", "cache_group": group}
                     for name, group in (("alpha", "one"), ("beta", "one"), ("gamma", "two"))]}
    prompt = tokens(40, 200)

    def hits(cluster, name, **more):
        cluster.headers["Authorization"] = f"Bearer sk-{name}-0123456789"
        return cached(answer(cluster, prompt, **more)[2])

    for scope, want in (("key", (0, 192, 0, 0, 0, 192)), ("group", (0, 192, 192, 0, 0, 192))):
        config = {**CONFIG, "kv": {"memory": MEMORY},
                  "server": {"api_keys_file": "keys.json", "prefix_cache_scope": scope}}
        with Cluster(config, files={"keys.json": keys}) as cluster:
            got = (hits(cluster, "alpha"), hits(cluster, "alpha"), hits(cluster, "beta"), hits(cluster, "gamma"),
                   hits(cluster, "alpha", cache_salt="x"), hits(cluster, "alpha", cache_salt="x"))
            assert got == want, (scope, got, want)


need_model()
check_tenants()
with Cluster({**CONFIG, "kv": {"prefix_cache": False, "memory": MEMORY}}) as plain_cluster:
    check_conversations(plain_cluster)
    check_cheapest(plain_cluster)
    wanted = {index: answer(plain_cluster, tokens(index, FULL_TOKENS))[:2] for index in FULL}
    plain = [answer(plain_cluster, prompt, **more) for prompt, _, more in cases()]
    assert plain_cluster.metric("cleave_prefix_cache_queries_tokens_total") == 0
    assert plain_cluster.wait_all_free()["cached"] == 0
for path in ("layerwise", "one-piece"):
    with Cluster({**CONFIG, "kv": {"transfer": path, "memory": MEMORY}}) as cached_cluster:
        hits = check_answers(cached_cluster, plain)
        check_stream(cached_cluster)
        cached_cluster.wait_all_free()
        # A second choice also finds its prompt, unless it is in the same batch; only the machine counts it.
        found = wait_hits(cached_cluster, hits + 192)
        assert found in (hits + 192, hits + 192 * 2), (hits, found)
        assert cached_cluster.metric("cleave_prefix_cache_queries_tokens_total") > found
        assert cached_cluster.blocks()["cached"] > 0
with Cluster({**CONFIG, "kv": {"memory": 8 << 20}}) as full_cluster:
    check_full(full_cluster, wanted)
