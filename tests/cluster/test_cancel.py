"""Goal: a client that goes away frees its KV blocks in both pools at once, whatever its request was doing.
Method: streams that are dropped at random moments (before the first token, while the prompt runs, while KV travels,
in mid-answer); afterwards every block is free within a second, and an undisturbed answer has its old bytes."""

import json
import os
import random
import socket
import struct
import threading
import time

from cluster import Cluster, need_model

STREAMS = 120


def drop_one(cluster, seed):
    draw = random.Random(seed)
    body = json.dumps({"prompt": [draw.randrange(100, 40000) for _ in range(draw.choice([3, 40, 300, 900]))],
                       "max_tokens": 400, "ignore_eos": True, "stream": draw.random() < 0.8,
                       "n": draw.choice([1, 1, 3]),
                       "cleave": {"transfer": draw.choice(["auto", "layerwise", "one-piece"])}})
    with socket.create_connection((cluster.host, cluster.port)) as connection:
        connection.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}"
                           .encode())
        time.sleep(draw.random() ** 2 * 1.5)
        if draw.random() < 0.5: # RST instead of FIN
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def main():
    need_model()
    seed = int(os.environ.get("CLEAVE_SEED", random.randrange(1 << 30)))
    print(f"seed: CLEAVE_SEED={seed}")
    with Cluster({"pools": {"prompt": 1, "token": 1}, "kv": {"memory": "96MiB"}}) as cluster:
        story = {"prompt": "Once upon a time", "max_tokens": 60, "temperature": 0}
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
