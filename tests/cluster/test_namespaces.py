"""Goal: prompt machine and token machine work on different hosts: over TCP, with the same bytes as on one, layer by layer
behind compute, and a link that dies without a word is noticed, also one between two machines that the gateway still
reaches. Method: network namespaces joined by veth pairs stand for hosts: gateway and p0 in one, t0 in another; then p0 in a third
one, which reaches t0 through the gateway's only, as long as that forwards. This script runs itself inside the first. Needs
root and iproute2."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time

from cluster import BINARY, MODEL, Cluster, need_model
from namespaces import Namespaces, sh, within

TAG = f"cleave{os.getpid() % 10000}"
A, B, C = TAG + "a", TAG + "b", TAG + "c"
PROMPT = "The history of computing spans many centuries. " * 40


def end_machines(machines, logs):
    """Ends processes of `cleave machine`; what they said is in `logs`, which is closed."""
    for machine in machines:
        machine.terminate()
    for machine in machines:
        machine.wait(60)
    logs.seek(0)
    said = logs.read()
    logs.close()
    assert "Sanitizer" not in said and "assert" not in said.lower(), said


def outside():
    need_model()
    cables = [(A, TAG + "v", "10.77.0.1/24", B, TAG + "w", "10.77.0.2/24"),
              (A, TAG + "x", "10.78.0.1/24", C, TAG + "y", "10.78.0.3/24")]
    with Namespaces([A, B, C], cables) as spaces:
        sh("ip", "-n", B, "route", "add", "10.78.0.0/24", "via", "10.77.0.1")
        sh("ip", "-n", C, "route", "add", "10.77.0.0/24", "via", "10.78.0.1")
        status = spaces.run_inside(A, "inside", B, TAG + "v", C)
    sys.exit(status)


KEY = "a cluster key of more than 32 bytes\n"


def answer(cluster, transfer):
    body = {"prompt": PROMPT, "max_tokens": 40, "temperature": 0, "ignore_eos": True, "cleave": {"transfer": transfer}}
    return "".join(e["choices"][0]["text"] for e in cluster.stream("/v1/completions", body))


def wait_up(cluster, machine, up, seconds):
    deadline = time.monotonic() + seconds
    while cluster.metric("cleave_machine_up", machine=machine) != up:
        assert time.monotonic() < deadline, f"{machine} should be {'up' if up else 'down'}\n" + cluster.logged()
        time.sleep(0.1)


def inside(other, device):
    with Cluster({"pools": {"mixed": 1}}) as plain:
        want = answer(plain, "auto")
    config = {"model": MODEL, "pools": {"prompt": ["p0"], "token": ["t0"]},
              "machines": {"p0": {"address": "10.77.0.1:7400", "local": False},
                           "t0": {"address": "10.77.0.2:7400", "local": False}},
              "cluster": {"key_file": "cluster.key"},
              "transport": {"tls": "tcp", "heartbeat_ms": 200, "silence_ms": 1500},
              "scheduler": {"cover_ms": 600000}}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "two-hosts.json")
        with open(path, "w") as file:
            json.dump(config, file)
        with open(os.path.join(folder, "cluster.key"), "w", opener=lambda p, flags: os.open(p, flags, 0o600)) as file:
            file.write(KEY)
        logs = open(os.path.join(folder, "log"), "w+")
        machines = [subprocess.Popen([BINARY, "machine", path, "p0"], stderr=logs),
                    subprocess.Popen(within(other, BINARY, "machine", path, "t0"), stderr=logs)]
        try:
            with Cluster(config, files={"cluster.key": KEY}) as cluster:
                for transfer in ("layerwise", "one-piece"):
                    assert answer(cluster, transfer) == want, transfer
                cluster.wait_all_free()
                total = cluster.metric("cleave_transfer_seconds_total")
                exposed = cluster.metric("cleave_transfer_exposed_seconds_total")
                print(f"over TCP between two namespaces: same bytes; transfers took {total * 1e3:.1f} ms, "
                      f"{exposed * 1e3:.1f} ms of it exposed")
                assert cluster.metric("cleave_transfers_total", path="layerwise") == 1
                # A link that goes away without a word: who is left does both phases.
                sh("ip", "link", "set", device, "down")
                wait_up(cluster, "t0", 0, 30)
                assert answer(cluster, "layerwise") == want
                status, _, said = cluster.request("GET", "/health")
                assert status == 200 and b"t0 is missing" in said, (status, said)
                assert cluster.metric("cleave_machine_in_pool", machine="p0") == 2
                sh("ip", "link", "set", device, "up")
                wait_up(cluster, "t0", 1, 60)
                deadline = time.monotonic() + 60
                while cluster.metric("cleave_machine_in_pool", machine="p0") != 0:
                    assert time.monotonic() < deadline, "p0 does not go home\n" + cluster.logged()
                    time.sleep(0.1)
                assert answer(cluster, "layerwise") == want
                assert cluster.metric("cleave_transfers_total", path="layerwise") == 2
                cluster.wait_all_free()
        finally:
            end_machines(machines, logs)


def forward(on):
    """Between the machines' hosts, through this one."""
    with open("/proc/sys/net/ipv4/ip_forward", "w") as file:
        file.write("1" if on else "0")


