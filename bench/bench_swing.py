#!/usr/bin/env python3
"""bench_swing: measures the gain of adaptive pools when the load changes.

usage: bench_swing.py [--seconds S] [--share CORES] [--load X] [--rounds N] [--only WORDS|…]

Four machines of one thread each, each limited to a share of a core by its own control group (like a separate computer:
an idle machine does not lend its core). Half of the time, prompts of 600 tokens with answers of 16 arrive, then prompts
of 64 with answers of 200, at random moments (Poisson), the same for each kind of pools. A request is good if its first
token arrives within 2 s and its mean gap is at most 80 ms. Needs root and the cpu controller of control groups (version
1). Standard library only.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from statistics import median

from bench_cluster import cluster
from bench_table import number, spread, table

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BINARY = os.path.join(ROOT, "build", "cleave")
GROUPS = "/sys/fs/cgroup/cpu"
PERIOD_US = 5000
TTFT_MS, TBT_MS = 2000, 80
# Prompt tokens, answer tokens, requests per second for each whole core of the four machines together.
PHASES = (("prompt-heavy", 600, 16, 1.8), ("token-heavy", 64, 200, 4.2))
FIXED = {"placement": "split", "adaptive_pools": False, "repurpose_window_ms": 0}
LENDS = {**FIXED, "adaptive_pools": True}
TOKENS = {**LENDS, "prompt_queue_threshold_ms": 0}  # Only the 8192 tokens of the other threshold.
AUTO = {**LENDS, "placement": "auto"}
SOON = {"repurpose_window_ms": 16000, "repurpose_interval_ms": 10000}
FORMS = (("1 prompt + 3 token, fixed", 1, FIXED), ("2 + 2, fixed", 2, FIXED), ("3 + 1, fixed", 3, FIXED),
         ("2 + 2, lends", 2, LENDS), ("2 + 2, lends by tokens", 2, TOKENS),
         ("2 + 2, lends and changes homes", 2, {**LENDS, **SOON}), ("2 + 2, auto", 2, AUTO),
         ("2 + 2, auto, changes homes", 2, {**AUTO, **SOON}), ("4 mixed", 4, {}))


class Group:
    """A control group that limits one process to a share of a core."""

    def __init__(self, name, cores):
        self.path = os.path.join(GROUPS, f"cleave-{os.getpid()}-{name}")
        os.mkdir(self.path)
        self.write("cpu.cfs_period_us", PERIOD_US)
        self.write("cpu.cfs_quota_us", int(PERIOD_US * cores))

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w") as file:
            file.write(str(value))

    def add(self, pid):
        self.write("cgroup.procs", pid)

    def close(self):
        os.rmdir(self.path)


def trace_write(path, seed, seconds, cores):
    """Returns [phase of each request]. `cores`: of the machines together, times --load."""
    draw = random.Random(seed)
    at, phases = 0.0, []
    with open(path, "w") as file:
        file.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
        while True:
            phase = PHASES[0] if at < seconds / 2 else PHASES[1]
            at += draw.expovariate(phase[3] * cores)
            if at >= seconds:
                return phases
            phase = PHASES[0] if at < seconds / 2 else PHASES[1]
            phases.append(phase[0])
            file.write(f"2026-01-01 00:{int(at) // 60:02d}:{at % 60:010.7f},{phase[1]},{phase[2]}\n")


def replay(url, trace):
    done = subprocess.run([BINARY, "replay", trace, "--url", url, "--json", "--slo-ttft-ms", str(TTFT_MS),
                           "--slo-tbt-ms", str(TBT_MS), "--timeout", "20"], stdout=subprocess.PIPE, timeout=900)
    if done.returncode not in (0, 1):
        raise SystemExit("cleave replay failed")
    return json.loads(done.stdout)["requests"]


def run(form, trace, cores):
    _, prompts, scheduler = form
    pools = {"mixed": 4} if prompts == 4 else {"prompt": prompts, "token": 4 - prompts}
    config = {"threads": 1, "kv": {"memory": "256MiB", "prefix_cache": False}, "scheduler": {"turn_ms": 0, **scheduler},
              "pools": pools, "slo": {"ttft_ms": TTFT_MS, "tbt_ms": TBT_MS}}
    groups = []
    with cluster.Cluster(config, binary=BINARY) as one:
        try:
            for name, pid in one.children().items():
                groups.append(Group(name, cores))
                groups[-1].add(pid)
            results = replay(f"http://{one.host}:{one.port}", trace)
            moves = one.metric("cleave_pool_moves_total")
        finally:
            one.stop()
            for group in groups:
                group.close()
    return results, moves


def good(result):
    return result["status"] == "done" and result["ttft_ms"] <= TTFT_MS and result["tbt_mean_ms"] <= TBT_MS


def options_read():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--share", type=float, default=0.4, help="cores of each machine (default: 0.4)")
    parser.add_argument("--load", type=float, default=1, help="factor of the rate of requests (default: 1)")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="", help="forms with one of these words only, separated by |")
    options = parser.parse_args()
    if not os.access(GROUPS, os.W_OK):
        raise SystemExit(f"bench_swing: {GROUPS}: want to make control groups there (root)")
    return options


def main():
    options = options_read()
    forms = [form for form in FORMS if any(words in form[0] for words in options.only.split("|"))]
    shares = {form[0]: {name: [] for name, *_ in PHASES} for form in forms}
    both = {form[0]: [] for form in forms}
    moved = {form[0]: [] for form in forms}
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace.csv")
        for seed in range(options.rounds):
            phases = trace_write(trace, seed, options.seconds, 4 * options.share * options.load)
            for form in forms:
                results, moves = run(form, trace, options.share)
                assert len(results) == len(phases)
                flags = [good(r) for r in sorted(results, key=lambda r: r["line"])]
                for name, *_ in PHASES:
                    of = [flag for flag, phase in zip(flags, phases) if phase == name]
                    shares[form[0]][name].append(100 * sum(of) / len(of))
                both[form[0]].append(sum(flags) / options.seconds)
                moved[form[0]].append(moves)
                print(f"{form[0]}: {both[form[0]][-1]:.2f} good requests/s",
                      [round(v[-1]) for v in shares[form[0]].values()], file=sys.stderr, flush=True)
    print(table(["pools", "good requests/s", "range", *(f"good, {name}, %" for name, *_ in PHASES), "moves"],
                [[form[0], number(median(both[form[0]])), spread(both[form[0]]),
                  *(number(median(shares[form[0]][name])) for name, *_ in PHASES), number(median(moved[form[0]]))]
                 for form in forms]))


if __name__ == "__main__":
    main()
