"""Goal: the cluster key can be changed while all processes run. In the three steps that docs/operation.md describes, no
stream fails or is computed again, and every answer has the usual bytes. A mistake in a key file changes nothing. After
the last step, a gateway that has only the old key is disconnected and refused, and logs this once.

Method: real processes, each with its own key file, as on separate hosts: a gateway with a local prompt machine, a
prompt machine, a token machine with one stage that it starts and one that is started by hand, and a second gateway that
keeps the old key. In each step the answers are held at a gate of the token machine. When the second gateway is
disconnected, the other connections would have ended, too.
"""

import hashlib
import hmac
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

from cluster import BINARY, MODEL, Cluster, Stream, free_ports, gated_environment, need_model, wait_until

OLD, NEW = "0f" * 32, "a5" * 32
STEPS = [[OLD, NEW], [NEW, OLD], [NEW]]
BODIES = [{"prompt": f"{n}: The sea was calm that day.", "max_tokens": 20, "temperature": 0.8, "seed": n, "ignore_eos": True}
          for n in range(4)]


def key_id(key):
    secret = hashlib.sha256(key.encode()).digest()
    return hmac.new(secret, b"cleave cluster key id, 1\0", "sha256").hexdigest()[:16]


def ids(keys):
    """Returns the keys' ids as logs show them."""
    return ", also ".join(key_id(key) for key in keys)


def file_of(keys):
    return "".join(key + "\n" for key in keys)


class Process:
    """A machine or a stage that is started by hand, with its own folder."""

    def __init__(self, folder, config, name, gates):
        self.name = name
        self.folder = os.path.join(folder, name.replace("/", "-"))
        os.mkdir(self.folder)
        self.write("config.json", json.dumps(config))
        self.write("cluster.key", file_of([OLD]))
        self.log_path = os.path.join(self.folder, "log")
        machine, _, stage = name.partition("/")
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(
                [BINARY, "machine", os.path.join(self.folder, "config.json"), machine, *(["--stage", stage] if stage else [])],
                stderr=log, env=gated_environment(gates))

    def write(self, name, content, mode=0o600):
        with open(os.path.join(self.folder, name), "w", opener=lambda path, flags: os.open(path, flags, mode)) as file:
            file.write(content)
        os.chmod(os.path.join(self.folder, name), mode)

    def logged(self):
        with open(self.log_path) as file:
            return file.read()

    def reload(self):
        self.process.send_signal(signal.SIGHUP)

    def wait_logged(self, text, count=1):
        wait_until(lambda: self.logged().count(text) >= count, f"{self.name} logs {text}", cluster=self)


def give(gateway, processes, keys, gateway_first):
    """Writes the keys into every file, and makes every process read its file."""
    def reload_gateway():
        gateway.write("cluster.key", file_of(keys))
        reply = json.loads(gateway.request("POST", "/admin/reload")[2])
        assert f"cluster/key_file: keys {ids(keys)}" in reply["changed"], reply
        assert gateway.audited()[-2] == ("cluster keys changed", ids(keys), "loopback client", 200), gateway.audited()
        wait_until(lambda: re.search(rf"p1: cluster keys: {ids(keys)}\n", gateway.logged()), "p1 has the keys", cluster=gateway)

    if gateway_first:
        reload_gateway()
    for process in processes:
        process.write("cluster.key", file_of(keys))
        process.reload()
        # t0/0 logs to this file, too.
        process.wait_logged(f"cluster keys: {ids(keys)}\n", 2 if process.name == "t0" else 1)
    if not gateway_first:
        reload_gateway()


def held(gateway):
    """Returns answers that have begun and are held at the token machine."""
    def decoding():
        return json.loads(gateway.request("GET", "/admin/state")[2])["requests"]["decoding"] == len(BODIES)
    gateway.hold("t0/1")
    streams = [Stream(gateway, body) for body in BODIES]
    wait_until(decoding, "all streams are decoded", cluster=gateway)
    gateway.wait_held("t0/1")
    return streams


def check_mistakes(gateway, processes):
    """Each mistake causes one line, and the keys stay."""
    for content, mode, says in ((file_of([OLD, OLD]), 0o600, ":2: this key is there twice"),
                                (file_of([OLD, NEW]), 0o644, ": mode 0644 lets other users read a secret"),
                                (file_of([NEW]), 0o600, f": none of the keys in use ({key_id(OLD)}) is there"),
                                ("", 0o600, ": 0 bytes: want a key of at least 32"),
                                (OLD + "\n" + NEW[1:] + "\n", 0o600, ":2: not a key as in the first line")):
        gateway.write("cluster.key", content, mode)
        status, _, body = gateway.request("POST", "/admin/reload")
        assert status == 400 and says in json.loads(body)["error"]["message"], (status, body)
        for process in processes:
            process.write("cluster.key", content, mode)
            process.reload()
            process.wait_logged("SIGHUP: nothing is changed: ")
            process.wait_logged(says)
    for each in (gateway, *processes):
        each.write("cluster.key", file_of([OLD]))
        assert "cluster keys: " not in each.logged().replace(f"cluster keys: {ids([OLD])}\n", ""), each.logged()
    processes[0].reload()
    processes[0].wait_logged("SIGHUP: the cluster keys are as before")


