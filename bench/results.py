#!/usr/bin/env python3
"""results: makes pictures and tables after the figures of the Splitwise paper, in docs/results/.

usage: results.py --profile FILE [--only NAME,…] [--folder DIR] [--build FOLDER]

The names are those of FIGURES below; docs/results/README.md shows them. The traces of Azure (code, conversations) are
read from $CLEAVE_SHARED/traces/. Pictures are drawn by gnuplot.
"""

import argparse
import csv
import json
import os
import subprocess
import tempfile
import time
from statistics import median

from bench_table import number, table

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TRACES = os.path.join(os.environ.get("CLEAVE_SHARED", os.path.join(ROOT, "shared")), "traces")
KINDS = ("conv", "code")
TABLE = os.path.join(ROOT, "tests", "data", "splitwise", "perf_model.csv")


def trace_of(kind):
    return os.path.join(TRACES, f"AzureLLMInferenceTrace_{kind}.csv")


def hardware(name):
    return os.path.join(ROOT, "deploy", "hardware", f"{name}.json")


def cleave(options, *command):
    done = subprocess.run([os.path.join(options.build, "cleave"), *command], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"cleave {' '.join(command)}: {done.stderr}")
    return done.stdout


def plot(path, settings, curves):
    """Draws curves, each (title, [(x, y), …]), with gnuplot."""
    data = "".join("".join(f"{x} {y}\n" for x, y in points) + "e\n" for _, points in curves)
    what = ", ".join(f"'-' with linespoints pt 7 ps 0.4 title '{title}'" for title, _ in curves)
    script = (f"set terminal svg size 620,320 font 'sans,11' background 'white'\nset output '{path}'\nset grid\n"
              f"set key outside right\n{settings}\nplot {what}\n{data}")
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def between(xs, ys, x):
    """Returns y at x by a straight line through its neighbours."""
    for (x0, y0), (x1, y1) in zip(zip(xs, ys), zip(xs[1:], ys[1:])):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return ys[-1] + (ys[-1] - ys[-2]) * (x - xs[-1]) / (xs[-1] - xs[-2])


def at_context(part, context):
    """Returns the times of a profile's grid at a context, one for each number of tokens or sequences."""
    return [between(part["contexts"], row, context) for row in part["us"]]


# ---- one function for each figure ----

def lengths(options):
    """Splitwise, figure 3: the lengths of prompts and answers."""
    for kind in KINDS:
        print(cleave(options, "trace", trace_of(kind), "--plot", os.path.join(options.folder, f"trace-{kind}.png")))


def batches(options):
    """Splitwise, figures 5 to 7: times, rates and memory over the size of a batch, from a profile."""
    profile = json.load(open(options.profile))
    device, model = profile["devices"][0], profile["model"]
    layers = model["layer_count"]
    prompt, token = device["layers"][0]["prompt"], device["layers"][0]["token"]
    fixed = between(device["last"]["rows"], device["last"]["us"], 1) + device["batch_us"]
    ms = [layers * us / 1e3 + fixed / 1e3 for us in at_context(prompt, 0)]
    steps = {context: [(layers * us + between(device["last"]["rows"], device["last"]["us"], batch) +
                        device["batch_us"]) / 1e3 for batch, us in zip(token["batches"], at_context(token, context))]
             for context in (64, 256, 1024)}
    plot(os.path.join(options.folder, "batch-ttft.svg"),
         "set xlabel 'prompt tokens'\nset ylabel 'ms'\nset logscale xy 2",
         [("TTFT, ms", list(zip(prompt["tokens"], ms)))])
    plot(os.path.join(options.folder, "batch-tbt.svg"), "set xlabel 'answers in a batch'\nset ylabel 'ms'\n"
         "set logscale x 2", [(f"TBT, context {context}", list(zip(token["batches"], values)))
                              for context, values in steps.items()])
    plot(os.path.join(options.folder, "batch-rates.svg"),
         "set xlabel 'prompt tokens, or answers in a batch'\nset ylabel 'tokens/s'\nset logscale x 2",
         [("prompt", [(n, 1e3 * n / t) for n, t in zip(prompt["tokens"], ms)]),
          ("answers, context 256", [(n, 1e3 * n / t) for n, t in zip(token["batches"], steps[256])])])
    weights = layers * model["layer_weight_bytes"] + model["embedding_bytes"] + model["vocabulary_bytes"]
    print(table(["answers of 256 tokens of context", "weights, MB", "KV, MB"],
                [[n, number(weights / 1e6), number(n * 256 * layers * model["kv_bytes_per_token"] / 1e6)]
                 for n in token["batches"]]))


