"""Goal: answers have the same bytes with and without speculative decoding (scheduler/speculative_tokens), wherever their
tokens are drawn, also when machines are killed or short of memory.

Method: the same requests (greedy, drawn, with penalties, biases, stop strings, log-probabilities, several choices, and
constraints; prompts that repeat themselves, and prose) to a cluster without drafts, and to clusters of each kind with
drafts: split and mixed, with stages, with ranks, a model with attention windows. With scheduler/speculative_always the
machines check every draft, so that the test does not depend on the computer's speed; one cluster decides by its step
times. Drafts must have been checked, and some accepted. Then the requests again, while one of two token
machines is killed again and again and both are short of memory; and again with KV in tiers (memory, a file, a shared
store; with drafts and without), where the prompt machine is killed, too. With a number of streams as argument (the
suite `long`), all requests, and this number of streams in the last two parts; otherwise some of them. A second argument
is the only part to run: `disturbed` or `tiers`."""

import concurrent.futures
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile

from answers import answers_of, check
from cluster import DEFAULT_MODEL, Cluster, need_model, wait_until
from tiny_model import write

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "kvcache"))
from resp_servers import Fake, Redis

STREAMS = int(sys.argv[1]) if len(sys.argv) > 1 else 0
ANSWER = 90 if STREAMS else 50
LIST = "1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2,"
CODE = "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\n" * 2 + "def add(a, b):\n"
PROSE = "Once upon a time, in a small village by the sea, there lived"
PROMPTS = {"list": LIST, "code": CODE, "prose": PROSE}
PERSON = {"type": "object", "properties": {"family_name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}},
          "required": ["family_name", "age"], "additionalProperties": False}
PEOPLE = {"type": "array", "items": PERSON, "minItems": 20}
DRAWN = {"temperature": 0.8, "seed": 11}


def schema(value):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "value", "schema": value}},
            "ignore_eos": False}


