"""Goal: two gateways serve over the same machines at the same time: the same bytes as alone, each sees the other's load,
one that is killed leaves nothing behind and does not disturb the other. Method: real processes. Two machines are started
by hand, as on computers of their own, and two gateways connect to them; streams run through both at once. Argument: few, for a
sanitizer: without machines that a gateway starts or moves."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

from cluster import BINARY, MODEL, Cluster, free_ports, need_model

KEY = "a cluster key of more than 32 bytes\n"
COUNT = 6


def body(n, tokens):
    return {"prompt": f"{n}: The sea was calm that day, and nobody spoke.", "max_tokens": tokens, "temperature": 0.8,
            "seed": n, "ignore_eos": True}


def text(cluster, n, tokens):
    return "".join(e["choices"][0]["text"] for e in cluster.stream("/v1/completions", body(n, tokens)))


class Streams:
    """COUNT streams at once through one gateway."""

    def __init__(self, cluster, first, tokens):
        self.texts = [None] * COUNT
        self.threads = [threading.Thread(target=self.run, args=(cluster, i, first + i, tokens)) for i in range(COUNT)]
        for thread in self.threads:
            thread.start()

    def run(self, cluster, i, n, tokens):
        try:
            self.texts[i] = text(cluster, n, tokens)
        except Exception as broken: # the caller compares
            self.texts[i] = repr(broken)

    def finish(self):
        for thread in self.threads:
            thread.join(120)
            assert not thread.is_alive(), "a stream hangs"
        return self.texts


def wait_until(what, condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def check(config, machines_log):
    with Cluster({"threads": 1}) as alone:
        want = [text(alone, n, 48) for n in range(2 * COUNT)]
        late = [text(alone, 100 + n, 160) for n in range(COUNT)]
    files = {"cluster.key": KEY}
    with Cluster(config, files=files) as first, Cluster(config, files=files) as second:
        both = (first, second)
        streams = [Streams(first, 0, 48), Streams(second, COUNT, 48)]
        assert streams[0].finish() + streams[1].finish() == want
        for gateway in both:
            assert gateway.metric("cleave_machine_gateways", machine="token-0") == 2
        assert sum(gateway.metric("cleave_gateway_leads") for gateway in both) == 1
        # What one of them has there, the other one sees.
        streams = [Streams(first, 100, 160), Streams(second, 0, 48)]
        wait_until("no load of the other one is seen",
                   lambda: second.metric("cleave_machine_others_kv_tokens", machine="token-0") >= COUNT * 160)
        # One of them dies in the middle of it.
        assert streams[1].finish() == want[:COUNT]
        streams[1] = Streams(second, 100, 160)
        wait_until("nothing runs", lambda: second.metric("vllm:generation_tokens_total") > COUNT * 97)
        os.kill(first.process.pid, signal.SIGKILL)
        streams[0].finish()
        assert streams[1].finish() == late, "the other gateway's streams are disturbed"
        assert second.metric("cleave_requests_resumed_total") == 0
        second.wait_all_free(90)
        wait_until("the dead one is still counted",
                   lambda: second.metric("cleave_machine_gateways", machine="token-0") == 1 and
                   second.metric("cleave_machine_others_kv_tokens") == 0)
        assert second.metric("cleave_gateway_leads") == 1
        # A new one takes its place.
        with Cluster(config, files=files) as third:
            assert text(third, 0, 48) == want[0]
    assert "disconnects" not in open(machines_log).read()


def check_launched():
    """A second gateway on machines that the first one has started: it sees them end with it, and come back."""
    ports = free_ports(2)
    machines = {name: {"address": f"127.0.0.1:{port}", "local": True} for name, port in zip(("prompt-0", "token-0"), ports)}
    config = {"threads": 1, "kv": {"memory": "64MiB"}, "cluster": {"key_file": "cluster.key"}, "machines": machines,
              "pools": {"prompt": ["prompt-0"], "token": ["token-0"]}}
    remote = {**config, "machines": {name: {**machine, "local": False} for name, machine in machines.items()}}
    files = {"cluster.key": KEY}
    with Cluster(config, files=files) as owner, Cluster(remote, files=files) as guest:
        want = text(owner, 0, 20)
        assert text(guest, 0, 20) == want and guest.children() == {}
        guest.stop()  # its machines are another one's: they stay
        assert text(owner, 0, 20) == want
        with Cluster(remote, files=files) as again:
            owner.stop()
            again.wait_health(503, "machine token-0 is missing")
            with Cluster(config, files=files) as heir:
                again.wait_health(200, "ready")
                assert text(again, 0, 20) == want and text(heir, 0, 20) == want


def large(cluster, n):
    """The answer to prompts of 200, 800 and 1,700 tokens; the last is more than a mixed machine shares of its memory."""
    words = "The sea was calm that day, and nobody spoke. " * (18, 72, 153)[n % 3]
    return "".join(e["choices"][0]["text"] for e in cluster.stream(
        "/v1/completions", {**body(n, 24), "prompt": f"{n}: " + words}))


def check_pressure():
    """Machines move to the mixed pool for one gateway, and not for the other one, under bursts through both."""
    ports = free_ports(3)
    names = ("prompt-0", "token-0", "token-1")
    machines = {name: {"address": f"127.0.0.1:{port}", "local": True} for name, port in zip(names, ports)}
    config = {"threads": 1, "kv": {"memory": "64MiB"}, "cluster": {"key_file": "cluster.key"}, "machines": machines,
              "pools": {"prompt": names[:1], "token": names[1:]}, "scheduler": {"prompt_queue_threshold_tokens": 400}}
    remote = {**config, "machines": {name: {**machine, "local": False} for name, machine in machines.items()}}
    files = {"cluster.key": KEY}
    with Cluster(config, files=files) as first, Cluster(remote, files=files) as second:
        want = [large(first, n) for n in range(COUNT)]
        got = {}

        def ask(cluster, n, place):
            try:
                got[place] = large(cluster, n)
            except Exception as broken:
                got[place] = repr(broken)

        threads = [threading.Thread(target=ask, args=(cluster, n, (i, n)))
                   for i, cluster in enumerate((first, second)) for n in range(COUNT)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(200)
            assert not thread.is_alive(), "a request hangs\n" + first.logged() + second.logged()
        for (i, n), found in sorted(got.items()):
            assert found == want[n], (i, n, found, want[n])
        moves = [gateway.metric("cleave_pool_moves_total") for gateway in (first, second)]
        print(f"under bursts through both, machines moved {moves[0]:.0f} and {moves[1]:.0f} times")
        assert sum(moves) > 0, "nothing was under pressure"
        for gateway in (first, second):
            gateway.wait_all_free(90)
            wait_until("token-0 does not go home", lambda: gateway.metric("cleave_machine_in_pool", machine="token-0") == 1)


def main():
    need_model()
    if sys.argv[1:] != ["few"]:
        check_launched()
        check_pressure()
    ports = free_ports(2)
    config = {"model": MODEL, "threads": 1, "pools": {"prompt": ["prompt-0"], "token": ["token-0"]},
              "machines": {"prompt-0": {"address": f"127.0.0.1:{ports[0]}", "local": False},
                           "token-0": {"address": f"127.0.0.1:{ports[1]}", "local": False}},
              "cluster": {"key_file": "cluster.key"}, "kv": {"memory": "256MiB"}}
    with tempfile.TemporaryDirectory(prefix="cleave-test-") as folder:
        path, log = os.path.join(folder, "config.json"), os.path.join(folder, "log")
        with open(path, "w") as file:
            json.dump(config, file)
        with open(os.path.join(folder, "cluster.key"), "w", opener=lambda p, flags: os.open(p, flags, 0o600)) as file:
            file.write(KEY)
        with open(log, "w") as logs:
            machines = [subprocess.Popen([BINARY, "machine", path, name], stderr=logs)
                        for name in ("prompt-0", "token-0")]
        try:
            check(config, log)
        except BaseException:
            print(open(log).read(), file=sys.stderr)
            raise
        finally:
            for machine in machines:
                machine.terminate()
            for machine in machines:
                assert machine.wait(60) == 0
        said = open(log).read()
        assert "Sanitizer" not in said and "assert" not in said.lower() and "KV blocks:" not in said.replace(" KV blocks of", ""), said


if __name__ == "__main__":
    main()
    print("two gateways share machines; one dies, and the other one serves on")
