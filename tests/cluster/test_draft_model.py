"""Goal: answers have the same bytes with and without a draft model (scheduler/draft_model), however good its drafts are,
also when machines are killed or short of memory; a draft model of another vocabulary is refused.

Method: the same requests (greedy, drawn, with penalties, biases, constraints, several choices) to a cluster without
drafts and to clusters whose draft model is the model itself, has random weights of its own, has attention windows, has a
shorter context, or more context than its KV memory holds. With scheduler/speculative_always the machines check every
draft, so that the test does not depend on the computer's speed. Drafts of the model itself are right; random ones hardly
ever. Then the requests again, while one of two token machines is killed again and again and both are short of memory.
Then machines with stages, which go on without the draft model, and one with another vocabulary. With a number of streams
as argument (the suite `long`), only the part with kills, with this number of requests."""

import concurrent.futures
import json
import os
import signal
import sys
import tempfile

from answers import DRAFTED, RIGHT, answers_of, check
from cluster import DEFAULT_MODEL, MODEL, Cluster, need_model, wait_until
from tiny_model import renamed_token, write

STREAMS = int(sys.argv[1]) if len(sys.argv) > 1 else 0
ANSWER = 40
PROSE = "Once upon a time, in a small village by the sea, there lived"
LIST = "1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2,"
LONG = " ".join(str(number * number) for number in range(40))  # The draft model catches up in parts.
DRAWN = {"temperature": 0.8, "seed": 11}
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}
CASES = {
    "greedy": {},
    "drawn": DRAWN,
    "cold": {"temperature": 0.2, "seed": 5, "top_p": 0.9},
    "few": {**DRAWN, "top_k": 5},
    "penalties": {**DRAWN, "presence_penalty": 0.4, "repetition_penalty": 1.1},
    "bias": {"logit_bias": {"28": 3}},
    "least": {"min_tokens": 20, "ignore_eos": False},
    "stop": {"stop": ["4, 1"], "ignore_eos": False},
    "choices": {**DRAWN, "n": 2},
    "log-probabilities": {"logprobs": 3},
    "person": {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}},
               "ignore_eos": False, **DRAWN},
}


def requests_of(cases):
    return {f"{case}, {name}": {"prompt": prompt, "max_tokens": ANSWER, "ignore_eos": True, "temperature": 0,
                                "return_token_ids": True, **fields}
            for case, fields in cases.items() for name, prompt in {"prose": PROSE, "list": LIST, "long": LONG}.items()}


REQUESTS = requests_of(CASES)


def figures_of(cluster):
    return cluster.metric(DRAFTED), cluster.metric(RIGHT)


def config_of(draft, **changes):
    return {"kv": {"memory": "64MiB"}, **changes,
            "scheduler": {"speculative_tokens": 6, "speculative_always": True, "draft_model": draft,
                          **changes.get("scheduler", {})}}


def same(want):
    """The model drafts for itself, with all rules of the requests."""
    for pools in ({"prompt": 1, "token": 1}, {"mixed": 1}):
        with Cluster(config_of(MODEL, pools=pools)) as cluster:
            check("itself", answers_of(cluster, REQUESTS, 3), want)
            cluster.wait_all_free()
            drafted, right = figures_of(cluster)
            assert drafted > 100 and right > 0.98 * drafted, (pools, drafted, right)
        print(f"the model itself, {pools}: the same answers; {drafted:.0f} tokens drafted, {right:.0f} right", flush=True)


def different(want, what, draft, **changes):
    with Cluster(config_of(draft, **changes)) as cluster:
        check(what, answers_of(cluster, REQUESTS, 6), want)
        check(what, answers_of(cluster, requests_of({"drawn": DRAWN}), 1), want)
        cluster.wait_all_free()
        drafted, right = figures_of(cluster)
        assert drafted > 0 and right < drafted, (what, drafted, right)
    print(f"{what}: the same answers; {drafted:.0f} tokens drafted, {right:.0f} right", flush=True)
    return right / drafted


