"""Goal: answers have the same bytes with and without speculative decoding (scheduler/speculative_tokens), wherever their
tokens are drawn, also when machines are killed or short of memory.

Method: the same requests (greedy, drawn, with penalties, biases, stop strings, log-probabilities, a JSON schema; prompts
that repeat themselves, and prose) to a cluster without drafts, and to clusters of each kind with drafts. Each of those must
have checked drafts, and accepted some."""

import concurrent.futures
import json
import os
import signal

from cluster import Cluster, need_model, wait_until

ANSWER = 90
LIST = "1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2,"
CODE = "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\n" * 2 + "def add(a, b):\n"
PROSE = "Once upon a time, in a small village by the sea, there lived"
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}
DRAWN = {"temperature": 0.8, "seed": 11}
CASES = {
    "greedy": {},
    "drawn": DRAWN,
    "cold": {"temperature": 0.2, "seed": 5, "top_p": 0.9},
    "penalties": {**DRAWN, "presence_penalty": 0.4, "frequency_penalty": 0.2, "repetition_penalty": 1.1},
    "bias": {"logit_bias": {"28": 3}},
    "log-probabilities": {"logprobs": 3},
    "stop": {"stop": ["4, 1", "return"], "ignore_eos": False},
    "least": {"min_tokens": 20, "ignore_eos": False},
    "schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}},
               "ignore_eos": False},
}
REQUESTS = {f"{case}, {name}": {"prompt": prompt, "max_tokens": ANSWER, "ignore_eos": True, "temperature": 0,
                                "return_token_ids": True, **fields}
            for case, fields in CASES.items() for name, prompt in (("list", LIST), ("code", CODE), ("prose", PROSE))}
KINDS = {
    "prompt and token machine": {},
    "one mixed machine": {"pools": {"mixed": 1}},
    "no prefix cache": {"kv": {"memory": "64MiB", "prefix_cache": False}},
    "few places": {"scheduler": {"speculative_tokens": 16, "batch_sequences_max": 5}},
    "stages": {"pools": {"prompt": ["p0"], "token": ["t0"]}, "machines": {"p0": {"stages": 2}, "t0": {"stages": 2}}},
    "ranks": {"pools": {"mixed": ["m0"]}, "machines": {"m0": {"tensor_parallel": 2}}},
}


def part_of(reply):
    choice = reply["choices"][0]
    return {"text": choice["text"], "ids": choice["token_ids"], "why": choice["finish_reason"],
            "logprobs": choice.get("logprobs"), "tokens": reply["usage"]["completion_tokens"]}


def answers_of(cluster, requests, at_once):
    """Returns the answers; `at_once` requests run at a time, so that steps have one answer or several."""
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        return dict(zip(requests, pool.map(lambda body: part_of(cluster.post("/v1/completions", body)), requests.values())))


def check(what, got, want):
    for name, answer in got.items():
        assert answer == want[name], (what, name, answer, want[name])


def drafts_of(cluster):
    return (cluster.metric("cleave_spec_decode_num_draft_tokens_total"),
            cluster.metric("cleave_spec_decode_num_accepted_tokens_total"))


def ranks_want(config):
    """Answers of ranks have bits of their own (docs/numbers.md), so they are compared with those of ranks."""
    with Cluster({"kv": {"memory": "64MiB"}, **config}) as cluster:
        return answers_of(cluster, REQUESTS, 8)


def kinds(want):
    for kind, config in KINDS.items():
        expected = ranks_want(config) if kind == "ranks" else want
        with Cluster({"kv": {"memory": "64MiB"}, "scheduler": {"speculative_tokens": 8}, **config}) as cluster:
            for at_once in (1, 9):
                check(f"{kind}, {at_once} at once", answers_of(cluster, REQUESTS, at_once), expected)
            wait_until(lambda: drafts_of(cluster)[1] > 0, "drafts are accepted", cluster=cluster)
            drafted, accepted = drafts_of(cluster)
            assert 0 < accepted <= drafted, (drafted, accepted)
            cluster.wait_all_free()
        print(f"{kind}: the same answers; {drafted:.0f} tokens drafted, {accepted:.0f} accepted", flush=True)


def killed(want):
    """One of two token machines is killed again and again, while answers run."""
    config = {"kv": {"memory": "64MiB"}, "threads": 1, "pools": {"prompt": 1, "token": 2},
              "scheduler": {"placement": "split", "speculative_tokens": 8, "crashes_max": 0}}
    with Cluster(config) as cluster:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(answers_of, cluster, {f"{name} #{i}": body for i in range(3) for name, body in REQUESTS.items()},
                                  6)
            for index in range(6):
                wait_until(lambda: running.done() or
                           json.loads(cluster.request("GET", "/admin/state")[2])["requests"]["decoding"] > 0, "answers run",
                           cluster=cluster)
                process = cluster.children().get(f"token-{index % 2}")
                if process is not None and not running.done():
                    os.kill(process, signal.SIGKILL)
                concurrent.futures.wait([running], timeout=0.5)
            got = running.result()
        check("killed", got, {name: want[name.rsplit(" #", 1)[0]] for name in got})
        resumed = cluster.metric("cleave_requests_resumed_total")
        assert resumed > 0, resumed
    print(f"killed: {len(got)} answers, {resumed:.0f} resumed, the same bytes", flush=True)


def preempted(want):
    """The memory holds only some of the answers, so they lose their blocks while drafts are checked."""
    config = {"kv": {"memory": "9MiB", "prefix_cache": False}, "threads": 1, "scheduler": {"speculative_tokens": 8}}
    requests = {f"{name} #{i}": body for i in range(2) for name, body in REQUESTS.items()}
    with Cluster(config) as cluster:
        got = answers_of(cluster, requests, len(requests))
        check("preempted", got, {name: want[name.rsplit(" #", 1)[0]] for name in got})
        count = cluster.metric("cleave_preemptions_total")
        assert count > 0 and drafts_of(cluster)[1] > 0, (count, drafts_of(cluster))
        cluster.wait_all_free()
    print(f"preempted: {count:.0f} times, the same bytes", flush=True)


def main():
    need_model()
    with Cluster({"kv": {"memory": "64MiB"}}) as cluster:
        want = answers_of(cluster, REQUESTS, 8)
        assert drafts_of(cluster) == (0, 0)
    assert any(answer["why"] == "stop" for answer in want.values())
    kinds(want)
    killed(want)
    preempted(want)


main()
