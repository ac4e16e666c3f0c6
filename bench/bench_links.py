#!/usr/bin/env python3
"""bench_links: measures the bandwidth of a network link between prompt machine and token machine, and its costs.

Two network namespaces joined by a veth pair stand for two computers. tc limits the sending rate of the one with the
prompt machine. For each rate and each transport:
  writes   GB/s and processor time of a stream of KV writes between two processes, beside one plain TCP connection.
  prompts  Prompts of several sizes, one at a time, layer by layer and in one piece in turn. The machines' own figures
           say how long KV was sent after the first token: the exposed transfer. The prompt length at which both modes
           are equal is printed beside the length from which on the machine itself chooses layer by layer.
Needs root, iproute2 with tc, and for --plot gnuplot; without, it says so and does nothing (status 77).
"""

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from math import log2
from statistics import median

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("CLEAVE_BINARY", os.path.join(ROOT, "build", "cleave"))
from bench_cluster import cluster  # noqa: E402 (reads CLEAVE_BINARY)
from bench_table import number, table  # noqa: E402
from namespaces import Namespaces, limit, net, sh, within  # noqa: E402

A, B = "prompts", "tokens"
KEY = "a cluster key of more than 32 bytes\n"
WAYS = ("one-piece", "layerwise")
FIGURES = {"prompt": "cleave_request_prompt_seconds", "exposed": "cleave_request_exposed_transfer_seconds",
           "transfer": "cleave_request_transfer_seconds"}
