#!/usr/bin/env python3
"""bench_swing: measures the gain of adaptive pools when the load changes.

usage: bench_swing.py [--seconds S] [--share CORES] [--load X] [--rounds N] [--only WORDS|…]
                      [--json FILE] [--wait LAYER+ROW [--parallel N]]

Four machines of one thread each, each limited to a share of a core by its own control group (like a separate computer:
an idle machine does not lend its core). Half of the time, prompts of 600 tokens with answers of 16 arrive, then prompts
of 64 with answers of 200, at random moments (Poisson), the same for each kind of pools. A request is good if its first
token arrives within 2 s and its mean gap is at most 80 ms. Needs root and the cpu controller of control groups (version
1). Standard library only.

With --wait, the machines compute nothing: each layer takes LAYER microseconds and ROW for each row of its batch
(docs/profile.md, "The device wait"). Then no control groups are needed, --share only sets how many requests arrive, and
N forms are measured at the same time. A run in which the client sent late is repeated, because other processes had the
cores then.

The table has the mean of all rounds, also of the ratio to the best fixed split in the same round, and from four rounds
on their 95 % intervals. --json keeps the rounds: further rounds are added to those in the file.
"""

import argparse
import concurrent.futures
import json
import os
import random
import subprocess
import sys
import tempfile
from statistics import mean

from bench_cluster import cluster
from bench_table import interval, number, table

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BINARY = os.path.join(ROOT, "build", "cleave")
GROUPS = "/sys/fs/cgroup/cpu"
PERIOD_US = 5000
TTFT_MS, TBT_MS = 2000, 80
LATE_MS_MAX, TRIES = 100, 3  # As in bench_surface_served.
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
    """Returns the results of the requests, and how late the client sent (P99, ms)."""
    done = subprocess.run([BINARY, "replay", trace, "--url", url, "--json", "--slo-ttft-ms", str(TTFT_MS),
                           "--slo-tbt-ms", str(TBT_MS), "--timeout", "20"], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, timeout=900)
    if done.returncode not in (0, 1):
        raise SystemExit("cleave replay failed")
    found = json.loads(done.stdout)
    return found["requests"], found["summary"]["late_ms"]["p99"]


def names_of(pools):
    return [f"{pool}-{i}" for pool, count in pools.items() for i in range(count)]


def run(form, trace, options):
    """Returns the results of the requests, the moves between pools, and the client's delay."""
    _, prompts, scheduler = form
    pools = {"mixed": 4} if prompts == 4 else {"prompt": prompts, "token": 4 - prompts}
    config = {"threads": 1, "kv": {"memory": "256MiB", "prefix_cache": False}, "scheduler": {"turn_ms": 0, **scheduler},
              "pools": pools, "slo": {"ttft_ms": TTFT_MS, "tbt_ms": TBT_MS}}
    if options.wait:
        config["machines"] = {name: {"device": f"wait:{options.wait}"} for name in names_of(pools)}
    groups = []
    with cluster.Cluster(config, binary=BINARY) as one:
        try:
            for name, pid in [] if options.wait else one.children().items():
                groups.append(Group(name, options.share))
                groups[-1].add(pid)
            results, late_ms = replay(f"http://{one.host}:{one.port}", trace)
            moves = one.metric("cleave_pool_moves_total")
        finally:
            one.stop()
            for group in groups:
                group.close()
    return results, moves, late_ms


def measure(form, trace, options):
    """Returns the run with the least delay."""
    tries = []
    while len(tries) < TRIES and (not tries or options.wait and tries[-1][2] > LATE_MS_MAX):
        tries.append(run(form, trace, options))
    return min(tries, key=lambda one: one[2])


def good(result):
    return result["status"] == "done" and result["ttft_ms"] <= TTFT_MS and result["tbt_mean_ms"] <= TBT_MS


def options_read():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--share", type=float, default=0.4, help="cores of each machine (default: 0.4)")
    parser.add_argument("--load", type=float, default=1, help="factor of the rate of requests (default: 1)")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="", help="forms with one of these words only, separated by |")
    parser.add_argument("--json")
    parser.add_argument("--wait", metavar="LAYER+ROW", help="microseconds of a layer, and of each row in it")
    parser.add_argument("--parallel", type=int, default=1, help="with --wait: forms at the same time (default: 1)")
    options = parser.parse_args()
    if options.parallel > 1 and not options.wait:
        parser.error("--parallel: want --wait")
    if not options.wait and not os.access(GROUPS, os.W_OK):
        raise SystemExit(f"bench_swing: {GROUPS}: want to make control groups there (root)")
    return options


def figures(form, phases, result, seconds):
    """Returns the figures of one run: good requests a second, the part of each phase that is good, moves, delay."""
    results, moves, late_ms = result
    assert len(results) == len(phases)
    flags = [good(r) for r in sorted(results, key=lambda r: r["line"])]
    out = {"good": sum(flags) / seconds, "moves": moves, "late": late_ms}
    for name, *_ in PHASES:
        of = [flag for flag, phase in zip(flags, phases) if phase == name]
        out[name] = 100 * sum(of) / len(of)
    print(f"{form}: {out['good']:.2f} good requests/s", [round(out[name]) for name, *_ in PHASES],
          f"late {late_ms:.0f} ms", file=sys.stderr, flush=True)
    return out


def report(forms, runs):
    """runs: {form: [figures of each round]}."""
    def values(form, name):
        return [run[name] for run in runs[form[0]]]
    fixed = [form for form in forms if form[2] is FIXED] or forms
    best = max(fixed, key=lambda form: sum(values(form, "good")))
    rows = []
    for form in forms:
        ratios = [a / b for a, b in zip(values(form, "good"), values(best, "good"))]
        rows.append([form[0], interval(values(form, "good")), interval(ratios),
                     *(interval(values(form, name)) for name, *_ in PHASES), number(mean(values(form, "moves")))])
    late = max(run["late"] for of in runs.values() for run in of)
    return (table(["pools", "good requests/s", f"of {best[0]}", *(f"good, {name}, %" for name, *_ in PHASES), "moves"],
                  rows) + f"\nThe client was late by at most {number(late)} ms (P99 of a run).")


def main():
    options = options_read()
    forms = [form for form in FORMS if any(words in form[0] for words in options.only.split("|"))]
    runs = {form[0]: [] for form in forms}
    if options.json and os.path.exists(options.json):
        with open(options.json) as file:
            runs = json.load(file)
    first = len(runs[forms[0][0]])
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(options.parallel) as threads:
        waiting = []
        for seed in range(first, first + options.rounds):
            trace = os.path.join(folder, f"trace-{seed}.csv")
            phases = trace_write(trace, seed, options.seconds, 4 * options.share * options.load)
            waiting += [(form[0], phases, threads.submit(measure, form, trace, options)) for form in forms]
        for form, phases, result in waiting:
            runs[form].append(figures(form, phases, result.result(), options.seconds))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(runs, file, indent=1)
    print(report(forms, runs))


if __name__ == "__main__":
    main()
