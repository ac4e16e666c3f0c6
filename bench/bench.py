#!/usr/bin/env python3
"""bench.py [PART…] [options]: runs the benchmarks and prints one report in Markdown. `./dev bench` calls it.

Parts: engine (bench-engine), server (a whole cluster under bench-streams), llama (llama.cpp's llama-bench, if it is
installed), gateway (bench-gateway: the gateway's cost of a streamed token), yardstick (cleave's matmul compared with
oneDNN's, if that was built), tokenizer, grammar (constrained output), transport (KV over TCP, encrypted or not), surface
(split against mixed machines that only wait; as root), pipeline (stages; only by its name).
Without a name all of them run.

Compared programs run in turn: each round is one pass of the engine, one of llama.cpp and one cluster. Each is a new
process with a new layout of memory, and slow periods of the computer affect all of them. Standard library only.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from statistics import median

import bench_llama
import bench_pipeline
import bench_server
import bench_transport
from bench_load import processor_seconds

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build", "bench")
PARTS = ("engine", "llama", "server", "gateway", "yardstick", "tokenizer", "grammar", "transport", "surface", "pipeline")
PROGRAM_S_MAX = 600  # Most seconds for one pass of a program.


def say(text):
    print(f"dev: {text}", file=sys.stderr, flush=True)


def fail(text):
    say(text)
    sys.exit(1)


def run(command):
    """Returns the output of a program. If the program fails, the bench ends; the program's errors are on stderr."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=PROGRAM_S_MAX)
    if done.returncode != 0:
        fail(f"{os.path.basename(command[0])} failed with status {done.returncode}")
    return done.stdout


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def machine_line():
    cpu = read("/proc/cpuinfo")

    def field(name):
        found = re.search(rf"^{name}\s*: (.*)$", cpu, re.M)
        return found.group(1) if found else "?"
    caches = []
    for index in range(4):
        folder = f"/sys/devices/system/cpu/cpu0/cache/index{index}"
        level, kind, size = (read(f"{folder}/{name}").strip() for name in ("level", "type", "size"))
        if size and kind != "Instruction":
            caches.append(f"L{level} {size}")
    return (f"{field('model name')} (family {field('cpu family')}, model {field('model')}), "
            f"{len(os.sched_getaffinity(0))} cores; {', '.join(caches) or 'caches unknown'}")


class Neighbours:
    """Measures how many cores other processes kept busy between two calls of `look`; these make figures worse."""

    def __init__(self):
        self.seen = []
        self.at = (time.monotonic(), *processor_seconds())

    def look(self):
        before, self.at = self.at, (time.monotonic(), *processor_seconds())
        took, everyone, own = (new - old for new, old in zip(self.at, before))
        self.seen.append(max(0.0, everyone - own) / took)


def options_read():
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__.split("\n\n")[1])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--model", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5, help="passes of the engine, at most (default: 5)")
    parser.add_argument("--seconds", type=float, default=240, help="begin nothing again that would end later than this "
                        "(default: 240)")
    parser.add_argument("--llama", metavar="PROGRAM", help="llama-bench (default: CLEAVE_LLAMA_BENCH, or on the PATH)")
    parser.add_argument("--llama-model", metavar="FILE", action="append", default=[],
                        help="another file for llama-bench beside the model's, such as its Q4_0 form; may be repeated")
    parser.add_argument("--config", metavar="JSON", default="{}", help="of the server's cluster, over the default one")
    parser.add_argument("--json", metavar="FILE", help="write all figures here")
    parser.add_argument("--compare", metavar="FILE", help="such a file: print each figure's ratio to it")
    options = parser.parse_args()
    for part in options.parts:
        if part not in PARTS:
            parser.error(f'no part "{part}": want some of {", ".join(PARTS)}')
    options.llama = options.llama or os.environ.get("CLEAVE_LLAMA_BENCH") or shutil.which("llama-bench")
    options.config = json.loads(options.config)
    return options


