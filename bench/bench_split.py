#!/usr/bin/env python3
"""bench_split: split phases against mixed machines at equal resources, on this computer's cores, in turn.

Every round starts each form, measures 8 streams (256 + 64 tokens, always open) and then one stream, and stops it. The
forms: `default` (a prompt and a token machine that share the cores, so that both phases run on the latter), `split`
(the same, but always split), `mixed` (one machine), `mixed 512` (its batches may have 512 prompt tokens at any time), `mixed 2` (two machines), and
llama.cpp's server, if --llama names its program. --set KEY=VALUE changes a config key of all of cleave's forms; --form
NAME=JSON adds a form with these config keys. With --together all forms stay open, and are measured in an order that changes from
round to round, so that a change of the computer's speed affects them alike; idle forms use no CPU time. --of FORM adds a
table of ratios to this form (mean of the rounds' ratios, and its 95 % interval).

usage: bench_split.py [--rounds N] [--seconds S] [--forms NAME,…] [--set KEY=VALUE]… [--form NAME=JSON]… [--together]
                      [--of FORM] [--llama PROGRAM --llama-model FILE] [--prompt N] [--answer N] [--json FILE]
                      [--build FOLDER]
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import time
import urllib.request
from contextlib import ExitStack
from statistics import median

from bench_cluster import cluster
from bench_table import interval, number, spread, table

ALONE_S, WARM_S = 4, 4
FORMS = {
    "default": {},
    "split": {"pools": {"prompt": 1, "token": 1}, "scheduler": {"placement": "split"}},
    "mixed": {"pools": {"mixed": 1}},
    "mixed 512": {"pools": {"mixed": 1}, "scheduler": {"mixed_prompt_tokens": 512}},
    "mixed 2": {"pools": {"mixed": 2}},
}
FIGURES = (
    ("requests_a_second", "requests/s"), ("ttft_p50_ms", "TTFT p50, ms"), ("ttft_p99_ms", "TTFT p99"),
    ("tbt_p50_ms", "TBT p50"), ("tbt_p99_ms", "TBT p99"), ("gap_max_ms", "longest gap"),
    ("alone_ttft_p50_ms", "alone: TTFT p50"), ("alone_tbt_p50_ms", "TBT p50"), ("alone_tbt_p99_ms", "TBT p99"),
)


def put(config, path, value):
    """Sets config[a][b] for the path a/b."""
    *parts, last = path.split("/")
    for part in parts:
        config = config.setdefault(part, {})
    config[last] = value


class Llama:
    """llama.cpp's server with one slot per stream."""

    def __init__(self, program, model, streams):
        self.port = cluster.free_ports(1)[0]
        self.process = subprocess.Popen(
            [program, "-m", model, "--port", str(self.port), "--parallel", str(streams), "-c", str(512 * streams),
             "-t", str(os.cpu_count()), "--no-webui", "--skip-chat-parsing"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.host = "127.0.0.1"
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                time.sleep(0.1)
        raise SystemExit("llama-server does not start")

    def __enter__(self):
        return self

    def __exit__(self, *why):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


class Bench:
    def __init__(self, options):
        self.options, self.samples = options, {}
        self.forms = dict(FORMS)
        for text in options.form:
            name, _, value = text.partition("=")
            self.forms[name] = json.loads(value)
        names = options.forms.split(",") if options.forms else list(self.forms)
        self.forms = {name: self.forms[name] for name in names}
        if options.llama:
            self.forms["llama-server"] = None

    def config(self, form):
        config = {"model": cluster.MODEL, **json.loads(json.dumps(self.forms[form]))}
        for text in self.options.set:
            key, _, value = text.partition("=")
            put(config, key, json.loads(value) if re.fullmatch(r"[\d.\-]+|true|false|[\[{].*", value) else value)
        return config

    def open(self, form):
        if self.forms[form] is None:
            return Llama(self.options.llama, self.options.llama_model or cluster.MODEL, self.options.streams)
        return cluster.Cluster(self.config(form), binary=os.path.join(self.options.build, "cleave"))

    def streams(self, url, seed, count, seconds):
        done = subprocess.run([os.path.join(self.options.build, "bench", "bench-streams"), url, "--streams", str(count),
                               "--seconds", str(seconds), "--warm", str(WARM_S), "--seed", str(seed), "--prompt",
                               str(self.options.prompt), "--answer", str(self.options.answer)],
                              stdout=subprocess.PIPE, text=True, timeout=300)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def measure(self, form, one, index):
        url = f"http://{one.host}:{one.port}"
        busy = self.streams(url, 2 * index, self.options.streams, self.options.seconds)
        alone = self.streams(url, 2 * index + 1, 1, ALONE_S)
        if busy is None or alone is None:
            print(f"{form}: a request failed; its figures of this round are left out", flush=True)
        sample = {**(busy or {}), **{f"alone_{name}": value for name, value in (alone or {}).items()}}
        self.samples.setdefault(form, []).append(sample)

    def rounds(self):
        for index in range(self.options.rounds):
            for form in self.forms:
                with self.open(form) as one:
                    self.measure(form, one, index)

    def rounds_together(self):
        with ExitStack() as stack:
            open_forms = [(form, stack.enter_context(self.open(form))) for form in self.forms]
            for index in range(self.options.rounds):
                for form, one in random.Random(index).sample(open_forms, len(open_forms)):
                    self.measure(form, one, index)

    def report(self):
        rows = []
        for figure, title in FIGURES:
            row = [title]
            for form in self.forms:
                values = [sample[figure] for sample in self.samples.get(form, []) if figure in sample]
                row.append(f"{number(median(values))} ({spread(values)})" if values else "-")
            rows.append(row)
        return table(["median (range)", *self.forms], rows)

    def report_of(self, base):
        others = [form for form in self.forms if form != base]
        rows = []
        for figure, title in FIGURES:
            row = [title]
            for form in others:
                ratios = [one[figure] / of[figure] for one, of in zip(self.samples[form], self.samples[base])
                          if figure in one and of.get(figure)]
                row.append(interval(ratios) if len(ratios) > 1 else "-")
            rows.append(row)
        return table([f"of {base}", *others], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--forms")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--form", action="append", default=[])
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--of", metavar="FORM")
    parser.add_argument("--llama")
    parser.add_argument("--llama-model")
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--answer", type=int, default=64)
    parser.add_argument("--json")
    parser.add_argument("--build", default=os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                                       "build"))
    options = parser.parse_args()
    bench = Bench(options)
    if options.together:
        bench.rounds_together()
    else:
        bench.rounds()
    print(bench.report())
    if options.of:
        print("\n" + bench.report_of(options.of))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(bench.samples, file, indent=1)


main()
