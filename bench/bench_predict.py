#!/usr/bin/env python3
"""bench_predict: compares `cleave simulate` with real clusters of one computer, also with machines that die.

For each form: a cluster serves --seconds of Poisson arrivals (`cleave replay`), and the simulation of the same requests
(the same trace, a profile of this computer) predicts TTFT, mean gap (TBT) and E2E. In the form with deaths, each machine
is killed at exponentially distributed times, and comes back after the time that `--repair` says, in both.

usage: bench_predict.py --profile FILE [--seconds S] [--rounds N] [--only NAME,…] [--build FOLDER]
  The profile needs the threads 1 and all cores, and measurements beside another device:
  cleave profile --threads 1 --threads 2 --beside 1, and for the form with ranks, which add themselves to it:
  cleave profile --threads 2 --ranks 2 --no-links --add profile.json
"""

import argparse
import csv
import json
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
from statistics import median

from bench_cluster import cluster
from bench_loop import quantile
from bench_table import number, table

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
REQUESTS = "prompt=lognormal:200:0.6,output=lognormal:60:0.5"
MTBF_S, REPAIR_S = 25, 0.5
OWN = {"threads": 1}
# Name: config, requests per second, whether machines die.
FORMS = {
    "default": ({"pools": {"prompt": 1, "token": 1}}, 8, False),
    "always split, shared cores": ({"pools": {"prompt": 1, "token": 1}, "scheduler": {"placement": "split"}}, 6, False),
    "1 prompt + 1 token, own cores": ({**OWN, "pools": {"prompt": 1, "token": 1}}, 6, False),
    "2 mixed, own cores": ({**OWN, "pools": {"mixed": 2}}, 6, False),
    "2 mixed, own cores, killed": ({**OWN, "pools": {"mixed": 2}}, 5, True),
    "1 prompt + 1 token, killed": ({**OWN, "pools": {"prompt": 1, "token": 1}}, 5, True),
    "1 mixed of 2 ranks": ({"pools": {"mixed": ["m"]}, "machines": {"m": {"threads": 2, "tensor_parallel": 2}}}, 4,
                           False),
}
SHARES = (0.5, 0.9, 0.99)


def quantiles(path):
    """Returns {figure: [P50, P90, P99]} in milliseconds."""
    with open(path) as file:
        rows = [row for row in csv.DictReader(file) if row.get("outcome", "done") in ("done", "", None)]
    out = {}
    for figure in ("ttft", "tbt", "e2e"):
        values = sorted(1e3 * float(row[f"{figure}_s"]) for row in rows if row[f"{figure}_s"])
        out[figure] = [quantile(values, share) for share in SHARES]
    return out


def kill_at_random(one, seed, stop):
    """Kills machines until `stop` is set, each MTBF_S apart on average."""
    draw = random.Random(seed)
    while not stop.wait(draw.expovariate(len(one.children()) / MTBF_S)):
        children = list(one.children().values())
        if children:
            os.kill(draw.choice(children), signal.SIGKILL)


def form_run(options, name, seed):
    """Returns the predicted and the measured quantiles."""
    config, rate, dies = FORMS[name]
    cleave = os.path.join(options.build, "cleave")
    trace = f"poisson:rate={rate},seconds={options.seconds},{REQUESTS}"
    with tempfile.TemporaryDirectory() as folder:
        def at(file):
            return os.path.join(folder, file)
        whole = {"kv": {"memory": "512MiB", "prefix_cache": False}, **config}
        with open(at("config.json"), "w") as file:
            json.dump({**whole, "profile": options.profile}, file)
        command = [cleave, "simulate", at("config.json"), "--trace", trace, "--seed", str(seed), "--out",
                   at("predicted.csv"), "--cores", str(os.cpu_count())]
        if dies:
            command += ["--mtbf", str(MTBF_S), "--repair", str(REPAIR_S)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        with cluster.Cluster(whole, binary=cleave) as one:
            url = f"http://{one.host}:{one.port}"
            warm = f"poisson:rate={rate},seconds=5,{REQUESTS}"
            subprocess.run([cleave, "replay", warm, "--url", url, "--seed", str(seed + 1000)],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stop = threading.Event()
            killer = threading.Thread(target=kill_at_random, args=(one, seed, stop))
            if dies:
                killer.start()
            begin = time.monotonic()
            subprocess.run([cleave, "replay", trace, "--url", url, "--seed", str(seed), "--out", at("measured.csv")],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=10 * options.seconds)
            stop.set()
            if dies:
                killer.join()
            print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)
        return quantiles(at("predicted.csv")), quantiles(at("measured.csv"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", required=True)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    options = parser.parse_args()
    options.profile = os.path.abspath(options.profile)
    names = options.only.split(",") if options.only else list(FORMS)
    found = {name: [] for name in names}
    for seed in range(1, options.rounds + 1):
        for name in names:
            found[name].append(form_run(options, name, seed))
    rows = []
    for name in names:
        for figure in ("ttft", "tbt", "e2e"):
            row = [name, figure.upper()]
            for i in range(len(SHARES)):
                predicted = median(one[0][figure][i] for one in found[name])
                measured = median(one[1][figure][i] for one in found[name])
                row += [number(predicted), number(measured), f"{100 * (predicted / measured - 1):+.0f}%"]
            rows.append(row)
    print(table(["cluster", "ms", *(text for share in SHARES for text in
                                    (f"P{100 * share:g} predicted", "measured", "error"))], rows))


main()
