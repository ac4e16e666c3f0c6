"""Goal: adaptive pools serve the same bytes: while prompts queue, the token machine takes some of them, and then
returns to its own pool. With policy deadline, a request that cannot meet its deadline is refused at once, with 429 and
Retry-After.

Method: the prompt machine is held at a gate while a burst of prompts arrives, so that they queue on a computer of any
speed. The answers are compared with those of an idle cluster.
"""

import json
import threading

from cluster import Cluster, need_model, wait_until

COUNT = 8
CONFIG = {"threads": 1, "kv": {"memory": "64MiB"}, "transport": {"silence_ms": 60000}}
PACE_MS = 500  # Time of a batch in check_deadline; computing takes far less, even on a slow computer.


def body(n, tokens=12):
    return {"prompt": f"{n}: " + "The sea was calm that day, and all were silent. " * 6, "max_tokens": tokens,
            "temperature": 0.8, "seed": n, "ignore_eos": True}


def ask(cluster, replies, n, tokens):
    replies[n] = cluster.request("POST", "/v1/completions", body(n, tokens))


def burst(cluster, tokens, until):
    """Sends all requests at once while the prompt machine is held until the condition is true. Returns [(status,
    headers, text)]."""
    replies = [None] * COUNT
    cluster.hold("prompt-0")
    threads = [threading.Thread(target=ask, args=(cluster, replies, n, tokens)) for n in range(COUNT)]
    for thread in threads:
        thread.start()
    cluster.wait_held("prompt-0")
    wait_until(lambda: until(COUNT - replies.count(None)), "the burst is there", cluster=cluster)
    cluster.release()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive(), "a request hangs\n" + cluster.logged()
    return replies


def check_adaptive():
    config = {**CONFIG, "scheduler": {"prompt_queue_threshold_tokens": 150}}
    with Cluster(config, gates=True) as cluster:
        want = [cluster.post("/v1/completions", body(n))["choices"][0]["text"] for n in range(COUNT)]
        assert cluster.metric("cleave_pool_moves_total") == 0
        replies = burst(cluster, 12,
                        lambda answered: cluster.metric("cleave_machine_prompt_tokens_total", machine="token-0") > 0)
        for n, (status, _, data) in enumerate(replies):
            assert status == 200, (n, status, data)
        got = [json.loads(data)["choices"][0]["text"] for _, _, data in replies]
        assert got == want, [(g, w) for g, w in zip(got, want) if g != w]
        cluster.wait_all_free()
        wait_until(lambda: cluster.metric("cleave_machine_in_pool", machine="token-0") == 1, "token-0 goes home",
                   cluster=cluster)
        assert cluster.metric("cleave_pool_moves_total", machine="token-0") >= 2


def check_deadline():
    config = {**CONFIG, "scheduler": {"policy": "deadline", "prompt_queue_threshold_tokens": 100000},
              "slo": {"ttft_ms": 3600000}}
    with Cluster(config, gates=True, pace_us=PACE_MS * 1000) as cluster:
        cluster.post("/v1/completions", body(0, 1))
        # The report with these tokens also has the machine's speed.
        wait_until(lambda: cluster.metric("cleave_machine_prompt_tokens_total", machine="prompt-0") > 0,
                   "the prompt machine's speed is known", cluster=cluster)
        # A prompt takes PACE_MS and its computing time: the first one is in time, the last one is not.
        cluster.write("config.json", {**cluster.config, "slo": {"ttft_ms": PACE_MS * 4}})
        assert cluster.request("POST", "/admin/reload")[0] == 200
        replies = burst(cluster, 2, lambda answered: answered + state(cluster)["requests_open"] == COUNT)
        refused = [headers for status, headers, _ in replies if status == 429]
        assert refused and all(int(headers["Retry-After"]) >= 1 for headers in refused), replies
        assert [status for status, _, _ in replies if status == 200], replies
        assert all(status in (200, 429) for status, _, _ in replies), replies
        cluster.wait_all_free()
        print(f"{len(refused)} of {COUNT} refused")


def state(cluster):
    return json.loads(cluster.request("GET", "/admin/state")[2])


need_model()
check_adaptive()
check_deadline()
print("pools adapt under a burst, and a deadline refuses requests that would be late")
