#!/usr/bin/env python3
"""bench_predict: compares `cleave simulate` with real clusters of one computer, also with machines that die.

For each form: a cluster serves --seconds of Poisson arrivals (`cleave replay`), and the simulation of the same requests
(the same trace, a profile of this computer) predicts TTFT, mean gap (TBT) and E2E. In the forms with deaths, machines
are killed at the same random times in both; the mean time until the gateway has a machine back is measured, and is the
simulation's --repair. The quantiles are those of all rounds together.

usage: bench_predict.py --profile FILE [--seconds S] [--rounds N] [--load SHARE] [--between OPTIONS]
                        [--lengths FACTOR] [--only NAME;…] [--wait LAYER+ROW] [--keep FOLDER]
                        [--build FOLDER]
  The profile needs the threads 1 and all cores, and measurements beside another device:
  cleave profile --threads 1 --threads 2 --beside 1, and for the form with ranks, which add themselves to it:
  cleave profile --threads 2 --ranks 2 --no-links --add profile.json
  A computer's speed decides how much load a rate is, and near the limit small errors of the times become long queues. So
  without --wait, each form's rate is the one at which the simulation's busiest machine is busy for --load of the time.
  On a computer whose speed changes, --between "--threads 1 --beside 1" runs `cleave profile` with these options before
  and after each run, and predicts the run from the mean of the two. (--profile gives only the rates then.)
  With --wait, the machines compute nothing (docs/profile.md, "The device wait"): each layer takes LAYER microseconds and
  ROW for each row of its batch. The profile is then of this device: cleave profile --device wait:LAYER+ROW.
"""

import argparse
import contextlib
import csv
import json
import os
import random
import re
import signal
import subprocess
import tempfile
import threading
import time

from bench_cluster import cluster
from bench_loop import mean, quantile
from bench_table import number, table

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROMPT, ANSWER = 200, 60  # Medians of the lengths, in tokens.
MTBF_S, REPAIR_S = 25, 0.5
OWN = {"threads": 1}
# Name: config, requests per second (0 = by --load), whether machines die.
FORMS = {
    "default": ({"pools": {"prompt": 1, "token": 1}}, 0, False),
    "always split, shared cores": ({"pools": {"prompt": 1, "token": 1}, "scheduler": {"placement": "split"}}, 0, False),
    "1 prompt + 1 token, own cores": ({**OWN, "pools": {"prompt": 1, "token": 1}}, 0, False),
    "2 mixed, own cores": ({**OWN, "pools": {"mixed": 2}}, 0, False),
    "2 mixed, own cores, killed": ({**OWN, "pools": {"mixed": 2}}, 0, True),
    "1 prompt + 1 token, killed": ({**OWN, "pools": {"prompt": 1, "token": 1}}, 0, True),
    "1 mixed of 2 ranks": ({"pools": {"mixed": ["m"]}, "machines": {"m": {"threads": 2, "tensor_parallel": 2}}}, 0,
                           False),
}
# With --wait. Rates for wait:400+25 and the default model: a prompt of 200 tokens takes 160 ms, a decode step 13 ms.
WAITING = {
    "1 prompt + 1 token": ({"pools": {"prompt": 1, "token": 1}, "scheduler": {"placement": "split"}}, 4, False),
    "2 mixed": ({"pools": {"mixed": 2}}, 6, False),
    "2 prompt + 2 token, auto": ({"pools": {"prompt": 2, "token": 2}}, 9, False),
    "1 mixed of 2 stages": ({"pools": {"mixed": ["m"]}, "machines": {"m": {"stages": 2}}}, 4, False),
    "2 mixed, killed": ({"pools": {"mixed": 2}}, 4, True),
    "2 prompt + 2 token, killed": ({"pools": {"prompt": 2, "token": 2}, "scheduler": {"placement": "split"}}, 6, True),
}
SHARES = (0.5, 0.9, 0.99)
FIGURES = ("ttft", "tbt", "e2e")
WARM_S = 5


