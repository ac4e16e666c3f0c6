#!/usr/bin/env python3
"""bench_surface: where splitting the phases pays: a map over lengths, speeds and links, with two machines.

For each cell `cleave simulate` finds the goodput of three clusters of the same two machines: `split` (a prompt and a
token machine, always split), `mixed` (two mixed machines) and `auto` (a prompt and a token machine; the gateway
chooses for each request, docs/scheduling.md). Goodput is the highest rate of Poisson arrivals at which nine of ten
requests have their first token within 6 times, and a mean gap between tokens within 2, 5 or 12 times, what an idle
machine (the slower of the two) takes. Prompts and answers have log-normal lengths (sigma 0.4) around the medians of the
cell. The machines are one thread of the profile's computer; in some rows the token machine is slower or faster.

With --serve, some cells are served instead, by real machines in control groups of 0.8 cores each (root, two cores), at
the goodput that the better of split and mixed has in the simulation. The table has the share of good requests, predicted
and measured.

usage: bench_surface.py --profile FILE [--json FILE] [--svg FILE] [--seconds S] [--build FOLDER]
       bench_surface.py --profile FILE --serve [--rounds N] [--seconds S] [--build FOLDER]
"""

import argparse
import concurrent.futures
import csv
import json
import math
import os
import subprocess
import tempfile
from statistics import median

from bench_table import number, table

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LENGTHS = ((1600, 12), (1200, 24), (800, 48), (400, 64), (256, 128), (128, 192), (64, 256), (32, 400))
SLOWER = (0.5, 0.67, 1, 1.5, 2)  # Times of the token machine, as multiples of the other's.
TBT_TIMES = (2, 5, 12)
LINKS = ((0, "links of this computer"), (12.5e6, "links of 0.1 Gbit/s"))
TTFT_TIMES, GOOD, CONTEXT = 6, 0.9, 8192
FORMS = {"split": {"placement": "split", "adaptive_pools": False}, "mixed": {}, "auto": {}}
WRONG = 0.95  # `auto` decides wrongly where it has less than this part of the better form's goodput.
SERVED = ((800, 48, 1, 2), (800, 48, 1, 12), (256, 128, 1, 5), (64, 256, 1, 5), (800, 48, 2, 5), (128, 192, 2, 5))
SERVE_CORES = 0.8


def scaled(value, times):
    if isinstance(value, list):
        return [scaled(one, times) for one in value]
    return value * times


def device(profile, times, threads):
    """The profile's first device with `times` times its times. The number of threads is only its name here."""
    one = json.loads(json.dumps(profile["devices"][0]))
    one.update(name=f"cpu-{threads}", threads=threads, batch_us=one["batch_us"] * times)
    one.pop("checks", None)
    for part in [*(part for layer in one["layers"] for part in layer.values()), one["last_layer_prompt"], one["first"],
                 one["last"]]:
        part["us"] = scaled(part["us"], times)
    return one


