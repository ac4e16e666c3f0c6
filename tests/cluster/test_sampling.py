"""Goal: penalties, biases and forbidden words follow their definition, and an answer with them has the same bytes
wherever its tokens are sampled: on one mixed machine, on a prompt and a token machine, in pipelines, after its token
machine was killed, and after it was preempted.

Method: the same requests to clusters of each kind. A greedy answer with presence and frequency penalties is computed
again in Python from the log-probabilities of its alternatives. n answers cost one prompt."""

import concurrent.futures
import json
import os
import signal

from cluster import Cluster, Failure, need_model, wait_until

PROMPT = "The sea, the sea, the open sea. The wind and the waves and the sea. " * 3
ANSWER = 100
BASE = {"prompt": PROMPT, "max_tokens": ANSWER, "ignore_eos": True, "return_token_ids": True, "temperature": 0}
RANDOM = {"temperature": 0.9, "seed": 7}
CASES = {
    "greedy": {},
    "presence, frequency": {"presence_penalty": 1.5, "frequency_penalty": 0.5},
    "repetition": {"repetition_penalty": 1.3},
    "all penalties": {**RANDOM, "presence_penalty": -0.5, "frequency_penalty": 1, "repetition_penalty": 0.8, "top_k": 200},
    "bias": {**RANDOM, "logit_bias": {"100": 90, "200": 90, "300": -100}},
    "allowed": {**RANDOM, "allowed_token_ids": [500, 600, 700, 800], "frequency_penalty": 2},
    "bad words": {},  # main fills this in.
}
KINDS = {
    "prompt and token machine": {},
    "one mixed machine": {"pools": {"mixed": 1}},
    "no prefix cache": {"kv": {"memory": "64MiB", "prefix_cache": False}},
    "pipelines": {"pools": {"prompt": ["p0"], "token": ["t0"]}, "machines": {"p0": {"stages": 2}, "t0": {"stages": 3}}},
    "a mixed pipeline": {"pools": {"mixed": ["m0"]}, "machines": {"m0": {"stages": 2}}},
}


def ids_of(cluster, fields):
    return cluster.post("/v1/completions", {**BASE, **fields})["choices"][0]["token_ids"]


def all_ids(cluster):
    """Returns the answers to all cases. They are sent at once, so that batches have several."""
    with concurrent.futures.ThreadPoolExecutor(len(CASES)) as pool:
        return dict(zip(CASES, pool.map(lambda fields: ids_of(cluster, fields), CASES.values())))


def check_definition(cluster):
    """Applies vLLM's rule to the log-probabilities, which are those before the penalties."""
    presence, frequency = 1.5, 0.5
    choice = cluster.post("/v1/completions", {**BASE, **CASES["presence, frequency"], "logprobs": 20,
                                              "return_tokens_as_token_ids": True})["choices"][0]
    seen = []
    for token, top in zip(choice["token_ids"], choice["logprobs"]["top_logprobs"]):
        alternatives = {int(name.split(":")[1]): value for name, value in top.items()}
        scores = {id: value - frequency * seen.count(id) - (presence if id in seen else 0)
                  for id, value in alternatives.items()}
        best = max(scores, key=scores.get)
        assert token == best or abs(scores[token] - scores[best]) < 1e-4, (token, best, scores, seen)
        seen.append(token)
    return choice["token_ids"]


def check_shared_prompt(cluster):
    """Four answers to one prompt: the last tokens, which fill no block, are computed four times, the others once. The
    cluster has computed nothing before: machines report what they have done with a delay."""
    prompt = [1000 + k * 7 % 30000 for k in range(200)]

    def computed():
        return cluster.metric("cleave_machine_prompt_tokens_total", machine="prompt-0")

    assert computed() == 0
    reply = cluster.post("/v1/completions", {**BASE, **RANDOM, "prompt": prompt, "n": 4, "max_tokens": 5})
    ids = [choice["token_ids"] for choice in reply["choices"]]
    assert reply["usage"]["prompt_tokens"] == len(prompt) and len({tuple(each) for each in ids}) == 4, reply
    wait_until(lambda: computed() == 200 + 3 * 8, "the prompt is computed once", 60, cluster)
    for seed, want in enumerate(ids, RANDOM["seed"]):
        assert ids_of(cluster, {**RANDOM, "prompt": prompt, "seed": seed, "max_tokens": 5}) == want


