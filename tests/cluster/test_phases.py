"""Goal: whatever a machine does, in whatever phase of a request, its client reads the bytes of an undisturbed run, and all
blocks are free in the end. Method: one request at a time on two prompt and two token machines, brought to each phase by
stopping the machines of the next one, or by what /admin/state says; then one of its two machines is killed, or stopped for
longer than transport/silence_ms. Then machines that are slow (stopped again and again for less), and disks that are full
for what the gateway and its machines say. Arguments: few: each phase, each of the two machines and each signal, paired anew
in every run; slow: machines that are slow, and full disks."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from cluster import Cluster, need_model

SILENCE_MS = 1200
LONG = "The history of computing spans many centuries. " * 220  # several batches, so that layers travel meanwhile
CONFIG = {"pools": {"prompt": 2, "token": 2}, "kv": {"memory": "128MiB", "prefix_cache": False}, "threads": 1,
          "transport": {"heartbeat_ms": 200, "silence_ms": SILENCE_MS}}


def wait_until(cluster, what, text, seconds=30):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, (text, state(cluster), cluster.logged())
        time.sleep(0.005)


def state(cluster):
    return json.loads(cluster.request("GET", "/admin/state")[2])


class Stream(threading.Thread):
    def __init__(self, cluster, prompt=LONG, tokens=60):
        super().__init__(daemon=True)
        self.cluster, self.body, self.text, self.error = cluster, {
            "prompt": prompt, "max_tokens": tokens, "temperature": 0.7, "seed": 5, "ignore_eos": True}, "", None
        self.start()

    def run(self):
        try:
            for event in self.cluster.stream("/v1/completions", self.body):
                self.text += event["choices"][0]["text"]
        except Exception as error:  # the test looks at it
            self.error = error

    def expect(self, want, what):
        self.join(120)
        assert not self.is_alive(), f"{what}: the stream hangs\n" + self.cluster.logged()
        assert self.error is None and self.text == want, (what, self.error, self.text, want, self.cluster.logged())


def machine_of(cluster, phase):
    """The machine that has the one request's prompt, or its answer."""
    for machine in state(cluster)["machines"]:
        if machine["routed_prompts" if phase == "prompt" else "routed_decodes"] > 0:
            return machine["name"]
    return None


def in_state(cluster, name):
    return state(cluster)["requests"][name] == 1


class TooLate(Exception):
    """The request has gone on: this computer has become faster since it was measured."""


def layers_sent(cluster):
    """Its batches are half done: their layers are at the token machine, or on their way."""
    if not in_state(cluster, "prefilling"):
        return False
    time.sleep(0.5 * cluster.first_token_s)
    if not in_state(cluster, "prefilling"):
        cluster.first_token_s *= 0.6
        raise TooLate
    return True


# Phase: (what is stopped before the request comes, when it is there)
PHASES = {
    "queued": ("token", lambda cluster: in_state(cluster, "queued") and machine_of(cluster, "token")),
    "reserved": ("prompt", lambda cluster: in_state(cluster, "prefilling")),
    "layers": (None, layers_sent),
    "decoding": (None, lambda cluster: in_state(cluster, "decoding")),
}


def one(cluster, phase, victim, number, want):
    for _ in range(5):
        try:
            return once(cluster, phase, victim, number, want)
        except TooLate:
            cluster.wait_all_free(30)
    raise AssertionError(f"{phase}: the prompt is too short")


def once(cluster, phase, victim, number, want):
    """The request comes to `phase`; then its prompt machine or its token machine gets the signal."""
    stopped, there = PHASES[phase]
    children = cluster.children()
    held = [pid for name, pid in children.items() if stopped is not None and name.startswith(stopped)]
    down = cluster.metric("cleave_requests_resumed_total")
    for pid in held:
        os.kill(pid, signal.SIGSTOP)
    stream = Stream(cluster, tokens=60 if phase != "decoding" else 400)
    what = f"{victim} machine, {number.name}, {phase}"
    try:
        try:
            wait_until(cluster, lambda: there(cluster), what)
        except TooLate:
            stream.expect(want[phase == "decoding"], what)
            raise
        name = machine_of(cluster, victim)
        if name is None:  # its prompt is done: any will do
            name = f"{victim}-0"
        os.kill(children[name], number)
        hit_us = time.monotonic()
        for pid in held:
            if pid != children[name]:
                os.kill(pid, signal.SIGCONT)
        wait_until(cluster, lambda: cluster.metric("cleave_machine_up", machine=name) == 0, f"{what}: it is seen")
        seen = time.monotonic() - hit_us
        stream.expect(want[phase == "decoding"], what)
    finally:
        for pid in children.values():
            if os.path.exists(f"/proc/{pid}"):
                os.kill(pid, signal.SIGCONT)
    wait_until(cluster, lambda: cluster.metric("cleave_machine_up") == 4, f"{what}: it comes back")
    cluster.wait_all_free(10)
    resumed = cluster.metric("cleave_requests_resumed_total") - down
    print(f"{what}: the same bytes, seen after {seen:.2f} s, resumed {resumed:.0f} times")


