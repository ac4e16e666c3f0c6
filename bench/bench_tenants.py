#!/usr/bin/env python3
"""bench_tenants: measures the effect on a tenant when another one floods the server.

Two API keys of equal weight share one prompt machine and one token machine. The machines only wait (the device `wait`),
so the figures show the gateway and the schedulers. Tenant B sends two requests per second. Tenant A alternates between
phases of the same length: first as many streams as its share serves; then ten times as many, bodies of 8 MiB, and
connections that send one byte per second. Prints B's times to first token in both phases. A's programs run with nice
19, because in reality they would run on another computer. Standard library only.
"""

import argparse
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("CLEAVE_BINARY", os.path.join(ROOT, "build", "cleave"))
from bench_cluster import cluster  # noqa: E402 (reads CLEAVE_BINARY)
from bench_table import number, table  # noqa: E402

KEYS = {"a": "sk-tenant-a-0123456789abcdef", "b": "sk-tenant-b-0123456789abcdef"}
PROMPT_TOKENS, ANSWER_TOKENS = 100, 32
BODY = b" " * (8 << 20)


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20, help="of a phase (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="of both phases (%(default)s)")
    parser.add_argument("--streams", type=int, default=8, help="of tenant A in its share (%(default)s)")
    parser.add_argument("--batch-tokens", type=int, default=128, help="scheduler/prompt_batch_tokens (%(default)s)")
    parser.add_argument("--device", default="wait:3000+30", help="of the machines (%(default)s)")
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    return parser.parse_args()


def prompt(draw):
    return [draw.randrange(100, 40000) for _ in range(PROMPT_TOKENS)]


def headers(name):
    return {"Content-Type": "application/json", "Authorization": f"Bearer {KEYS[name]}"}


def stream(address, name, draw):
    """Returns the seconds to the first token's event, and the status. Reads the answer to its end."""
    host, port = address.split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=120)
    body = json.dumps({"prompt": prompt(draw), "max_tokens": ANSWER_TOKENS, "ignore_eos": True, "stream": True})
    begin = time.monotonic()
    try:
        connection.request("POST", "/v1/completions", body, headers(name))
        reply = connection.getresponse()
        reply.readline()
        first = time.monotonic() - begin
        ended = reply.read().rstrip().endswith(b"[DONE]")
        return first, reply.status if ended else 0
    finally:
        connection.close()


# --- tenant A: each part is a process of its own ---

def attack_streams(address, count):
    def one(seed):
        draw = random.Random(seed)
        while True:
            try:
                _, status = stream(address, "a", draw)
            except (OSError, http.client.HTTPException):
                status = 0
            if status != 200:
                time.sleep(0.1)
    threads = [threading.Thread(target=one, args=(seed,), daemon=True) for seed in range(count)]
    for thread in threads:
        thread.start()
    threading.Event().wait()


def attack_bodies(address):
    host, port = address.split(":")
    while True:
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        try:
            connection.request("POST", "/tokenize", BODY, headers("a"))
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            time.sleep(0.1)
        finally:
            connection.close()


def attack_slow(address, count):
    host, port = address.split(":")
    sockets = [None] * count
    request = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Slow: " + b"s" * 100000
    sent = [0] * count
    while True:
        for index in range(count):
            try:
                if sockets[index] is None:
                    sockets[index] = socket.create_connection((host, int(port)), timeout=1)
                    sent[index] = 0
                sockets[index].send(request[sent[index]:sent[index] + 1])
                sent[index] += 1
            except OSError:
                if sockets[index] is not None:
                    sockets[index].close()
                sockets[index] = None
        time.sleep(1)


def attack(words, address):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    kind, _, count = words.partition(":")
    if kind == "streams":
        attack_streams(address, int(count))
    elif kind == "bodies":
        attack_bodies(address)
    else:
        attack_slow(address, int(count))


class Attackers:
    def __init__(self, address, parts):
        words = ["nice", "-n", "19", sys.executable, os.path.abspath(__file__), "--address", address, "--attack"]
        self.processes = [subprocess.Popen([*words, part]) for part in parts]

    def __enter__(self):
        return self

    def __exit__(self, *why):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()


# --- tenant B ---

def tenant_b(address, seconds, draw):
    """Sends two requests per second, without waiting for their results. Returns [(TTFT in seconds, status)]."""
    results, threads = [], []

    def one(seed):
        try:
            results.append(stream(address, "b", random.Random(seed)))
        except (OSError, http.client.HTTPException):
            results.append((float("inf"), 0))
    begin = time.monotonic()
    for index in range(int(seconds * 2)):
        time.sleep(max(0, begin + index / 2 - time.monotonic()))
        threads.append(threading.Thread(target=one, args=(draw.random(),)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return results


def percentile(values, percent):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * percent / 100))]


def main():
    given = options()
    if given.attack:
        attack(given.attack, given.address)
        return
    keys = {"keys": [{"name": name, "key": key} for name, key in KEYS.items()]}
    machine = {"device": given.device}
    config = {"server": {"api_keys_file": "keys.json"}, "scheduler": {"prompt_batch_tokens": given.batch_tokens},
              "kv": {"memory": "768MiB", "dtype": "i16"},  # room for all answers of the flood
              "machines": {"prompt-0": machine, "token-0": machine}}
    share = [f"streams:{given.streams}"]
    flood = [f"streams:{given.streams * 10}", "bodies", "bodies", "bodies", "bodies", "slow:200"]
    found = {"share": [], "flood": []}
    draw = random.Random(1)
    with cluster.Cluster(config, files={"keys.json": json.dumps(keys)}) as server:
        address = f"{server.host}:{server.port}"
        for _ in range(given.rounds):
            for name, parts in (("share", share), ("flood", flood)):
                with Attackers(address, parts):
                    time.sleep(2)
                    found[name] += tenant_b(address, given.seconds, draw)
    rows = []
    for name, what in (("share", f"{given.streams} streams, its share"),
                       ("flood", f"{given.streams * 10} streams, 4 × bodies of 8 MiB, 200 slow connections")):
        times = [first * 1e3 for first, status in found[name] if status == 200]
        failed = len(found[name]) - len(times)
        rows.append([what, str(len(found[name])), str(failed), *(number(percentile(times, p)) for p in (50, 90, 99))])
    print(f"Tenant B, two requests a second of {PROMPT_TOKENS} + {ANSWER_TOKENS} tokens; machines {given.device}, "
          f"batches of {given.batch_tokens} prompt tokens:\n")
    print(table(["tenant A", "B's requests", "failed", "TTFT p50, ms", "p90", "p99"], rows))


if __name__ == "__main__":
    main()
