"""bench_llama: llama.cpp's llama-bench on the same model file (and on other given files, such as its Q4_0 form), for
comparison: those cases of bench-engine that llama-bench also has, with one thread and with two."""

import json
import os
import subprocess
from statistics import median

from bench_table import number, spread, table

ROUNDS_MAX = 2  # A round takes tens of seconds.
THREADS = "1,2"
RUN_S_MAX = 60  # A run that takes longer has lost a core to other processes (its threads spin), and is left out.

# Each run is a process. The short prompts run once before the measurement, as llama-bench does by itself. For the long
# prompt this makes no difference.
RUNS = (
    ["-p", "128,512", "-n", "0"],
    ["-p", "2048", "-n", "0", "--no-warmup"],
    ["-p", "0", "-n", "32", "-d", "0,1024"],
)


def case_of(row):
    """The case's name in bench-engine."""
    if row["n_gen"] == 0:
        return f"prompt of {row['n_prompt']}"
    return f"1 stream, depth {row['n_depth']}"


class Llama:
    def __init__(self, program, models):
        self.program = program
        self.models = models
        self.samples = {}  # (model, case, threads): tokens/s, one per round.
        self.build = ""
        self.left_out = 0  # Number of runs that took too long.

    def round(self):
        for model in self.models:
            for arguments in RUNS:
                try:
                    done = subprocess.run([self.program, "-m", model, "-t", THREADS, "-r", "1", "-o", "jsonl",
                                           *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                          timeout=RUN_S_MAX)
                except subprocess.TimeoutExpired:
                    self.left_out += 1
                    continue
                if done.returncode != 0:
                    raise SystemExit(f"{self.program} failed:\n{done.stderr[-2000:]}")
                for line in done.stdout.splitlines():
                    if line.startswith("{"):
                        self.add(model, json.loads(line))

    def add(self, model, row):
        self.build = f"build {row['build_number']} ({row['build_commit']})"
        self.samples.setdefault((model, case_of(row), row["n_threads"]), []).append(row["avg_ts"])

    def samples_json(self):
        return [{"model": os.path.basename(model), "case": case, "threads": threads, "tokens_a_second": values}
                for (model, case, threads), values in self.samples.items()]

    def report(self, ours):
        """ours: {(case, threads): tokens/s} of bench-engine in the same rounds."""
        rows = []
        for threads in (1, 2):
            for case in dict.fromkeys(case for _, case, of in self.samples if of == threads):
                mine = ours.get((case, threads))
                row = [f"{case}, {threads} thread{'s' * (threads > 1)}", number(mine) if mine else "-"]
                for model in self.models:
                    values = self.samples.get((model, case, threads))
                    if not values:
                        row += ["-", "-", "-"]
                        continue
                    theirs = median(values)
                    row += [number(theirs), spread(values), f"{mine / theirs:.2f}" if mine else "-"]
                rows.append(row)
        heads = ["tokens/s", "cleave"]
        words = [f"llama-bench {self.build}."]
        for index, model in enumerate(self.models):
            heads += [f"llama {'ABCDEFGH'[index % 8]}", "range", "cleave/it"]
            words.append(f"{'ABCDEFGH'[index % 8]}: {os.path.basename(model)}.")
        if self.left_out:
            words.append(f"{self.left_out} runs took over {RUN_S_MAX} s and are left out.")
        return " ".join(words) + "\n\n" + table(heads, rows)