def undisturbed(cluster, lengths=(60, 400)):
    found = []
    for tokens in lengths:
        begun = time.monotonic()
        stream = Stream(cluster, tokens=tokens)
        wait_until(cluster, lambda: stream.text, "its first token")
        cluster.first_token_s = time.monotonic() - begun
        stream.join(120)
        assert stream.error is None and stream.text, stream.error
        found.append(stream.text)
    return found


def cases(few):
    ends = [(victim, number) for victim in ("prompt", "token") for number in (signal.SIGKILL, signal.SIGSTOP)]
    if not few:
        return [(phase, *end) for phase in PHASES for end in ends]
    seed = int(os.environ.get("CLEAVE_SEED") or time.time_ns() % (1 << 31))
    print(f"seed: CLEAVE_SEED={seed}", flush=True)
    random.Random(seed).shuffle(ends)
    return [(phase, *end) for phase, end in zip(PHASES, ends)]


def check_phases(few):
    with Cluster(CONFIG) as cluster:
        want = undisturbed(cluster)
        for phase, victim, number in cases(few):
            one(cluster, phase, victim, number, want)


def check_slow():
    """A machine that runs a third of the time is slow, not dead."""
    with Cluster({**CONFIG, "transport": {"heartbeat_ms": 200, "silence_ms": 10000}}) as cluster:
        want = undisturbed(cluster, (150,))[0]
        for name in ("token-0", "prompt-1"):
            pid = cluster.children()[name]
            streams = [Stream(cluster, tokens=150) for _ in range(3)]
            while any(stream.is_alive() for stream in streams):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(0.2)
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.1)
            for stream in streams:
                stream.expect(want, f"{name} is slow")
            assert cluster.children()[name] == pid and f"machine {name} is down" not in cluster.logged()
            cluster.wait_all_free(10)
        print("slow machines: the same bytes, and nobody took them for dead")


def check_full_disks():
    """Nobody can log: to stderr, which gateway and machines share; nor write events, until there is room again."""
    with Cluster(CONFIG, prefix=("sh", "-c", 'exec "$0" "$@" 2>/dev/full')) as cluster:
        want = undisturbed(cluster, (60,))[0]
        stream = Stream(cluster)
        wait_until(cluster, lambda: in_state(cluster, "prefilling"), "it is prefilled")
        os.kill(cluster.children()[machine_of(cluster, "prompt")], signal.SIGKILL)
        stream.expect(want, "stderr is full")
        wait_until(cluster, lambda: cluster.metric("cleave_machine_up") == 4, "it comes back")
        assert cluster.request("POST", "/admin/reload")[0] == 200
        assert cluster.stop() == 0 and cluster.logged() == ""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        print("SKIP of the small disk: needs root and mount")
        return
    with tempfile.TemporaryDirectory() as disk:
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], check=False,
                          capture_output=True).returncode != 0:
            print("SKIP of the small disk: tmpfs cannot be mounted here")
            return
        try:
            small_disk(disk)
        finally:
            subprocess.run(["umount", "-l", disk], check=True)


def small_disk(disk):
    events, filler = os.path.join(disk, "events.jsonl"), os.path.join(disk, "filler")
    with Cluster({**CONFIG, "log": {"events_file": events}}) as cluster:
        want = undisturbed(cluster, (60,))[0]
        for _ in range(2):
            with open(filler, "wb", buffering=0) as file:
                try:
                    while file.write(b"x" * 100):
                        pass
                except OSError:
                    pass
            dropped = cluster.metric("cleave_events_dropped_total")
            while cluster.metric("cleave_events_dropped_total") < dropped + 20:
                stream = Stream(cluster, "short", 20)
                stream.join(60)
                assert stream.error is None and stream.text, stream.error
            os.unlink(filler)
            stream = Stream(cluster)
            stream.expect(want, "there is room again")
        dropped = cluster.metric("cleave_events_dropped_total")
        assert cluster.stop() == 0
        with open(events) as file:
            lines = [json.loads(line) for line in file]  # none is cut
        gaps = [line["dropped"] for line in lines if "dropped" in line]
        assert len(gaps) >= 2 and sum(gaps) == dropped >= 40, (gaps, dropped)  # what still fits into the last page is there
        assert "event" in lines[-1], lines[-1]
        print(f"small disk: {sum(line.get('dropped', 0) for line in lines)} lines of the event log dropped and counted, "
              f"{len(lines)} there")


if __name__ == "__main__":
    need_model()
    if "slow" in sys.argv:
        check_full_disks()
        check_slow()
    else:
        check_phases("few" in sys.argv)
