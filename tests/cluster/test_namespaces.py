"""Goal: a prompt machine and a token machine on different hosts work over TCP, layer by layer while the prompt is
computed, with the same bytes as on one host. Each machine listens on one port. A link that fails silently is noticed,
also between two machines that the gateway can both reach. `wire`: an observer of the network between two hosts sees no
tokens and no KV.

Method: network namespaces joined by veth pairs stand for hosts. First the gateway and p0 are in A, and t0 is in B. Then
p0 is in C, which reaches B through A only while A forwards. This script runs itself inside A.
"""

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading

from cluster import BINARY, MODEL, Cluster, gated_environment, need_model, wait_until
from namespaces import Namespaces, ip, listening, sh, within

CABLES = [("A", "v", "10.77.0.1/24", "B", "w", "10.77.0.2/24"), ("A", "x", "10.78.0.1/24", "C", "y", "10.78.0.3/24")]
KEY = "a cluster key of more than 32 bytes\n"
PROMPT = "The history of computing spans many centuries. " * 40  # Six batches.
CONFIG = {"model": MODEL, "pools": {"prompt": ["p0"], "token": ["t0"]}, "cluster": {"key_file": "cluster.key"},
          "threads": 1, "kv": {"memory": "64MiB", "prefix_cache": False}, "scheduler": {"prompt_batch_tokens": 64},
          "transport": {"ucx_transports": "none", "heartbeat_ms": 200, "silence_ms": 3000}}


def outside():
    need_model()
    with Namespaces(["A", "B", "C"], CABLES) as spaces:
        ip(spaces["B"], "route", "add", "10.78.0.0/24", "via", "10.77.0.1")
        ip(spaces["C"], "route", "add", "10.77.0.0/24", "via", "10.78.0.1")
        status = spaces.run_inside("A", "wire" if "wire" in sys.argv else "inside", spaces["B"], spaces["C"], "here")
    sys.exit(status)


@contextlib.contextmanager
def hosts(config, addresses, spaces):
    """Starts the cluster of a gateway here and a p0 and a t0 at these addresses, each in its namespace; None = here."""
    machines = {name: {"address": address, "local": False} for name, address in addresses.items()}
    cluster = Cluster({**config, "machines": machines}, files={"cluster.key": KEY}, ready=False, gates=True)
    path = os.path.join(cluster.folder.name, "config.json")
    processes = []
    with cluster, open(os.path.join(cluster.folder.name, "log"), "w+") as logs:
        try:
            for name, space in spaces.items():
                words = [BINARY, "machine", path, name]
                processes.append(subprocess.Popen(within(space, *words) if space else words, stderr=logs,
                                                  env=gated_environment(cluster.gates)))
            cluster.host_pids = [process.pid for process in processes]
            cluster.wait_ready(300)
            wait_links(cluster, 2)
            yield cluster
        finally:
            cluster.release()
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(300)
            logs.seek(0)
            said = logs.read()
            assert "Sanitizer" not in said and "assert" not in said.lower(), said


def answer(cluster, transfer="auto"):
    body = {"prompt": PROMPT, "max_tokens": 20, "temperature": 0, "ignore_eos": True, "cleave": {"transfer": transfer}}
    return "".join(e["choices"][0]["text"] for e in cluster.stream("/v1/completions", body))


def wait_metric(cluster, value, name, **labels):
    wait_until(lambda: cluster.metric(name, **labels) == value, f"{name} {labels} is {value}", cluster=cluster)


def wait_links(cluster, count):
    def links_up():
        return [link for link in json.loads(cluster.request("GET", "/admin/state")[2])["links"] if link["up"]]
    wait_until(lambda: len(links_up()) == count, f"{count} links are up", cluster=cluster)


def check_ports(there, want):
    """With the default transport, UCX between hosts uses RDMA devices only: each machine has one port."""
    addresses = {"p0": "10.77.0.1:7400", "t0": "10.77.0.2:7400"}
    with hosts({**CONFIG, "transport": {}}, addresses, {"p0": None, "t0": there}) as cluster:
        assert answer(cluster) == want
        ports = [set(listening(pid)) for pid in cluster.host_pids]
        assert ports == [{7400}, {7400}], ports


