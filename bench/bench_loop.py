#!/usr/bin/env python3
"""bench_loop: compares the predictions of `cleave plan` and `cleave simulate` with measurements of `cleave serve`.

For ten minutes of a trace, slowed down so that this computer can serve it: `cleave profile` measures a thread of this
computer, alone and beside others; `cleave plan` chooses among mixes of three machines and writes a config; and for each
mix a cluster with that config's machines is simulated, and served while `cleave replay` sends the trace. The report
shows predicted and measured TTFT, mean gap of a request's tokens (TBT) and E2E at P50, P90 and P99.

The cores of a virtual machine are sometimes 10 to 20 % slower for minutes, mostly for decode steps. So a profile of
half a minute precedes each replay, and all predictions use the mean of the profiles.

Takes 45 minutes on an otherwise idle computer: bench/bench_loop.py --folder DIR. All files stay in DIR; --predict
repeats the predictions for existing measurements.
"""

import argparse
import json
import os
import subprocess

from bench_cluster import cluster
from bench_table import number, table

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

TRACES = os.path.join(os.environ.get("CLEAVE_SHARED", "shared"), "traces")
MIXES = ((2, 1), (1, 2))  # Prompt and token machines, with one thread each.
FIGURES = ("TTFT", "TBT", "E2E")
CONTEXT_TOKENS = 8192  # The default model's context.


class Part:
    """Some minutes of a trace from `start` on, at `rate` times its speed."""

    def __init__(self, name, path, start, rate, length_scale, seconds):
        self.name, self.path, self.start, self.rate = name, path, start, rate
        self.length_scale, self.seconds = length_scale, seconds

    def options(self):
        return ["--start", f"{self.start}", "--duration", f"{self.seconds * self.rate:g}", "--speed", f"{self.rate:g}",
                "--length-scale", f"{self.length_scale:g}", "--max-context", f"{CONTEXT_TOKENS}"]


def parts(seconds):
    return [Part("conversations", os.path.join(TRACES, "AzureLLMInferenceTrace_conv.csv"), 600, 0.12, 1, seconds),
            Part("code", os.path.join(TRACES, "AzureLLMInferenceTrace_code.csv"), 300, 0.06, 0.5, seconds)]


def mean(things):
    """Returns the mean of JSON values that differ only in their numbers."""
    first = things[0]
    if isinstance(first, dict):
        return {key: mean([thing[key] for thing in things]) for key in first}
    if isinstance(first, list):
        return [mean(list(column)) for column in zip(*things, strict=True)]
    return sum(things) / len(things) if isinstance(first, float) or any(thing != first for thing in things) else first


def quantile(values, share):
    """Interpolates between ranks."""
    at = share * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