CASES = {
    "greedy": {},
    "drawn": DRAWN,
    "cold": {"temperature": 0.2, "seed": 5, "top_p": 0.9},
    "few": {**DRAWN, "top_k": 5, "min_p": 0.05},
    "penalties": {**DRAWN, "presence_penalty": 0.4, "frequency_penalty": 0.2, "repetition_penalty": 1.1},
    "light penalty": {"frequency_penalty": 0.05},
    "bias": {"logit_bias": {"28": 3}},
    "log-probabilities": {"logprobs": 3},
    "stop": {"stop": ["4, 1", "return"], "ignore_eos": False},
    "least": {"min_tokens": 20, "ignore_eos": False},
    "choices": {**DRAWN, "n": 2, "max_tokens": ANSWER // 2},
    "person": schema(PERSON),
    "people": {**schema(PEOPLE), **DRAWN},
    "people with a penalty": {**schema(PEOPLE), **DRAWN, "presence_penalty": 0.2},
    "expression": {"guided_regex": "(the (cat|dog) sat on the (mat|sofa), ){1,40}", "ignore_eos": False, **DRAWN},
}
CONSTRAINED = ("person", "people", "people with a penalty", "expression")
ALL = {f"{case}, {name}": {"prompt": prompt, "max_tokens": ANSWER, "ignore_eos": True, "temperature": 0,
                           "return_token_ids": True, **fields}
       for case, fields in CASES.items() for name, prompt in PROMPTS.items()}
# Without an argument, each case with one of the prompts.
REQUESTS = {name: body for index, (name, body) in enumerate(ALL.items()) if STREAMS or index % 3 == index // 3 % 3}
KINDS = {
    "prompt and token machine": {},
    "one mixed machine": {"pools": {"mixed": 1}},
    "few places, no prefix cache": {"kv": {"memory": "64MiB", "prefix_cache": False}, "scheduler": {
        "speculative_tokens": 16, "batch_sequences_max": 5}},
    "stages": {"pools": {"prompt": ["p0"], "token": ["t0"]}, "machines": {"p0": {"stages": 2}, "t0": {"stages": 2}}},
    "ranks": {"pools": {"mixed": ["m0"]}, "machines": {"m0": {"tensor_parallel": 2}}},
    "windows": {"scheduler": {"speculative_tokens": 16, "growth_tokens": 48}},
    "windows and stages": {"pools": {"mixed": ["m0"]}, "machines": {"m0": {"stages": 2}}},
}


def memory_tier(root, ends):
    return {"size": "32MiB"}


def file_tier(root, ends):
    return {"path": root, "size": "64MiB"}


def store_tier(root, ends):
    """A redis-server if it is installed, else an imitation."""
    server = Redis(root) if shutil.which("redis-server") is not None else Fake()
    ends.callback(server.stop)
    return {"servers": server.address, "deadline_ms": 60000}


TIERS = {"memory": memory_tier, "file": file_tier, "store": store_tier}


def drafts_of(cluster):
    return (cluster.metric("cleave_spec_decode_num_draft_tokens_total"),
            cluster.metric("cleave_spec_decode_num_accepted_tokens_total"))


def check_metrics(cluster):
    """Drafts were checked, some were right, and the figures of one page agree with each other. (A machine's latest counters
    may arrive between two pages.)"""
    wait_until(lambda: drafts_of(cluster)[1] > 0, "drafts are accepted", cluster=cluster)
    cluster.wait_all_free()
    page = cluster.metrics()

    def total(name, **labels):
        return sum(value for (each, given), value in page.items()
                   if each == f"cleave_spec_decode_num_{name}_total" and dict(given).items() >= labels.items())
    drafted, accepted, steps = total("draft_tokens"), total("accepted_tokens"), total("drafts")
    positions = [total("accepted_tokens_per_pos", position=str(position)) for position in range(16)]
    assert 0 < accepted <= drafted and steps <= drafted, (drafted, accepted, steps)
    assert sum(positions) == accepted and positions == sorted(positions, reverse=True), (positions, accepted)
    assert positions[0] <= steps, (positions, steps)
    return f"{drafted:.0f} tokens drafted, {accepted:.0f} accepted"


def config_of(kind, config):
    """Answers of ranks have bits of their own (docs/numbers.md), and windows are another model: each is compared with its
    own kind without drafts."""
    base = {"kv": {"memory": "64MiB"}, **({"model": windows_model} if "windows" in kind else {})}
    return {**base, **{key: value for key, value in config.items() if key != "scheduler"}}


def kinds(want):
    for kind, config in KINDS.items():
        base = config_of(kind, config)
        group = "windows" if "windows" in kind else kind
        if kind == "ranks" or (group == "windows" and group not in want):
            with Cluster(base) as cluster:
                want[group] = answers_of(cluster, REQUESTS, 8)
        expected = want.get(group, want[""])
        always = {"speculative_tokens": 8, "speculative_always": True}
        with Cluster({**base, "scheduler": {**always, **config.get("scheduler", {})}}) as cluster:
            for at_once in (1, 9) if STREAMS else (4,):
                check(f"{kind}, {at_once} at once", answers_of(cluster, REQUESTS, at_once), expected)
            figures = check_metrics(cluster)
        print(f"{kind}: the same answers; {figures}", flush=True)


def measured(want):
    """The machine decides which drafts it checks."""
    with Cluster({"kv": {"memory": "64MiB"}, "pools": {"mixed": 1}, "scheduler": {"speculative_tokens": 8}}) as cluster:
        check("measured", answers_of(cluster, REQUESTS, 2), want)
        drafted, accepted = drafts_of(cluster)
    print(f"measured: the same answers; {drafted:.0f} tokens drafted, {accepted:.0f} accepted", flush=True)


def constrained(want):
    """Answers with constraints have drafts: their own text, and what the constraint dictates."""
    requests = {name: body for name, body in REQUESTS.items() if name.split(", ")[0] in CONSTRAINED}
    always = {"speculative_tokens": 8, "speculative_always": True}
    with Cluster({"kv": {"memory": "64MiB"}, "scheduler": always}) as cluster:
        check("constrained", answers_of(cluster, requests, 1), want)
        figures = check_metrics(cluster)
    print(f"constrained: the same answers; {figures}", flush=True)


def streams_of(count):
    """Returns `count` requests: each of REQUESTS with several seeds. Log-probabilities are rarely asked for."""
    names = list(REQUESTS)
    return {f"{names[i % len(names)]} #{i // len(names)}": {**REQUESTS[names[i % len(names)]], "seed": 100 + i // len(names)}
            for i in range(count)}


def disturbed():
    """One of two token machines is killed again and again, and both have memory only for some of the answers."""
    requests = streams_of(STREAMS or 40)
    with Cluster({"kv": {"memory": "64MiB"}, "pools": {"mixed": 1}}) as cluster:
        want = answers_of(cluster, requests, 16)
    run_disturbed("disturbed", requests, want, 8)


def run_disturbed(what, requests, want, speculative_tokens, kv={}, killed=("token-0", "token-1")):
    """Answers `requests`, and returns the tokens that were loaded from tiers."""
    config = {"kv": {"memory": "6MiB", **kv}, "threads": 1, "pools": {"prompt": 1, "token": 2},
              "scheduler": {"placement": "split", "speculative_tokens": speculative_tokens,
                            "speculative_always": True, "crashes_max": 0,
                            "growth_tokens": 1, "growth_reserve_percent": 0, "adaptive_pools": False, "compare_time": False}}
    with Cluster(config) as cluster:
        running = None

        def wait_answers():
            wait_until(lambda: running.done() or
                       json.loads(cluster.request("GET", "/admin/state")[2])["requests"]["decoding"] > 0, "answers run",
                       cluster=cluster)
        resumed = preempted = 0
        for _ in range(5):  # On a slow computer, the answers of one round may not fill the memory.
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                running = pool.submit(answers_of, cluster, requests, 24)
                for index in range(10 if STREAMS else 3):
                    wait_answers()
                    process = cluster.children().get(killed[index % len(killed)])
                    if process is not None and not running.done():
                        os.kill(process, signal.SIGKILL)
                    concurrent.futures.wait([running], timeout=1 if STREAMS else 0.3)
                got = running.result()
            check(what, got, want)
            resumed = cluster.metric("cleave_requests_resumed_total")
            preempted = cluster.metric("cleave_preemptions_total")
            if resumed > 0 and preempted > 0:
                break
        drafted, accepted = drafts_of(cluster)
        assert resumed > 0 and preempted > 0, (resumed, preempted)
        assert accepted > 0 if speculative_tokens else drafted == 0, (drafted, accepted)
        cluster.wait_all_free()
        loaded = {tier: cluster.metric("cleave_kv_tier_hits_tokens_total", tier=tier) for tier in TIERS
                  if tier in kv.get("tiers", {})}
    print(f"{what}: {len(got)} answers, {resumed:.0f} resumed, {preempted:.0f} preempted, {accepted:.0f} tokens of drafts "
          f"accepted{''.join(f', {tokens:.0f} loaded from {tier}' for tier, tokens in loaded.items())}; the same bytes",
          flush=True)
    return loaded


def long_prompts(requests):
    """Requests whose prompts begin with one of ten texts of several blocks, which memory does not hold all."""
    def begin(index):
        return " ".join(f"Note {index}.{line}: keep this line." for line in range(6)) + "\n"
    return {name: {**body, "prompt": begin(index % 10) + body["prompt"]} for index, (name, body) in enumerate(requests.items())}


def tiers():
    """The same with KV in tiers, which prompts are loaded from, with drafts and without; the prompt machine is killed,
    too."""
    requests = long_prompts(streams_of(STREAMS or 20))
    with Cluster({"kv": {"memory": "64MiB", "prefix_cache": False}, "pools": {"mixed": 1}}) as cluster:
        want = answers_of(cluster, requests, 16)
    for names in [*([name] for name in TIERS if STREAMS), list(TIERS)]:
        for speculative_tokens in (0, 8) if STREAMS else (8,):
            with tempfile.TemporaryDirectory(prefix="cleave-test-") as root, contextlib.ExitStack() as ends:
                settings = {"wait_ms": 60000, **{name: TIERS[name](root, ends) for name in names}}
                loaded = run_disturbed(f"{' and '.join(names)}, {'with' if speculative_tokens else 'without'} drafts", requests,
                                       want, speculative_tokens, {"memory": "10MiB", "tiers": settings},
                                       ("token-0", "prompt-0", "token-1"))
                assert sum(loaded.values()) > 0, loaded


def main():
    if len(sys.argv) > 2:
        {"disturbed": disturbed, "tiers": tiers}[sys.argv[2]]()
        return
    with Cluster({"kv": {"memory": "64MiB"}}) as cluster:
        want = answers_of(cluster, REQUESTS, 8)
        assert drafts_of(cluster) == (0, 0)
    assert any(choice["why"] == "stop" for answer in want.values() for choice in answer)
    measured(want)
    kinds({"": want})
    constrained(want)
    disturbed()
    tiers()


need_model()
with tempfile.TemporaryDirectory(prefix="cleave-test-") as folder:
    windows_model = os.path.join(folder, "windows.gguf")
    write(DEFAULT_MODEL, windows_model, 14, window=40, context=4096)
    main()
