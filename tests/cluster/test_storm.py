"""Goal: what an operator fears at night costs time, not tokens. Method:
- kills: three prompt and three token machines; streams begin one after the other, and each second a machine, any, gets
  kill -9, or SIGSTOP for a while. Every stream ends with the bytes that it has undisturbed; then all blocks are free, and
  the scheduler decides the same again when it is told the same (the event log).
- cancels: streams that their clients drop at random moments, all at once; then all blocks are free.

usage: test_storm.py kills|cancels [SECONDS|STREAMS]"""

import os
import random
import signal
import subprocess
import sys
import threading
import time

from cluster import BINARY, Cluster, need_model
from test_cancel import drop_one

STREAMS_A_SECOND = 200 / 60
CONFIG = {"pools": {"prompt": 3, "token": 3}, "kv": {"memory": "96MiB"},
          "transport": {"heartbeat_ms": 300, "silence_ms": 1500}}
WORDS = "sea wind harbour light stone river winter song morning glass letter road night bird silver".split()


class Stream(threading.Thread):
    """One client: its request depends on the seed alone."""

    def __init__(self, cluster, seed):
        super().__init__(daemon=True)
        draw = random.Random(seed)
        words = " ".join(draw.choice(WORDS) for _ in range(draw.choice([5, 40, 150, 400])))
        self.body = {"prompt": f"Write about {words}.", "max_tokens": draw.randrange(40, 250), "ignore_eos": True,
                     "temperature": draw.choice([0, 0.7]), "seed": seed}
        self.cluster, self.text, self.tokens, self.failed = cluster, "", 0, None

    def run(self):
        try:
            for event in self.cluster.stream("/v1/completions", self.body):
                self.text += event["choices"][0]["text"]
                self.tokens += 1
        except Exception as why:  # shown by whoever waits for the end
            self.failed = why


class Killer:
    """Each second a machine, any, is killed or stopped for a while. run ends with all of them running."""

    def __init__(self, cluster, seed):
        self.cluster, self.draw = cluster, random.Random(seed)
        self.kills, self.stops = 0, 0
        self.stopped = []  # (when to continue, pid)

    def run(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.strike()
            next_one = time.monotonic() + 1
            while time.monotonic() < next_one:
                self.wake(time.monotonic())
                time.sleep(0.02)
        self.wake(float("inf"))

    def strike(self):
        machines = self.cluster.children()
        if not machines:
            return
        pid = machines[self.draw.choice(sorted(machines))]
        try:
            if self.draw.random() < 0.6:
                os.kill(pid, signal.SIGKILL)
                self.kills += 1
            else:
                os.kill(pid, signal.SIGSTOP)
                self.stops += 1
                self.stopped.append((time.monotonic() + self.draw.uniform(0.2, 4), pid))
        except ProcessLookupError:
            pass

    def wake(self, now):
        for when, pid in [each for each in self.stopped if each[0] <= now]:
            self.stopped.remove((when, pid))
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass


def run_streams(cluster, seed, count, gap_s):
    streams = [Stream(cluster, seed + i) for i in range(count)]
    for stream in streams:
        stream.start()
        time.sleep(gap_s)
    return streams


def wait_streams(cluster, streams, seconds):
    deadline = time.monotonic() + seconds
    for stream in streams:
        stream.join(max(0, deadline - time.monotonic()))
    hang = [s.body["seed"] for s in streams if s.is_alive()]
    assert not hang, f"streams that hang: {hang}\n{cluster.request('GET', '/admin/state')[2].decode()}\n" + cluster.logged()
    failed = [(s.body["seed"], s.failed) for s in streams if s.failed is not None]
    assert not failed, f"{len(failed)} streams failed: {failed}\n" + cluster.logged()


def check_end(cluster):
    status, log = cluster.stop(), cluster.logged()
    assert status == 0 and "assert" not in log.lower() and "Sanitizer" not in log, log


def kills(seconds, seed):
    count = round(seconds * STREAMS_A_SECOND)
    with Cluster({**CONFIG, "log": {"events_file": "events.jsonl"}}) as cluster:
        calm = run_streams(cluster, seed, count, 0.02)
        wait_streams(cluster, calm, 300)
        for turn in range(4):  # on a busy computer, all of it may miss what machines compute
            killer = Killer(cluster, seed + turn)
            storm = threading.Thread(target=killer.run, args=(seconds,))
            began = time.monotonic()
            storm.start()
            streams = run_streams(cluster, seed, count, seconds / count)
            storm.join()
            wait_streams(cluster, streams, 300)
            other = [s.body["seed"] for s, c in zip(streams, calm) if s.text != c.text or s.tokens != c.tokens]
            assert not other, f"other bytes: seeds {other}\n" + cluster.logged()
            blocks = cluster.wait_all_free()
            resumed = cluster.metric("cleave_requests_resumed_total")
            if killer.kills > 0 and killer.stops > 0 and resumed > 0:
                break
        assert killer.kills > 0 and killer.stops > 0 and resumed > 0
        print(f"{killer.kills} kills and {killer.stops} stops in {seconds:g} s: {len(streams)} of {count} streams with the same "
              f"bytes after {time.monotonic() - began:.0f} s, {resumed:.0f} resumptions; blocks: {blocks}")
        check_end(cluster)
        replayed = subprocess.run([BINARY, "simulate", "--replay-log", os.path.join(cluster.folder.name, "events.jsonl")],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    print(replayed.stdout, end="")
    assert replayed.returncode == 0 and "left out" not in replayed.stdout


def cancels(count, seed):
    with Cluster({**CONFIG, "pools": {"prompt": 2, "token": 2}}) as cluster:
        story = {"prompt": "Once upon a time", "max_tokens": 60, "temperature": 0}
        want = cluster.post("/v1/completions", story)["choices"]
        threads = [threading.Thread(target=drop_one, args=(cluster, seed + i)) for i in range(count)]
        for thread in threads:
            thread.start()
            time.sleep(0.008)
        for thread in threads:
            thread.join()
        began = time.monotonic()
        blocks = cluster.wait_all_free()
        waited = time.monotonic() - began
        assert cluster.post("/v1/completions", story)["choices"] == want
        check_end(cluster)
    print(f"{count} streams dropped: all blocks free {waited:.2f} s after the last; {blocks}")


def main():
    need_model()
    seed = int(os.environ.get("CLEAVE_SEED", random.randrange(1 << 30)))
    print(f"seed: CLEAVE_SEED={seed}", flush=True)
    if sys.argv[1] == "kills":
        kills(float(sys.argv[2]) if len(sys.argv) > 2 else 8, seed)
    else:
        cancels(int(sys.argv[2]) if len(sys.argv) > 2 else 500, seed)


main()