class Loop:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        self.cores = len(os.sched_getaffinity(0))

    def file(self, name):
        return os.path.join(self.folder, name)

    def tool(self, *arguments):
        command = [self.binary, *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: status {done.returncode}\n{done.stderr}")
        return done.stdout

    @staticmethod
    def case(mix, part):
        return f"{part.name}-{mix[0]}+{mix[1]}"

    def profile(self, case, seconds=48):
        beside = ["--beside", str(self.cores - 1)] if self.cores > 1 else []
        self.tool("profile", "--threads", "1", *beside, "--seconds", str(seconds), "--out", self.file(f"p-{case}.json"))

    def profile_mean(self):
        """Returns the mean of all profiles in the folder, number by number: all have the same points."""
        profiles = []
        for name in sorted(os.listdir(self.folder)):
            if name.startswith("p-") and name.endswith(".json"):
                with open(self.file(name)) as file:
                    profiles.append(json.load(file))
        if not profiles:
            raise SystemExit(f"{self.folder}: no profile p-CASE.json")
        for profile in profiles:
            for device in profile["devices"]:
                device.pop("checks", None)  # Each profile has its own checks.
            profile["links"] = profiles[0]["links"]
        with open(self.file("profile.json"), "w") as file:
            json.dump(mean(profiles), file)

    def plan(self, part):
        """Makes the plan for the part's requests, and its config."""
        window = self.file(f"{part.name}.window.csv")
        self.tool("trace", part.path, *part.options(), "--write", window)
        return self.tool("plan", "--profile", self.file("profile.json"), "--cores", str(self.cores), "--trace", window, "--fixed",
                         f"machines={sum(MIXES[0])}", "--clusters", "cpu+cpu", "--step", "0.05", "--rate-most", "3",
                         "--duration", "300", "--full", "--write-config", self.file(f"{part.name}.plan.json"))

    def config(self, mix, part):
        """Returns the plan's config with its machines in pools of these sizes."""
        with open(self.file(f"{part.name}.plan.json")) as file:
            config = json.load(file)
        names = list(config["machines"])
        config["pools"] = {"prompt": names[:mix[0]], "token": names[mix[0]:]}
        return config

    def predict(self, mix, part):
        case = self.case(mix, part)
        config = self.file(f"{case}.config.json")
        with open(config, "w") as file:
            json.dump({"model": cluster.MODEL, "http": {"listen": "127.0.0.1:0"}, **self.config(mix, part)}, file)
        return self.tool("simulate", config, "--trace", self.file(f"{part.name}.window.csv"), "--profile",
                         self.file("profile.json"), "--cores", str(self.cores), "--out", self.file(f"{case}.predicted.csv"))

    def measure(self, mix, part):
        with cluster.Cluster(self.config(mix, part), binary=self.binary) as one:
            return self.tool("replay", part.path, *part.options(), "--url", f"http://{one.host}:{one.port}", "--out",
                             self.file(f"{self.case(mix, part)}.measured.csv"))

    def columns(self, name):
        """Returns {request id: [TTFT, TBT, E2E]} in seconds; a request with one token has no TBT."""
        rows = {}
        with open(self.file(name)) as file:
            heads = file.readline().strip().split(",")
            at = [heads.index(f"{head}_s") for head in ("ttft", "tbt", "e2e")]
            tokens = heads.index("output_tokens")
            for line in file:
                cells = line.strip().split(",")
                rows[cells[0]] = [float(cells[i]) if cells[i] else None for i in at]
                if int(cells[tokens]) < 2:
                    rows[cells[0]][1] = None
        return rows

    def compare(self, mix, part):
        """Returns rows of a table: predicted and measured times of the same requests."""
        case = self.case(mix, part)
        told, seen = (self.columns(f"{case}.{which}.csv") for which in ("predicted", "measured"))
        both = sorted(set(told) & set(seen))
        if not both:
            raise SystemExit(f"{case}: no request was both predicted and measured")
        rows = []
        for column, figure in enumerate(FIGURES):
            cells = []
            for share in (0.5, 0.9, 0.99):
                pair = [1000 * quantile(sorted(of[id_][column] for id_ in both if of[id_][column] is not None), share)
                        for of in (told, seen)]
                cells += [number(pair[0]), number(pair[1]), f"{pair[0] / pair[1] - 1:+.1%}"]
            rows.append([f"{mix[0]} + {mix[1]}, {part.name}" if column == 0 else "", figure, *cells])
        return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[1], epilog=__doc__.split("\n\n")[2])
    parser.add_argument("--binary", default=os.path.join(ROOT, "build", "cleave"))
    parser.add_argument("--folder", required=True)
    parser.add_argument("--seconds", type=float, default=600, help="of each replay (default: 600)")
    parser.add_argument("--only", action="append", default=[], metavar="CASE", help="such as conversations-2+1")
    parser.add_argument("--predict", action="store_true", help="measure nothing")
    options = parser.parse_args()
    os.makedirs(options.folder, exist_ok=True)
    loop = Loop(options.binary, options.folder)
    cases = [(mix, part) for part in parts(options.seconds) for mix in MIXES
             if not options.only or loop.case(mix, part) in options.only]
    for mix, part in cases if not options.predict else []:
        loop.profile(loop.case(mix, part))
        loop.profile_mean()
        loop.plan(part)  # The plan's machines are served.
        print(f"{loop.case(mix, part)}\n{loop.measure(mix, part)}", flush=True)
    loop.profile_mean()
    rows = []
    for part in {case: None for _, case in cases}:
        print(loop.plan(part), flush=True)
    for mix, part in cases:
        loop.predict(mix, part)
        rows += loop.compare(mix, part)
    heads = [f"{what} {share}" for share in ("P50", "P90", "P99") for what in ("told", "seen", "error")]
    print(table(["prompt + token machines", "ms", *heads], rows))


if __name__ == "__main__":
    main()
