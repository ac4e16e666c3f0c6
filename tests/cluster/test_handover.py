"""Goal: a token machine that drains hands its answers over, with their KV: no client notices, nothing is computed again,
and the machine has nothing left to do long before the answers end. Method: real processes; six long streams on one of two
token machines, which then drains, by an operator's word or because it is taken out; the bytes are compared with those of a
run that nobody disturbed. And answers that are not worth it stay where they are."""

import json
import os
import signal
import threading
import time

from cluster import Cluster, need_model

BLOCK, STREAMS, PROMPT, ANSWER = 16, 6, 120, 450


def body_of(index):
    prompt = [(index * 31 + k * 13) % 40000 + 100 for k in range(PROMPT)]
    return {"prompt": prompt, "max_tokens": ANSWER, "temperature": 0.8, "seed": index, "ignore_eos": True}


def wait_until(what, condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


class Streams:
    """They have all begun, and are read by threads of their own."""

    def __init__(self, cluster, count=STREAMS):
        self.cluster, self.texts, self.tokens, self.errors = cluster, [""] * count, [0] * count, []
        self.threads = [threading.Thread(target=self.read, args=(index,), daemon=True) for index in range(count)]
        for thread in self.threads:
            thread.start()
        wait_until("all streams have begun", lambda: min(self.tokens) > 5 or self.errors)
        assert not self.errors, self.errors

    def read(self, index):
        try:
            for event in self.cluster.stream("/v1/completions", body_of(index)):
                self.texts[index] += event["choices"][0]["text"]
                self.tokens[index] += 1
        except Exception as error:  # whatever it is, the test looks at it
            self.errors.append(error)

    def end(self):
        for thread in self.threads:
            thread.join(120)
            assert not thread.is_alive(), "a stream does not end"
        assert not self.errors, self.errors
        return self.texts


def admin(cluster, method, path):
    status, _, data = cluster.request(method, path)
    assert status in (200, 202), (path, status, data)
    return json.loads(data)


def machine(cluster, name):
    return next(each for each in admin(cluster, "GET", "/admin/state")["machines"] if each["name"] == name)


def drain_busy(cluster, want, leave):
    """All streams are on token-0 when it drains."""
    linked = [{"from": "prompt-0", "to": f"token-{i}", "up": True} for i in (0, 1)]
    wait_until("links", lambda: all(each in admin(cluster, "GET", "/admin/state")["links"] for each in linked))
    admin(cluster, "POST", "/admin/drain/token-1")
    streams = Streams(cluster)
    state = machine(cluster, "token-0")
    assert state["routed_decodes"] == STREAMS, (state, cluster.logged()[-1500:])
    admin(cluster, "POST", "/admin/undrain/token-1")
    leave()
    wait_until("all answers have left", lambda: cluster.metric("cleave_requests_handed_over_total") == STREAMS)
    assert streams.end() == want


def check_drain(config, want):
    with Cluster(config) as cluster:
        drain_busy(cluster, want, lambda: admin(cluster, "POST", "/admin/drain/token-0"))
        # Each had as many tokens left as is worth it, by the default; the other machine has generated them.
        generated = [cluster.metric("cleave_machine_generated_tokens_total", machine=f"token-{i}") for i in (0, 1)]
        assert generated[0] <= STREAMS * (ANSWER - 32) and generated[1] >= STREAMS * 30, generated
        # It found what it had of each answer, all but the last block; and pushed it.
        wait_until("the KV was found",
                   lambda: cluster.metric("cleave_prefix_cache_hits_tokens_total", machine="token-0")
                   >= STREAMS * (PROMPT - PROMPT % BLOCK))
        asked = cluster.metric("cleave_prefix_cache_queries_tokens_total", machine="token-0")
        found = cluster.metric("cleave_prefix_cache_hits_tokens_total", machine="token-0")
        assert asked - found <= STREAMS * (BLOCK + 1), (asked, found)
        assert cluster.metric("cleave_transfer_bytes_total", machine="token-0") > 0
        assert cluster.metric("cleave_requests_resumed_total") == 0
        assert admin(cluster, "POST", "/admin/drain/token-0")["idle"] is True
        cluster.wait_all_free()


def check_leave(want):
    """Taken out: its process has ended while all streams go on."""
    with Cluster(CONFIG) as cluster:
        def leave():
            admin(cluster, "DELETE", "/admin/machines/token-0")

        drain_busy(cluster, want, leave)
        wait_until("its process has ended", lambda: "token-0" not in cluster.children())
        cluster.wait_all_free()
        assert "died" not in cluster.logged(), cluster.logged()


def check_killed(want):
    """It dies while it hands over: what it had is computed again."""
    with Cluster(CONFIG) as cluster:
        admin(cluster, "POST", "/admin/drain/token-1")
        streams = Streams(cluster)
        admin(cluster, "POST", "/admin/undrain/token-1")
        admin(cluster, "POST", "/admin/drain/token-0")
        os.kill(cluster.children()["token-0"], signal.SIGKILL)
        assert streams.end() == want
        cluster.wait_all_free()


def check_stays(want):
    """Answers that may have fewer tokens left than is worth it finish where they are."""
    config = {**CONFIG, "scheduler": {"handover_tokens_min": ANSWER + 1}}
    with Cluster(config) as cluster:
        admin(cluster, "POST", "/admin/drain/token-1")
        streams = Streams(cluster, 2)
        admin(cluster, "POST", "/admin/undrain/token-1")
        assert admin(cluster, "POST", "/admin/drain/token-0")["idle"] is False
        assert streams.end() == want[:2]
        assert cluster.metric("cleave_requests_handed_over_total") == 0
        cluster.wait_all_free()


need_model()
CONFIG = {"pools": {"prompt": 1, "token": 2}, "threads": 1, "kv": {"memory": "192MiB"}}
with Cluster(CONFIG) as undisturbed:
    texts = Streams(undisturbed).end()
check_drain(CONFIG, texts)
check_drain({**CONFIG, "scheduler": {"adaptive_pools": False}}, texts)
check_leave(texts)
check_killed(texts)
check_stays(texts)
