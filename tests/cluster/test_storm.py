"""Goal: machines that fail in any order, and clients that leave at any time, cost time but no tokens.

Method:
- kills: three prompt and three token machines; several clients send one request after the other, while random machines
  get kill -9, or SIGSTOP for a while, one after the other. Every stream ends with the bytes of an undisturbed run; then
  all blocks are free, and the scheduler, given the recorded events again, decides the same (the event log).
- checkpoints: as kills, and the KV of answers is copied to other machines (kv/checkpoint).
- windows: as checkpoints, with a model whose layers have attention windows, and one machine of each pool in two stages.
- cancels: streams that their clients drop at random moments, all at once; then all blocks are free.

usage: test_storm.py kills|checkpoints|windows [SECONDS] | cancels [STREAMS]
kills takes at least that time, and until a machine was killed, another was stopped, and a request was resumed.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

from cluster import BINARY, DEFAULT_MODEL, Cluster, Stream, need_model, send_signal, wait_until
from test_cancel import drop_one
from tiny_model import write

CLIENTS = 5
REQUESTS = 10  # Different requests.
CONFIG = {"pools": {"prompt": 3, "token": 3}, "kv": {"memory": "96MiB"}, "threads": 1,
          "transport": {"heartbeat_ms": 300, "silence_ms": 2000}}
PACE_US = 15000  # Time of a batch: streams must last while machines fail.
WORDS = "sea wind harbour light stone river winter song morning glass letter road night bird silver".split()


def body_of(seed):
    draw = random.Random(seed)
    words = " ".join(draw.choice(WORDS) for _ in range(draw.choice([5, 40, 150, 300])))
    return {"prompt": f"Write about {words}.", "max_tokens": draw.randrange(20, 80), "ignore_eos": True,
            "temperature": draw.choice([0, 0.7]), "seed": seed}


class Client(threading.Thread):
    """Sends one request after the other until `storm` ends. wrong: the first wrong answer."""

    def __init__(self, cluster, number, bodies, want, storm):
        super().__init__(daemon=True)
        self.cluster, self.number, self.bodies, self.want, self.storm = cluster, number, bodies, want, storm
        self.streams, self.wrong = 0, None
        self.start()

    def run(self):
        while not self.storm.over and self.wrong is None:
            index = (self.number + self.streams * CLIENTS) % len(self.bodies)
            stream = Stream(self.cluster, self.bodies[index])
            stream.join()
            if stream.error is not None or stream.text != self.want[index]:
                self.wrong = (self.bodies[index], stream.error, stream.text, self.want[index])
            self.streams += 1


class Storm:
    """Kills machines, or stops them for a while. In the end all of them run."""

    def __init__(self, cluster, seed):
        self.cluster, self.draw, self.over = cluster, random.Random(seed), False
        self.kills, self.stops = 0, 0
        self.stopped = {}  # {name: (when to continue, pid)}

    def run(self, seconds):
        began = time.monotonic()
        try:
            while time.monotonic() < began + seconds or not (self.kills and self.stops and resumed(self.cluster)):
                assert time.monotonic() < began + seconds + 300, (self.kills, self.stops, self.cluster.logged())
                self.strike()
                struck = time.monotonic()
                while time.monotonic() < struck + 0.7:
                    self.wake(time.monotonic())
                    time.sleep(0.02)
        finally:
            self.over = True
            self.wake(float("inf"))

    def strike(self):
        """Chooses a random machine, such that half of each pool is left: requests may wait for a machine, but not for
        ever."""
        running = [machine["name"] for machine in state(self.cluster)["machines"]
                   if machine["connection"] == "up" and machine["name"] not in self.stopped]
        pool = self.draw.choice(["prompt", "token"])
        names = [name for name in running if name.startswith(pool)]
        children = self.cluster.children()
        if len(names) < 2:
            return
        name = self.draw.choice(sorted(names))
        if name not in children:
            return
        try:
            if self.draw.random() < 0.6:
                os.kill(children[name], signal.SIGKILL)
                self.kills += 1
            else:
                os.kill(children[name], signal.SIGSTOP)
                self.stops += 1
                self.stopped[name] = (time.monotonic() + self.draw.uniform(0.2, 4), children[name])
        except ProcessLookupError:
            pass

    def wake(self, now):
        for name, (when, pid) in list(self.stopped.items()):
            if when <= now:
                del self.stopped[name]
                send_signal(pid, signal.SIGCONT)


def state(cluster):
    return json.loads(cluster.request("GET", "/admin/state")[2])


def resumed(cluster):
    return cluster.metric("cleave_requests_resumed_total")


def check_end(cluster):
    status, log = cluster.stop(), cluster.logged()
    assert status == 0 and "assert" not in log.lower() and "Sanitizer" not in log, log


def kills(seconds, seed, checkpoint="off", more=None):
    bodies = [body_of(seed + i) for i in range(REQUESTS)]
    config = {**CONFIG, "kv": {**CONFIG["kv"], "checkpoint": checkpoint, "checkpoint_ms": 0},
              "log": {"events_file": "events.jsonl"}, **(more or {})}
    with Cluster(config, gates=True, pace_us=PACE_US) as cluster:
        calm = [Stream(cluster, body) for body in bodies]
        for stream in calm:
            assert stream.end().error is None and stream.text, stream.error
        want = [stream.text for stream in calm]
        storm = Storm(cluster, seed)
        clients = [Client(cluster, i, bodies, want, storm) for i in range(CLIENTS)]
        storm.run(seconds)
        for client in clients:
            client.join(300)
            assert not client.is_alive(), f"a stream hangs: {state(cluster)}\n" + cluster.logged()
            assert client.wrong is None, (client.wrong, cluster.logged())
        blocks = cluster.wait_all_free()
        print(f"{storm.kills} kills and {storm.stops} stops: {sum(client.streams for client in clients)} streams with the "
              f"same bytes, {resumed(cluster):.0f} resumptions; blocks: {blocks}")
        wait_until(lambda: cluster.metric("cleave_machine_up") == 6, "all machines come back", cluster=cluster)
        check_end(cluster)
        replayed = subprocess.run([BINARY, "simulate", "--replay-log", os.path.join(cluster.folder.name, "events.jsonl")],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    print(replayed.stdout, end="")
    assert replayed.returncode == 0 and "left out" not in replayed.stdout


def windows(seconds, seed):
    with tempfile.TemporaryDirectory(prefix="cleave-test-") as folder:
        model = os.path.join(folder, "windows.gguf")
        write(DEFAULT_MODEL, model, 14, window=40, context=4096)
        kills(seconds, seed, "always",
              {"model": model, "machines": {"prompt-0": {"stages": 2}, "token-0": {"stages": 2}}})


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
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 5
    if sys.argv[1] == "windows":
        windows(seconds, seed)
    elif sys.argv[1] in ("kills", "checkpoints"):
        kills(seconds, seed, "always" if sys.argv[1] == "checkpoints" else "off")
    else:
        cancels(int(seconds) if len(sys.argv) > 2 else 150, seed)


if __name__ == "__main__":
    main()
