#!/usr/bin/env python3
"""bench_headroom: compares the head-room that the gateway shows (`cleave status`) with the load at which the SLO breaks.

usage: bench_headroom.py [--seconds S] [--only NAME]

Machines only wait (docs/profile.md), so that other work of this computer matters little. First the rate of Poisson
arrivals is searched at which a tenth of the answers miss the SLO, each rate on a new cluster. Then half of this rate is
sent for as long, and the head-room is read: 2 would be exact. Standard library only.
"""

import argparse
import json
import os
import subprocess
import tempfile

from bench_cluster import cluster
from bench_table import table

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BINARY = os.path.join(ROOT, "build", "cleave")
SLO = {"ttft_ms": 600, "tbt_ms": 30}
FIXED = {"placement": "split", "adaptive_pools": False, "repurpose_window_ms": 0}
# Name, pools, scheduler, lengths of prompts and answers, KV memory.
CASES = (
    ("prompts, split", {"prompt": 2, "token": 1}, FIXED, "prompt=lognormal:200:0.6,output=uniform:10:30", "256MiB"),
    ("answers, split", {"prompt": 2, "token": 1}, FIXED, "prompt=fixed:40,output=uniform:60:180", "256MiB"),
    ("both, split, may lend", {"prompt": 2, "token": 1}, {"placement": "split"},
     "prompt=lognormal:120:0.6,output=uniform:40:120", "256MiB"),
    ("both, 2 mixed", {"mixed": 2}, FIXED, "prompt=lognormal:120:0.6,output=uniform:40:120", "256MiB"),
    ("KV memory, split", {"prompt": 2, "token": 1}, FIXED, "prompt=fixed:100,output=uniform:60:180", "32MiB"),
)


class Run:
    """A cluster that serves one rate."""

    def __init__(self, case, rate, seconds):
        _, pools, scheduler, lengths, memory = case
        machines = {f"{pool}-{i}": {"device": "wait:200+20", "threads": 1} for pool, count in pools.items() for i in range(count)}
        config = {"pools": pools, "machines": machines, "scheduler": scheduler, "slo": SLO,
                  "kv": {"memory": memory, "prefix_cache": False}, "http": {"listen": "127.0.0.1:0"}}
        with cluster.Cluster(config) as running:
            address = f"http://{running.host}:{running.port}"
            subprocess.run([BINARY, "replay", f"poisson:rate={rate},seconds={seconds},{lengths},seed=7", "--url", address,
                                   "--json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                           timeout=seconds * 4 + 120, check=True)
            page = running.request("GET", "/metrics")[2].decode()
            self.state = json.loads(running.request("GET", "/admin/state")[2])
        self.missed = value(page, 'cleave_slo_answers_total{slo="all",met="false"}')
        self.answers = self.missed + value(page, 'cleave_slo_answers_total{slo="all",met="true"}')
        self.parts = [value(page, f'cleave_slo_answers_total{{slo="{slo}",met="false"}}') / self.answers for slo in ("ttft", "tbt")]
        self.factors = [value(page, f'cleave_headroom_ratio{{slo="{slo}"}}') for slo in ("ttft", "tbt", "all")]
        self.misses = self.missed / self.answers


def value(page, series):
    found = [float(line.split()[-1]) for line in page.splitlines() if line.startswith(series + " ")]
    return found[0] if found else None


def breaks_at(case, seconds):
    """Returns the rate at which a tenth of the answers miss the SLO, to 4 %, and which limit most of them miss."""
    low, high, limit = 1.0, None, ""
    rate = 4.0
    while high is None or high / low > 1.04:
        run = Run(case, rate, seconds)
        print(f"  {rate:.2f}/s: {run.misses:.1%} of {run.answers:.0f} missed (TTFT {run.parts[0]:.1%}, TBT {run.parts[1]:.1%}); "
              f"head-room then {run.factors}", flush=True)
        if run.misses > 0.1:
            high, limit = rate, "TTFT" if run.parts[0] > run.parts[1] else "TBT"
        else:
            low = rate
        rate = low * 2 if high is None else (low * high) ** 0.5
    return rate, limit


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    rows = []
    for case in CASES:
        if options.only not in case[0]:
            continue
        print(case[0], flush=True)
        rate, limit = breaks_at(case, options.seconds)
        half = Run(case, rate / 2, options.seconds)
        ttft, tbt, both = half.factors
        rows.append([case[0], f"{rate:.1f}", limit, f"{ttft:.2f}", f"{tbt:.2f}", f"{both:.2f}", f"{100 * (both / 2 - 1):+.0f} %"])
        print("  at half:", rows[-1], half.state["headroom"], flush=True)
    print(table(["what is short", "breaks at, requests/s", "limit", "prompts", "tokens", "head-room at half", "error"], rows))


if __name__ == "__main__":
    main()
