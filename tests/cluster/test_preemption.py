"""Goal: when KV memory is short, growing answers are preempted and resumed, and clients only see a pause: every stream
has the bytes of an undisturbed run, and afterwards every block is free.

Method: the same streams, of several lengths and priorities, to a cluster with memory for all of them and to clusters
(one token machine; a mixed machine alone; two mixed machines) with memory for a few. A machine is held until all
streams have arrived, so that they need memory at the same time.
"""

import concurrent.futures

from cluster import Cluster, need_model, wait_until

STREAMS = 10
ANSWER = 90
MEMORY = "7MiB"


def body_of(index):
    prompt = [(index * 31 + k * 13) % 40000 + 100 for k in range(8 + index * 5 % 60)]
    return {"prompt": prompt, "max_tokens": ANSWER + index * 7 % 30, "ignore_eos": True, "temperature": 0.9,
            "seed": index, "priority": index % 3}


# A prompt that is larger than the part of its memory that a mixed machine keeps for prompts, and one token: the rest of
# an answer that was preempted before its last token.
LONG_PROMPT = {"prompt": [k * 17 % 40000 + 100 for k in range(250)], "max_tokens": 1, "temperature": 0,
               "ignore_eos": True}


def answer(cluster, body):
    events = list(cluster.stream("/v1/completions", body))
    assert events[-1]["choices"][0]["finish_reason"] == "length", events[-1]
    return "".join(event["choices"][0]["text"] for event in events)


def answers(cluster):
    """Returns the text of each stream."""
    names = [name for name in cluster.children() if not name.startswith("prompt")]
    for name in names:
        cluster.hold(name)
    with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
        texts = pool.map(lambda index: answer(cluster, body_of(index)), range(STREAMS))
        try:
            # Some may have ended by then: a prompt machine, which is not held, helps.
            wait_until(lambda: cluster.metric("cleave_model_requests_total") == STREAMS and
                       all(cluster.held(name) for name in names), "all streams have arrived", cluster=cluster)
        finally:
            cluster.release()  # Otherwise the streams, and this pool of threads, would not end.
        return list(texts)


def check(config, want):
    with Cluster({"kv": {"memory": MEMORY}, "threads": 1, **config}, gates=True) as cluster:
        assert answers(cluster) == want[:-1]
        assert answer(cluster, LONG_PROMPT) == want[-1]
        blocks = cluster.wait_all_free()
        preempted = cluster.metric("cleave_preemptions_total")
        assert preempted == cluster.metric("vllm:num_preemptions_total")
        assert cluster.metric("cleave_requests_resumed_total") == 0
        log = cluster.logged()
    assert "assert" not in log.lower() and "Sanitizer" not in log, log
    print(f"{config}: {STREAMS} streams, {preempted:.0f} preemptions; {blocks}", flush=True)
    return preempted


need_model()
with Cluster({"threads": 1, "kv": {"memory": "128MiB"}}, gates=True) as cluster:
    undisturbed = [*answers(cluster), answer(cluster, LONG_PROMPT)]
    assert cluster.metric("cleave_preemptions_total") == 0
assert check({}, undisturbed) > 0
assert check({"pools": {"mixed": 1}}, undisturbed) > 0
assert check({"pools": {"mixed": 2}, "scheduler": {"preemptions_max": 1, "growth_tokens": 1}}, undisturbed) > 0
# Whole answers are reserved. The prompt machine, which is not held, does not help.
assert check({"scheduler": {"preemptions_max": 0, "adaptive_pools": False}}, undisturbed) == 0
