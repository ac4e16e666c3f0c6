#!/usr/bin/env python3
"""bench_tiers.py [--parts PART,…] [options]: what tiers for KV (docs/scheduling.md) give, on one machine for both phases.

loads   Time to load KV from memory of the host, a file, and a store (redis-server), and time to compute it, for prompts of
        three lengths; also with a proxy in front of the store that limits what it sends. Then, with the machine free to
        decide, from how many tokens on it loads (least_tokens of /admin/state), and what it did. Pages of the file are
        dropped from the page cache before each load.
suffix  TTFT of prompts that begin with a long prefix of KV memory, or of each tier, and go on with new tokens; and the time
        of the load, which the prompt waits for before it is computed.
trace   A part of Mooncake's conversations with 0, 1, 2 and 3 tiers, in turn, at rising rates: TTFT, and where the prompts'
        tokens were. Sessions (rows with the same second hash id) of 3 to 8 turns are taken from the start of the trace,
        all lengths are scaled (a block of 512 tokens by 1/32 to 16), and the time between rows is scaled to the rate.

Standard library only; redis-server (Debian: redis-server) for the store.
"""

import argparse
import collections
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from statistics import median

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("CLEAVE_BINARY", os.path.join(ROOT, "build", "cleave"))
from bench_cluster import cluster  # noqa: E402 (reads CLEAVE_BINARY)
from bench_table import number, spread, table  # noqa: E402
sys.path.insert(0, os.path.join(ROOT, "tests", "kvcache"))
from resp_servers import Redis  # noqa: E402 (the folder is not a package)

MACHINE = "mixed-0"
WAIT_S = 60
KINDS = ("memory", "file", "store")
LENGTHS = (256, 1024, 4096)
SETS = 3  # Prompts of each length.
TOKEN_BYTES = 30 * 3 * (2 * 64 * 2 + 4)  # KV of a token: layers, heads, K and V with their scales.
TURNS = (3, 8)


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="loads,suffix,trace", help="(%(default)s)")
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)), help="of the prompts (%(default)s)")
    parser.add_argument("--prefix", type=int, default=4096, help="tokens of the prefixes (%(default)s)")
    parser.add_argument("--suffixes", default="64,128,256,512", help="new tokens behind a prefix (%(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="loads of each prompt (%(default)s)")
    parser.add_argument("--mbit", default="1000,100", help="limits of the store, in Mbit/s (%(default)s)")
    parser.add_argument("--trace", default=os.path.join(ROOT, "..", "shared", "traces", "mooncake_conversation.jsonl"),
                        help="a file of Mooncake (%(default)s)")
    parser.add_argument("--requests", type=int, default=100, help="of the trace (%(default)s)")
    parser.add_argument("--longest", type=int, default=32000, help="prompt of a session, before scaling (%(default)s)")
    parser.add_argument("--rates", default="3,5,7,9", help="requests a second (%(default)s)")
    parser.add_argument("--tiers", default="0,1,2,3", help="how many, in turn: the first of memory, file, store (%(default)s)")
    parser.add_argument("--scale", type=float, default=1 / 32, help="of the trace's lengths (%(default)s)")
    parser.add_argument("--sizes", default="48MiB,96MiB,192MiB,1GiB", help="of KV memory, memory, file, store (%(default)s)")
    given = parser.parse_args()
    given.lengths = [int(word) for word in given.lengths.split(",")]
    given.suffixes = [int(word) for word in given.suffixes.split(",")]
    given.sizes = given.sizes.split(",")
    return given


class Proxy:
    """Passes connections on to the store, and what the store sends at `mbit` Mbit/s over all connections."""

    def __init__(self, address, mbit):
        host, port = address.split(":")
        self.target, self.bytes_s = (host, int(port)), mbit * 125000
        self.lock, self.free_at = threading.Lock(), 0.0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            server = socket.create_connection(self.target)
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.copy, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self.copy, args=(server, client, True), daemon=True).start()

    def copy(self, source, target, limited):
        try:
            while data := source.recv(1 << 16):
                if limited:
                    with self.lock:
                        self.free_at = max(self.free_at, time.monotonic()) + len(data) / self.bytes_s
                        wait_s = self.free_at - time.monotonic()
                    time.sleep(max(0, wait_s))
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()
            target.close()

    def close(self):
        self.listener.close()


