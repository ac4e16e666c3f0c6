"""Goal: a cluster computes the model correctly: prompts are tokenised like the reference's, distributions are close
enough to fp32, and an answer has the same bytes on every kind of cluster.

Method: the cases of tests/data/model through the HTTP API of real clusters: prompt and token machine over shared memory
and over TCP, layer by layer and in one piece, concurrency 1 and 8, and one mixed machine. The log-probabilities that
decoding reports must equal, digit for digit, those of the same text scored as a prompt.

usage: test_reference.py shm|tcp|mixed|many [few|all]
shm serves the default model and compares it with the reference: its distributions in all cases, answers in three cases
(all: in all cases). The others serve the tiny model and compare the answers in every other case with those of the plain
cluster.
few: three cases, no distributions, for a sanitizer.
"""

import concurrent.futures
import json
import os
import statistics
import sys

from cluster import DATA, DEFAULT_MODEL, MODEL, Cluster, need_model, wait_until

CONFIGS = {
    "shm": {},
    "tcp": {"transport": {"ucx_transports": "none"}},
    "ucx over tcp": {"transport": {"ucx_transports": "tcp", "link_ms": 300000}},
    "mixed": {"pools": {"mixed": 1}},
    "many": {"pools": {"prompt": 2, "token": 2}},
}


def answer(cluster, case, transfer="auto"):
    """Returns (text, token ids, log-probabilities) of the greedy continuation, streamed."""
    body = {"prompt": case["prompt_ids"], "max_tokens": 32, "temperature": 0, "logprobs": 0,
            "return_token_ids": True, "return_tokens_as_token_ids": True, "cleave": {"transfer": transfer},
            "stream_options": {"include_usage": True}}
    text, ids, logprobs, usage, finish = "", [], [], None, None
    for event in cluster.stream("/v1/completions", body):
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            text += choice["text"]
            ids += choice["token_ids"]
            logprobs += choice["logprobs"]["token_logprobs"]
            finish = choice["finish_reason"] or finish
    assert usage["prompt_tokens"] == len(case["prompt_ids"]) and usage["completion_tokens"] == len(ids), usage
    assert finish == ("stop" if ids[-1] == 2 else "length") and len(ids) <= 32, (finish, ids)
    return text, ids, logprobs


def answers(cluster, cases, concurrency, transfer):
    with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(lambda case: answer(cluster, case, transfer), cases))


def score(cluster, prompt, count):
    """Returns the log-probabilities of the last `count` tokens of a prompt, and the alternatives at these positions."""
    reply = cluster.post("/v1/completions", {"prompt": prompt, "echo": True, "logprobs": 20, "max_tokens": 0,
                                             "return_tokens_as_token_ids": True})
    logprobs = reply["choices"][0]["logprobs"]
    assert len(logprobs["token_logprobs"]) == len(prompt)
    tops = [{int(k.split(":")[1]): v for k, v in top.items()} for top in logprobs["top_logprobs"][-count:]]
    return logprobs["token_logprobs"][-count:], tops


def check_tokens(cluster, cases):
    for case in cases:
        reply = cluster.post("/tokenize", {"prompt": case["prompt"]})
        assert reply["tokens"] == case["prompt_ids"], case["prompt"]
        assert cluster.post("/detokenize", {"tokens": case["prompt_ids"]})["prompt"] == case["prompt"]
    chat = {"messages": [{"role": "user", "content": "What is gravity?"}]}
    assert cluster.post("/tokenize", chat)["tokens"] == cases[9]["prompt_ids"], "chat template"


def check_distributions(cluster, cases):
    """The limits are the figures of llama.cpp with the same file."""
    errors, other, steps = [], 0, 0
    for case in cases:
        _, tops = score(cluster, case["prompt_ids"] + case["greedy_ids"], len(case["greedy_ids"]))
        for want, got in zip(case["top5"], tops):
            steps += 1
            other += want[0][0] != max(got, key=got.get)
            errors.append(max(abs(got[token] - value) for token, value in want if token in got))
    errors.sort()
    median, p99 = statistics.median(errors), errors[int(len(errors) * 0.99)]
    print(f"{steps} steps: {other} with another most likely token; largest error of a step's top five: "
          f"median {median:.3f}, P99 {p99:.3f}, worst {errors[-1]:.3f}")
    assert other <= 14 and median <= 0.16 and p99 <= 0.51 and errors[-1] <= 0.75


def check_decode_equals_score(cluster, cases, plain):
    """Both phases compute the same bits: decoding and scoring report the same log-probabilities."""
    for case, (_, ids, logprobs) in zip(cases, plain):
        scored, _ = score(cluster, case["prompt_ids"] + ids, len(ids))
        assert scored == logprobs, (case["prompt"], scored, logprobs)


def main():
    need_model()
    with open(os.path.join(DATA, "model", "greedy.json")) as file:
        cases = json.load(file)["cases"]
    which, amount = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    some = cases[:3] if amount == "few" else cases if amount == "all" else cases[::4 if which == "shm" else 2]
    common = {"model": DEFAULT_MODEL if which == "shm" else MODEL, "kv": {"memory": "128MiB"}}
    with Cluster(common) as cluster:
        plain = answers(cluster, some, 1, "one-piece")
        if which == "shm":
            check_tokens(cluster, cases)
            if amount != "few":
                check_distributions(cluster, cases)
            check_decode_equals_score(cluster, some, plain)
            cluster.wait_all_free()
    with Cluster({**common, **CONFIGS[which]}) as cluster:
        for concurrency in (1, 8):
            for transfer in ("one-piece", "layerwise"):
                got = answers(cluster, some, concurrency, transfer)
                for case, want, have in zip(some, plain, got):
                    assert want == have, (which, concurrency, transfer, case["prompt"], want, have)
        cluster.wait_all_free()
        if which != "mixed":  # Machines report with a delay.
            wait_until(lambda: cluster.metric("cleave_transfers_total") >= 4 * len(some), "all transfers", cluster=cluster)
        layerwise = cluster.metric("cleave_transfers_total", path="layerwise")
        one_piece = cluster.metric("cleave_transfers_total", path="one_piece")
        print(f"{which}: {len(some)} cases, equal bytes at concurrency 1 and 8; {layerwise:.0f} transfers "
              f"layer by layer, {one_piece:.0f} in one piece")
        if which == "mixed":
            assert layerwise + one_piece == 0
        else:
            assert layerwise >= 2 * len(some) and one_piece >= 2 * len(some)


if __name__ == "__main__":
    main()