SOME_BYTES = 1 << 20
# Of each transport: transport/ucx_transports, and whether there is a cluster key, with which cleave's own connections
# are encrypted.
TRANSPORTS = {"own-tls": ("none", True), "own-plain": ("none", False), "ucx-tcp": ("tcp", False)}
BENCH_WRITE = os.path.join(os.path.dirname(os.environ["CLEAVE_BINARY"]), "tests", "transport", "bench_write")


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="100,1000,10000", help="of the link, in Mbit/s; 0 = not limited (%(default)s)")
    parser.add_argument("--parts", default="writes,prompts", help="what to measure (%(default)s)")
    parser.add_argument("--transports", default="own-tls", help=f"some of {', '.join(TRANSPORTS)} (%(default)s)")
    parser.add_argument("--tokens", default="16,32,64,128,256,512,1024,2048", help="of the prompts (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="of each size and way (%(default)s)")
    parser.add_argument("--plot", metavar="FILE", help="draws the exposed transfers of the last transport: .svg or .png")
    parser.add_argument("--inside", metavar="NAMESPACE,DEVICE", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.plot and not given.plot.endswith((".svg", ".png")):
        parser.error("--plot: want a name that ends in .svg or .png")
    if given.plot and shutil.which("gnuplot") is None:
        cluster.skip("--plot needs gnuplot (Debian: gnuplot-nox)")
    return given


# --- the link ---

def plain_mbit(space, seconds=1.0):
    """Measures the bandwidth of a TCP connection from here to there, in its second half."""
    receiver = ("import socket,sys\ns=socket.create_server(('10.79.0.2',7999))\nprint('up',flush=True)\nc=s.accept()[0]\n"
                "while c.recv(1<<20): pass\n")
    process = subprocess.Popen(within(space, sys.executable, "-c", receiver), stdout=subprocess.PIPE)
    process.stdout.readline()
    sent, marks = 0, []
    with socket.create_connection(("10.79.0.2", 7999)) as connection:
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            sent += connection.send(bytes(SOME_BYTES))
            marks.append((time.monotonic(), sent))
    process.wait(60)
    first = next(mark for mark in marks if mark[0] - begun >= seconds / 2)
    return (marks[-1][1] - first[1]) * 8 / (marks[-1][0] - first[0]) / 1e6


# --- writes ---

def write_once(way, key, space):
    """Returns {bytes of a write: [GB/s, processor seconds of both processes for a GB]}."""
    environment = {name: value for name, value in os.environ.items() if name != "KEY"}
    environment.update(LISTEN="10.79.0.2", NETNS=space, **({"KEY": "1"} if key else {}))
    text = subprocess.run([BENCH_WRITE, way, "12480", "1048576"], env=environment, stdout=subprocess.PIPE, text=True, check=True,
                          timeout=300).stdout
    return {int(size): [float(gbs), float(cpu)]
            for size, gbs, cpu in re.findall(r"^ *(\d+) B +([\d.]+) GB/s +([\d.]+) CPU s/GB", text, re.M)}


def writes(mbit, given, space):
    samples = {}
    ways = {"plain TCP connection": ("raw", False), **{name: TRANSPORTS[name] for name in given.transports.split(",")}}
    for _ in range(given.rounds):
        for name, (way, key) in ways.items():
            for size, figures in write_once(way, key, space).items():
                samples.setdefault((name, size), []).append(figures)
    rows = []
    for (name, size), found in samples.items():
        gbs = median(figures[0] for figures in found)
        share = f"{gbs * 8000 / mbit:.0%}" if mbit else "—"
        cells = [f"{median(column):.3g} ({min(column):.3g}–{max(column):.3g})" for column in zip(*found)]
        rows.append([name, size, cells[0], share, cells[1]])
    limited = f"{mbit} Mbit/s" if mbit else "A link without a limit"
    return f"{limited}, writes:\n\n" + table(["transport", "one write, bytes", "GB/s", "of the link", "CPU s/GB"], rows)


# --- one request ---

class Figures:
    """Reads how much the last request added to the gateway's sums."""

    def __init__(self, one):
        self.one = one
        self.before = self.read()

    def read(self):
        found = self.one.metrics()
        return {name: (sum(v for (each, _), v in found.items() if each == family + "_sum"),
                       sum(v for (each, _), v in found.items() if each == family + "_count"))
                for name, family in FIGURES.items()}

    def next(self):
        deadline = time.monotonic() + 20
        while True:
            now = self.read()
            if all(now[name][1] == self.before[name][1] + 1 for name in FIGURES):
                break
            if time.monotonic() > deadline:
                raise SystemExit(f"a request is not in /metrics: {self.before} {now}")
            time.sleep(0.01)
        found = {name: (now[name][0] - self.before[name][0]) * 1000 for name in FIGURES}
        self.before = now
        return found


def prompt(length, serial):
    return [(serial * 7919 + k * 13) % 40000 + 100 for k in range(length)]


def measure(one, figures, sizes, rounds):
    """Returns {(tokens, way): {figure: ms}}: medians, and for the prompt's own time the minimum, because other
    processes use the cores too."""
    found = {(size, way): [] for size in sizes for way in WAYS}
    serial = 0
    for index in range(rounds + 1):
        for size in sizes:
            for way in WAYS if index % 2 else WAYS[::-1]:
                serial += 1
                one.post("/v1/completions", {"prompt": prompt(size, serial), "max_tokens": 2, "ignore_eos": True,
                                             "temperature": 0, "cleave": {"transfer": way}})
                sample = figures.next()
                if index > 0:  # The first round is a warm-up.
                    found[size, way].append(sample)
    return {key: {name: (min if name == "prompt" else median)(sample[name] for sample in samples) for name in FIGURES}
            for key, samples in found.items()}


# --- what it says ---

def crossing(sizes, found, cost):
    """Returns (text, tokens or None): the number of tokens from which on layer by layer is not later."""
    gains = [cost(found[size, "one-piece"]) - cost(found[size, "layerwise"]) for size in sizes]
    last = max((i for i, gain in enumerate(gains) if gain < 0), default=None)
    if last is None:
        return f"below {sizes[0]}"
    if last == len(sizes) - 1:
        return f"above {sizes[-1]}"
    # Share of the distance to the next size, which is twice as large.
    share = gains[last] / (gains[last] - gains[last + 1])
    return f"{2 ** (log2(sizes[last]) + share * (log2(sizes[last + 1]) - log2(sizes[last]))):.0f}"


def threshold(one):
    """Returns the tokens from which on p0 sends layer by layer, by the gateway's figures."""
    links = json.loads(one.request("GET", "/admin/state")[2])["links"]
    return next(link.get("layerwise_tokens") for link in links if link["from"] == "p0" and link["up"])


def section(mbit, name, carried, sizes, found, chosen):
    rows = []
    for size in sizes:
        piece, layers = found[size, "one-piece"], found[size, "layerwise"]
        hidden = 1 - layers["exposed"] / layers["transfer"] if layers["transfer"] > 0 else 0
        rows.append([size, number(piece["prompt"]), number(layers["prompt"]), number(piece["exposed"]),
                     number(layers["exposed"]), f"{hidden:.0%}"])
    heads = ["prompt tokens", "prompt, one piece, ms", "prompt, layer by layer", "exposed, one piece, ms",
             "exposed, layer by layer", "of it hidden"]
    limited = f"{mbit} Mbit/s" if mbit else "A link without a limit"
    return (f"{limited}, prompts, {name} (a plain TCP connection carries {number(carried)} Mbit/s):\n\n{table(heads, rows)}\n\n"
            f"Layer by layer exposes less from {crossing(sizes, found, lambda f: f['exposed'])} tokens on, and decoding begins "
            f"sooner from {crossing(sizes, found, lambda f: f['prompt'] + f['exposed'])} on; "
            f"the machine sends prompts of {chosen} tokens or more layer by layer.")


def draw(path, sizes, results):
    terminal = 'svg size 900,560 background rgb "white"' if path.endswith(".svg") else "pngcairo size 900,560"
    lines = [f"set terminal {terminal}", f"set output '{path}'", "set logscale x 2", "set logscale y 10", "set xlabel 'prompt tokens'",
             "set ylabel 'exposed transfer, ms'", "set key left top", "set grid"]
    plots = []
    for index, (mbit, _, found) in enumerate(results):
        for way in WAYS:
            name = f"$d{index}{way[0]}"
            lines.append(f"{name} << E")
            lines += [f"{size} {max(found[size, way]['exposed'], 0.01)}" for size in sizes]
            lines.append("E")
            style = "dashtype 2" if way == "one-piece" else ""
            plots.append(f"{name} using 1:2 with linespoints linecolor {index + 1} {style} title '{mbit} Mbit/s, {way}'")
    lines.append("plot " + ", \\\n".join(plots))
    subprocess.run(["gnuplot"], input="\n".join(lines) + "\n", text=True, check=True)


# --- both sides ---

def config_of(name):
    way, key = TRANSPORTS[name]
    return {"model": cluster.MODEL, "threads": 1, "pools": {"prompt": ["p0"], "token": ["t0"]},
            "machines": {"p0": {"address": "10.79.0.1:7400", "local": False},
                         "t0": {"address": "10.79.0.2:7400", "local": False}},
            "cluster": {"key_file": "cluster.key"} if key else {"allow_insecure": True},
            "kv": {"memory": "192MiB", "prefix_cache": False}, "transport": {"ucx_transports": way, "silence_ms": 20000}}


def prompts(name, given, space, device):
    """Returns [(Mbit/s, bandwidth of plain TCP, results)] of one transport."""
    sizes = [int(size) for size in given.tokens.split(",")]
    one = cluster.Cluster(config_of(name), files={"cluster.key": KEY}, ready=False)
    path = os.path.join(one.folder.name, "config.json")
    results, machines = [], []
    with open(os.path.join(one.folder.name, "log"), "w") as log:
        try:
            for words in ([], within(space)):
                machines.append(subprocess.Popen([*words, cluster.BINARY, "machine", path, "t0" if words else "p0"], stderr=log))
            one.wait_ready(60)
            deadline = time.monotonic() + 60
            while one.metric("cleave_machine_up") < 2 or not [
                    link for link in json.loads(one.request("GET", "/admin/state")[2])["links"] if link["up"]]:
                if time.monotonic() > deadline:
                    raise SystemExit(one.logged())
                time.sleep(0.1)
            figures = Figures(one)
            for mbit in (int(rate) for rate in given.rates.split(",")):
                limit(device, mbit)
                carried = plain_mbit(space)
                found = measure(one, figures, sizes, given.rounds)
                results.append((mbit, carried, found))
                print(section(mbit, name, carried, sizes, found, threshold(one)) + "\n", flush=True)
        finally:
            one.stop()
            for machine in machines:
                machine.terminate()
            for machine in machines:
                machine.wait(60)
    return results


def inside(given, space, device):
    parts = given.parts.split(",")
    if "writes" in parts:
        for mbit in (int(rate) for rate in given.rates.split(",")):
            limit(device, mbit)
            print(writes(mbit, given, space) + "\n", flush=True)
    results = []
    if "prompts" in parts:
        for name in given.transports.split(","):
            results = prompts(name, given, space, device)
    sizes = [int(size) for size in given.tokens.split(",")]
    if given.plot and results:
        draw(given.plot, sizes, results)
        print(f"drawn: {given.plot}")


def main():
    given = options()
    if given.inside:
        inside(given, *given.inside.split(","))
        return
    cluster.need_model()
    if shutil.which("tc") is None:
        cluster.skip("needs tc (iproute2)")
    with Namespaces([A, B], [(A, A + "v", "10.79.0.1/24", B, B + "v", "10.79.0.2/24")]) as spaces:
        probe = sh(*net(spaces[A], "tc", "qdisc", "replace", "dev", A + "v", "root", "tbf", "rate", "1gbit", "burst", "100000",
                        "latency", "100ms"), check=False)
        status = 0
        if probe.returncode == 0:
            status = spaces.run_inside(A, *sys.argv[1:], "--inside", f"{spaces[B]},{A}v", seconds=3600)
    if probe.returncode != 0:
        cluster.skip(f"tc cannot limit a link here: {probe.stderr.strip()}")
    sys.exit(status)


main()