def links_up(cluster):
    return [link for link in json.loads(cluster.request("GET", "/admin/state")[2])["links"] if link["up"]]


def wait_links(cluster, count):
    deadline = time.monotonic() + 60
    while len(links_up(cluster)) != count:
        assert time.monotonic() < deadline, f"{count} links wanted\n" + cluster.logged()
        time.sleep(0.05)


def check_cut(there, other):
    """The link between the two machines is cut, and no other: while an answer decodes, and while a prompt is sent."""
    config = {"model": MODEL, "pools": {"prompt": ["p0"], "token": ["t0"]},
              "machines": {"p0": {"address": "10.78.0.3:7400", "local": False},
                           "t0": {"address": "10.77.0.2:7401", "local": False}},
              "cluster": {"key_file": "cluster.key"}, "kv": {"prefix_cache": False},
              "transport": {"tls": "tcp", "heartbeat_ms": 200, "silence_ms": 1500}}
    body = {"prompt": PROMPT * 4, "max_tokens": 200, "temperature": 0, "ignore_eos": True}
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "log"), "w+") as logs:
        path = os.path.join(folder, "three-hosts.json")
        with open(path, "w") as file:
            json.dump(config, file)
        with open(os.path.join(folder, "cluster.key"), "w", opener=lambda p, flags: os.open(p, flags, 0o600)) as file:
            file.write(KEY)
        forward(True)
        machines = [subprocess.Popen(within(space, BINARY, "machine", path, name), stderr=logs)
                    for space, name in ((other, "p0"), (there, "t0"))]
        try:
            with Cluster(config, files={"cluster.key": KEY}) as cluster:
                wait_links(cluster, 2)
                begun = time.monotonic()
                events = cluster.stream("/v1/completions", body)
                want = [next(events)]
                first_s = time.monotonic() - begun
                want = "".join(event["choices"][0]["text"] for event in want + list(events))
                for when in ("decoding", "prefilling"):
                    got = []
                    stream = threading.Thread(daemon=True, target=lambda: got.extend(
                        event["choices"][0]["text"] for event in cluster.stream("/v1/completions", body)))
                    stream.start()
                    deadline = time.monotonic() + 60
                    while json.loads(cluster.request("GET", "/admin/state")[2])["requests"][when] == 0:
                        assert time.monotonic() < deadline, cluster.logged()
                        time.sleep(0.005)
                    time.sleep(0.4 * first_s if when == "prefilling" else 0)
                    forward(False)
                    stream.join(120)
                    assert not stream.is_alive() and "".join(got) == want, (when, got, want, cluster.logged())
                    wait_links(cluster, 0)
                    assert cluster.metric("cleave_machine_up") == 2
                    # Each machine can be reached, but no pair is left: one does both phases.
                    assert "".join(e["choices"][0]["text"] for e in cluster.stream("/v1/completions", body)) == want
                    forward(True)
                    wait_links(cluster, 2)
                    assert "".join(e["choices"][0]["text"] for e in cluster.stream("/v1/completions", body)) == want
                    cluster.wait_all_free()
                resumed = cluster.metric("cleave_requests_resumed_total")
                print(f"the link between two machines cut while decoding and while sending: the same bytes, {resumed:.0f} resumed")
        finally:
            end_machines(machines, logs)


if sys.argv[1:2] == ["inside"]:
    inside(*sys.argv[2:4])
    check_cut(sys.argv[2], sys.argv[4])
else:
    outside()
