"""bench_recovery: the pause of a stream when its machine dies, with and without checkpoints (kv/checkpoint).

Two mixed machines with one thread each serve one stream at a time. Each round measures every context with `off` (all
tokens are computed again) and with `idle` (the other machine has a checkpoint), in turn. After some tokens of the
answer, and in the second case when the checkpoint is complete, the machine is killed. The pause is the longest time
between two tokens after the kill.

usage: bench_recovery.py [--rounds N] [--contexts N,…] [--build FOLDER]
"""

import argparse
import json
import os
import signal
import threading
import time
from statistics import median

from bench_cluster import cluster
from bench_table import number, table

ANSWER, BEFORE, BLOCK = 120, 40, 16


def state(server):
    return json.loads(server.request("GET", "/admin/state")[2])


def measure(context, mode):
    """Returns (pause in ms, tokens computed again)."""
    config = {"model": cluster.DEFAULT_MODEL, "pools": {"mixed": 2}, "threads": 1,
              "kv": {"memory": "512MiB", "checkpoint": mode}, "scheduler": {"placement": "auto"}}
    body = {"prompt": [(k * 31 + context) % 40000 + 100 for k in range(context - BEFORE)], "max_tokens": ANSWER,
            "temperature": 0, "ignore_eos": True}
    arrivals = []
    with cluster.Cluster(config) as server:
        def read():
            for _ in server.stream("/v1/completions", body):
                arrivals.append(time.monotonic())

        reader = threading.Thread(target=read)
        reader.start()
        while len(arrivals) < BEFORE or \
                (mode != "off" and state(server)["checkpoint_tokens"] < context - BEFORE - BLOCK):
            time.sleep(0.005)
        victim = next(each["name"] for each in state(server)["machines"] if each["routed_decodes"] > 0)
        killed = time.monotonic()
        os.kill(server.children()[victim], signal.SIGKILL)
        reader.join()
        pause = max(b - a for a, b in zip(arrivals, arrivals[1:]) if b > killed)
        return pause * 1000, server.metric("cleave_tokens_recomputed_total")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--contexts", default="1024,4096,8000")
    parser.add_argument("--build", default="build")
    args = parser.parse_args()
    cluster.BINARY = os.path.join(args.build, "cleave")
    found = {}
    for _ in range(args.rounds):
        for context in map(int, args.contexts.split(",")):
            for mode in ("off", "idle"):
                found.setdefault((context, mode), []).append(measure(context, mode))
    rows = [[str(context), mode, number(median(pause for pause, _ in each)),
             " ".join(number(pause) for pause, _ in each), number(median(tokens for _, tokens in each))]
            for (context, mode), each in found.items()]
    print(table(["context, tokens", "kv/checkpoint", "pause, ms (median)", "each", "tokens computed"], rows))


if __name__ == "__main__":
    main()