def check_dark(there, device, want):
    """The only link fails silently: the remaining machine does both phases."""
    config = {**CONFIG, "scheduler": {**CONFIG["scheduler"], "takeover_delay_ms": 600000}}
    with hosts(config, {"p0": "10.77.0.1:7400", "t0": "10.77.0.2:7400"}, {"p0": None, "t0": there}) as cluster:
        for transfer in ("layerwise", "one-piece"):
            assert answer(cluster, transfer) == want, transfer
        cluster.wait_all_free()
        total = cluster.metric("cleave_transfer_seconds_total")
        exposed = cluster.metric("cleave_transfer_exposed_seconds_total")
        print(f"over TCP between two namespaces: the same bytes; transfers took {total * 1e3:.1f} ms, "
              f"{exposed * 1e3:.1f} ms of that exposed", flush=True)
        wait_metric(cluster, 1, "cleave_transfers_total", path="layerwise")
        sh("ip", "link", "set", device, "down")
        wait_metric(cluster, 0, "cleave_machine_up", machine="t0")
        assert answer(cluster, "layerwise") == want
        status, _, said = cluster.request("GET", "/health")
        assert status == 200 and b"t0 is missing" in said, (status, said)
        assert cluster.metric("cleave_machine_in_pool", machine="p0") == 2
        sh("ip", "link", "set", device, "up")
        wait_metric(cluster, 1, "cleave_machine_up", machine="t0")
        wait_metric(cluster, 0, "cleave_machine_in_pool", machine="p0")
        wait_links(cluster, 2)
        assert answer(cluster, "layerwise") == want
        wait_metric(cluster, 2, "cleave_transfers_total", path="layerwise")
        cluster.wait_all_free()


def forward(on):
    """This namespace forwards between the machines' hosts."""
    with open("/proc/sys/net/ipv4/ip_forward", "w") as file:
        file.write("1" if on else "0")


def check_cut(there, other, want):
    """Only the link between the two machines is cut: while an answer decodes, and while a prompt is sent."""
    forward(True)
    with hosts(CONFIG, {"p0": "10.78.0.3:7400", "t0": "10.77.0.2:7401"}, {"p0": other, "t0": there}) as cluster:
        assert answer(cluster) == want
        for when, name in (("decoding", "t0"), ("prefilling", "p0")):
            got = []
            cluster.hold(name, layer=15)
            stream = threading.Thread(daemon=True, target=lambda: got.append(answer(cluster)))
            stream.start()
            cluster.wait_held(name)
            for _ in range(2):  # In the middle of its third batch.
                cluster.hold(name, layer=15)
                cluster.wait_held(name)
            assert json.loads(cluster.request("GET", "/admin/state")[2])["requests"][when] == 1
            forward(False)
            if when == "decoding":
                wait_links(cluster, 0)
            cluster.release()
            stream.join(300)
            assert got == [want], (when, got, want, cluster.logged())
            wait_links(cluster, 0)
            assert cluster.metric("cleave_machine_up") == 2
            # Each machine can be reached, but no pair: one machine does both phases.
            assert answer(cluster) == want
            forward(True)
            wait_links(cluster, 2)
            assert answer(cluster) == want
            cluster.wait_all_free()
        resumed = cluster.metric("cleave_requests_resumed_total")
        assert resumed > 0
        print(f"the link between two machines cut while decoding and while sending: the same bytes, {resumed:.0f} resumed")


