"""Goal: a default cluster on one computer listens on nothing except the gateway's HTTP port and one control port of
each machine's process, and no other user can attach its shared memory. UCX over TCP would open further ports, through
which anyone could read and write a machine's memory.

Method: all listening TCP sockets of the gateway and of every process below it, as the kernel lists them
(/proc/PID/net/tcp and the descriptors), after an answer whose KV was sent between machines. The test with a stock
client of UCX is tests/transport/test_ucx_stranger.c. As a control, UCX over TCP by name opens a further port and warns.
"""

import json
import os

from cluster import Cluster, need_model, wait_until
from namespaces import listening


def segments(pid):
    """Returns {id: mode} of the System V segments that the process has made."""
    with open("/proc/sysvipc/shm") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return {row[1]: int(row[2], 8) & 0o777 for row in rows if int(row[4]) == pid}


def processes(cluster):
    """Returns {name: pid} of the gateway, the machines and their stages."""
    return {"gateway": cluster.process.pid, **cluster.children(), **cluster.stages()}


def answered(config):
    cluster = Cluster({"threads": 1, "kv": {"memory": "32MiB"}, "transport": {"silence_ms": 60000},
                       "scheduler": {"adaptive_pools": False}, **config})
    reply = cluster.post("/v1/completions", {"prompt": "One, two, three, " * 20, "max_tokens": 4, "temperature": 0})
    assert reply["usage"]["completion_tokens"] == 4, reply
    cluster.wait_all_free()
    wait_until(lambda: cluster.metric("cleave_transfers_total") >= 1, "a transfer is counted", cluster=cluster)
    return cluster


def default_cluster(what, config):
    with answered(config) as cluster:
        all_of = processes(cluster)
        for name, pid in all_of.items():
            ports = listening(pid)
            assert len(ports) == 1, (what, name, ports)
            assert set(ports.values()) == {"0100007F"}, (what, name, ports)  # 127.0.0.1
            modes = segments(pid)
            assert all(mode & 0o077 == 0 for mode in modes.values()), (what, name, modes)
            assert modes or name not in cluster.children() or "stages" in what, (what, name)
            if name == "gateway":
                assert set(ports) == {cluster.port}, ports
        addresses = {machine["name"]: machine["address"] for machine in
                     json.loads(cluster.request("GET", "/admin/state")[2])["machines"]}
        for name, address in addresses.items():
            assert listening(all_of[name]).keys() == {int(address.rsplit(":", 1)[1])}, (what, name, address)
        print(f"{what}: {len(all_of)} processes, a port each", flush=True)


def named(config):
    with answered({**config, "transport": {"silence_ms": 60000, "ucx_transports": "tcp", "link_ms": 300000}}) as cluster:
        for name, pid in cluster.children().items():
            assert len(listening(pid)) > 1, (name, listening(pid))
        assert cluster.logged().count("anyone who reaches it can read and write this process's memory") == 2, \
            cluster.logged()


def renamed():
    with answered({"transport": {"silence_ms": 60000, "tls": "none"}}) as cluster:
        assert "/transport/tls is now /transport/ucx_transports" in cluster.logged(), cluster.logged()
        assert all(len(listening(pid)) == 1 for pid in processes(cluster).values())


need_model()
default_cluster("one prompt and one token machine", {})
default_cluster("stages", {"pools": {"prompt": ["p0"], "token": ["t0"]},
                           "machines": {"p0": {"stages": 2}, "t0": {"stages": 3}}})
named({})
renamed()