def has_sequence(ids, part):
    return any(ids[at:at + len(part)] == part for at in range(len(ids)))


def check_rules(cluster, got):
    assert set(got["allowed"]) <= {500, 600, 700, 800} and len(set(got["allowed"])) > 1, got["allowed"]
    assert set(got["bias"]) <= {100, 200}, got["bias"]  # A bias of 90 is above all logits of the model.
    assert len({tuple(ids) for ids in got.values()}) == len(got), got
    forbidden = CASES["bad words"]["bad_words"]
    assert has_sequence(got["greedy"], cluster.post("/tokenize", {"prompt": forbidden[0]})["tokens"])
    for word in forbidden:
        tokens = cluster.post("/tokenize", {"prompt": word})["tokens"]
        assert len(tokens) > 1 and not has_sequence(got["bad words"], tokens), (word, tokens, got["bad words"])


def find_bad_word(cluster):
    """Returns the text of two tokens of the greedy answer that is tokenised as these two tokens."""
    ids = ids_of(cluster, {})
    for at in range(ANSWER - 1):
        text = cluster.post("/detokenize", {"tokens": ids[at:at + 2]})["prompt"]
        if not text.startswith(" ") and cluster.post("/tokenize", {"prompt": text})["tokens"] == ids[at:at + 2]:
            return text
    raise AssertionError(ids)


def killed(want):
    """The token machine is killed in the middle of all answers. They continue when it has restarted."""
    with Cluster({"threads": 1, "kv": {"memory": "64MiB"}}, gates=True) as cluster:
        cluster.hold("token-0", layer=15)
        with concurrent.futures.ThreadPoolExecutor(len(CASES)) as pool:
            answers = {name: pool.submit(ids_of, cluster, fields) for name, fields in CASES.items()}
            wait_until(lambda: json.loads(cluster.request("GET", "/admin/state")[2])["requests"]["decoding"] == len(CASES),
                       "all are decoded", cluster=cluster)
            for _ in range(6):
                cluster.hold("token-0", layer=15)
                cluster.wait_held("token-0")
            os.kill(cluster.children()["token-0"], signal.SIGKILL)
            cluster.release()
            for name, answer in answers.items():
                assert answer.result() == want[name], (name, answer.result(), want[name])
        resumed = cluster.metric("cleave_requests_resumed_total")
        assert resumed == len(CASES), resumed
    print(f"killed: {resumed:.0f} resumed, the same tokens", flush=True)


def preempted(want):
    """The memory holds only some of the answers."""
    config = {"kv": {"memory": "9MiB", "prefix_cache": False}, "threads": 1}
    names = [name for name in CASES for _ in range(3)]
    with Cluster(config, gates=True) as cluster:
        cluster.hold("token-0")
        with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
            answers = [pool.submit(ids_of, cluster, CASES[name]) for name in names]
            cluster.wait_held("token-0")
            cluster.release()
            for name, answer in zip(names, answers):
                assert answer.result() == want[name], (name, answer.result(), want[name])
        count = cluster.metric("cleave_preemptions_total")
    print(f"preempted: {count:.0f} times, the same tokens", flush=True)
    return count


def check_refusals(cluster):
    vocabulary = 49152
    for fields, part in (({"logit_bias": {str(vocabulary): 1}}, "logit_bias"),
                         ({"allowed_token_ids": [vocabulary]}, "allowed_token_ids"),
                         ({"bad_words": ["a" * 257]}, "bad_words")):
        try:
            ids_of(cluster, fields)
            raise AssertionError(fields)
        except Failure as failure:
            assert failure.status == 400 and part in str(failure), failure


def main():
    need_model()
    with Cluster({"kv": {"memory": "64MiB"}}) as cluster:
        check_shared_prompt(cluster)
        CASES["bad words"] = {"bad_words": [find_bad_word(cluster)]}
        want = all_ids(cluster)
        assert check_definition(cluster) == want["presence, frequency"]
        check_rules(cluster, want)
        check_refusals(cluster)
        cluster.wait_all_free()
    for kind, config in KINDS.items():
        with Cluster({"kv": {"memory": "64MiB"}, **config}) as cluster:
            got = all_ids(cluster)
            for name, ids in want.items():
                assert got[name] == ids, (kind, name, got[name], ids)
            cluster.wait_all_free()
        print(f"{kind}: the same tokens", flush=True)
    killed(want)
    assert preempted(want) > 0


main()
