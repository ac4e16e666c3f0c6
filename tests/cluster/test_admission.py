"""Goal: no request waits longer than scheduler/queue_ms; a request that would is refused with 429 and a Retry-After after
which it is accepted, in most cases. Method: (1) the token machine is held at a gate, so nothing is served. All requests
that wait, in the gateway or for KV memory, are refused when the limit is over. (2) Machines that only wait, and a flood
of clients that come back when they are told to. The speed of this computer decides nothing: devices sleep, and the
tolerance is that of the gateway's timer and of a busy computer. (3) The event log of (1), with its refusals of both
kinds, is replayed: a new scheduler makes the same decisions.
"""

import json
import os
import random
import subprocess
import threading
import time

from cluster import BINARY, Cluster, need_model, wait_until

LIMIT_S, SLACK_S = 3, 20
TOKENS = 8


class Client:
    """One client: asks until it is served, and comes back when Retry-After says so."""

    def __init__(self, cluster, seed, again):
        draw = random.Random(seed)
        self.cluster, self.again = cluster, again
        self.body = {"prompt": [draw.randrange(100, 40000) for _ in range(100)], "max_tokens": TOKENS,
                     "ignore_eos": True}
        self.refusals, self.waits, self.error = [], [], None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            while True:
                begin = time.monotonic()
                status, headers, data = self.cluster.request("POST", "/v1/completions", self.body)
                self.waits.append(time.monotonic() - begin)
                if status == 200:
                    assert json.loads(data)["usage"]["completion_tokens"] == TOKENS
                    return
                error = json.loads(data)["error"]
                assert status == 429 and "scheduler/queue_ms" in error["message"], (status, data)
                assert error["type"] == "rate_limit_error" or error["code"] == "rate_limit_exceeded", error
                self.refusals.append(int(headers["Retry-After"]))
                assert 1 <= self.refusals[-1] <= 600, headers
                if not self.again:
                    return
                time.sleep(self.refusals[-1])
        except Exception as error:  # The test judges every exception.
            self.error = error


def check_log(path):
    """Requests were refused that waited for KV memory of their machine, and the replay of the log decides the same."""
    overdue = sum('"event":"overdue"' in line and '"do":"refuse"' in line for line in open(path))
    done = subprocess.run([BINARY, "simulate", "--replay-log", path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert overdue > 0 and "\n0 decided differently" in done.stdout, (overdue, done.stdout)
    print(f"{overdue} requests waited too long for KV memory; the replay of the event log decides the same", flush=True)


def join(clients):
    for client in clients:
        client.thread.join(300)
        assert not client.thread.is_alive() and client.error is None, client.error


need_model()
base = {"kv": {"memory": "4MiB", "prefix_cache": False}, "threads": 1, "transport": {"silence_ms": 60000},
        "log": {"access_file": "access.log", "events_file": "events.jsonl", "format": "json"}}

with Cluster({**base, "scheduler": {"adaptive_pools": False, "queue_ms": LIMIT_S * 1000}}, gates=True) as cluster:
    cluster.hold("token-0")
    clients = [Client(cluster, seed, again=False) for seed in range(40)]
    # The others have KV memory, and are held.
    wait_until(lambda: cluster.metric("cleave_requests_refused_total", reason="long_wait") > 20 and not
               cluster.metric("cleave_requests_unrouted"), "waiting requests are refused", cluster=cluster)
    time.sleep(LIMIT_S)  # Those that wait for KV memory, too.
    cluster.release()
    join(clients)
    refused = [client for client in clients if client.refusals]
    print(f"held: {len(refused)} of {len(clients)} refused after {min(c.waits[0] for c in refused):.2f} to "
          f"{max(c.waits[0] for c in refused):.2f} s", flush=True)
    assert len(refused) > 20 and all(client.waits[0] < LIMIT_S + SLACK_S for client in refused)
    assert cluster.metric("cleave_requests_refused_total", reason="long_wait") == len(refused)
    cluster.wait_all_free()
    cluster.stop()
    check_log(os.path.join(cluster.folder.name, "events.jsonl"))

# Each batch of 128 tokens takes about 0.2 s, whatever computer this is.
machine = {"device": "wait:3000+30", "threads": 1}
config = {**base, "pools": {"prompt": ["p0"], "token": ["t0"]}, "machines": {"p0": machine, "t0": machine},
          "kv": {"memory": "64MiB", "prefix_cache": False}, "slo": {"ttft_ms": 500},
          "scheduler": {"adaptive_pools": False, "queue_ms": LIMIT_S * 1000, "prompt_batch_tokens": 128}}
with Cluster(config) as cluster:
    assert cluster.post("/v1/completions", {"prompt": "a b c", "max_tokens": 1})["usage"]["completion_tokens"] == 1
    begin = time.monotonic()
    clients = [Client(cluster, seed, again=True) for seed in range(100)]
    join(clients)
    took = time.monotonic() - begin
    path = os.path.join(cluster.folder.name, "access.log")
    lines = [json.loads(line) for line in open(path)]
    waits = sorted(line["phases"]["queue"] + line["phases"]["reserve"] for line in lines if line["status"] == 200)
    once = [client for client in clients if len(client.refusals) > 0]
    first = sum(len(client.refusals) == 1 for client in once)
    print(f"flood: {len(clients)} clients served in {took:.1f} s; waits of the accepted: median "
          f"{waits[len(waits) // 2]:.2f} s, longest {waits[-1]:.2f} s; refused {len(once)}, accepted on their first "
          f"return {first}; Retry-After up to {max(max(client.refusals) for client in once)} s")
    assert waits[-1] < LIMIT_S + SLACK_S
    assert len(once) > 20 and first * 2 > len(once), "Retry-After is not honest"
