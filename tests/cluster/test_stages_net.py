"""Goal: like test_stages.py, but between hosts: every split of the prompt machine with every split of the token
machine, and machines whose own stages are on different hosts, give the bytes of one process.

Method: network namespaces joined by veth pairs stand for hosts: A has the gateway and p0, B has t0, and C reaches B
through A. A stage with "host" is started by hand in its namespace. Then the link between two stages of one machine is
cut, and no other link. This script runs itself inside A.

usage: test_stages_net.py [few]
few: three machines whose stages are on different hosts, and one pair of splits.
"""

import itertools
import json
import os
import subprocess
import sys
import threading
import time

from cluster import BINARY, MODEL, Cluster, gated_environment, need_model, wait_until
from namespaces import Namespaces, ip, within
from test_stages import BASE, TWICE, UNEQUAL, answers, requests, tokens

KEY = "a cluster key of more than 32 bytes\n"
HOSTS = {"a": "10.77.0.1", "b": "10.77.0.2", "c": "10.78.0.3"}  # As the hosts see each other.


def outside():
    need_model()
    cables = [("A", "v", "10.77.0.1/24", "B", "w", "10.77.0.2/24"), ("A", "x", "10.78.0.1/24", "C", "y", "10.78.0.3/24")]
    with Namespaces(["A", "B", "C"], cables) as spaces:
        ip(spaces["B"], "route", "add", "10.78.0.0/24", "via", "10.77.0.1")
        ip(spaces["C"], "route", "add", "10.77.0.0/24", "via", "10.78.0.1")
        status = spaces.run_inside("A", "inside", spaces["B"], spaces["C"], *sys.argv[1:])
    sys.exit(status)


def forward(on):
    """This namespace forwards between B and C."""
    with open("/proc/sys/net/ipv4/ip_forward", "w") as file:
        file.write("1" if on else "0")


class Hosts:
    """A gateway here, its machines p0 (here) and t0 (on B, or at `token_address`), and stages with "host", each started on
    its host. All of them compute behind gates."""

    def __init__(self, spaces, prompt, token, token_address="10.77.0.2:7400", silence_ms=60000,
                 adaptive=False, prefix_cache=True):
        self.spaces, self.logs, self.processes = spaces, None, {}
        self.config = {**BASE, "model": MODEL, "kv": {**BASE["kv"], "prefix_cache": prefix_cache},
                       "pools": {"prompt": ["p0"], "token": ["t0"]},
                       "machines": {"p0": {"address": "10.77.0.1:7400", "local": False, "stages": prompt},
                                    "t0": {"address": token_address, "local": False, "stages": token}},
                       "cluster": {"key_file": "cluster.key"},
                       "transport": {"ucx_transports": "none", "heartbeat_ms": 200, "silence_ms": silence_ms},
                       "scheduler": {**BASE["scheduler"], "adaptive_pools": adaptive}}

    def __enter__(self):
        self.cluster = Cluster(self.config, files={"cluster.key": KEY}, ready=False, gates=True)
        self.logs = open(os.path.join(self.cluster.folder.name, "log"), "w+")
        try:
            for name, machine in self.cluster.config["machines"].items():
                stages = machine["stages"]
                for place, stage in enumerate(stages if isinstance(stages, list) else []):
                    if "host" in stage:
                        self.start(name, place)
                self.start(name)
            self.cluster.wait_ready(300)
            self.wait_home()
        except BaseException:
            self.end()
            raise
        return self

    def start(self, name, stage=None):
        machine = self.cluster.config["machines"][name]
        address = machine["address"] if stage is None else machine["stages"][stage]["host"]
        host = {value: key for key, value in HOSTS.items()}[address.split(":")[0]]
        words = [BINARY, "machine", os.path.join(self.cluster.folder.name, "config.json"), name]
        if stage is not None:
            words += ["--stage", str(stage)]
        self.processes[name if stage is None else f"{name}/{stage}"] = subprocess.Popen(
            words if host == "a" else within(self.spaces[host], *words), stderr=self.logs,
            env=gated_environment(self.cluster.gates))

    def wait_home(self):
        """Waits until both machines are up, each in its own pool. Before, one machine may do both phases."""
        def home():
            state = json.loads(self.cluster.request("GET", "/admin/state")[2])
            return all(m["connection"] == "up" and m["pool"] == m["home"] for m in state["machines"]) and \
                any(link["up"] and link["from"] == "p0" for link in state["links"])
        try:
            wait_until(home, "both machines are up", cluster=self.cluster)
        except AssertionError:
            print(self.said(), flush=True)
            raise

    def said(self):
        with open(self.logs.name) as file:
            return file.read()

    def end(self):
        self.cluster.stop()
        for process in self.processes.values():
            process.terminate()
        for name, process in self.processes.items():
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                print(f"{name} did not end", flush=True)

    def __exit__(self, *why):
        self.end()
        if why[0] is not None:
            print(self.said(), flush=True)
        assert "Sanitizer" not in self.said() and "assert" not in self.said().lower(), self.said()
        self.logs.close()


