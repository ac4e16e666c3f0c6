"""Goal: when a client leaves, its KV blocks in both pools are freed at once, in every phase of its request. Method:
first a machine is held at a gate (in the middle of the prompt, before a decode step, in the middle of a decode step),
and the client leaves: the request ends although the machine does not compute. Then streams are dropped at random
moments (before the first token, during the prompt, while KV is sent, during the answer). Afterwards every block is
free, and an undisturbed answer has the same bytes as before. Argument: many: 120 streams instead of 24, and longer
answers."""

import json
import os
import random
import socket
import struct
import sys
import threading
import time

from cluster import Cluster, need_model, wait_until

STREAMS, SECONDS, TOKENS = (120, 1.5, 400) if sys.argv[1:] == ["many"] else (24, 0.6, 200)


def send(cluster, body):
    connection = socket.create_connection((cluster.host, cluster.port))
    body = json.dumps(body)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    connection.sendall(f"{head}\r\n\r\n{body}".encode())
    return connection


def leave(connection, reset):
    if reset:  # RST instead of FIN.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def requests(cluster):
    state = json.loads(cluster.request("GET", "/admin/state")[2])
    return {"open": state["requests_open"], **state["requests"]}


# Phase: (the held machine, its layer, the smallest batch that is held, the request's state then).
PHASES = {"in the prompt": ("prompt-0", 15, 100, "prefilling"), "before a step": ("token-0", 0, 1, "decoding"),
          "in a step": ("token-0", 15, 1, "decoding")}


def check_phase(cluster, phase, reset, transfer):
    machine, layer, rows, state = PHASES[phase]
    cluster.hold(machine, layer, rows)
    first = 1000 + 300 * cluster.gate_number  # The KV of an earlier prompt stays in the prefix caches.
    connection = send(cluster, {"prompt": list(range(first, first + 300)), "max_tokens": 50, "ignore_eos": True, "stream": True,
                                "n": 2, "cleave": {"transfer": transfer}})
    cluster.wait_held(machine)
    wait_until(lambda: requests(cluster)[state] > 0, f"a request is {state}", cluster=cluster)
    leave(connection, reset)
    wait_until(lambda: requests(cluster)["open"] == 0, f"{phase}: the request has ended", cluster=cluster)
    assert cluster.held(machine)
    cluster.release()
    cluster.wait_all_free()


def drop_one(cluster, seed):
    draw = random.Random(seed)
    body = {"prompt": [draw.randrange(100, 40000) for _ in range(draw.choice([3, 40, 300, 900]))],
            "max_tokens": TOKENS, "ignore_eos": True, "stream": draw.random() < 0.8, "n": draw.choice([1, 1, 3]),
            "cleave": {"transfer": draw.choice(["auto", "layerwise", "one-piece"])}}
    connection = send(cluster, body)
    time.sleep(draw.random() ** 2 * SECONDS)
    leave(connection, draw.random() < 0.5)


def main():
    need_model()
    seed = int(os.environ.get("CLEAVE_SEED", random.randrange(1 << 30)))
    print(f"seed: CLEAVE_SEED={seed}")
    config = {"pools": {"prompt": 1, "token": 1}, "kv": {"memory": "96MiB"}, "transport": {"silence_ms": 60000}}
    # With adaptive pools, the machine that is not held would do the other machine's work.
    with Cluster({**config, "scheduler": {"adaptive_pools": False}}, gates=True) as cluster:
        for phase in PHASES:
            for reset in (False, True):
                check_phase(cluster, phase, reset, "layerwise" if reset else "one-piece")
    with Cluster(config) as cluster:
        story = {"prompt": "Once upon a time", "max_tokens": 30, "temperature": 0}
        want = cluster.post("/v1/completions", story)["choices"][0]["text"]
        threads = []
        for i in range(STREAMS):
            threads.append(threading.Thread(target=drop_one, args=(cluster, seed + i)))
            threads[-1].start()
            time.sleep(0.02)
        for thread in threads:
            thread.join()
        start = time.monotonic()
        blocks = cluster.wait_all_free()
        waited = time.monotonic() - start
        assert cluster.post("/v1/completions", story)["choices"][0]["text"] == want
        assert cluster.process.poll() is None and len(cluster.children()) == 2
        log = cluster.logged()
    assert "assert" not in log.lower() and "Sanitizer" not in log, log
    print(f"{STREAMS} streams dropped; all {blocks['free']} blocks free {waited:.2f} s after the last")


if __name__ == "__main__":
    main()
