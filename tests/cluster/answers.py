"""answers: completions of a cluster, as what two clusters must have in common; the metrics of drafts by a draft model or a
draft layer."""

import concurrent.futures

DRAFTED, RIGHT = "cleave_draft_model_tokens_total", "cleave_draft_model_accepted_tokens_total"


def part_of(reply):
    return [{"text": choice["text"], "ids": choice["token_ids"], "why": choice["finish_reason"],
             "logprobs": choice.get("logprobs"), "tokens": reply["usage"]["completion_tokens"]} for choice in reply["choices"]]


def answers_of(cluster, requests, at_once):
    """Returns the answers; `at_once` requests run at a time, so that steps have one answer or several."""
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        return dict(zip(requests, pool.map(lambda body: part_of(cluster.post("/v1/completions", body)), requests.values())))


def check(what, got, want):
    for name, answer in got.items():
        assert answer == want[name], (what, name, answer, want[name])
