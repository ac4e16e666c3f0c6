"""bench_pipeline: measures the gain of pipelined stages, with real machine processes.

gain      one stage with one thread compared with two stages with one thread each: prompts, and decodes with 16
sequences
          in every batch in flight, and with 16 in all.
bubble    8 stages that only wait (device "wait:…"): a lone prompt of M micro-batches compared with GPipe's
          (S - 1) / (M + S - 1), and the pace of a full pipe of decodes compared with that of the slowest stage.
          forecast  `cleave profile` and `cleave partition` compared with what the plan's machine then does: on this
          computer's
          cores, on equal waits, and with slower devices.

Compared configs run in turn. The machines count the throughput themselves (/metrics), over a window.
"""

import json
import os
import subprocess
import tempfile
import threading
import time
import urllib.request
from statistics import median

from bench_cluster import cluster
from bench_table import number, spread, table

LAYERS = 30  # Of the default model.
WARM_S, WINDOW_S = 3.0, 6.0
MICRO = 128
# Cached tokens of a forecast's answers; the measurement begins at CONTEXT - CONTEXT_FAR and ends at CONTEXT +
# CONTEXT_FAR.
CONTEXT, CONTEXT_FAR = 320, 120
PROGRAM_S_MAX = 300


def metric(url, name, machine):
    with urllib.request.urlopen(url + "/metrics", timeout=20) as reply:
        for line in reply.read().decode().splitlines():
            if line.startswith(name + "{") and f'machine="{machine}"' in line:
                return float(line.split()[-1])
    raise SystemExit(f"{name} of {machine} is not in /metrics")


