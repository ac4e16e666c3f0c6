#!/usr/bin/env python3
"""Measures the time to the first token of a conversation's second turn, and how much of its prompt was neither computed
nor sent. Run it by hand: `python3 tests/cluster/bench_turns.py [ROUNDS] [BINARY…]`. Each binary (default:
CLEAVE_BINARY) serves with each policy, one prompt machine and one token machine of one thread. In each round they run
one after the other, so that each has the computer to itself. Prints the median and the minimum over the rounds."""

import os
import statistics
import sys
import time

from cluster import BINARY, Cluster, need_model

FIRST, ANSWER, MORE = 600, 200, 50


def tokens(start, count):
    return [(start * 31 + k * 13) % 40000 + 100 for k in range(count)]


def ask(cluster, prompt, count):
    """Returns (ms to the first token, the answer's tokens, usage)."""
    body = {"prompt": prompt, "max_tokens": count, "temperature": 0, "ignore_eos": True, "return_token_ids": True,
            "stream_options": {"include_usage": True}}
    began, first, ids, usage = time.monotonic(), None, [], None
    for event in cluster.stream("/v1/completions", body):
        first = first or time.monotonic()
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            ids += choice.get("token_ids") or []
    assert len(ids) == count, len(ids)
    return (first - began) * 1e3, ids, usage


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    rows = []
    for binary in sys.argv[2:] or [BINARY]:
        for policy in ("jsq", "prefix"):
            rows.append((f"{os.path.relpath(binary)} {policy}", binary, policy))
    need_model()
    clusters = [Cluster({"threads": 1, "scheduler": {"policy": policy}}, binary=binary) for _, binary, policy in rows]
    times, cached, moved = [[] for _ in rows], [0] * len(rows), [0] * len(rows)
    for turn in range(rounds):
        for at, cluster in enumerate(clusters):
            prompt = tokens(100 + turn, FIRST)
            said = prompt + ask(cluster, prompt, ANSWER)[1] + tokens(500 + turn, MORE)
            time.sleep(0.5)  # Machines report what they hold ten times per second.
            before = cluster.metric("cleave_transfer_bytes_total")
            took, _, usage = ask(cluster, said, 20)
            time.sleep(0.3)
            times[at].append(took)
            cached[at] = usage["prompt_tokens_details"]["cached_tokens"]
            moved[at] = cluster.metric("cleave_transfer_bytes_total") - before
    print(f"second turn of {FIRST + ANSWER + MORE} tokens, {rounds} rounds, load {os.getloadavg()[0]:.1f}")
    for at, (name, _, _) in enumerate(rows):
        print(f"{name:40} TTFT {statistics.median(times[at]):6.1f} ms, at least {min(times[at]):6.1f}; "
              f"{cached[at]} tokens cached, {moved[at] / 2**20:.1f} MiB moved")
    for cluster in clusters:
        cluster.stop()


main()
