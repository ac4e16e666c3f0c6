"""Goal: pools that adapt serve the same bytes: under a queue of prompts the token machine takes some, and goes home;
and with policy deadline, what cannot be in time is refused at once, with 429 and Retry-After. Method: real processes;
a burst of long prompts, against the answers of a quiet cluster."""

import json
import threading
import time

from cluster import Cluster, need_model

COUNT = 12


def body(n):
    return {"prompt": f"{n}: " + "The sea was calm that day, and nobody spoke. " * 30, "max_tokens": 24,
            "temperature": 0.8, "seed": n, "ignore_eos": True}


def burst(cluster):
    """All at once: [(status, headers, text)]."""
    replies = [None] * COUNT

    def ask(n):
        replies[n] = cluster.request("POST", "/v1/completions", body(n))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(COUNT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive(), "a request hangs\n" + cluster.logged()
    return replies


def check_adaptive():
    config = {"scheduler": {"prompt_queue_threshold_tokens": 400}, "kv": {"memory": "128MiB"}}
    with Cluster(config) as cluster:
        want = [cluster.post("/v1/completions", body(n))["choices"][0]["text"] for n in range(COUNT)]
        assert cluster.metric("cleave_pool_moves_total") == 0
        replies = burst(cluster)
        for n, (status, _, data) in enumerate(replies):
            assert status == 200, (n, status, data)
        got = [json.loads(data)["choices"][0]["text"] for _, _, data in replies]
        assert got == want, [(g, w) for g, w in zip(got, want) if g != w]
        assert cluster.metric("cleave_pool_moves_total", machine="token-0") >= 2
        assert cluster.metric("cleave_machine_prompt_tokens_total", machine="token-0") > 0
        cluster.wait_all_free()
        deadline = time.monotonic() + 30
        while cluster.metric("cleave_machine_in_pool", machine="token-0") != 1:
            assert time.monotonic() < deadline, "token-0 does not go home"
            time.sleep(0.05)


def check_deadline():
    with Cluster({"scheduler": {"policy": "deadline", "prompt_queue_threshold_tokens": 100000}, "slo": {"ttft_ms": 3600000}}) as cluster:
        started = time.monotonic()
        cluster.post("/v1/completions", {**body(0), "max_tokens": 1})  # from here on the prompt machine's rate is known
        alone_ms = int((time.monotonic() - started) * 1000)
        time.sleep(0.5)
        cluster.write("config.json", {**cluster.config, "slo": {"ttft_ms": alone_ms * 2}})
        assert cluster.request("POST", "/admin/reload")[0] == 200
        replies = burst(cluster)
        refused = [headers for status, headers, _ in replies if status == 429]
        assert refused and all(int(headers["Retry-After"]) >= 1 for headers in refused), replies
        assert [status for status, _, _ in replies if status == 200], replies
        assert all(status in (200, 429) for status, _, _ in replies), replies
        cluster.wait_all_free()


need_model()
check_adaptive()
check_deadline()
print("pools adapt under a burst, and a deadline refuses what is late")