def disturbed(draft, memory):
    """One of two token machines is killed again and again, and both have memory only for some of the answers."""
    bodies = list(REQUESTS.values())
    requests = {index: {**bodies[index % len(bodies)], "seed": 100 + index} for index in range(STREAMS or 40)}
    with Cluster({"kv": {"memory": "64MiB"}, "pools": {"mixed": 1}}) as cluster:
        want = answers_of(cluster, requests, 16)
    config = config_of(draft, kv={"memory": memory}, threads=1, pools={"prompt": 1, "token": 2}, scheduler={
        "placement": "split", "crashes_max": 0, "growth_tokens": 1, "growth_reserve_percent": 0, "adaptive_pools": False})
    with Cluster(config) as cluster:
        def decoding():
            return json.loads(cluster.request("GET", "/admin/state")[2])["requests"]["decoding"]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(answers_of, cluster, requests, 24)
            for index in range(STREAMS // 20 or 3):
                wait_until(lambda: running.done() or decoding() > 0, "answers run", cluster=cluster)
                process = cluster.children().get(f"token-{index % 2}")
                if process is not None and not running.done():
                    os.kill(process, signal.SIGKILL)
                concurrent.futures.wait([running], timeout=0.3)
            got = running.result()
        check("disturbed", got, want)
        resumed, preempted = cluster.metric("cleave_requests_resumed_total"), cluster.metric("cleave_preemptions_total")
        assert resumed > 0 and preempted > 0 and figures_of(cluster)[1] > 0, (resumed, preempted, figures_of(cluster))
        cluster.wait_all_free()
    print(f"disturbed: {len(got)} answers, {resumed:.0f} resumed, {preempted:.0f} preempted, the same bytes", flush=True)


def staged(want):
    """A machine with stages goes on without the draft model, and its log says so."""
    requests = requests_of({"drawn": DRAWN})
    config = config_of(MODEL, pools={"mixed": ["m0"]}, machines={"m0": {"stages": 2}})
    with Cluster(config) as cluster:
        check("stages", answers_of(cluster, requests, 2), want)
        assert figures_of(cluster) == (0, 0)
        assert "machine m0 does not use scheduler/draft_model: machines with stages" in cluster.logged()
    print("stages: the same answers, without the draft model", flush=True)


def refused(folder):
    other = renamed_token(os.path.join(folder, "other.gguf"), MODEL)
    try:
        with Cluster(config_of(other)) as cluster:
            raise AssertionError(cluster.logged())
    except RuntimeError as error:
        text = str(error)
    assert "scheduler/draft_model: its token 300 is " in text and "must have the model's vocabulary" in text, text
    print("another vocabulary: refused", flush=True)


def main(folder):
    def model(name, **shape):
        return write(DEFAULT_MODEL, os.path.join(folder, name), **shape)
    random = model("random.gguf", layers=3)
    if STREAMS > 0:
        disturbed(random, "8MiB")
        disturbed(MODEL, "14MiB")  # Half of it is for the draft model's KV.
        return
    with Cluster({"kv": {"memory": "64MiB"}}) as cluster:
        want = answers_of(cluster, REQUESTS, 8)
        assert figures_of(cluster) == (0, 0)
    same(want)
    assert different(want, "random weights", random) < 0.5
    different(want, "attention windows and a short context", model("short.gguf", layers=7, window=40, context=200))
    different(want, "few places", random, kv={"memory": "64MiB", "prefix_cache": False},
              scheduler={"speculative_tokens": 16, "batch_sequences_max": 5})
    disturbed(random, "8MiB")
    disturbed(MODEL, "14MiB")  # Half of it is for the draft model's KV.
    staged(want)
    refused(folder)


need_model()
with tempfile.TemporaryDirectory(prefix="cleave-test-") as place:
    main(place)
