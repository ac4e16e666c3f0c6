#!/usr/bin/env python3
"""bench_recovery: the pause of a stream when its token machine dies, by what other machines have of its KV, and over the
bandwidth of the links between the machines.

Three network namespaces stand for three hosts: one with gateway and prompt machine, and two with a token machine each.
tc limits the sending rate of each. Machines have one thread. Each round measures every context in three ways, in turn:
  nothing     kv/prefix_cache is false: no other machine has KV, and the prompt machine computes all tokens again
  prompt      the prompt machine still has the prompt's KV in its prefix cache, and sends it again
  checkpoint  kv/checkpoint is idle, and the other token machine has a complete checkpoint
After some tokens of the answer the token machine is killed. The pause is the time from the last token before the kill to
the third one after it, because the first one may come from the prompt machine, before the KV has arrived.

The formula, from figures of the same run (F is the time to the first token of the same context with a link that is not
limited; T is the time per token; KV of a layer is sent while the next one is computed):
  max(F * tokens computed again / context, KV bytes sent again / bandwidth) + 3 T
A checkpoint may be on the prompt machine, which has the prompt's KV already; its KV is then sent to a token machine.

Needs root, and iproute2 with tc; without, it says so and does nothing (status 77).

usage: bench_recovery.py [--rounds N] [--contexts N,…] [--rates Mbit/s,…] [--build FOLDER]; rate 0 is not limited
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from statistics import median

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("CLEAVE_BINARY", os.path.join(ROOT, "build", "cleave"))
from bench_cluster import cluster  # noqa: E402 (reads CLEAVE_BINARY)
from bench_table import number, table  # noqa: E402
from namespaces import Namespaces, net, sh, within  # noqa: E402

ANSWER, BEFORE, BLOCK = 120, 40, 16
WAYS = {"nothing": {"prefix_cache": False}, "prompt": {}, "checkpoint": {"checkpoint": "idle", "checkpoint_ms": 0}}  # keys of kv
HOSTS = {"p0": ("prompts", "10.79.0.1"), "t0": ("first", "10.79.0.2"), "t1": ("second", "10.79.1.2")}
CABLES = [("prompts", "to-first", "10.79.0.1/24", "first", "uplink", "10.79.0.2/24"),
          ("prompts", "to-second", "10.79.1.1/24", "second", "uplink", "10.79.1.2/24")]
DEVICES = [("prompts", "to-first"), ("prompts", "to-second"), ("first", "uplink"), ("second", "uplink")]


def limit(space, device, mbit):
    """The bucket holds half a millisecond, and at least one large segment; the queue holds 100 ms."""
    rule = ["tbf", "rate", f"{mbit}mbit", "burst", str(max(70000, mbit * 125000 // 2000)), "latency", "100ms"]
    if mbit == 0:
        sh(*net(space, "tc", "qdisc", "del", "dev", device, "root"), check=False)
    else:
        sh(*net(space, "tc", "qdisc", "replace", "dev", device, "root", *rule))


def config_of(way):
    return {"model": cluster.DEFAULT_MODEL, "pools": {"prompt": ["p0"], "token": ["t0", "t1"]}, "threads": 1,
            "machines": {name: {"address": f"{address}:7400", "local": False} for name, (_, address) in HOSTS.items()},
            "cluster": {"key_file": "cluster.key"}, "kv": {"memory": "512MiB", **WAYS[way]},
            "transport": {"ucx_transports": "none"}, "scheduler": {"placement": "split"}}


def state(server):
    return json.loads(server.request("GET", "/admin/state")[2])


def sent(server):
    """KV bytes that the prompt machine has sent, without copies for checkpoints."""
    return (server.metric("cleave_transfer_bytes_total", machine="p0") -
            server.metric("cleave_checkpoint_bytes_total", machine="p0"))


def measure(spaces, context, way):
    """Returns a dict of pause_ms, first_ms, token_ms, computed, kv_bytes."""
    body = {"prompt": [(k * 31 + context) % 40000 + 100 for k in range(context - BEFORE)], "max_tokens": ANSWER,
            "temperature": 0, "ignore_eos": True}
    arrivals, machines = [], {}
    server = cluster.Cluster(config_of(way), ready=False, files={"cluster.key": "a cluster key of more than 32 bytes\n"})
    path = os.path.join(server.folder.name, "config.json")
    with open(os.path.join(server.folder.name, "machines"), "w") as log:
        try:
            for name, (host, _) in HOSTS.items():
                words = [] if host == "prompts" else within(spaces[host])
                machines[name] = subprocess.Popen([*words, cluster.BINARY, "machine", path, name], stderr=log)
            server.wait_ready(120)
            cluster.wait_until(lambda: server.metric("cleave_machine_up") == 3 and
                               sum(link["up"] for link in state(server)["links"]) >= 4, "all machines are joined", 120)
            began = time.monotonic()

            def read():
                for _ in server.stream("/v1/completions", body):
                    arrivals.append(time.monotonic())

            reader = threading.Thread(target=read)
            reader.start()
            while len(arrivals) < BEFORE or \
                    (way == "checkpoint" and state(server)["checkpoint_tokens"] < context - BEFORE - BLOCK):
                time.sleep(0.005)
            victim = next(each["name"] for each in state(server)["machines"]
                          if each["routed_decodes"] > 0 and each["name"] != "p0")
            sent_before = sent(server)
            killed = time.monotonic()
            machines[victim].kill()
            reader.join()
            gaps = [b - a for a, b in zip(arrivals, arrivals[1:])]
            return {"pause_ms": 1000 * ([at for at in arrivals if at > killed][2] - max(at for at in arrivals if at <= killed)),
                    "first_ms": 1000 * (arrivals[0] - began), "token_ms": 1000 * median(gaps),
                    "computed": server.metric("cleave_tokens_recomputed_total"),
                    "kv_bytes": sent(server) - sent_before}
        finally:
            server.stop()
            for machine in machines.values():
                machine.terminate()
            for machine in machines.values():
                machine.wait(60)


def estimate_ms(context, mbit, found, first_ms):
    middle = {key: median(each[key] for each in found) for key in found[0]}
    sent_ms = middle["kv_bytes"] * 8 / (mbit * 1000) if mbit > 0 else 0
    return max(first_ms * middle["computed"] / context, sent_ms) + 3 * middle["token_ms"]


def inside(given, spaces):
    found = {}
    rates = sorted(map(int, given.rates.split(",")))
    for _ in range(given.rounds):
        for mbit in rates:
            for space, device in DEVICES:
                limit(spaces[space], device, mbit)
            for context in map(int, given.contexts.split(",")):
                for way in WAYS:
                    found.setdefault((context, mbit, way), []).append(measure(spaces, context, way))
    rows = []
    for (context, mbit, way), each in sorted(found.items()):
        first = [one["first_ms"] for other in WAYS for one in found[context, rates[0], other]]
        pauses = [one["pause_ms"] for one in each]
        rows.append([str(context), str(mbit) if mbit else "not limited", way, number(median(pauses)),
                     " ".join(number(pause) for pause in pauses),
                     number(estimate_ms(context, mbit, each, median(first))),
                     number(median(one["computed"] for one in each)),
                     number(median(one["kv_bytes"] for one in each) / 1e6)])
    print(table(["context, tokens", "links, Mbit/s", "KV elsewhere", "pause, ms (median)", "each", "formula, ms",
                 "tokens computed", "MB sent"], rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--contexts", default="1024,4096,8000")
    parser.add_argument("--rates", default="0,1000,100", help="with 0, a link that is not limited (%(default)s)")
    parser.add_argument("--build", default="build")
    parser.add_argument("--inside", metavar="NAMESPACES", help=argparse.SUPPRESS)
    given = parser.parse_args()
    cluster.BINARY = os.path.join(given.build, "cleave")
    if given.inside:
        inside(given, json.loads(given.inside))
        return
    cluster.need_model()
    if shutil.which("tc") is None:
        cluster.skip("needs tc (iproute2)")
    with Namespaces([host for host, _ in HOSTS.values()], CABLES) as spaces:
        sh(*net(spaces["prompts"], "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"))
        for host, gateway in (("first", "10.79.0.1"), ("second", "10.79.1.1")):
            sh(*net(spaces[host], "ip", "route", "add", "default", "via", gateway))
        names = {host: spaces[host] for host, _ in HOSTS.values()}
        status = spaces.run_inside("prompts", *sys.argv[1:], "--inside", json.dumps(names), seconds=3600)
    sys.exit(status)


if __name__ == "__main__":
    main()