class Bench:
    def __init__(self, options, folder):
        self.options = options
        self.engine_json = os.path.join(folder, "engine.json")
        self.llama = bench_llama.Llama(options.llama, [options.model, *options.llama_model]) if options.llama else None
        self.server = bench_server.Server(options.config, BUILD)
        self.before = json.loads(read(options.compare)) if options.compare else None
        self.neighbours = Neighbours()
        self.started = time.monotonic()

    def wants(self, part):
        return part in self.options.parts or (not self.options.parts and part != "pipeline")

    def engine_command(self, repeats):
        command = [f"{BUILD}/bench-engine", self.options.model, "--repeats", str(repeats), "--json", self.engine_json]
        return command + (["--compare", self.options.compare] if self.options.compare else [])

    def engine_round(self, _):
        run(self.engine_command(1))

    def llama_round(self, _):
        self.llama.round()

    def rounds(self):
        """Runs each part at least once. A part does not begin again if its last duration would exceed the time."""
        parts = [("engine", self.engine_round, self.options.rounds),
                 ("llama", self.llama_round, bench_llama.ROUNDS_MAX if self.llama else 0),
                 ("server", self.server.round, bench_server.ROUNDS_MAX)]
        took = {}
        for index in range(self.options.rounds):
            for name, measure, rounds_max in parts:
                begin = time.monotonic()
                late = begin - self.started + took.get(name, 0) > self.options.seconds
                if not self.wants(name) or index >= rounds_max or (late and index > 0):
                    continue
                say(f"round {index + 1}: {name}")
                measure(index)
                took[name] = time.monotonic() - begin
            self.neighbours.look()

    def yardstick(self):
        program = f"{BUILD}/bench-yardstick"
        if not os.path.exists(program):
            return "Not built: oneDNN 2 (Debian's libdnnl-dev) is not on this machine."
        say("yardstick")
        text = run([program]).rstrip()
        self.neighbours.look()
        return text

    def gateway(self):
        """Once with batches of one machine, and once with the same streams spread over eight machines that are not in
        step."""
        texts = []
        for machines, streams in ((1, "16,64"), (8, "64,256,2000")):
            say(f"gateway: {machines} machines")
            table = run([f"{BUILD}/bench-gateway", os.path.join(ROOT, "build", "cleave"), self.options.model,
                         "--machines", str(machines), "--streams", streams])
            texts.append(f"machines: {machines}\n{table.rstrip()}")
            self.neighbours.look()
        return "\n\n".join(texts)

    def transport(self):
        ways = bench_transport.Transport(BUILD)
        for index in range(bench_transport.ROUNDS):
            say(f"transport: round {index + 1}")
            ways.round()
            self.neighbours.look()
        return ways.report()

    def surface(self):
        say("surface")
        done = subprocess.run([sys.executable, os.path.join(ROOT, "bench", "bench_surface_served.py")],
                              stdout=subprocess.PIPE, text=True, timeout=PROGRAM_S_MAX)
        self.neighbours.look()
        if done.returncode not in (0, 77):
            fail("bench_surface_served.py failed")
        return done.stdout.rstrip()

    def pipeline(self):
        for text in bench_pipeline.Pipeline(BUILD).report():
            self.neighbours.look()
            say("pipeline: a part is done")
            yield text

    def report(self):
        """Measures all parts, and returns the report."""
        yardstick = self.yardstick() if self.wants("yardstick") else ""
        self.rounds()
        yield f"# cleave bench\n\n{machine_line()}."
        if self.wants("engine"):
            yield "## The engine alone\n\n" + run(self.engine_command(0)).rstrip()
        if self.wants("llama") and self.llama:
            yield "## Beside llama.cpp\n\n" + self.llama.report(self.engine_medians())
        if self.wants("server"):
            yield "## The whole server\n\n" + self.server.report(self.before)
        if self.wants("gateway"):
            yield f"## The gateway alone\n\n```\n{self.gateway()}\n```"
        if yardstick:
            yield "## Matrices beside oneDNN\n\n" + yardstick
        if self.wants("tokenizer"):
            text = run([f"{BUILD}/bench-tokenizer", self.options.model]).rstrip()
            yield f"## Tokenizer\n\n```\n{text}\n```"
        if self.wants("grammar"):
            yield "## Constrained output\n\n```\n" + run([f"{BUILD}/bench-grammar"]).rstrip() + "\n```"
        if self.wants("transport"):
            yield f"## KV over TCP\n\n{self.transport()}"
        if self.wants("surface"):
            yield f"## Split against mixed machines\n\n{self.surface()}"
        if self.wants("pipeline"):
            yield "## Stages\n\n" + "\n\n".join(self.pipeline())
        busy = self.neighbours.seen
        yield (f"It took {time.monotonic() - self.started:.0f} s. Other processes kept {median(busy):.2f} cores busy "
               f"(median of the rounds, {min(busy):.2f} to {max(busy):.2f}).")

    def engine_medians(self):
        """Returns {(case, threads): tokens/s}."""
        if not os.path.exists(self.engine_json):
            return {}
        medians = {}
        for series in json.loads(read(self.engine_json))["engine"]:
            medians[series["case"], series["threads"]] = median(sample["tokens_a_second"] for sample in
                                                                series["samples"])
        return medians

    def figures(self):
        found = json.loads(read(self.engine_json)) if os.path.exists(self.engine_json) else {"engine": []}
        found["server"] = self.server.samples
        found["llama"] = self.llama.samples_json() if self.llama else []
        return found


def main():
    options = options_read()
    with tempfile.TemporaryDirectory(prefix="cleave-bench-") as folder:
        bench = Bench(options, folder)
        for section in bench.report():
            print(section + "\n", flush=True)
        if options.json:
            with open(options.json, "w") as file:
                json.dump(bench.figures(), file, indent=1)


if __name__ == "__main__":
    main()
