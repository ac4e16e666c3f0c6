"""Goal: where KV memory is short, answers grow into it, some are preempted and go on later, and no client sees more
than a pause: every stream has the bytes of an undisturbed run, and afterwards every block is free. Method: the same streams, of several lengths and priorities, all at once, to a cluster
with memory for all of them and to clusters (one token machine; a mixed machine alone) with memory for a few."""

import threading

from cluster import Cluster, need_model

STREAMS = 16
ANSWER = 120


def body_of(index):
    prompt = [(index * 31 + k * 13) % 40000 + 100 for k in range(8 + index * 5 % 60)]
    return {"prompt": prompt, "max_tokens": ANSWER + index * 7 % 60, "ignore_eos": True, "temperature": 0.9,
            "seed": index, "priority": index % 3}


def answers(cluster):
    """The text of each stream; every stream must end well."""
    got = [None] * STREAMS

    def run(index):
        events = list(cluster.stream("/v1/completions", body_of(index)))
        assert events[-1]["choices"][0]["finish_reason"] == "length", events[-1]
        got[index] = "".join(event["choices"][0]["text"] for event in events)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(STREAMS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert None not in got, [index for index in range(STREAMS) if got[index] is None]
    return got


def check(config, want):
    with Cluster({"kv": {"memory": "28MiB"}, "threads": 2, **config}) as cluster:
        assert answers(cluster) == want
        blocks = cluster.wait_all_free()
        preempted = cluster.metric("cleave_preemptions_total")
        assert preempted == cluster.metric("vllm:num_preemptions_total")
        assert cluster.metric("cleave_requests_resumed_total") == 0
        log = cluster.logged()
    assert "assert" not in log.lower() and "Sanitizer" not in log, log
    print(f"{config}: {STREAMS} streams, {preempted:.0f} preemptions; {blocks}")
    return preempted


need_model()
with Cluster({"threads": 2}) as cluster:
    undisturbed = answers(cluster)
    assert cluster.metric("cleave_preemptions_total") == 0
assert check({}, undisturbed) > 0
assert check({"pools": {"mixed": 1}}, undisturbed) > 0
assert check({"pools": {"mixed": 2}, "scheduler": {"preemptions_max": 1, "growth_tokens": 1}}, undisturbed) > 0
assert check({"scheduler": {"preemptions_max": 0}}, undisturbed) == 0  # whole answers are booked