class Tap:
    """Reads all packets of a device during `with`. Afterwards, `data` has the bytes of each direction of each TCP
    connection in order."""

    def __init__(self, device):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # ETH_P_ALL
        force = 33  # SO_RCVBUFFORCE: the buffer has room for all packets of a check, even if this process runs late.
        self.socket.setsockopt(socket.SOL_SOCKET, force, 256 << 20)
        self.socket.bind((device, 0))
        self.socket.settimeout(0.5)
        self.segments, self.ended = {}, False

    def __enter__(self):
        self.reader = threading.Thread(daemon=True, target=self.read)
        self.reader.start()
        return self

    def read(self):
        """Ends when the tap has ended and all earlier packets have been read."""
        while True:
            ended = self.ended
            if ended:
                self.socket.settimeout(0)
            try:
                frame = self.socket.recv(1 << 18)
            except (BlockingIOError, TimeoutError):
                if ended:
                    return
                continue
            if frame[12:14] != b"\x08\x00" or frame[23] != 6:  # IPv4, TCP
                continue
            tcp = 14 + (frame[14] & 15) * 4
            length = int.from_bytes(frame[16:18], "big")  # 0 = a segment that the device would split.
            payload = frame[tcp + (frame[tcp + 12] >> 4) * 4:14 + length if length else None]
            if payload:
                stream = self.segments.setdefault(frame[26:34] + frame[tcp:tcp + 4], {})
                stream[int.from_bytes(frame[tcp + 4:tcp + 8], "big")] = payload

    def __exit__(self, *why):
        self.ended = True
        self.reader.join()
        statistics = self.socket.getsockopt(263, 6, 8)  # SOL_PACKET, PACKET_STATISTICS: packets, drops
        self.dropped = struct.unpack("II", statistics)[1]
        self.socket.close()
        streams = []
        for stream in self.segments.values():
            first = next(iter(stream))  # Sequence numbers wrap around.
            order = sorted(stream, key=lambda number: (number - first + (1 << 31)) & 0xFFFFFFFF)
            streams.append(b"".join(stream[number] for number in order))
        self.data = b"|".join(streams)


def samples(data, count=400, size=24):
    """Returns pieces of the data that do not repeat."""
    found = []
    for at in range(0, len(data) - size, max(1, len(data) // (20 * count))):
        piece = data[at:at + size]
        if len(set(piece)) > size // 2:
            found.append(piece)
    return found[::max(1, len(found) // count)]


def tapped(config, device, there):
    """Returns what the device carries while a request of a long prompt and two streams of another prompt run, and the
    other prompt's tokens. One request after the other: a prompt that waits for another one may be lent to the token
    machine, so that its KV is sent in one run and not in the next one."""
    addresses = {"p0": "10.77.0.2:7400", "t0": "10.77.0.1:7400"}  # So that prompts cross the network, too.
    with hosts(config, addresses, {"p0": there, "t0": None}) as cluster:
        ids = cluster.post("/tokenize", {"prompt": PROMPT})["tokens"]
        with Tap(device) as tap:
            cluster.post("/v1/completions",
                         {"prompt": "Ships and trains. " * 150, "max_tokens": 40, "ignore_eos": True})
            got = ""
            for transfer in ("layerwise", "one-piece"):
                cluster.wait_all_free()
                got += answer(cluster, transfer)
            cluster.wait_all_free()
    assert tap.dropped == 0, f"{tap.dropped} packets were not read"
    return tap.data, struct.pack(f"<{len(ids)}I", *ids), got


def wire(there):
    """Without a cluster key the tap sees tokens and KV; with a key it sees neither."""
    open_config = {**CONFIG, "cluster": {"allow_insecure": True}}
    plain, ids, want = tapped(open_config, "v", there)
    pieces = samples(plain)
    assert len(pieces) >= 100 and len(plain) > 10e6, (len(pieces), len(plain))
    again, _, got = tapped(open_config, "v", there)
    seen = sum(piece in again for piece in pieces)
    assert got == want and ids in plain and ids in again
    assert seen > len(pieces) // 2, f"{seen} of {len(pieces)} pieces of the first run are in the second one"
    secret, _, got = tapped(CONFIG, "v", there)
    assert got == want and len(secret) > 10e6
    leaked = [piece for piece in pieces if piece in secret]
    assert not leaked, leaked[:3]
    for at in range(0, len(ids) - 16, 4):
        assert ids[at:at + 16] not in secret, f"four tokens, from number {at // 4} on"
    for text in (PROMPT[:16].encode(), want[:8].encode()):
        assert text not in secret
    print(f"the network between two hosts: {len(plain) / 1e6:.1f} MB without a key, in which {seen} of {len(pieces)} pieces and "
          f"the prompt's {len(ids) // 4} tokens are found again; {len(secret) / 1e6:.1f} MB with a key: none of them")


def inside(there, other):
    with Cluster({**CONFIG, "pools": {"mixed": 1}, "cluster": {}, "transport": {}}) as plain:
        want = answer(plain)
    check_ports(there, want)
    check_dark(there, "v", want)
    check_cut(there, other, want)


if sys.argv[-1] != "here":
    outside()
elif sys.argv[1] == "wire":
    wire(sys.argv[2])
else:
    inside(*sys.argv[2:4])
