"""Goal: an operator may stop, reload and change a cluster while it serves, and no request that runs notices. Method:
real processes; streams run through every change, and must bring the bytes of an undisturbed run."""

import json
import os
import signal
import threading
import time

from cluster import Cluster, Failure, need_model

LONG = {"prompt": "Once upon a time", "temperature": 0, "ignore_eos": True}


class Stream(threading.Thread):
    """A streamed answer that is read by a thread of its own. `text` so far; `error` when it ended with one."""

    def __init__(self, cluster, tokens):
        super().__init__(daemon=True)
        self.cluster, self.tokens, self.text, self.error, self.begun = cluster, tokens, "", None, threading.Event()
        self.start()
        assert self.begun.wait(120), "no first token"

    def run(self):
        try:
            for event in self.cluster.stream("/v1/completions", {**LONG, "max_tokens": self.tokens}):
                self.text += event["choices"][0]["text"]
                self.begun.set()
        except Exception as error:  # whatever it is, the test looks at it
            self.error = error
        self.begun.set()

    def end(self, seconds=120):
        self.join(seconds)
        assert not self.is_alive(), "the stream does not end"
        return self


def undisturbed(cluster, tokens):
    return cluster.post("/v1/completions", {**LONG, "max_tokens": tokens})["choices"][0]["text"]


def check_graceful_stop():
    with Cluster(prefix=("setsid",)) as cluster:
        want = undisturbed(cluster, 300)
        stream = Stream(cluster, 300)
        os.killpg(cluster.process.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
        cluster.wait_health(503, '"draining"')
        status, headers, body = cluster.request("POST", "/v1/completions", {"prompt": "x"})
        assert status == 503 and int(headers["Retry-After"]) > 0 and b"stopping" in body, (status, headers, body)
        assert stream.end().error is None and stream.text == want, (stream.error, stream.text)
        assert cluster.process.wait(30) == 0
        said = cluster.logged()
        assert "refuses new requests, 1 are running" in said and "died" not in said, said


def check_hasty_stop():
    for how in ("twice", "drain_ms"):
        config = {"server": {"drain_ms": 500}} if how == "drain_ms" else {}
        with Cluster(config) as cluster:
            stream = Stream(cluster, 4000)
            cluster.process.send_signal(signal.SIGTERM)
            if how == "twice":
                cluster.wait_health(503, '"draining"')
                cluster.process.send_signal(signal.SIGTERM)
            assert isinstance(stream.end(30).error, Failure) and "stopping" in str(stream.error), stream.error
            assert cluster.process.wait(30) == 0


need_model()
check_graceful_stop()
check_hasty_stop()
print("what ran went on through every change")
