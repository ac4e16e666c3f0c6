"""bench_surface_served: where splitting the phases pays, with real processes: a gateway and two machines that wait.

The waits have the times of the Splitwise paper's A100 and H100 machines (docs/profile.md, "The device wait"), and
occupy no core. Machine 1 and machine 2 are in network namespaces, whose link tc limits. The forms are those of
bench_surface: `split` (machine 1 computes all prompts, machine 2 all answers), `mixed` (two mixed machines) and `auto`
(a prompt and a token machine; the gateway decides for each request). A cell is a pair of machines, a link and lengths
of requests.

Without --surface, each form serves some cells (one; with --all, eight) at one rate for all forms, 0.7 of the least
goodput of the simulated forms; with --all also at 1.6 times the highest, which no form can serve. With --surface, the
goodput of each form of each cell is searched: the rate at which nine of ten requests have their first token within 6 times, and
a mean gap between tokens within 2 times, what an idle machine takes (the slower one of the two). The search begins at
the simulated goodput of the same requests. --json keeps the cells: those in the file are not measured again. A run in
which the client sent late is repeated, because other processes had the cores then.

usage: bench_surface_served.py [--all] [--parallel N] [--seconds S] [--build FOLDER]
       bench_surface_served.py --surface --json FILE [--cells N] [--svg FILE] [--parallel N] [--seconds S]
       bench_surface_served.py --surface --json FILE --only-report [--svg FILE]
Needs root and tc (iproute2); without, it says so and does nothing (status 77).
"""

import argparse
import concurrent.futures
import csv
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from statistics import median

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("CLEAVE_BINARY", os.path.join(ROOT, "build", "cleave"))
from bench_cluster import cluster  # noqa: E402 (reads CLEAVE_BINARY)
from bench_load import processor_seconds, processor_seconds_of  # noqa: E402
from bench_surface import Cell, FORMS, GOOD, WRONG, color, split_part  # noqa: E402
from bench_table import number, table  # noqa: E402
from namespaces import Namespaces, limit, net, sh, within  # noqa: E402

# Microseconds of a layer and of a row in it: 30 layers take the paper's TBT for one row, and the paper's TTFT for 1020
# rows (docs/results/README.md, "A100 and H100 alone").
WAITS = {"H100": (1166.6, 3.118), "A100": (1565.9, 7.766)}
PAIRS = (("H100", "A100"), ("H100", "H100"), ("A100", "H100"))
LENGTHS = ((1500, 13), (1500, 50), (1020, 129), (512, 200))
LINKS_MBIT = (0, 1000)
TBT_TIMES = 2
LAYERS, KV_BYTES_PER_TOKEN = 30, 780  # Of the default model; the bytes are those of a layer.
MACHINE_KV = 3 << 29
SCHEDULER = {"prompt_batch_tokens": 2048}  # As in the paper.
WARM_S = 4
STEP = 1.12  # From one rate of a search to the next.
STEPS_MAX = 6
COMMON, OVERLOAD = 0.7, 1.6
LATE_MS_MAX, TRIES = 100, 3  # A client that is later says more about the computer than about the cluster.
DEVICE = "m1v"


# ---- the cells ----

def grid(rows_key, row_us):
    return {rows_key: [1, 2048], "contexts": [0, 8192], "us": [[rows * row_us] * 2 for rows in (1, 2048)]}


def wait_device(name, index):
    """Returns a device of a profile. What a layer takes without rows is in batch_us, once for each batch."""
    layer_us, row_us = WAITS[name]
    none = {"rows": [1, 2048], "us": [0, 0]}
    return {"name": f"machine-{index}", "kind": f"wait:{layer_us}+{row_us}", "threads": index, "host": f"host-{index}",
            "description": name, "memory_bytes": 1 << 34, "layers_alike": True, "first": none, "last": none,
            "batch_us": LAYERS * layer_us,
            "layers": [{"prompt": grid("tokens", row_us), "token": grid("batches", row_us)}]}