def complete(url, body):
    request = urllib.request.Request(url + "/v1/completions", data=json.dumps(body).encode(),
                                     headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as reply:
        return json.load(reply)


def waits(count, layer_us, per_row_us=0.0):
    """Returns stages of equal time, for any division of the model's 30 layers."""
    stages, begin = [], 0
    for stage in range(count):
        end = LAYERS * (stage + 1) // count
        share = LAYERS / count / (end - begin)
        stages.append({"device": f"wait:{layer_us * share:.1f}+{per_row_us * share:.2f}", "threads": 1,
                       "layers": f"{begin}-{end - 1}"})
        begin = end
    return stages


def planned(plan):
    """Returns the config's stages for a plan of `cleave partition --json`."""
    stages = []
    for stage in plan["stages"]:
        layers = stage["layers"] if "-" in stage["layers"] else f"{stage['layers']}-{stage['layers']}"
        stages += [{"device": stage["device"], "threads": stage["threads"], "layers": layers}] * stage["replicas"]
    return stages


class Requests:
    """Keeps this number of requests open while the machine counts. The answers are not streamed: on a small computer
    the gateway's and the client's work for each token would take time from the stages."""

    def __init__(self, url, count, prompt, answer):
        self.url, self.prompt, self.answer = url, prompt, answer
        self.ending = False
        self.threads = [threading.Thread(target=self.one, args=(index,), daemon=True) for index in range(count)]

    def one(self, index):
        for turn in range(10000):
            if self.ending:
                return
            ids = [1000 + (i * 7919 + index * 131 + turn * 101) % 20000 for i in range(self.prompt)]
            try:
                complete(self.url, {"prompt": ids, "max_tokens": self.answer, "ignore_eos": True, "temperature": 0})
            except OSError:
                return  # The cluster has ended.

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        time.sleep(WARM_S)
        return self

    def __exit__(self, *_):
        self.ending = True


class Pipeline:
    def __init__(self, build):
        self.binary = os.path.join(os.path.dirname(build), "cleave")

    # --- one measurement ---

    def cluster(self, prompt, token):
        config = {"pools": {"prompt": ["p0"], "token": ["t0"]}, "machines": {"p0": prompt, "t0": token},
                  "scheduler": {"turn_ms": 0, "micro_batch_tokens": MICRO}, "kv": {"memory": "2GiB"}}
        return cluster.Cluster(config, binary=self.binary)

    def rate(self, url, name, machine):
        before, began = metric(url, name, machine), time.monotonic()
        time.sleep(WINDOW_S)
        return (metric(url, name, machine) - before) / (time.monotonic() - began)

    def rate_at(self, url, name, machine, begin, end):
        """Returns the rate between the time when the counter reaches `begin` and the time when it reaches `end`."""
        before = metric(url, name, machine)
        while before < begin:
            time.sleep(0.01)
            before = metric(url, name, machine)
        began, after = time.monotonic(), before
        while after < end:
            time.sleep(0.05)
            after = metric(url, name, machine)
        return (after - before) / (time.monotonic() - began)

    def prompts(self, machine, length=2048, streams=6):
        """Returns the prompt tokens per second, with more prompts waiting than running."""
        with self.cluster(machine, {"threads": 1}) as one:
            url = f"http://{one.host}:{one.port}"
            with Requests(url, streams, length, 1):
                return self.rate(url, "cleave_machine_prompt_tokens_total", "p0")

    def decodes(self, machine, sequences, prompt=16, answer=1000):
        """Returns the answer tokens per second, with answers so long that few end during the window. All of them fit
        into the memory."""
        with self.cluster({"threads": 1}, machine) as one:
            url = f"http://{one.host}:{one.port}"
            with Requests(url, sequences, prompt, answer):
                return self.rate(url, "cleave_machine_generated_tokens_total", "t0")

    def decodes_at(self, machine, sequences, context, prompt=64):
        """Returns the answer tokens per second while the answers have `context` cached tokens on average."""
        with self.cluster({"threads": 1}, machine) as one:
            url = f"http://{one.host}:{one.port}"
            begin, end = ((context - prompt + far) * sequences for far in (-CONTEXT_FAR, CONTEXT_FAR))
            with Requests(url, sequences, prompt, 2 * context):
                return self.rate_at(url, "cleave_machine_generated_tokens_total", "t0", begin, end)

    # --- gain ---

    def gain(self, rounds):
        one, two = {"threads": 1}, {"threads": 2, "stages": 2}
        cases = {"prompts": (lambda machine, _: self.prompts(machine, 512, 12), 0, 0),
                 "16 sequences in each batch in flight": (self.decodes, 16, 32),
                 "16 sequences in all": (self.decodes, 16, 16)}
        samples = {}
        for _ in range(rounds):
            for name, (measure, few, many) in cases.items():
                samples.setdefault((name, 1), []).append(measure(one, few))
                samples.setdefault((name, 2), []).append(measure(two, many))
        rows = []
        for name in cases:
            ratios = [b / a for a, b in zip(samples[name, 1], samples[name, 2])]
            rows.append([name, number(median(samples[name, 1])), number(median(samples[name, 2])),
                         f"{median(ratios):.2f}", f"{min(ratios):.2f} to {max(ratios):.2f}"])
        return table(["tokens/s, one thread a stage", "one stage", "two stages", "gain", "range"], rows)

    # --- bubble ---

    def bubble(self, stages=8, layer_us=16000.0, repeats=3):
        stage_ms = layer_us * LAYERS / stages / 1000
        rows = []
        with self.cluster({"stages": waits(stages, layer_us)}, {"threads": 1}) as one:
            url = f"http://{one.host}:{one.port}"
            for pieces in (1, 2, 4, 8, 16, 32):
                took = []
                for repeat in range(repeats + 1):
                    ids = [1000 + (i * 7919 + pieces * 131 + repeat * 101) % 20000 for i in range(MICRO * pieces - 2)]
                    began = time.monotonic()
                    complete(url, {"prompt": ids, "max_tokens": 1, "temperature": 0})
                    took.append((time.monotonic() - began) * 1000)
                took = sorted(took[1:])
                ideal = (stages - 1) / (pieces + stages - 1)
                seen = [1 - pieces * stage_ms / ms for ms in took]
                rows.append([pieces, number((pieces + stages - 1) * stage_ms), number(median(took)), spread(took),
                             f"{ideal:.4f}", f"{median(seen):.4f}", f"{median(seen) / ideal - 1:+.1%}"])
        return (f"A lone prompt of M micro-batches, {stages} stages of {stage_ms:g} ms:\n\n" +
                table(["M", "GPipe, ms", "measured, ms", "range", "GPipe's bubble", "measured", "difference"], rows))

    def pace(self, stages=8, sequences=64, repeats=2):
        rows = []
        for layer_us in (2000.0, 4000.0, 8000.0):
            stage_ms = layer_us * LAYERS / stages / 1000
            most = sequences / stages / stage_ms * 1000
            rates = [self.decodes({"stages": waits(stages, layer_us)}, sequences, answer=400) for _ in range(repeats)]
            rows.append([number(stage_ms), number(most), number(median(rates)), spread(rates),
                         f"{median(rates) / most:.3f}"])
        return (f"{sequences} sequences in {stages} groups through {stages} stages:\n\n" +
                table(["stage, ms", "slowest stage's tokens/s", "measured", "range", "of it"], rows))

    # --- forecast ---

    def tool(self, *arguments):
        done = subprocess.run([self.binary, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              timeout=PROGRAM_S_MAX, text=True)
        if done.returncode != 0:
            raise SystemExit(f"cleave {' '.join(arguments)}: status {done.returncode}")
        return done.stdout

    def profile(self, path, devices, seconds):
        """devices: [(device, threads, count)]. Devices on this computer's cores share its memory."""
        for index, (device, threads, count) in enumerate(devices):
            self.tool("profile", "--device", device, "--threads", str(threads), "--no-links", "--seconds", str(seconds),
                      *(["--beside", str(count - 1)] if device == "cpu" and count > 1 else []),
                      *(["--add", path] if index else []), "--out", path)
        with open(path) as file:
            return {(d["kind"], d["threads"]): d["name"] for d in json.load(file)["devices"]}

    def forecast(self, folder, name, devices, seconds, batch):
        """devices: [(device, threads, count)]. Makes the plans of both phases, and measures their machines."""
        path = os.path.join(folder, "profile.json")
        names = self.profile(path, devices, seconds)
        cluster_path = os.path.join(folder, "cluster.json")
        with open(cluster_path, "w") as file:
            json.dump({"hosts": [{"name": "here", "devices": [
                {"profile": names[device, threads], "count": count, "memory": "2GiB"} for device, threads, count in devices]}],
                "links": {"inside": {"bandwidth_bytes_per_s": 2e9, "latency_us": 100},
                          "between": {"bandwidth_bytes_per_s": 1e9, "latency_us": 200}}}, file)
        stages = sum(count for *_, count in devices)
        plans = json.loads(self.tool("partition", "--profile", path, "--cluster", cluster_path, "--micro-batch", str(MICRO),
                                     "--prompt", "512", "--batch", str(batch), "--context", str(CONTEXT), "--stages", str(stages),
                                     "--no-replicas", "--json"))["plans"]
        rows = []
        for plan in plans:
            machine = {"stages": planned(plan)}
            told = plan["bottleneck_us"] / 1000
            if plan["phase"] == "prompt":
                seen = MICRO / self.prompts(machine, 512, 12) * 1000
            else:
                seen = batch / self.decodes_at(machine, batch * stages, CONTEXT) * 1000
            rows.append([name, plan["phase"], ", ".join(stage["layers"] for stage in plan["stages"]), number(told),
                         number(seen), f"{seen / told - 1:+.1%}"])
        return rows

    def forecasts(self):
        rows = []
        with tempfile.TemporaryDirectory(prefix="cleave-bench-") as folder:
            rows += self.forecast(folder, "2 cores", [("cpu", 1, 2)], 20, 16)
            rows += self.forecast(folder, "8 equal waits", [("wait:4000+4", 1, 8)], 12, 8)
            rows += self.forecast(folder, "3 waits, 2 of a third of the speed",
                                  [("wait:2000+2", 1, 3), ("wait:6000+6", 1, 2)], 12, 8)
        return table(["devices", "phase", "layers of the stages", "bottleneck told, ms", "measured, ms", "difference"], rows)

    def report(self, rounds=3):
        yield "### Two stages beside one\n\n" + self.gain(rounds)
        yield "### The bubble\n\n" + self.bubble()
        yield "### A full pipe of decodes\n\n" + self.pace()
        yield "### What the partitioner says\n\n" + self.forecasts()