def trace_of(options, rate, seconds):
    return (f"poisson:rate={rate},seconds={seconds},prompt=lognormal:{PROMPT * options.lengths:g}:0.6,"
            f"output=lognormal:{ANSWER * options.lengths:g}:0.5")


def rows_of(path):
    """Returns {figure: milliseconds of each request}."""
    with open(path) as file:
        rows = [row for row in csv.DictReader(file) if row.get("outcome", "done") in ("done", "", None)]
    return {figure: [1e3 * float(row[f"{figure}_s"]) for row in rows if row[f"{figure}_s"]] for figure in FIGURES}


def kills_draw(names, seconds, seed):
    """Returns [(seconds, machine)]: each machine is killed MTBF_S apart on average."""
    draw, kills, at_s = random.Random(seed), [], 0
    while True:
        at_s += draw.expovariate(len(names) / MTBF_S)
        if at_s >= seconds:
            return kills
        kills.append((at_s, draw.choice(names)))


def kill_all(one, kills, begin, stop):
    """Kills machines at these times. A machine that is not back yet is left alone, as in the simulation."""
    for at_s, name in kills:
        if stop.wait(max(0, begin + at_s - time.monotonic())):
            return
        pid = one.children().get(name)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)


def repair_time(one):
    """Returns the mean seconds until the gateway had a killed machine back, from its log; 0 = none was killed."""
    times = [int(ms) for ms in re.findall(r"(\d+) ms after it was lost", one.logged())]
    return sum(times) / max(1, len(times)) / 1e3