def active(options):
    """Splitwise, figures 4 and 17: how the number of answers that a machine decodes is distributed over its time, with
    cleave's own schedulers on the paper's times."""
    clusters = {"40 mixed H100": ["40:mixed:h100"], "25 prompt + 15 token H100": ["25:prompt:h100", "15:token:h100"]}
    for kind, rate in (("conv", 70), ("code", 70)):
        curves = []
        for name, machines in clusters.items():
            with tempfile.TemporaryDirectory() as folder:
                rows_path = os.path.join(folder, "rows.csv")
                kinds = [f"{count}:{pool}:{hardware(file)}" for count, pool, file in
                         (machine.split(":") for machine in machines)]
                cleave(options, "simulate", "--trace", f"poisson:rate={rate},seconds=120,lengths={trace_of(kind)}",
                       *(part for machine in kinds for part in ("--machines", machine)), "--table", TABLE, "--out",
                       rows_path)
                rows = list(csv.DictReader(open(rows_path)))
            spans = {}
            for row in rows:
                begin = float(row["arrival_s"]) + float(row["ttft_s"])
                end = float(row["arrival_s"]) + float(row["e2e_s"])
                if row["token_machine"] not in ("", "-1") and 20 <= begin <= 100:
                    spans.setdefault(row["token_machine"], []).extend([(begin, 1), (end, -1)])
            time_at = {}
            for events in spans.values():
                count, last = 0, None
                for at, change in sorted(events):
                    if last is not None and count > 0:
                        time_at[count] = time_at.get(count, 0) + at - last
                    count, last = count + change, at
            whole, sums, points = sum(time_at.values()), 0, []
            for count in sorted(time_at):
                sums += time_at[count]
                points.append((count, 100 * sums / whole))
            curves.append((name, points))
        plot(os.path.join(options.folder, f"active-{kind}.svg"), "set xlabel 'answers that a machine decodes'\n"
             "set ylabel 'cumulative share of its time, %'\nset yrange [0:100]", curves)


def machines(options):
    """Splitwise, table IV: an A100 machine and an H100 machine, alone."""
    rows = []
    for kind in KINDS:
        figures = {}
        for name in ("a100", "h100"):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "rows.csv")
                cleave(options, "simulate", "--trace",
                       f"poisson:rate=0.02,seconds=20000,lengths={trace_of(kind)}", "--machines",
                       f"1:mixed:{hardware(name)}", "--table", TABLE, "--policy", "splitwise-compat", "--out", path)
                done = list(csv.DictReader(open(path)))
            facts = json.load(open(hardware(name)))

            def median_of(key):
                return median(float(row[key]) for row in done if row[key])
            e2e = median_of("e2e_s")
            figures[name] = [median_of("ttft_s") * 1e3, median_of("tbt_s") * 1e3, e2e * 1e3,
                             e2e / 3600 * facts["cost_per_hour"], e2e * facts["power"]]
        for i, what in enumerate(("TTFT P50, ms", "TBT P50, ms", "E2E P50, ms", "cost of E2E, $",
                                  "energy of E2E, units of power x s")):
            a, b = figures["a100"][i], figures["h100"][i]
            rows.append([kind, what, f"{a:.4g}", f"{b:.4g}", f"{b / a:.2f}"])
    print(table(["trace", "figure", "A100", "H100", "ratio"], rows))


def plans(options):
    """Splitwise, figures 12, 16, 18 and 19: clusters of the same power or cost."""
    for kind in KINDS:
        for fixed in ("iso-power", "iso-cost"):
            print(f"{kind}, {fixed}:")
            print(cleave(options, "plan", "--lengths", trace_of(kind), "--table", TABLE, "--clusters", "paper", "--fixed",
                         fixed, "--hardware", hardware("a100"), "--hardware", hardware("h100"), "--hardware",
                         hardware("h100-capped"), "--plot", os.path.join(options.folder, f"plan-{kind}-{fixed}.png")))


def other(options):
    """Splitwise, figure 20: clusters of the power of 40 H100 machines that were planned for code serve conversations."""
    clusters = {"40 mixed h100": [(40, "mixed", "h100")], "36 + 4 h100": [(36, "prompt", "h100"), (4, "token", "h100")],
                "39 h100 + 1 a100": [(39, "prompt", "h100"), (1, "token", "a100")],
                "34 h100 + 8 h100-capped": [(34, "prompt", "h100"), (8, "token", "h100-capped")],
                "33 + 7 h100 (planned for conversations)": [(33, "prompt", "h100"), (7, "token", "h100")]}
    rows = []
    for name, kinds in clusters.items():
        row = [name]
        for rate in (50, 80, 110):
            machine_options = [part for count, pool, kind in kinds
                               for part in ("--machines", f"{count}:{pool}:{hardware(kind)}")]
            found = json.loads(cleave(options, "simulate", "--json", "--trace",
                                      f"poisson:rate={rate},seconds=120,lengths={trace_of('conv')}", *machine_options,
                                      "--table", TABLE, "--policy", "splitwise-compat"))
            row += [number(found[key][share] * 1e3) for key, share in (("ttft_s", "p99"), ("tbt_s", "p99"))]
        rows.append(row)
    print(table(["cluster"] + [f"{what} P99 at {rate}/s, ms" for rate in (50, 80, 110) for what in ("TTFT", "TBT")], rows))


