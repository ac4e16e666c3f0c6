"""Goal: a model with attention windows finds cached prefixes, computes and sends only what is missing, and answers as a
cluster without a prefix cache does, to the bit.

Method: a tiny random Gemma 3 of 14 layers with a window of 40 tokens. A prompt of several windows is sent twice, then
one that leaves it half-way, then the next turn of the conversation; the numbers of cached tokens must be those of the
rule. After that, random conversations and copies of them go one by one and all at once to clusters whose memory holds a
few of them: split, mixed, in stages, with ranks, and with small chunks. API keys share nothing."""

import concurrent.futures
import os
import random
import tempfile

from cluster import DEFAULT_MODEL, Cluster, need_model
from tiny_model import write

LAYERS, WINDOW, BLOCK = 14, 40, 16
SMALL = {"prompt_batch_tokens": 64, "prompt_fill_tokens": 64}
CONFIG = {"threads": 1, "transport": {"silence_ms": 60000}}


def tokens(start, count):
    return [(start * 7919 + k * 31) % 40000 + 100 for k in range(count)]


def ask(cluster, prompt, answer=20, seed=5):
    body = {"prompt": prompt, "max_tokens": answer, "ignore_eos": True, "temperature": 0.9, "seed": seed,
            "return_token_ids": True, "logprobs": 1}
    reply = cluster.post("/v1/completions", body)
    choice = reply["choices"][0]
    return (choice["token_ids"], choice["logprobs"]["token_logprobs"]), reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def full(count):
    """Returns the tokens of whole blocks before the last of `count` tokens."""
    return (count - 1) // BLOCK * BLOCK


def check_rule(what, config, plain, wanted):
    """wanted: the cached tokens of a prompt of 330 tokens, of a copy, of a prompt that leaves it after 150 tokens, of the
    conversation's next turn, and of a copy of that."""
    with Cluster({**CONFIG, "model": model, "kv": {"memory": "64MiB"}, **config}) as cluster:
        first, found = tokens(1, 330), []

        def both(prompt):
            got, hit = ask(cluster, prompt)
            want, none = ask(plain, prompt)
            assert got == want and none == 0, (what, len(prompt), hit)
            found.append(hit)
            cluster.wait_all_free()
            return got[0]

        answer = both(first)
        both(first)
        both(first[:150] + tokens(2, 90))
        turn = first + answer + tokens(3, 50)
        both(turn)
        both(turn)
        assert tuple(found) == wanted, (what, found, wanted)
        if "machines" not in config and "mixed" not in config.get("pools", {}):
            assert cluster.metric("cleave_transfer_held_bytes_total") > 0
        print(f"{what}: cached tokens {found}", flush=True)


def conversations(draw, count):
    """Returns prompts: new ones, earlier ones again, and earlier ones that are continued in the middle or at the end."""
    prompts = []
    for index in range(count):
        base = draw.choice(prompts) if prompts and draw.random() < 0.8 else []
        base = base[:draw.choice((len(base), len(base), draw.randrange(len(base) + 1)))]
        more = draw.choice((0, 1, 7, 60, 200))
        prompts.append(base[:420 - more] + tokens(100 + index, more) or tokens(index, 40))
    return prompts


def check_random(what, config, prompts, want):
    with Cluster({**CONFIG, "model": model, **config}) as cluster:
        found = 0
        for prompt, (answer, _) in zip(prompts, want):
            got, hit = ask(cluster, prompt, 30)
            assert got == answer, (what, len(prompt), hit)
            assert hit % BLOCK == 0 and hit < len(prompt), (hit, len(prompt))
            found += hit
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            again = list(pool.map(lambda prompt: ask(cluster, prompt, 30), prompts))
        for prompt, (answer, _), (got, hit) in zip(prompts, want, again):
            assert got == answer, (what, "at once", len(prompt), hit)
            found += hit
        blocks = cluster.wait_all_free()
        assert found > 0 and blocks["cached"] > 0, (what, found, blocks)
        print(f"{what}: {2 * len(prompts)} equal answers, {found} of {2 * sum(map(len, prompts))} tokens cached", flush=True)


def check_tenants():
    keys = {"keys": [{"name": name, "key": f"sk-{name}-0123456789"} for name in ("alpha", "beta")]}
    config = {**CONFIG, "model": model, "server": {"api_keys_file": "keys.json", "prefix_cache_scope": "key"}}
    with Cluster(config, files={"keys.json": keys}) as cluster:
        found = []
        for name in ("alpha", "alpha", "beta"):
            cluster.headers["Authorization"] = f"Bearer sk-{name}-0123456789"
            found.append(ask(cluster, tokens(1, 200))[1])
        assert found == [0, full(200), 0], found
    print("keys share nothing", flush=True)


need_model()
seed = int(os.environ.get("CLEAVE_SEED", "0")) or random.randrange(1 << 32)
print(f"seed: CLEAVE_SEED={seed}", flush=True)
with tempfile.TemporaryDirectory(prefix="cleave-test-") as folder:
    model = os.path.join(folder, "windows.gguf")
    write(DEFAULT_MODEL, model, LAYERS, window=WINDOW, context=4096)
    split, one = {"pools": {"prompt": 1, "token": 1}, "scheduler": {"placement": "split"}}, {"pools": {"mixed": 1}}
    staged = {"machines": {"prompt-0": {"stages": 2}, "token-0": {"stages": 3}}}
    ranked = {"machines": {"prompt-0": {"tensor_parallel": 2}, "token-0": {"tensor_parallel": 2}}}
    ask_random = conversations(random.Random(seed), 14)
    with Cluster({**CONFIG, "model": model, "kv": {"prefix_cache": False}, **one}) as plain_cluster:
        # The last token of an answer has no KV.
        last = 330 + 20 - 1
        check_rule("split", split, plain_cluster, (0, full(330), 144, full(330), full(400)))
        # All blocks of the long prompt that layers with a window still have begin after token 150.
        check_rule("split, small chunks", {**split, "scheduler": {**SMALL, "placement": "split"}}, plain_cluster,
                   (0, full(330), 0, full(330), full(400)))
        check_rule("mixed", one, plain_cluster, (0, full(330), 144, last // BLOCK * BLOCK, full(400)))
        check_rule("stages", {**split, **staged}, plain_cluster, (0, full(330), 144, full(330), full(400)))
        answers = [ask(plain_cluster, prompt, 30) for prompt in ask_random]
    for what, config, memory in (("split", split, "7MiB"), ("mixed", one, "8MiB"), ("stages", {**split, **staged}, "7MiB"),
                                 ("small chunks", {**split, "scheduler": {**SMALL, "growth_tokens": 1}}, "5MiB")):
        check_random(what, {**config, "kv": {"memory": memory}}, ask_random, answers)
    with Cluster({**CONFIG, "model": model, "kv": {"prefix_cache": False}, **split, **ranked}) as plain_cluster:
        answers = [ask(plain_cluster, prompt, 30) for prompt in ask_random]
    check_random("ranks", {**split, **ranked, "kv": {"memory": "7MiB"}}, ask_random, answers)
    check_tenants()