def check_old(old):
    """The gateway with the old key is told the reason, once for each machine, however often it tries."""
    for name in ("p0", "t0"):
        def complaints():
            return [line for line in old.logged().splitlines() if f"machine {name} cannot be reached" in line]
        wait_until(complaints, f"{name} is refused", cluster=old)
    for _ in range(3):  # Each /health comes from another try.
        old.wait_health(503, "the cluster keys differ (cluster/key_file)")
    assert all(len([line for line in old.logged().splitlines() if f"machine {name} cannot be reached" in line]) == 1
               for name in ("p0", "t0")), old.logged()


def check(gateway, old, processes):
    want = [Stream(gateway, body).end().text for body in BODIES]
    start = len(gateway.logged())
    check_mistakes(gateway, processes)
    for number, keys in enumerate(STEPS):
        streams = held(gateway)
        give(gateway, processes, keys, gateway_first=number == 1)
        if number == 2:  # The streams are held until the gateway with the old key is disconnected.
            for process in processes[:2]:
                process.wait_logged("it does not prove a key that is still in use")
        gateway.release()
        for stream, text in zip(streams, want):
            stream.expect(text, f"step {number + 1}")
    check_old(old)
    assert gateway.metric("cleave_requests_resumed_total") == 0
    said = gateway.logged()[start:]
    assert " is down" not in said and "cannot be reached" not in said and " is gone" not in said, said
    for process in processes[:2]:
        refused = [line for line in process.logged().splitlines() if "a peer was refused" in line]
        assert len(refused) == 1 and "the cluster keys differ (cluster/key_file)" in refused[0], refused
    # New processes get the new key: a local machine that died, and its links.
    before = gateway.children()["p1"]
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: gateway.children().get("p1", before) != before, "p1 starts again", cluster=gateway)
    wait_until(lambda: gateway.metric("cleave_link_up", prompt="p1", token="t0") == 1, "p1 has its link", cluster=gateway)
    for body, text in zip(BODIES, want):
        Stream(gateway, body).expect(text, "after the rotation")
    assert sum(process.process.poll() is not None for process in processes) == 0


def main():
    need_model()
    ports = free_ports(3)
    machines = {"p0": {"address": f"127.0.0.1:{ports[0]}", "local": False, "device": "cuda:0"},
                "p1": {"local": True, "device": "cuda:0"},
                "t0": {"address": f"127.0.0.1:{ports[1]}", "local": False, "device": "cuda:0",
                       "stages": [{}, {"host": f"127.0.0.1:{ports[2]}"}]}}
    config = {"model": MODEL, "threads": 1, "kv": {"memory": "48MiB", "dtype": "i16"},
              "pools": {"prompt": ["p0", "p1"], "token": ["t0"]}, "machines": machines,
              "cluster": {"key_file": "cluster.key"}, "scheduler": {"adaptive_pools": False},
              "transport": {"ucx_transports": "none", "silence_ms": 120000, "connect_ms": 4000}}
    without = {**config, "pools": {"prompt": ["p0"], "token": ["t0"]},
               "machines": {name: machines[name] for name in ("p0", "t0")}}
    files = {"cluster.key": file_of([OLD])}
    with tempfile.TemporaryDirectory(prefix="cleave-test-") as folder:
        gates = os.path.join(folder, "gates")
        processes = [Process(folder, config, name, gates) for name in ("p0", "t0", "t0/1")]
        try:
            with Cluster(config, files=files, gates=gates) as gateway, Cluster(without, files=files, gates=gates) as old:
                wait_until(lambda: gateway.metric("cleave_links_up") == 2, "both links are up", cluster=gateway)
                check(gateway, old, processes)
                assert gateway.stop() == 0 and old.stop() == 0
                for each in (gateway, old):
                    assert "Sanitizer" not in each.logged() and "assert" not in each.logged(), each.logged()
        except BaseException:
            for process in processes:
                print(process.logged(), file=sys.stderr)
            raise
        finally:
            ends = []
            for process in processes:  # t0 ends before its stage, because t0 cannot run without it.
                process.process.terminate()
                ends.append(process.process.wait(300))
        for process in processes:
            said = process.logged()
            assert "Sanitizer" not in said and "assert" not in said and OLD not in said and NEW not in said, said
        assert ends == [0, 0, 0], ends
    print("the cluster key was changed in three steps, under streams")


if __name__ == "__main__":
    main()