def timed(one, prompt, seed):
    """Returns the milliseconds until the first token, from it to the second one, and until the end."""
    body = {"prompt": [1000 + (seed * 7919 + i * 31) % 20000 for i in range(prompt)], "max_tokens": 13, "temperature": 0,
            "ignore_eos": True}
    begin, at = time.monotonic(), []
    for event in one.stream("/v1/completions", body):
        at += [1e3 * (time.monotonic() - begin)] * len(event["choices"])
    return at[0], at[1] - at[0], at[-1]


def second(options):
    """Splitwise, figure 15: what a split costs a single request, on this computer (machines of one thread)."""
    from bench_cluster import cluster
    forms = {"one machine": {"pools": {"mixed": 1}},
             "split": {"pools": {"prompt": 1, "token": 1}, "scheduler": {"placement": "split"}}}
    lengths_of, rounds, found = (128, 512, 1536), 15, {}
    clusters = {name: cluster.Cluster({**form, "threads": 1, "kv": {"memory": "512MiB", "prefix_cache": False}},
                                      binary=os.path.join(options.build, "cleave")) for name, form in forms.items()}
    try:
        for seed in range(rounds + 1):
            for prompt in lengths_of:
                for name, one in clusters.items():
                    times = timed(one, prompt, seed)
                    if seed > 0:  # The first round only warms up.
                        found.setdefault((prompt, name), []).append(times)
    finally:
        for one in clusters.values():
            one.stop()
    rows = []
    for prompt in lengths_of:
        whole, split = ([median(times[i] for times in found[prompt, name]) for i in range(3)] for name in forms)
        rows.append([prompt] + [text for i in range(3) for text in
                                (number(whole[i]), number(split[i]), f"{100 * (split[i] / whole[i] - 1):+.1f}%")])
    print(table(["prompt tokens"] + [text for what in ("TTFT", "second token", "E2E of 13 tokens")
                                     for text in (f"{what}, one machine, ms", "split", "more")], rows))


def rate_within_slo(options, kind, machines, policy, config):
    """Returns the highest multiple of 5 requests/s at which the paper's nine limits hold (0 = none)."""
    best = 0
    for rate in range(5, 400, 5):
        machine_options = [part for count, pool, name in machines
                           for part in ("--machines", f"{count}:{pool}:{hardware(name)}")]
        done = cleave(options, "simulate", *([config] if config else []), "--json", "--trace",
                      f"poisson:rate={rate},seconds=120,lengths={trace_of(kind)}", *machine_options, "--table", TABLE,
                      *(["--policy", policy] if policy else ["--context", "16384"]))
        if json.loads(done)["slo"]["met"]:
            best = rate
        elif rate > best + 20:
            break
    return best


def own(options):
    """Clusters of Splitwise's figure 18 (the power of 40 H100 machines) with the paper's scheduler and with cleave's."""
    clusters = {"40 mixed h100": [(40, "mixed", "h100")],
                "33 + 7 h100": [(33, "prompt", "h100"), (7, "token", "h100")],
                "24 h100 + 28 a100": [(24, "prompt", "h100"), (28, "token", "a100")],
                "26 h100 + 20 h100-capped": [(26, "prompt", "h100"), (20, "token", "h100-capped")],
                "36 + 4 h100": [(36, "prompt", "h100"), (4, "token", "h100")]}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        configs = {}
        for placement in ("split", "auto"):
            configs[placement] = os.path.join(folder, f"{placement}.json")
            with open(configs[placement], "w") as file:
                json.dump({"pools": {"mixed": 1}, "slo": {"ttft_ms": 500, "tbt_ms": 60},
                           "scheduler": {"placement": placement, "prompt_batch_tokens": 2048}}, file)
        for name, machines in clusters.items():
            row = [name]
            for kind in KINDS:
                row += [rate_within_slo(options, kind, machines, "splitwise-compat", None),
                        *(rate_within_slo(options, kind, machines, None, configs[which]) for which in configs)]
            rows.append(row)
    print(table(["cluster"] + [f"{kind}: {who}" for kind in KINDS for who in
                               ("the paper's", "cleave, split", "cleave, auto")], rows))


FIGURES = {"lengths": lengths, "batches": batches, "active": active, "machines": machines, "plans": plans, "other": other,
           "second": second, "own": own}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", required=True)
    parser.add_argument("--only", default=",".join(FIGURES))
    parser.add_argument("--folder", default=os.path.join(ROOT, "docs", "results"))
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    options = parser.parse_args()
    for name in options.only.split(","):
        FIGURES[name](options)


main()
