"""Goal: while machines die or stop without a pause, every stream ends with the bytes of an undisturbed run.

Method: two prompt and two token machines answer streams, greedy and sampled, with prompts of 20 to 900 tokens. They do
it once undisturbed, then again under one kind of disturbance, until all streams have ended. A fast computer answers all
of them before the machines were disturbed three times; the same streams are then sent again:

  one      one machine is killed every second
  all      all machines are killed every ten seconds
  stop     one machine is stopped every second for 8 s, longer than a machine may be silent
  stages   machines of two stages: a stage process is killed every second
  ranks    machines of two ranks: the process of a rank is killed every second

Prints, for both runs: the longest pause between two events of a stream and the time to its first token (P50, P99, most),
and for the disturbed run the resumptions per request, the time in which machines came back, and the errors by message.

usage: test_torture.py KIND [STREAMS] [option…]
  busy=N      N processes that compute without end run beside the cluster
  at_once=N   N streams at a time, instead of 50
  every=S     seconds between two disturbances, instead of 1 (`all`: 10)
  pace=US     each batch takes at least that time; the default makes a small run last for several disturbances
  default     serves the default model instead of the tiny one
"""

import collections
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

from cluster import DEFAULT_MODEL, MODEL, Cluster, need_model, send_signal, wait_until
from test_storm import WORDS, check_end, resumed

KINDS = ("one", "all", "stop", "stages", "ranks")
STOP_S = 8
SILENCE_MS = 3000
DISTURBANCES, ROUNDS = 3, 20  # The streams are sent again until that many disturbances, at most that many times.


class Timed(threading.Thread):
    """A streamed answer whose thread notes when events arrive."""

    ended = 0  # Changes when a stream has ended.

    def __init__(self, cluster, body, places):
        super().__init__(daemon=True)
        self.cluster, self.body, self.places = cluster, body, places
        self.text, self.error, self.generation = "", None, 0
        self.first_s, self.gap_s = None, 0.0
        self.start()

    def run(self):
        with self.places:
            last = began = time.monotonic()
            try:
                for event in self.read():
                    now = time.monotonic()
                    if self.first_s is None:
                        self.first_s = now - began
                    else:
                        self.gap_s = max(self.gap_s, now - last)
                    last = now
                    self.text += "".join(choice["text"] for choice in event["choices"])
            except Exception as error:  # The test judges every exception.
                self.error = f"{error or type(error).__name__}"
            Timed.ended += 1

    def read(self):
        """Yields the events with text, and notes the generation that the others name."""
        connection = self.cluster.connect(3600)
        connection.request("POST", "/v1/completions", json.dumps(self.body), self.cluster.headers)
        reply = connection.getresponse()
        if reply.status != 200:
            raise ValueError(f"status {reply.status}: {reply.read().decode()}")
        for line in reply:
            line = line.decode().rstrip("\n")
            if line == "data: [DONE]":
                connection.close()
                return
            if not line.startswith("data: "):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise ValueError(event["error"]["message"])
            if "generation" in event:
                self.generation = event["generation"]
            else:
                yield event
        raise ValueError("the stream ended without [DONE]")


def body_of(seed):
    draw = random.Random(seed)
    words = " ".join(draw.choice(WORDS) for _ in range(draw.choice([20, 60, 150, 400, 880])))
    return {"prompt": words, "max_tokens": draw.randrange(20, 80), "ignore_eos": True, "stream": True,
            "temperature": draw.choice([0, 0.7]), "seed": seed, "cleave": {"events": True}}


def config_of(kind, default_model):
    names = {"prompt": ["p0", "p1"], "token": ["t0", "t1"]}
    every = [name for pool in names.values() for name in pool]
    machines = {"stages": {name: {"stages": 2} for name in every},
                "ranks": {name: {"tensor_parallel": 2} for name in every}}.get(kind, {})
    return {"model": DEFAULT_MODEL if default_model else MODEL, "pools": names, "machines": machines, "threads": 1,
            "kv": {"memory": "160MiB"},
            "transport": {"heartbeat_ms": 300, "silence_ms": SILENCE_MS if kind == "stop" else 30000}}