def wait_profile(pair):
    return {"version": 1, "links": [], "devices": [wait_device(name, i) for i, name in enumerate(pair, 1)],
            "model": {"name": "waits", "layer_count": LAYERS, "hidden": 576, "vocab": 49152, "layer_weight_bytes": 1,
                      "embedding_bytes": 1, "vocabulary_bytes": 1, "tied": False,
                      "kv_bytes_per_token": KV_BYTES_PER_TOKEN, "boundary_bytes_per_token": 2304}}


class WaitCell(Cell):
    def enough(self, rate):
        """The simulation has the same requests as the real run, or more if these would be fewer than 20."""
        return max(self.options.seconds, 20 / rate)


def cell_open(options, key):
    pair, lengths, mbit = key
    slowest = 1 + pair.index(max(pair, key=lambda name: WAITS[name]))
    return WaitCell(options, lengths, wait_profile(pair), slowest, TBT_TIMES, mbit * 125000, MACHINE_KV, SCHEDULER)


def predict(job):
    """Returns the simulated goodput of each form, the limits, and how many requests `auto` splits."""
    cell = cell_open(*job)
    found = {form: cell.goodput(form) for form in FORMS}
    out = {"simulated": {form: rate for form, (rate, _) in found.items()}, "ttft_s": cell.ttft_s, "tbt_s": cell.tbt_s,
           "simulated_split_part": split_part(found["auto"][1])}
    cell.close()
    return out


# ---- inside the namespace of machine 1: one form of one cell ----