def check(spaces, what, prompt, token, want):
    begun = time.monotonic()
    with Hosts(spaces, prompt, token) as hosts:
        ready = time.monotonic()
        got, _ = answers(hosts.cluster)
        for bodies, have, expected in zip(itertools.chain(*requests()), got, want):
            assert have == expected, (what, bodies, have, expected, hosts.cluster.logged())
        hosts.cluster.wait_all_free()
        wait_until(lambda: hosts.cluster.metric("cleave_transfers_total") >= 8, "8 transfers", cluster=hosts.cluster)
        wait_until(lambda: "link to t0 is up: messages over tls" in hosts.said(), "the link is logged", cluster=hosts.cluster)
        print(f"{what}, between namespaces: the same bytes, ready after {ready - begun:.1f} s, "
              f"answered in {time.monotonic() - ready:.1f} s", flush=True)


def host(name, port, **more):
    return {"host": f"{HOSTS[name]}:{port}", **more}


def apart(few):
    """Stages of one machine on different hosts: (what, prompt machine's, token machine's)."""
    prompt = [host("a", 7410), host("c", 7411)]
    token = [host("b", 7410), host("c", 7412), host("b", 7412)]
    yield "2 stages apart and 3 apart", prompt, token
    yield "unequal stages apart", [{**UNEQUAL[0]}, {**UNEQUAL[1], **host("c", 7411)}, *UNEQUAL[2:]], UNEQUAL
    yield "replicas apart", [TWICE[0], {**TWICE[1], **host("c", 7411)}, {**TWICE[2], **host("c", 7412)}], [
        TWICE[0], {**TWICE[1], **host("b", 7411)}, {**TWICE[2], **host("c", 7413)}]
    if not few:
        yield "2 stages apart and 2 of one host", prompt, 2
        yield "1 process and 3 stages apart", 1, token
        yield "local and remote stages", [{}, host("c", 7411)], [host("c", 7412), {}]


def text_of(cluster, body):
    return "".join(event["choices"][0]["text"] for event in cluster.stream("/v1/completions", body))


def check_cut(spaces):
    """t0's head is here, and its stages are on B and C. The stages still reach the head, but no longer each other."""
    body = {"prompt": tokens(50, 300), "max_tokens": 20, "temperature": 0, "ignore_eos": True}
    with Hosts(spaces, 2, [host("b", 7410), host("c", 7411)], "10.77.0.1:7401", 3000, True, False) as hosts:
        cluster = hosts.cluster
        want = text_of(cluster, body)
        for when, held in (("decoding", "t0/1"), ("prefilling", "p0/1")):
            got = []
            cluster.hold(held)
            stream = threading.Thread(daemon=True, target=lambda: got.append(text_of(cluster, body)))
            stream.start()
            cluster.wait_held(held)
            for _ in range(2):  # Between the layers of its third batch.
                cluster.hold(held)
                cluster.wait_held(held)
            assert json.loads(cluster.request("GET", "/admin/state")[2])["requests"][when] == 1
            forward(False)
            cut = time.monotonic()
            assert hosts.processes["t0"].wait(300) == 1, hosts.said()
            seen = time.monotonic() - cut
            cluster.release()
            stream.join(300)
            assert got == [want], (when, got, want, cluster.logged(), hosts.said())
            wait_until(lambda: cluster.metric("cleave_machine_up") == 1, "t0 has left", cluster=cluster)
            assert text_of(cluster, body) == want
            forward(True)
            hosts.start("t0")
            hosts.wait_home()
            assert text_of(cluster, body) == want
            cluster.wait_all_free()
            assert hosts.processes["t0/0"].poll() is None and hosts.processes["t0/1"].poll() is None, hosts.said()
            print(f"the link between two stages cut while {when}: the same bytes, the head gave up after {seen:.1f} s",
                  flush=True)
        assert "the stage after it cannot be reached" in hosts.said(), hosts.said()


def inside(spaces, few):
    with Cluster(BASE) as plain:
        want, _ = answers(plain)
    forward(True)
    for what, prompt, token in apart(few):
        check(spaces, what, prompt, token, want)
    for prompt, token in [(5, 2)] if few else itertools.product((1, 2, 3, 5), repeat=2):
        check(spaces, f"{prompt} and {token} stages", prompt, token, want)
    check_cut(spaces)


if __name__ == "__main__":
    if sys.argv[1:2] == ["inside"]:
        inside({"b": sys.argv[2], "c": sys.argv[3]}, sys.argv[4:] == ["few"])
    else:
        outside()