def measure(options, whole, trace, rate, kills, seed, path):
    """Serves the trace. Returns the mean seconds of a restart (0 = no machine dies)."""
    cleave = os.path.join(options.build, "cleave")
    with cluster.Cluster(whole, binary=cleave) as one:
        replay = [cleave, "replay", "--url", f"http://{one.host}:{one.port}", "--seed"]
        if kills is not None:
            kills += kills_draw(sorted(one.children()), options.seconds, seed)
        warm = trace_of(options, rate, WARM_S)
        subprocess.run([*replay, str(seed + 1000), warm], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stop = threading.Event()
        killer = threading.Thread(target=kill_all, args=(one, kills or [], time.monotonic(), stop))
        killer.start()
        subprocess.run([*replay, str(seed), trace, "--out", path], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, timeout=10 * options.seconds)
        stop.set()
        killer.join()
        return repair_time(one)


def simulate(options, config_path, trace, seed, *more):
    """Returns what `cleave simulate --json` prints."""
    command = [os.path.join(options.build, "cleave"), "simulate", config_path, "--trace", trace, "--seed", str(seed),
               "--cores", "0" if options.wait else str(os.cpu_count()), "--json", *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def rate_find(options, config_path):
    """Returns the rate at which the busiest machine is busy for --load of the time, in the simulation of a long trace."""
    low, high = 0.0, 1000.0
    for _ in range(20):
        rate = (low * high) ** 0.5 if low > 0 else high / 2
        seconds = max(60, 300 / rate)
        machines = simulate(options, config_path, trace_of(options, f"{rate:.4g}", f"{seconds:.4g}"), 1)["machines"]
        if max(machine["busy_s"] for machine in machines) > options.load * seconds:
            high = rate
        else:
            low = rate
        if low > 0 and high / low < 1.02:
            break
    return float(f"{low:.3g}")


def predict(options, config_path, trace, kills, repair_s, seed, folder):
    """Returns the times of the simulated requests."""
    path = os.path.join(folder, "predicted.csv")
    more = ["--out", path]
    if kills is not None:
        with open(os.path.join(folder, "kills.csv"), "w") as file:
            file.write("time_s,machine\n" + "".join(f"{at_s:.3f},{name}\n" for at_s, name in kills))
        more += ["--kills", file.name, "--repair", f"{repair_s:.3f}"]
    simulate(options, config_path, trace, seed, *more)
    return rows_of(path)


def config_of(options, config):
    """Returns the whole config: with --wait, its machines wait."""
    whole = {"kv": {"memory": "512MiB", "prefix_cache": False}, "profile": options.profile, **config}
    if options.wait:
        given, whole["machines"] = config.get("machines", {}), {}
        for pool, of in config["pools"].items():
            for name in [f"{pool}-{i}" for i in range(of)] if isinstance(of, int) else of:
                whole["machines"][name] = {**given.get(name, {}), "device": f"wait:{options.wait}"}
    return whole


def profile_between(options):
    """Measures a profile with the options of --between. Returns its content."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "profile.json")
        subprocess.run([os.path.join(options.build, "cleave"), "profile", *options.between.split(), "--no-links", "--out", path],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(path) as file:
            profile = json.load(file)
    with open(options.profile) as file:
        profile["links"] = json.load(file)["links"]
    for device in profile["devices"]:
        device.pop("checks", None)
    return profile


def form_run(options, name, seed):
    """Returns the predicted and the measured times of the requests."""
    config, rate, dies = options.forms[name]
    with contextlib.ExitStack() as ends:
        folder = ends.enter_context(tempfile.TemporaryDirectory())
        if options.keep:
            folder = os.path.join(options.keep, f"{name}-{seed}")
            os.makedirs(folder, exist_ok=True)
        whole = config_of(options, config)
        config_path = os.path.join(folder, "config.json")
        with open(config_path, "w") as file:
            json.dump(whole, file)
        rate = rate or rate_find(options, config_path)
        print(f"{name}: {rate} requests/s", flush=True)
        trace = trace_of(options, rate, options.seconds)
        kills, measured = [] if dies else None, os.path.join(folder, "measured.csv")
        repair_s = measure(options, whole, trace, rate, kills, seed, measured)
        if dies:
            print(f"{name}: {len(kills)} kills, {repair_s:.2f} s until a machine is back", flush=True)
        if options.between:
            before, options.latest_profile = options.latest_profile, profile_between(options)
            whole["profile"] = os.path.join(folder, "profile.json")
            for path, content in ((whole["profile"], mean([before, options.latest_profile])), (config_path, whole)):
                with open(path, "w") as file:
                    json.dump(content, file)
        return predict(options, config_path, trace, kills, repair_s, seed, folder), rows_of(measured)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", required=True)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--lengths", type=float, default=1, help="factor for the lengths, below 1 for slow computers")
    parser.add_argument("--load", type=float, default=0.6, help="share of time for which the busiest machine computes")
    parser.add_argument("--between", metavar="OPTIONS", help="profile before and after each run, with these options")
    parser.add_argument("--only")
    parser.add_argument("--wait", metavar="LAYER+ROW", help="microseconds of a layer, and of each row in it")
    parser.add_argument("--keep", metavar="FOLDER", help="keep the times of all requests there")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    options = parser.parse_args()
    options.profile = os.path.abspath(options.profile)
    options.forms = WAITING if options.wait else FORMS
    names = options.only.split(";") if options.only else list(options.forms)
    found = {name: [] for name in names}
    options.latest_profile = profile_between(options) if options.between else None
    for seed in range(1, options.rounds + 1):
        for name in names:
            found[name].append(form_run(options, name, seed))
    rows = []
    for name in names:
        for figure in FIGURES:
            row = [name, figure.upper()]
            both = [sorted(value for one in found[name] for value in one[i][figure]) for i in range(2)]
            for share in SHARES:
                predicted, measured = (quantile(values, share) for values in both)
                row += [number(predicted), number(measured), f"{100 * (predicted / measured - 1):+.0f}%"]
            rows.append(row)
    print(table(["cluster", "ms", *(text for share in SHARES for text in
                                    (f"P{100 * share:g} predicted", "measured", "error"))], rows))


if __name__ == "__main__":
    main()