def share(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0


class Served:
    """A gateway and machine 1 here, machine 2 in another namespace."""

    def __init__(self, job, space):
        pair, form = job["pair"], job["form"]
        names = ("m1", "m2")
        machines = {name: {"address": f"10.79.0.{i}:7400", "local": False, "threads": 1,
                           "device": "wait:%g+%g" % WAITS[kind]} for i, (name, kind) in enumerate(zip(names, pair), 1)}
        pools = {"mixed": list(names)} if form == "mixed" else {"prompt": ["m1"], "token": ["m2"]}
        config = {"model": cluster.MODEL, "threads": 1, "pools": pools, "machines": machines,
                  "cluster": {"allow_insecure": True}, "kv": {"memory": MACHINE_KV, "prefix_cache": False},
                  "transport": {"ucx_transports": "none"}, "scheduler": {**FORMS[form], **SCHEDULER},
                  "slo": {"ttft_ms": max(1, round(job["ttft_s"] * 1e3)), "tbt_ms": max(1, round(job["tbt_s"] * 1e3))}}
        self.job, self.machines = job, []
        self.one = cluster.Cluster(config, ready=False)
        path = os.path.join(self.one.folder.name, "config.json")
        self.log = open(os.path.join(self.one.folder.name, "log"), "w")
        for name, words in zip(names, ([], within(space))):
            self.machines.append(subprocess.Popen([*words, cluster.BINARY, "machine", path, name], stderr=self.log))
        self.one.wait_ready(120)
        links = 1 if form == "split" else 2  # Without adaptive_pools only the prompt machine writes KV.
        cluster.wait_until(lambda: self.links_up() == links, f"{links} links are up", 120, self.one)

    def links_up(self):
        time.sleep(0.1)
        return sum(link["up"] for link in json.loads(self.one.request("GET", "/admin/state")[2])["links"])

    def close(self):
        self.one.stop()
        for machine in self.machines:
            machine.terminate()
        for machine in self.machines:
            machine.wait(60)
        self.log.close()

    def replay(self, rate, seconds, seed):
        """Returns the rows of the requests in the order of their arrivals, and the summary."""
        trace = (f"poisson:rate={rate:.6g},seconds={seconds},prompt=lognormal:{self.job['prompt']}:0.4,"
                 f"output=lognormal:{self.job['answer']}:0.4")
        path = os.path.join(self.one.folder.name, "rows.csv")
        done = subprocess.run([cluster.BINARY, "replay", trace, "--url", f"http://{self.one.host}:{self.one.port}",
                               "--seed", str(seed), "--json", "--out", path], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, timeout=600)
        found = json.loads(done.stdout)
        with open(path) as file:
            arrivals = {int(row["request_id"]): float(row["arrival_s"]) for row in csv.DictReader(file)}
        rows = [{**row, "arrival_s": arrivals[row["id"]]} for row in found["requests"]]
        return sorted(rows, key=lambda row: row["arrival_s"]), found["summary"]

    def point(self, rate, seconds):
        """Serves this rate, again if other processes kept the client from sending in time. Returns the figures of the
        run with the least delay."""
        tries = []
        while len(tries) < TRIES and (not tries or tries[-1]["late_p99_ms"] > LATE_MS_MAX):
            tries.append(self.run(rate, seconds))
        return min(tries, key=lambda one: one["late_p99_ms"])

    def run(self, rate, seconds, seed=1):
        """Serves this rate, and returns its figures. The first fifth of the requests only fills the machines."""
        pids = [self.one.process.pid, *(machine.pid for machine in self.machines)]

        def look():
            everyone, client = processor_seconds()
            return (time.monotonic(), everyone, client + processor_seconds_of(pids),
                    self.one.metric("cleave_request_exposed_transfer_seconds_count"))
        before = look()
        rows, summary = self.replay(rate, seconds, seed)
        took, everyone, own, sent = (now - was for now, was in zip(look(), before))
        failed = [row for row in rows if row["status"] != "done"]
        whole = rows[len(rows) // 5:]
        good = sum(row["status"] == "done" and row["ttft_ms"] <= self.job["ttft_s"] * 1e3 and
                   row["tbt_mean_ms"] <= self.job["tbt_s"] * 1e3 for row in whole)
        done = [row for row in whole if row["status"] == "done"]
        ended = [row for row in rows if seconds / 4 <= row["arrival_s"] + row["e2e_ms"] / 1e3 < seconds]
        out = {"rate": rate, "requests": len(whole), "good": good / max(1, len(whole)), "failed": len(failed),
               "split_part": sent / max(1, len(rows)), "cores": own / took, "busy_cores": everyone / took,
               "throughput": len(ended) / (0.75 * seconds), "late_p99_ms": summary["late_ms"]["p99"]}
        for name in ("ttft_ms", "e2e_ms", "second_ms", "tbt_max_ms"):
            values = [row[name] for row in done if name in row]
            out.update({f"{name}_p50": share(values, 0.5), f"{name}_p99": share(values, 0.99)})
        out.update({f"tbt_ms_{part}": summary["tbt_ms"][part] for part in ("p50", "p99")})
        return out

    def search(self, rate, seconds):
        """Returns the points of a search that begins at this rate."""
        points = [self.point(rate, seconds)]
        up = points[0]["good"] >= GOOD
        for i in range(1, STEPS_MAX):
            points.append(self.point(rate * STEP ** (i * (i + 1) / 2 * (1 if up else -1)), seconds))
            if (points[-1]["good"] >= GOOD) != up:
                break
        return sorted(points, key=lambda point: point["rate"])


def inside(path, space):
    """Serves the job of this file, and writes its points there."""
    with open(path) as file:
        job = json.load(file)
    for where, device in ((None, DEVICE), (space, DEVICE)):
        limit(device, job["mbit"], where)
    served = Served(job, space)
    try:
        served.replay(job["rates"][0], WARM_S, 1000)  # Rates are measured for the first time.
        if job["search"]:
            points = served.search(job["rates"][0], job["seconds"])
        else:
            points = [served.point(rate, job["seconds"]) for rate in job["rates"]]
    finally:
        served.close()
    with open(path, "w") as file:
        json.dump(points, file)


def goodput(points):
    """Returns the rate at which the share of good requests crosses GOOD, by a line over the rate's logarithm."""
    for low, high in zip(points, points[1:]):
        if low["good"] >= GOOD > high["good"]:
            part = (low["good"] - GOOD) / (low["good"] - high["good"])
            return low["rate"] * (high["rate"] / low["rate"]) ** part
    return points[-1]["rate"] if points[-1]["good"] >= GOOD else points[0]["rate"]


def goodput_text(points):
    """Returns the goodput as text, with < or > where no measured rate is good, or all are."""
    sign = "<" if points[0]["good"] < GOOD else ">" if points[-1]["good"] >= GOOD else ""
    return sign + number(goodput(points))


# ---- outside ----

def serve(job):
    """Runs a job in namespaces of its own, and returns its points."""
    with tempfile.TemporaryDirectory(prefix="bench-surface-") as folder:
        path = os.path.join(folder, "job.json")
        with open(path, "w") as file:
            json.dump(job, file)
        with Namespaces(["1", "2"], [("1", DEVICE, "10.79.0.1/24", "2", DEVICE, "10.79.0.2/24")]) as spaces:
            probe = sh(*net(spaces["1"], "tc", "qdisc", "replace", "dev", DEVICE, "root", "tbf", "rate", "1gbit",
                            "burst", "100000", "latency", "100ms"), check=False)
            if probe.returncode != 0:
                cluster.skip(f"tc cannot limit a link here: {probe.stderr.strip()}")
            if spaces.run_inside("1", "--inside", f"{path},{spaces['2']}", seconds=3600) != 0:
                raise SystemExit(f"a job failed: {job}")
        with open(path) as file:
            return json.load(file)


def job_of(key, form, found, rates, search, seconds):
    pair, (prompt, answer), mbit = key
    return {"pair": pair, "prompt": prompt, "answer": answer, "mbit": mbit, "form": form, "rates": rates,
            "search": search, "seconds": seconds, "ttft_s": found["ttft_s"], "tbt_s": found["tbt_s"]}


def measure(options, keys, rates_of, search):
    """Yields (what was predicted, {form: points}) of each cell."""
    with concurrent.futures.ProcessPoolExecutor() as pool:
        predictions = list(pool.map(predict, [(options, key) for key in keys]))
    with concurrent.futures.ThreadPoolExecutor(options.parallel) as pool:
        points = [{form: pool.submit(serve, job_of(key, form, found, rates_of(found, form), search, options.seconds))
                   for form in FORMS} for key, found in zip(keys, predictions)]
        for found, of in zip(predictions, points):
            yield found, {form: future.result() for form, future in of.items()}


def name_of(key):
    pair, (prompt, answer), mbit = key
    return f"{pair[0]} + {pair[1]}, {f'{mbit} Mbit/s' if mbit else 'no limit'}, {prompt}:{answer}"


def utilisation(points):
    own, every, late = ([point[name] for point in points] for name in ("cores", "busy_cores", "late_p99_ms"))
    return (f"One cluster with its client used {number(median(own))} cores (median; at most {number(max(own))}); all "
            f"processes kept {number(median(every))} of {os.cpu_count()} cores busy (median; at most "
            f"{number(max(every))}). The client was late by at most {number(max(late))} ms (P99 of a run).")


def figures(options):
    """One rate for all forms, and a rate that is too high."""
    keys = [((PAIRS[0][0], second), lengths, LINKS_MBIT[0]) for second in ("A100", "H100") for lengths in LENGTHS]
    keys = keys if options.all else [(PAIRS[0], (1020, 129), LINKS_MBIT[0])]

    def rates(found, _):
        simulated = found["simulated"].values()
        return [COMMON * min(simulated)] + ([OVERLOAD * max(simulated)] if options.all else [])
    rows, points = [], []
    for key, (_, of) in zip(keys, measure(options, keys, rates, False)):
        for form, (common, *overload) in of.items():
            points += [common, *overload]
            rows.append([name_of(key), form, number(common["rate"]), f"{100 * common['good']:.0f}",
                         *(f"{number(common[f'{name}_p50'])}, {number(common[f'{name}_p99'])}" for name in
                           ("ttft_ms", "tbt_ms", "second_ms", "e2e_ms")), f"{100 * common['split_part']:.0f}",
                         number(overload[0]["throughput"]) if overload else "-"])
    print(table(["machines, link, lengths", "form", "requests/s", "good, %", "TTFT P50, P99, ms", "TBT P50, P99",
                 "second token P50, P99", "E2E P50, P99", "split, %", "requests/s at overload"], rows))
    print("\n" + utilisation(points))


def surface(options):
    cells = []
    if os.path.exists(options.json):
        with open(options.json) as file:
            cells = json.load(file)
    done = {json.dumps(cell["key"]) for cell in cells}
    pairs = (PAIRS[1], PAIRS[0], PAIRS[2])
    keys = [(pair, lengths, mbit) for mbit in LINKS_MBIT for pair in pairs for lengths in LENGTHS]
    keys = [key for key in keys if json.dumps(key) not in done]
    keys = [] if options.only_report else keys[:options.cells]
    for key, (found, of) in zip(keys, measure(options, keys, lambda found, form: [found["simulated"][form]], True)):
        cells.append({"key": key, **found, "points": of})
        with open(options.json, "w") as file:
            json.dump(cells, file, indent=1)
    report(options, cells)


# ---- what it says ----

class Result:
    """The measured goodputs of a cell."""

    def __init__(self, cell):
        pair, lengths, self.mbit = cell["key"]
        self.key = (tuple(pair), tuple(lengths), self.mbit)
        self.row, self.column = (tuple(pair), self.mbit), tuple(lengths)
        self.rates = {form: goodput(points) for form, points in cell["points"].items()}
        self.texts = {form: goodput_text(points) for form, points in cell["points"].items()}
        self.ratio = self.rates["split"] / self.rates["mixed"]
        self.of_best = self.rates["auto"] / max(self.rates["split"], self.rates["mixed"])
        auto = min(cell["points"]["auto"], key=lambda point: abs(math.log(point["rate"] / self.rates["auto"])))
        self.split_part = auto["split_part"]
        self.simulated = cell["simulated"]
        self.disturbed = any(point["late_p99_ms"] > LATE_MS_MAX for points in cell["points"].values()
                             for point in points)


def report(options, cells):
    results = [Result(cell) for cell in cells]
    if not results:
        return
    rows = [[name_of(r.key) + (" (disturbed)" if r.disturbed else ""), *(r.texts[form] for form in FORMS),
             f"{r.ratio:.2f}", f"{r.simulated['split'] / r.simulated['mixed']:.2f}", f"{100 * r.split_part:.0f}",
             f"{r.of_best:.2f}"] for r in results]
    print(table(["machines, link, prompt:answer", *(f"{form}, requests/s" for form in FORMS), "split / mixed",
                 "simulated", "auto splits, %", "auto / better one"], rows))
    every, results = results, [r for r in results if not r.disturbed]
    print(f"\nIn {len(every) - len(results)} cells other processes kept the client from sending in time (P99 of a run "
          f"above {LATE_MS_MAX} ms). The others:")
    parts = [r.of_best for r in results]
    errors = {form: median(abs(r.simulated[form] / r.rates[form] - 1) for r in results) for form in FORMS}
    print(f"Split is better in {sum(r.ratio > 1 for r in results)} of {len(results)} cells. auto has less than {WRONG} "
          f"of the better one's goodput in {sum(part < WRONG for part in parts)} cells (median {median(parts):.2f}, "
          f"least {min(parts):.2f}), and splits most requests where mixed is better, or few where split is better, in "
          f"{sum((r.split_part > 0.5) != (r.ratio > 1) for r in results)}. The simulated goodput differs from the "
          f"measured one by {', '.join(f'{100 * error:.0f} % ({form})' for form, error in errors.items())} in the "
          "median.\n")
    print(utilisation([point for cell in cells for points in cell["points"].values() for point in points]))
    if options.svg:
        with open(options.svg, "w") as file:
            file.write(picture(every))


CELL_W, CELL_H, LEFT, TOP = 130, 44, 190, 110


def borders(rows, at, better, style):
    """Returns lines between neighbours of which only one is `better`."""
    out = []
    for i, row in enumerate(rows):
        for j, column in enumerate(LENGTHS):
            here = at.get((row, column))
            for di, dj in ((0, 1), (1, 0)):
                inside_map = i + di < len(rows) and j + dj < len(LENGTHS)
                other = at.get((rows[i + di], LENGTHS[j + dj])) if inside_map else None
                if here is None or other is None or better(here) == better(other):
                    continue
                x, y = LEFT + (j + dj) * CELL_W, TOP + (i + di) * CELL_H
                out.append(f'<line x1="{x}" y1="{y}" x2="{x + di * CELL_W}" y2="{y + dj * CELL_H}" {style}/>')
    return out


def picture(results):
    rows = [(pair, mbit) for mbit in LINKS_MBIT for pair in PAIRS if any(r.row == (pair, mbit) for r in results)]
    at = {(r.row, r.column): r for r in results}
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + len(LENGTHS) * CELL_W + 20}" '
           f'height="{TOP + len(rows) * CELL_H + 30}" font-family="sans-serif"><style>text{{fill:#222;font-size:12px}}'
           '.r{text-anchor:end}.c{text-anchor:middle}.s{font-size:10px;text-anchor:middle}</style>'
           '<rect width="100%" height="100%" fill="#fff"/>',
           '<text x="10" y="18">Goodput of prompt + token machine (split) divided by that of two mixed machines: blue '
           '= split is better, red = mixed.</text>',
           '<text x="10" y="36">Small: requests that auto splits | its goodput divided by the better one\'s; a frame '
           f'marks less than {WRONG}.</text>',
           '<text x="10" y="54">Solid line: where the better form changes. Dashed: where auto changes between '
           'splitting more and less than half.</text>',
           '<text x="10" y="72">Pale: other processes disturbed the runs.</text>']
    for i, row in enumerate(rows):
        (first, second), mbit = row
        out.append(f'<text x="{LEFT - 8}" y="{TOP + i * CELL_H + 26}" class="r">{first} + {second}, '
                   f'{f"{mbit / 1000:g} Gbit/s" if mbit else "no limit"}</text>')
        for j, column in enumerate(LENGTHS):
            r = at.get((row, column))
            if r is None:
                continue
            x, y = LEFT + j * CELL_W, TOP + i * CELL_H
            edge = ' stroke="#000" stroke-width="2"' if r.of_best < WRONG else ""
            edge += ' opacity="0.4"' if r.disturbed else ""
            out.append(f'<rect x="{x + 4}" y="{y + 4}" width="{CELL_W - 8}" height="{CELL_H - 8}" '
                       f'fill="{color(r.ratio)}"{edge}/><text x="{x + CELL_W / 2}" y="{y + 20}" class="c">{r.ratio:.2f}'
                       f'</text><text x="{x + CELL_W / 2}" y="{y + 34}" class="s">{100 * r.split_part:.0f}% | '
                       f'{r.of_best:.2f}</text>')
    for j, (prompt, answer) in enumerate(LENGTHS):
        out.append(f'<text x="{LEFT + (j + 0.5) * CELL_W}" y="{TOP - 8}" class="c">{prompt}:{answer}</text>')
    out += borders(rows, at, lambda r: r.ratio > 1, 'stroke="#063" stroke-width="4"')
    out += borders(rows, at, lambda r: r.split_part > 0.5, 'stroke="#c60" stroke-width="2" stroke-dasharray="6 4"')
    return "\n".join([*out, "</svg>\n"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--surface", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--svg")
    parser.add_argument("--cells", type=int, help="measure at most N cells that are not in the file yet")
    parser.add_argument("--only-report", action="store_true")
    parser.add_argument("--parallel", type=int, default=3, help="clusters at the same time (%(default)s)")
    parser.add_argument("--seconds", type=int, help="of arrivals at each rate (40; without --surface and --all 8)")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--inside", metavar="FILE,NAMESPACE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        inside(*options.inside.split(","))
        return
    if options.surface and not options.json:
        parser.error("--surface: want --json FILE")
    cluster.BINARY = os.environ["CLEAVE_BINARY"] = os.path.join(options.build, "cleave")
    cluster.need_model()
    options.seconds = options.seconds or (40 if options.surface or options.all else 8)
    surface(options) if options.surface else figures(options)


if __name__ == "__main__":
    main()
