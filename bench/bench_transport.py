"""bench_transport: KV between two processes over loopback: cleave's own connections with encryption (a cluster key) and
without, and UCX over TCP. GB/s of a stream of writes, and the processor time of both processes for a GB: with few cores,
the processor limits the speed, so the second figure says more. Each round is one pass of each way, in turn."""

import os
import re
import subprocess
from statistics import median

ROUNDS = 5
SIZES = (12480, 1 << 20)
WAYS = {"own, TLS 1.3": ("none", True), "own, plain": ("none", False), "UCX over TCP": ("tcp", False)}


class Transport:
    def __init__(self, build):
        self.program = os.path.join(os.path.dirname(build), "tests", "transport", "bench_write")
        self.samples = {}

    def round(self):
        for way, (tls, key) in WAYS.items():
            environment = {name: value for name, value in os.environ.items() if name != "KEY"}
            if key:
                environment["KEY"] = "1"
            text = subprocess.run([self.program, tls, *map(str, SIZES)], env=environment, stdout=subprocess.PIPE, text=True,
                                  check=True, timeout=120).stdout
            rows = re.findall(r"^ *(\d+) B +([\d.]+) GB/s +([\d.]+) CPU s/GB +([\d.]+) us", text, re.M)
            assert len(rows) == len(SIZES), text
            for size, *figures in rows:
                self.samples.setdefault((way, int(size)), []).append([float(figure) for figure in figures])

    def report(self):
        lines = ["| way | one write | GB/s | CPU s/GB | µs to flushed |", "|---|---|---|---|---|"]
        for (way, size), samples in self.samples.items():
            cells = [f"{median(column):.4g} ({min(column):.4g}–{max(column):.4g})" for column in zip(*samples)]
            lines.append(f"| {way} | {size} B | " + " | ".join(cells) + " |")
        return f"Medians and ranges of {ROUNDS} rounds.\n\n" + "\n".join(lines)