def config(memory, tiers, **more):
    """tiers: values of kv/tiers."""
    return {"threads": 1, "pools": {"prompt": 0, "token": 0, "mixed": 1}, **more,
            "kv": {"memory": memory, "tiers": {"wait_ms": 60000, **tiers}}}


def tiers_of(one):
    """Returns {kind: its part of /admin/state}."""
    machines = json.loads(one.request("GET", "/admin/state")[2])["machines"]
    return next(each for each in machines if each["name"] == MACHINE).get("kv_tiers", {})


def wait_works(one, count):
    cluster.wait_until(lambda: len(tiers_of(one)) == count and all(each["works"] for each in tiers_of(one).values()),
                       "all tiers work", WAIT_S, one)


def wait_stored(one):
    """Waits until no request and no tier uses a block."""
    def unused():
        return not any(count for state, count in one.blocks().items() if state not in ("free", "cached"))
    time.sleep(0.15)  # Machines report ten times a second.
    cluster.wait_until(unused, "all KV is stored", WAIT_S, one)


def prompt(length, serial):
    return [(serial * 7919 + k * 13) % 40000 + 100 for k in range(length)]


def ttft_ms(one, tokens):
    """Sends a prompt, and returns (ms until its token, cached tokens)."""
    begun = time.monotonic()
    usage = one.post("/v1/completions", {"prompt": tokens, "max_tokens": 1, "temperature": 0})["usage"]
    return (time.monotonic() - begun) * 1000, usage["prompt_tokens_details"]["cached_tokens"]


# --- loads ---

