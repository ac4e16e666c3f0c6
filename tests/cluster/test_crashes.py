"""Goal: a request that crashes the machines which compute it, or makes their device fail, fails after three crashes, and
the requests that shared its batches get the bytes of an undisturbed run. Machines that are killed from outside, however
often, count against no request.

Method: the CPU backend aborts, or reports that it has failed, at a token that only one of the prompts has
(tests/device/gate_plugin.c). Its request starts while streams run on the same machine, so that it shares a batch with
some of them. Then a machine is killed nine times while it computes one request.
"""

import json
import os
import signal

from cluster import Cluster, Stream, need_model, wait_until

CRASH_TOKEN = 28  # No other prompt and no answer below has it: they forbid it.
CONFIG = {"pools": {"mixed": ["m0"]}, "threads": 1, "scheduler": {"crashes_max": 3}}


def request(prompt, tokens):
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 0.7, "seed": 42, "ignore_eos": True,
            "logit_bias": {str(CRASH_TOKEN): -100}}


def start(cluster):
    return [Stream(cluster, request([100 + n, 200, 300 + n] * (n + 1), 60)) for n in range(4)]


def culprit(variable, end):
    os.environ[variable] = str(CRASH_TOKEN)
    with Cluster(CONFIG, gates=True, pace_us=20000) as cluster:
        want = [stream.end().text for stream in start(cluster)]
        streams = start(cluster)
        for stream in streams:
            stream.wait_events(2)
        status, headers, answer = cluster.request("POST", "/v1/completions", request([100, CRASH_TOKEN, 300], 8))
        assert status == 500 and headers["x-should-retry"] == "false", (status, headers)
        assert b"crashed 3 times" in answer and end.encode() in answer, answer
        for stream, text in zip(streams, want):
            stream.expect(text, "a stream beside the request that crashes")
        state = json.loads(cluster.request("GET", "/admin/state")[2])
        machine = [m for m in state["machines"] if m["name"] == "m0"][0]
        assert machine["crashes"] == 3 and end in machine["latest_crash"], machine
        assert state["requests_suspected"] == 0, state
        assert cluster.metric("cleave_machine_crashes_total") == 3
        assert cluster.metric("cleave_requests_blamed_total") == 1
        print(f"3 crashes; the request failed; {len(streams)} streams with the same bytes; {machine['latest_crash']}")
        cluster.wait_all_free()
    del os.environ[variable]


def bad_luck():
    with Cluster(CONFIG, gates=True) as cluster:
        want = Stream(cluster, request([5, 6, 7] * 30, 8)).end().text
        stream = None
        for _ in range(9):
            cluster.hold("m0", layer=3)
            stream = stream or Stream(cluster, request([5, 6, 7] * 30, 8))
            wait_until(lambda: cluster.held("m0"), "m0 is held", cluster=cluster)
            pid = cluster.children()["m0"]
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: cluster.children().get("m0", pid) != pid, "m0 is started again", cluster=cluster)
        cluster.release()
        stream.expect(want, "killed nine times")
        assert cluster.metric("cleave_machine_crashes_total") == 0
        print("9 kills from outside, no crash, the same bytes")


if __name__ == "__main__":
    need_model()
    culprit("CLEAVE_GATE_CRASH_TOKEN", "signal 6")
    culprit("CLEAVE_GATE_FAIL_TOKEN", "exit status 70")
    bad_luck()
