"""Goal: where a prompt machine and a token machine share the cores of one computer, one of them computes both phases
(`scheduler/placement` auto), with the bytes of split phases; the other one takes over when the first dies. `split`
splits, and so do machines that have cores of their own.

Method: streams on clusters with each placement; which machine computed their prompts, by /metrics.

usage: test_placement.py
"""

import os
import signal

from cluster import Cluster, Stream, need_model, wait_until

BODIES = [{"prompt": f"Count from {n}: " + "one two three " * (5 * n + 1), "max_tokens": 200, "temperature": n % 2,
           "seed": n, "ignore_eos": True} for n in range(8)]
# Each machine has as many threads as there are cores, so that they share them on any computer.
SHARED = {"pools": {"prompt": ["p0"], "token": ["t0"]}, "kv": {"memory": "64MiB"}}


def prompts_of(cluster):
    """Returns {machine: prompt tokens that it has computed}."""
    wait_until(lambda: cluster.metric("cleave_machine_prompt_tokens_total") > 0, "a machine has reported its work",
               cluster=cluster)
    cluster.wait_all_free()
    return {name: cluster.metric("cleave_machine_prompt_tokens_total", machine=name) for name in ("p0", "t0")}


def texts(cluster):
    streams = [Stream(cluster, body) for body in BODIES]
    return [stream.end().text for stream in streams]


def main():
    with Cluster({**SHARED, "scheduler": {"placement": "split"}}) as cluster:
        want = texts(cluster)
        wait_until(lambda: prompts_of(cluster)["p0"] > 0, "p0 has reported its prompts", cluster=cluster)
        assert prompts_of(cluster)["t0"] == 0, prompts_of(cluster)
    with Cluster({**SHARED, "scheduler": {"placement": "auto"}}) as cluster:
        assert texts(cluster) == want
        wait_until(lambda: prompts_of(cluster)["t0"] > 0, "t0 has reported its prompts", cluster=cluster)
        assert prompts_of(cluster)["p0"] == 0, prompts_of(cluster)
        old = cluster.children()["t0"]
        streams = [Stream(cluster, body).wait_events() for body in BODIES]
        os.kill(old, signal.SIGKILL)
        for stream, text in zip(streams, want):
            stream.expect(text, "t0 is killed")
        wait_until(lambda: cluster.children().get("t0", old) != old, "t0 is started again", cluster=cluster)
        cluster.wait_all_free()
    print("machines that share cores: one computes both phases, with the same bytes, also after its death")
    if len(os.sched_getaffinity(0)) < 2:
        return
    with Cluster({**SHARED, "threads": 1, "scheduler": {"placement": "auto"}}) as cluster:
        assert texts(cluster) == want
        wait_until(lambda: prompts_of(cluster)["p0"] > 0, "p0 has reported its prompts", cluster=cluster)
        assert prompts_of(cluster)["t0"] == 0, prompts_of(cluster)
    print("machines with cores of their own: the phases are split")


need_model()
main()