class Loads:
    """Prompts of all lengths, in turn, to clusters with one tier each."""

    def __init__(self, given, folder, store):
        self.given, self.folder, self.store = given, folder, store
        # Loads may take half of KV memory. It has lost a prompt when the prompt comes again.
        self.memory = str((2 * max(given.lengths) + 256) * TOKEN_BYTES)
        self.prompts = [(length, prompt(length, at * 100 + set)) for set in range(SETS)
                        for at, length in enumerate(given.lengths)]

    def forget(self):
        """Drops the file's pages from the page cache."""
        for name in os.listdir(self.folder):
            with open(os.path.join(self.folder, name), "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def fill(self, one):
        """Computes all prompts, until they are stored. Returns {length: [ms]}."""
        took = {length: [] for length in self.given.lengths}
        for length, tokens in self.prompts:
            took[length].append(ttft_ms(one, tokens)[0])
            wait_stored(one)
        for kind, state in tiers_of(one).items():
            assert state["dropped_tokens"] == 0, (kind, state)
        return took

    def computed(self):
        """Without a tier. Returns {length: [ms for 1,000 tokens]}."""
        with cluster.Cluster(config(self.memory, {})) as one:
            took = self.fill(one)
        return {length: [ms / length * 1000 for ms in found] for length, found in took.items()}

    def loaded(self, kind, tiers, rounds):
        """Loads all prompts, however slow that is. Returns {length: [ms for 1,000 tokens]}, from the machine's counters."""
        took = {length: [] for length in self.given.lengths}
        with cluster.Cluster(config(self.memory, tiers, scheduler={"compare_time": False})) as one:
            wait_works(one, 1)
            if kind == "memory":
                self.fill(one)
            for _ in range(rounds):
                for length, tokens in self.prompts:
                    self.forget()
                    before = tiers_of(one)[kind]
                    ttft_ms(one, tokens)
                    cluster.wait_until(lambda: tiers_of(one)[kind]["hit_tokens"] > before["hit_tokens"], "a load", WAIT_S, one)
                    after = tiers_of(one)[kind]
                    took[length].append((after["load_us"] - before["load_us"]) / (after["hit_tokens"] - before["hit_tokens"]))
        return took

    def decided(self, kind, tiers):
        """Returns (least_tokens at the end, {length: prompts that were loaded of SETS}) of a machine that may compute."""
        chosen = {length: 0 for length in self.given.lengths}
        with cluster.Cluster(config(self.memory, tiers)) as one:
            wait_works(one, 1)
            if kind == "memory":
                self.fill(one)
            for serial in (900, 901):  # The machine measures how fast it computes.
                ttft_ms(one, prompt(min(1024, max(self.given.lengths)), serial))
            for length, tokens in self.prompts:
                self.forget()
                chosen[length] += ttft_ms(one, tokens)[1] > 0
            time.sleep(0.3)  # Machines report ten times a second.
            return tiers_of(one)[kind]["least_tokens"], chosen

    def report(self):
        lengths = self.given.lengths
        both = {"file": {"path": self.folder, "size": "2GiB"}}
        servers = {"store": {"servers": self.store.address, "deadline_ms": 60000}} if self.store else {}
        yield ["computed", *self.cells(self.computed()), "", ""]
        with cluster.Cluster(config(self.memory, {**both, **servers})) as one:
            wait_works(one, 1 + len(servers))
            self.fill(one)
        cases = [("memory", "memory", {"memory": {"size": "2GiB"}}, 0), ("file", "file", both, 0)]
        if self.store:
            cases.append(("store", "store", servers, 0))
            cases += [(f"store, {mbit} Mbit/s", "store", servers, int(mbit)) for mbit in self.given.mbit.split(",") if mbit]
        for name, kind, tiers, mbit in cases:
            proxy = Proxy(self.store.address, mbit) if mbit else None
            if proxy:
                tiers = {"store": {**tiers["store"], "servers": proxy.address}}
            took = self.loaded(kind, tiers, 1 if mbit else self.given.rounds)
            least, chosen = self.decided(kind, tiers)
            if proxy:
                proxy.close()
            yield [name, *self.cells(took), "never" if least == 2**32 - 1 else least,
                   ", ".join(f"{chosen[length]}" for length in lengths)]

    def cells(self, took):
        return [f"{number(median(took[length]))} ({spread(took[length])})" for length in self.given.lengths]


def loads(given, folder, store):
    rows = []
    heads = ["ms for 1,000 tokens", *(f"of {length}" for length in given.lengths), "loads from tokens",
             f"loaded, of {SETS} each"]
    for row in Loads(given, folder, store).report():
        rows.append(row)
        print("  ", *row, sep=" | ", flush=True)
    return table(heads, rows)


# --- suffix ---

class Suffixes(Loads):
    """Prompts with one of SETS prefixes, in turn, of which KV memory holds the latest only."""

    def __init__(self, given, folder, store):
        super().__init__(argparse.Namespace(**{**vars(given), "lengths": [given.prefix]}), folder, store)
        self.memory = str((2 * given.prefix + max(given.suffixes) + 256) * TOKEN_BYTES)
        self.serial = 0

    def send(self, one, prefix, suffix):
        self.serial += 1
        self.forget()
        ms, cached = ttft_ms(one, prefix + prompt(suffix, 2000 + self.serial))
        wait_stored(one)
        return ms, cached // self.given.prefix

    def row(self, kind, tiers, filled):
        """Returns the cells of a tier; kind None = the prefixes are in KV memory."""
        ttft, loads = {suffix: [] for suffix in self.given.suffixes}, []
        with cluster.Cluster(config(self.memory, tiers, scheduler={"compare_time": False})) as one:
            wait_works(one, len(tiers))
            if kind is not None and not filled:
                self.fill(one)
            for suffix in self.given.suffixes * self.given.rounds:
                for _, prefix in self.prompts:
                    if kind is None:
                        self.send(one, prefix, 16)
                    before = tiers_of(one).get(kind, {}).get("load_us")
                    ms, hit = self.send(one, prefix, suffix)
                    assert hit == 1, "the prefix is neither in KV memory nor in the tier"
                    ttft[suffix].append(ms)
                    if kind is not None:
                        loads.append((tiers_of(one)[kind]["load_us"] - before) / 1000)
        return [*self.cells(ttft), f"{number(median(loads))} ({spread(loads)})" if loads else ""]

    def cells(self, took):
        return [f"{number(median(each))} ({spread(each)})" for each in took.values()]

    def report(self):
        file = {"file": {"path": self.folder, "size": "2GiB"}}
        yield ["KV memory", *self.row(None, {}, False)]
        yield ["memory", *self.row("memory", {"memory": {"size": "2GiB"}}, False)]
        yield ["file", *self.row("file", file, False)]
        if self.store:
            self.store.command("FLUSHALL")
            servers = {"store": {"servers": self.store.address, "deadline_ms": 60000}}
            yield ["store", *self.row("store", servers, False)]


def suffix(given, folder, store):
    rows = []
    heads = [f"TTFT, ms: {given.prefix} tokens in", *(f"and {each} new" for each in given.suffixes), "load, ms"]
    for row in Suffixes(given, folder, store).report():
        rows.append(row)
        print("  ", *row, sep=" | ", flush=True)
    return table(heads, rows)


# --- trace ---

def sessions(given):
    """Returns the rows of whole sessions, those that begin first, in the trace's order."""
    with open(given.trace) as file:
        rows = [row for row in map(json.loads, file) if len(row["hash_ids"]) > 1]
    of = collections.defaultdict(list)
    for row in rows:
        of[row["hash_ids"][1]].append(row)
    chosen = []
    for turns in of.values():
        if (TURNS[0] <= len(turns) <= TURNS[1] and max(row["input_length"] for row in turns) <= given.longest and
                len(chosen) + len(turns) <= given.requests):
            chosen += turns
    return sorted(chosen, key=lambda row: row["timestamp"])


def trace_write(path, rows, rate):
    """The rows at `rate` requests a second, with the trace's order and the proportions of its gaps."""
    first, last = rows[0]["timestamp"], rows[-1]["timestamp"]
    factor = (len(rows) - 1) / rate * 1000 / (last - first)
    with open(path, "w") as file:
        for row in rows:
            file.write(json.dumps({**row, "timestamp": round((row["timestamp"] - first) * factor)}) + "\n")


def served(given, path, count, folder, store):
    """Returns figures of a run with the first `count` tiers."""
    memory, *sizes = given.sizes
    every = {"memory": {"size": sizes[0]}, "file": {"path": folder, "size": sizes[1]}}
    if store:
        store.command("FLUSHALL")
        every["store"] = {"servers": store.address}
    elif count == len(KINDS):
        cluster.skip("the third tier needs redis-server")
    tiers = {kind: every[kind] for kind in KINDS[:count]}
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))
    with cluster.Cluster(config(memory, tiers)) as one:
        wait_works(one, count)
        done = subprocess.run([os.environ["CLEAVE_BINARY"], "replay", path, "--url", f"http://{one.host}:{one.port}", "--json",
                               "--length-scale", str(given.scale)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600)
        if done.returncode != 0:
            raise SystemExit(f"cleave replay: {done.stderr.decode()}\n{one.logged()}")
        wait_stored(one)
        asked, held = (one.metric(f"cleave_prefix_cache_{name}_tokens_total") for name in ("queries", "hits"))
        state = tiers_of(one)
    answer = json.loads(done.stdout)["summary"]
    loaded = {kind: each["hit_tokens"] for kind, each in state.items()}
    shares = [(held - sum(loaded.values())) / asked] + [loaded.get(kind, 0) / asked for kind in KINDS]
    return answer, shares


def trace(given, folder, store):
    rows = sessions(given)
    path = os.path.join(folder, "..", "trace.jsonl")
    lengths = [row["input_length"] * given.scale for row in rows]
    print(f"{len(rows)} requests of {len({row['hash_ids'][1] for row in rows})} sessions, prompts of {median(lengths):.0f} tokens "
          f"(median; mean {sum(lengths) / len(lengths):.0f}, most {max(lengths):.0f})", flush=True)
    found = []
    for rate in given.rates.split(","):
        trace_write(path, rows, float(rate))
        for count in map(int, given.tiers.split(",")):
            answer, shares = served(given, path, count, folder, store)
            row = [rate, " + ".join(KINDS[:count]) or "none", *ttft_cells(answer), *(f"{share:.0%}" for share in shares)]
            found.append(row)
            print("  ", *row, sep=" | ", flush=True)
    return table(["requests/s", "tiers", "TTFT P50, ms", "P99, ms", "in KV memory", *KINDS], found)


def ttft_cells(answer):
    ttft = answer["ttft_ms"]
    return [number(ttft["p50"]), number(ttft["p99"])]


def main():
    given = options()
    cluster.need_model()
    with tempfile.TemporaryDirectory(prefix="cleave-bench-") as root:
        folder = os.path.join(root, "files")
        os.mkdir(folder)
        limit = ["maxmemory 4gb", "maxmemory-policy allkeys-lru"]
        store = Redis(root, limit) if shutil.which("redis-server") else None
        if not store:
            print("no redis-server: without the store")
        try:
            for part in given.parts.split(","):
                print({"loads": loads, "suffix": suffix, "trace": trace}[part](given, folder, store), flush=True)
        finally:
            if store:
                store.stop()


main()