def disturb(cluster, kind, draw, every_s, over, counts):
    """Kills or stops processes until `over` is set. The time to the next disturbance grows while no stream ends: a slow
    or busy computer would otherwise answer nothing between two of them."""
    names = itertools.cycle(["t0", "p0", "t1", "p1"])
    stopped = []  # (when to continue, pid)
    pause_s, ended = every_s, Timed.ended
    due = time.monotonic() + every_s
    while not over.wait(0.02):
        now = time.monotonic()
        for when, pid in [each for each in stopped if each[0] <= now]:
            send_signal(pid, signal.SIGCONT)
            stopped.remove((when, pid))
        if now < due:
            continue
        pause_s = pause_s * 1.2 if Timed.ended == ended else every_s
        ended = Timed.ended
        due = max(now, due + pause_s)
        counts["disturbances"] += 1
        if kind in ("stages", "ranks"):
            found = cluster.stages()
            victims = [found[draw.choice(sorted(found))]] if found else []
        else:
            found = cluster.children()
            victims = list(found.values()) if kind == "all" else [found[name] for name in [next(names)] if name in found]
        if kind == "stop":
            victims = [pid for pid in victims if pid not in [each[1] for each in stopped]]
            stopped += [(now + STOP_S, pid) for pid in victims]
        for pid in victims:
            counts["struck"] += send_signal(pid, signal.SIGSTOP if kind == "stop" else signal.SIGKILL)
    for _, pid in stopped:
        send_signal(pid, signal.SIGCONT)


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def figures(what, streams, seconds):
    for name, values in [("longest pause", [s.gap_s for s in streams if s.error is None]),
                         ("first token", [s.first_s for s in streams if s.first_s is not None])]:
        print(f"{what}: {name} of a stream: P50 {quantile(values, 0.5):.2f} s, P99 {quantile(values, 0.99):.2f} s, "
              f"most {max(values, default=0):.2f} s")
    print(f"{what}: {len(streams)} streams in {seconds:.1f} s", flush=True)


def run(cluster, bodies, at_once):
    """Returns the ended streams and the time that they took."""
    places, began = threading.Semaphore(at_once), time.monotonic()
    streams = [Timed(cluster, body, places) for body in bodies]
    for stream in streams:
        stream.join(3600)
        assert not stream.is_alive(), "a stream hangs\n" + cluster.logged()[-20000:]
    return streams, time.monotonic() - began


def torture(kind, count, options, seed):
    bodies = [body_of(seed + i) for i in range(count)]
    every_s = float(options.get("every", 10 if kind == "all" else 1))
    at_once = int(options.get("at_once", 50))
    with Cluster(config_of(kind, "default" in options), gates=True, pace_us=int(options.get("pace", 0))) as cluster:
        calm, seconds = run(cluster, bodies, at_once)
        for stream in calm:
            assert stream.error is None and stream.text, stream.error
        figures("undisturbed", calm, seconds)
        over, counts = threading.Event(), collections.Counter()
        struck = threading.Thread(target=disturb,
                                  args=(cluster, kind, random.Random(seed), every_s, over, counts), daemon=True)
        struck.start()
        streams, seconds = [], 0.0
        try:
            while not streams or counts["disturbances"] < DISTURBANCES and len(streams) < ROUNDS * count:
                ended, took = run(cluster, bodies, at_once)
                streams, seconds = streams + ended, seconds + took
        finally:
            over.set()
            struck.join()
        figures(kind, streams, seconds)
        calm *= len(streams) // count
        right = sum(s.error is None and s.text == c.text for s, c in zip(streams, calm))
        wrong = [(s.body, s.text, c.text) for s, c in zip(streams, calm) if s.error is None and s.text != c.text]
        generations = [s.generation for s in streams]
        print(f"{kind}: {right} of {len(streams)} streams with the same bytes; {counts['struck']} times a process was "
              f"{'stopped' if kind == 'stop' else 'killed'}; {resumed(cluster):.0f} resumptions, of a request: P50 "
              f"{quantile(generations, 0.5)}, most {max(generations)}")
        back = [int(ms) / 1000 for ms in re.findall(r"is up at .* (\d+) ms after it was lost", cluster.logged())]
        print(f"{kind}: {len(back)} times a machine came back after it was lost: P50 {quantile(back, 0.5):.2f} s, P99 "
              f"{quantile(back, 0.99):.2f} s, most {max(back, default=0):.2f} s")
        for text, times in collections.Counter(re.sub(r"\d+", "N", s.error) for s in streams if s.error).most_common():
            print(f"{kind}: {times} times: {text}")
        sys.stdout.flush()
        if "log" in options:
            with open(options["log"], "w") as file:
                file.write(cluster.logged())
        assert not wrong, (wrong[0], cluster.logged()[-20000:])
        assert right == len(streams), cluster.logged()[-20000:]
        assert counts["struck"] > 0, "no process was struck"
        wait_until(lambda: cluster.metric("cleave_machine_up") == 4, "all machines come back", cluster=cluster)
        print(f"blocks: {cluster.wait_all_free()}")
        assert cluster.metric("cleave_machine_crashes_total") == 0, cluster.logged()[-20000:]
        check_end(cluster)


def main():
    need_model()
    kind, count, *given = sys.argv[1:] if len(sys.argv) > 2 else [*sys.argv[1:], "200"]
    if kind not in KINDS:
        sys.exit(__doc__)
    options = dict(each.partition("=")[::2] for each in given)
    seed = int(os.environ.get("CLEAVE_SEED", random.randrange(1 << 30)))
    print(f"seed: CLEAVE_SEED={seed}", flush=True)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(int(options.get("busy", 0)))]
    try:
        torture(kind, int(count), options, seed)
    finally:
        for process in busy:
            process.kill()
            process.wait()


main()