class Cell:
    """Two machines, with the two devices of a profile, and requests of some lengths. The limits are multiples of the
    times of `slowest`, the machine 1 or 2. link: bytes/s; 0 = not limited."""

    def __init__(self, options, lengths, profile, slowest, tbt_times, link=0, kv_bytes=1 << 30, scheduler=None):
        self.options, self.tbt_times, self.link, self.scheduler = options, tbt_times, link, scheduler or {}
        self.prompt, self.answer = lengths
        self.folder = tempfile.TemporaryDirectory(prefix="bench-surface-")
        self.write("profile.json", profile)
        for i, one in enumerate(profile["devices"], 1):
            link_key = {"link_bytes_per_s": link} if link else {}
            self.write(f"machine-{i}.json", {"name": f"m{i}", "device": one["kind"], "threads": one["threads"],
                                             "kv_memory_bytes": kv_bytes, **link_key})
        self.ttft_s = self.tbt_s = 1e3
        rows = self.simulate("mixed", 0.05, seconds=600, machine=slowest)
        self.ttft_s = TTFT_TIMES * median(float(row["ttft_s"]) for row in rows)
        self.tbt_s = tbt_times * median(float(row["tbt_s"]) for row in rows if row["tbt_s"])

    def close(self):
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, value):
        with open(self.path(name), "w") as file:
            json.dump(value, file)

    def trace(self, rate, seconds):
        return (f"poisson:rate={rate:.6g},seconds={seconds},prompt=lognormal:{self.prompt}:0.4,"
                f"output=lognormal:{self.answer}:0.4")

    def config(self, form):
        return {"scheduler": {**FORMS[form], **self.scheduler}, "kv": {"memory": "512MiB", "prefix_cache": False},
                "slo": {"ttft_ms": max(1, round(self.ttft_s * 1e3)), "tbt_ms": max(1, round(self.tbt_s * 1e3))}}

    def simulate(self, form, rate, seconds=None, machine=None):
        """Returns the rows of the requests. machine: two machines of this kind instead of one of each."""
        first, second = ("mixed", "mixed") if form == "mixed" else ("prompt", "token")
        self.write("config.json", {**self.config(form), "pools": {"mixed": 1}})
        done = subprocess.run(
            [os.path.join(self.options.build, "cleave"), "simulate", self.path("config.json"), "--trace",
             self.trace(rate, seconds or self.options.seconds), "--machines",
             f"1:{first}:{self.path(f'machine-{machine or 1}.json')}", "--machines",
             f"1:{second}:{self.path(f'machine-{machine or 2}.json')}", "--profile", self.path("profile.json"), "--out",
             self.path("rows.csv"), "--context", str(CONTEXT)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        with open(self.path("rows.csv")) as file:
            return list(csv.DictReader(file))

    def good(self, rows):
        """Returns the share of good requests, without the first fifth, in which rates are measured for the first time."""
        rows = sorted(rows, key=lambda row: float(row["arrival_s"]))
        rows = rows[len(rows) // 5:]
        good = sum(row["outcome"] == "done" and float(row["ttft_s"]) <= self.ttft_s and
                   (not row["tbt_s"] or float(row["tbt_s"]) <= self.tbt_s) for row in rows)
        return good / len(rows) if rows else 0

    def enough(self, rate):
        """Returns the seconds of a simulation of at least 200 requests."""
        return max(self.options.seconds, 200 / rate)

    def goodput(self, form):
        """Returns the highest rate, and the rows of the requests at it."""
        low, high, best = 0.02, 0.04, []
        while high < 1000:
            rows = self.simulate(form, high, self.enough(high))
            if self.good(rows) < GOOD:
                break
            low, high, best = high, high * 2, rows
        while high / low > 1.02:
            middle = math.sqrt(low * high)
            rows = self.simulate(form, middle, self.enough(middle))
            if self.good(rows) >= GOOD:
                low, best = middle, rows
            else:
                high = middle
        return low, best


def cell_of(options, prompt, answer, slower, tbt_times, link=0, base=1):
    """Returns the cell of two devices of the profile's computer: one with `base` times its times, and one with `slower`
    times as much."""
    profile = json.load(open(options.profile))
    profile = {**profile, "links": [], "devices": [device(profile, base, 1), device(profile, base * slower, 2)]}
    cell = Cell(options, (prompt, answer), profile, 2 if slower > 1 else 1, tbt_times, link)
    cell.slower = slower
    return cell


def split_part(rows):
    return sum(row["prompt_machine"] != row["token_machine"] for row in rows) / max(1, len(rows))


def measure(job):
    """Returns the goodput of each form, and the part of requests that `auto` splits."""
    cell = cell_of(*job)
    found = {form: cell.goodput(form) for form in FORMS}
    cell.close()
    return {"prompt": cell.prompt, "answer": cell.answer, "slower": cell.slower, "tbt_times": cell.tbt_times,
            "link_bytes_per_s": cell.link, "ttft_ms": cell.ttft_s * 1e3, "tbt_ms": cell.tbt_s * 1e3,
            "split_part": split_part(found["auto"][1]), **{form: rate for form, (rate, _) in found.items()}}


def of_best(cell):
    return cell["auto"] / max(cell["split"], cell["mixed"])


# ---- the picture ----

CELL_W, CELL_H, LEFT, TOP = 66, 30, 64, 64


def color(ratio):
    """Blue where split is better, red where mixed is."""
    part = max(-1, min(1, math.log2(ratio) / 1.5))
    weak = round(255 * (1 - abs(part) * 0.75))
    return f"#{weak:02x}{weak:02x}ff" if part > 0 else f"#ff{weak:02x}{weak:02x}"


def panel(out, x, y, title, cells):
    at = {(cell["slower"], cell["prompt"]): cell for cell in cells}
    out.append(f'<text x="{x}" y="{y - 8}" class="t">{title}</text>')
    for row, slower in enumerate(SLOWER):
        out.append(f'<text x="{x - 6}" y="{y + row * CELL_H + 19}" class="r">× {slower:g}</text>')
        for column, (prompt, _) in enumerate(LENGTHS):
            cell = at[slower, prompt]
            left, top = x + column * CELL_W, y + row * CELL_H
            ratio = cell["split"] / cell["mixed"]
            edge = ' stroke="#000" stroke-width="2"' if of_best(cell) < WRONG else ""
            out.append(f'<rect x="{left + 1}" y="{top + 1}" width="{CELL_W - 2}" height="{CELL_H - 2}" '
                       f'fill="{color(ratio)}"{edge}/>')
            out.append(f'<text x="{left + CELL_W / 2}" y="{top + 13}" class="c">{ratio:.2f}</text>')
            out.append(f'<text x="{left + CELL_W / 2}" y="{top + 25}" class="s">{100 * cell["split_part"]:.0f}% | '
                       f'{of_best(cell):.2f}</text>')
    for column, (prompt, answer) in enumerate(LENGTHS):
        out.append(f'<text x="{x + (column + 0.5) * CELL_W}" y="{y + len(SLOWER) * CELL_H + 13}" class="c">'
                   f'{prompt}:{answer}</text>')


def picture(cells):
    wide, high = len(LENGTHS) * CELL_W + LEFT + 16, len(SLOWER) * CELL_H + 56
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{len(LINKS) * wide}" height="{TOP + 3 * high}" '
           'font-family="sans-serif"><style>text{fill:#222}.t{font-size:13px;font-weight:bold}'
           '.r{font-size:11px;text-anchor:end}.c{font-size:11px;text-anchor:middle}'
           '.s{font-size:9px;text-anchor:middle}.h{font-size:12px}</style><rect width="100%" height="100%" fill="#fff"/>',
           '<text x="10" y="18" class="h">Goodput of a prompt and a token machine (split) divided by that of two mixed '
           'machines: blue = split is better, red = mixed. Columns: prompt:answer tokens.</text>'
           '<text x="10" y="34" class="h">Rows: time of the token machine. Small: requests that placement auto '
           f'splits | its goodput divided by the better one\'s; a frame marks less than {WRONG}.</text>']
    for column, (link, link_name) in enumerate(LINKS):
        for row, times in enumerate(TBT_TIMES):
            panel(out, column * wide + LEFT, TOP + row * high + 16, f"TBT within {times} × idle, {link_name}",
                  [cell for cell in cells if cell["tbt_times"] == times and cell["link_bytes_per_s"] == link])
    return "\n".join([*out, "</svg>\n"])


def surface(options):
    jobs = [(options, prompt, answer, slower, times, link) for times in TBT_TIMES for link, _ in LINKS
            for slower in SLOWER for prompt, answer in LENGTHS]
    with concurrent.futures.ProcessPoolExecutor() as pool:
        cells = list(pool.map(measure, jobs))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(cells, file, indent=1)
    if options.svg:
        with open(options.svg, "w") as file:
            file.write(picture(cells))
    rows = []
    for times in TBT_TIMES:
        for link, name in LINKS:
            some = [cell for cell in cells if cell["tbt_times"] == times and cell["link_bytes_per_s"] == link]
            parts = [of_best(cell) for cell in some]
            rows.append([f"TBT {times} × idle, {name}", len(some), sum(c["split"] > c["mixed"] for c in some),
                         number(median(parts)), number(min(parts)), sum(part < WRONG for part in parts),
                         sum(part > 1 / WRONG for part in parts)])
    print(table(["", "cells", "split is better", "auto / better one: median", "least", f"below {WRONG}",
                 f"above {1 / WRONG:.2f}"], rows))


# ---- real machines ----

def serve(cell, form, rate, seconds, seed):
    """Returns the share of good requests of a real cluster."""
    import bench_swing
    from bench_cluster import cluster
    pools = {"mixed": 2} if form == "mixed" else {"prompt": 1, "token": 1}
    config = {**cell.config(form), "threads": 1, "pools": pools}
    config["scheduler"] = {"turn_ms": 0, **config["scheduler"]}
    groups = []
    with cluster.Cluster(config, binary=os.path.join(cell.options.build, "cleave")) as one:
        try:
            for i, (name, pid) in enumerate(sorted(one.children().items())):
                groups.append(bench_swing.Group(name, SERVE_CORES / (cell.slower if i == 1 else 1)))
                groups[-1].add(pid)
            url = f"http://{one.host}:{one.port}"
            command = [os.path.join(cell.options.build, "cleave"), "replay", "--url", url, "--json", "--seed"]
            for part, length in ((str(seed + 1000), 6), (str(seed), seconds)):  # The first one is only to warm up.
                done = subprocess.run([*command, part, cell.trace(rate, length)], stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL, timeout=900)
        finally:
            one.stop()
            for group in groups:
                group.close()
    rows = json.loads(done.stdout)["requests"]
    good = sum(row["status"] == "done" and row["ttft_ms"] <= cell.ttft_s * 1e3 and
               row["tbt_mean_ms"] <= cell.tbt_s * 1e3 for row in rows)
    return good / len(rows)


def serve_all(options):
    cells = [cell_of(options, *served, 0, 1 / SERVE_CORES) for served in SERVED]
    shares = [{form: [] for form in FORMS} for _ in cells]
    rates, predicted = [], []
    for cell in cells:
        rates.append(max(cell.goodput(form)[0] for form in ("split", "mixed")))
        predicted.append({form: cell.good(cell.simulate(form, rates[-1])) for form in FORMS})
    for seed in range(options.rounds):
        for i, cell in enumerate(cells):
            for form in FORMS:
                shares[i][form].append(serve(cell, form, rates[i], options.seconds, seed))
                print(f"{cell.prompt}:{cell.answer} × {cell.slower}, TBT {cell.tbt_times}, {form}: "
                      f"{shares[i][form][-1]:.2f}", flush=True)
    rows = []
    for cell, rate, guess, got in zip(cells, rates, predicted, shares):
        rows.append([f"{cell.prompt}:{cell.answer}, × {cell.slower:g}, {cell.tbt_times} ×", number(rate),
                     *(f"{100 * guess[form]:.0f}" for form in FORMS),
                     *(f"{100 * median(got[form]):.0f} ({100 * min(got[form]):.0f}-{100 * max(got[form]):.0f})"
                       for form in FORMS)])
    print(table(["cell", "requests/s", *(f"{form}, simulated, %" for form in FORMS),
                 *(f"{form}, served, %" for form in FORMS)], rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", required=True)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--json")
    parser.add_argument("--svg")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    options = parser.parse_args()
    options.seconds = options.seconds or (40 if options.serve else 180)
    serve_all(options) if options.serve else surface(options)


if __name__ == "__main__":
    main()
