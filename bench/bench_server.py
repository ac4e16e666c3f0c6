"""bench_server: a whole cluster as `cleave serve` starts it (a prompt machine and a token machine, unless the config
differs), the latencies of its clients, and the memory of its processes.

A round starts a cluster, runs 8 streams of 256 + 64 tokens, then one stream alone, and stops it. All prompts are
different and have exact lengths (bench-streams).
"""

import json
import os
import re
import subprocess
import time
from statistics import median

from bench_cluster import cluster
from bench_table import number, spread, table

ROUNDS_MAX = 3
MIB = 1 << 20
KV_BYTES = 512 * MIB  # The default of kv/memory.
STREAMS_S, ALONE_S, WARM_S = 10, 3, 1.5

# Figure, description, goal, whether more is better.
FIGURES = (
    ("requests_a_second", "8 streams of 256 + 64: requests/s", 11, True),
    ("ttft_p50_ms", "its TTFT p50, ms", 250, False),
    ("ttft_p99_ms", "its TTFT p99, ms", None, False),
    ("tbt_p50_ms", "its TBT p50, ms", None, False),
    ("tbt_p99_ms", "its TBT p99, ms", 20, False),
    ("gap_max_ms", "its longest gap between tokens, ms", 50, False),
    ("alone_ttft_p50_ms", "one stream alone: TTFT p50, ms", 70, False),
    ("alone_tbt_p50_ms", "its TBT p50, ms", 2.5, False),
    ("alone_tbt_p99_ms", "its TBT p99, ms", None, False),
    ("ready_s", "ready to serve after start, s", 0.3, False),
    ("prompt_beyond_mib", "prompt machine beyond KV and file, MiB", 30, False),
    ("token_beyond_mib", "token machine beyond KV and file, MiB", 30, False),
    ("gateway_anon_mib", "gateway's own memory, MiB", None, False),
)


def resident(pid):
    """Returns (all, KV's mappings, anonymous) in bytes. Mappings of KV's configured size count as KV."""
    total = kv = anonymous = size = 0
    with open(f"/proc/{pid}/smaps") as file:
        for line in file:
            found = re.match(r"(Size|Rss|Anonymous): +(\d+) kB", line)
            if not found:
                continue
            name, count = found.group(1), int(found.group(2)) * 1024
            if name == "Size":
                size = count
            elif name == "Rss":
                total += count
                kv += count if abs(size - KV_BYTES) <= 4 * MIB else 0
            else:
                anonymous += count
    return total, kv, anonymous


class Server:
    def __init__(self, config, build):
        self.config = {"model": cluster.MODEL, "kv": {"memory": KV_BYTES}, **config}
        self.streams_program = os.path.join(build, "bench-streams")
        self.binary = os.path.join(os.path.dirname(build), "cleave")
        self.samples = {}  # figure: values, one per round.

    def add(self, figure, value):
        self.samples.setdefault(figure, []).append(value)

    def streams(self, url, seed, count, seconds):
        done = subprocess.run([self.streams_program, url, "--streams", str(count), "--seconds", str(seconds), "--warm",
                               str(WARM_S), "--seed", str(seed)], stdout=subprocess.PIPE, text=True, timeout=120)
        if done.returncode != 0:
            raise SystemExit("bench-streams failed")
        return json.loads(done.stdout)

    def round(self, index):
        started = time.monotonic()
        with cluster.Cluster(self.config, binary=self.binary) as one:
            self.add("ready_s", time.monotonic() - started)
            url = f"http://{one.host}:{one.port}"
            busy = self.streams(url, 2 * index, 8, STREAMS_S)
            alone = self.streams(url, 2 * index + 1, 1, ALONE_S)
            for figure in ("requests_a_second", "ttft_p50_ms", "ttft_p99_ms", "tbt_p50_ms", "tbt_p99_ms", "gap_max_ms"):
                self.add(figure, busy[figure])
            for figure in ("ttft_p50_ms", "tbt_p50_ms", "tbt_p99_ms"):
                self.add(f"alone_{figure}", alone[figure])
            self.memory(one)

    def memory(self, one):
        file_bytes = os.path.getsize(self.config["model"])
        for name, pid in one.children().items():
            total, kv, _ = resident(pid)
            self.add(f"{name.split('-')[0]}_beyond_mib", (total - kv - file_bytes) / MIB)
        self.add("gateway_anon_mib", resident(one.process.pid)[2] / MIB)

    def report(self, before):
        rows = []
        old = before.get("server", {}) if before else {}
        for figure, title, goal, more in FIGURES:
            values = self.samples.get(figure)
            if not values:
                continue
            want = "-" if goal is None else f">= {goal}" if more else f"<= {goal}"
            row = [title, want, number(median(values)), spread(values)]
            if before:
                was = median(old[figure]) if old.get(figure) else 0
                row += [number(was), f"{median(values) / was:.2f}" if was else "-"]
            rows.append(row)
        heads = ["disaggregated server", "goal", "median", "range"] + (["before", "now/before"] if before else [])
        return f"{STREAMS_S} s of streams a cluster, {len(self.samples['ready_s'])} clusters.\n\n" + table(heads, rows)
