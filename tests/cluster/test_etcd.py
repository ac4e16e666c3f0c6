"""Goal: two gateways find the machines that register themselves in etcd. A machine that is told to stop leaves at once;
a killed one leaves when its lease ends. A silent etcd removes no machine. A wrong entry is reported once, with its key,
and affects no other machine.

Method: a real etcd with its own folder and ports, real machines and gateways. A small imitation of etcd in this script
compacts revisions before a gateway has read them. Skipped without etcd.
"""

import base64
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from cluster import BINARY, MODEL, Cluster, Stream, free_ports, gated_environment, need_model, skip, wait_until

LEASE_S = 3
BODIES = [{"prompt": f"{n}: The sea was calm that day.", "max_tokens": 30, "temperature": 0.8, "seed": n, "ignore_eos": True}
          for n in range(2)]
PREFIX = "/test/machines/"


def b64(value):
    return base64.b64encode(value.encode()).decode()


class Etcd:
    """options: more options of etcd. tls: an ssl.SSLContext for this test's own requests over TLS. token: the result of
    an administrator's login, once etcd has users."""

    def __init__(self, folder, options=(), tls=None):
        self.folder, self.options, self.tls, self.token = folder, options, tls, None
        self.client, self.peer = free_ports(2)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.client}"
        self.process, self.failure, self.log = None, None, os.path.join(folder, "etcd.log")

    def start(self):
        """Starts etcd, again if it ends at once."""
        for _ in range(3):
            self.start_process()
            try:
                wait_until(lambda: self.answers() or self.process.poll() is not None, "etcd starts")
            except AssertionError as failure:
                raise AssertionError(f"{failure} {self.failure}\n{self.logged()}") from failure
            if self.process.poll() is None:
                return
        raise AssertionError(f"etcd ends at once:\n{self.logged()}")

    def logged(self):
        with open(self.log) as file:
            return file.read()

    def start_process(self):
        peer = f"http://127.0.0.1:{self.peer}"
        log = open(self.log, "a")
        self.process = subprocess.Popen(
            ["etcd", "--name", "test", "--data-dir", os.path.join(self.folder, "etcd"), "--listen-client-urls", self.url,
             "--advertise-client-urls", self.url, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
             "--initial-cluster", f"test={peer}", "--log-level", "error", *self.options],
            stdout=log, stderr=log)
        log.close()

    def answers(self):
        try:
            self.post("/v3/kv/range", {"key": b64("a")})
            return True
        except OSError as failure:
            self.failure = failure
            return False

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def post(self, path, value):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self.tls))
        headers = {"Authorization": self.token} if self.token else {}
        with opener.open(urllib.request.Request(self.url + path, json.dumps(value).encode(), headers), timeout=10) as reply:
            return json.load(reply)

    def put(self, name, value):
        self.post("/v3/kv/put", {"key": b64(PREFIX + name), "value": b64(value)})

    def delete(self, name):
        self.post("/v3/kv/deleterange", {"key": b64(PREFIX + name)})

    def names(self):
        reply = self.post("/v3/kv/range", {"key": b64(PREFIX), "range_end": b64(PREFIX[:-1] + "0")})
        return sorted(base64.b64decode(kv["key"]).decode()[len(PREFIX):] for kv in reply.get("kvs", []))

    def value(self, name):
        return base64.b64decode(self.post("/v3/kv/range", {"key": b64(PREFIX + name)})["kvs"][0]["value"]).decode()


class Machine:
    def __init__(self, folder, config, name, pool):
        self.log_path = os.path.join(folder, f"{name}-{time.monotonic_ns()}.log")
        path = self.log_path + ".json"
        with open(path, "w") as file:
            json.dump({**config, "pools": {pool: [name]}, "machines": {name: {"device": "cuda:0"}}}, file)
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen([BINARY, "machine", path, name], stderr=log,
                                            env=gated_environment(os.path.join(folder, "gates")))

    def logged(self):
        with open(self.log_path) as file:
            return file.read()

    def end(self):
        self.process.terminate()
        assert self.process.wait(300) == 0, self.logged()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def text(gateway, n):
    stream = Stream(gateway, BODIES[n]).end()
    assert stream.error is None, (stream.error, gateway.logged())
    return stream.text


def machines_of(gateway):
    state = json.loads(gateway.request("GET", "/admin/state")[2])
    return {machine["name"]: machine["connection"] for machine in state["machines"]}


def wait_machines(gateways, names):
    want = {name: "up" for name in names}
    for gateway in gateways:
        wait_until(lambda: machines_of(gateway) == want, f"the machines are {names}", cluster=gateway)


def wait_logged(gateway, *parts):
    wait_until(lambda: all(part in gateway.logged() for part in parts), f"logged: {parts}", cluster=gateway)


def wait_names(etcd, names):
    wait_until(lambda: etcd.names() == names, f"etcd has {names}")


def check_bad_entries(etcd, gateway, machines, start):
    """Each wrong entry is reported once, with its key, and the other machines stay."""
    good = json.loads(etcd.value("p0"))
    etcd.put("x1", "no JSON")
    etcd.put("x2", json.dumps({**good, "address": "nowhere"}))
    etcd.put("x3", json.dumps({**good, "metadata_hash": "0" * 16}))
    wait_logged(gateway, "x1 = no JSON", "x2", "machine x3 at")
    said = [line for line in gateway.logged().splitlines() if "error" in line]
    assert len(said) == 3, said
    assert PREFIX + "x1 = no JSON" in said[0] and "address: want HOST:PORT" in said[1], said
    assert "machine x3 at" in said[2] and "has another model" in said[2], said
    assert gateway.metric("cleave_etcd_machines_refused_total") == 3
    for i in (1, 2, 3):
        etcd.delete(f"x{i}")
    twin = start("p0", "prompt")  # A second machine of the same name, at another address.
    wait_until(lambda: "another machine named p0 is registered, at " in twin.logged(), "a second p0 is refused")
    assert etcd.value("p0") == json.dumps(good, separators=(",", ":")), etcd.value("p0")
    twin.end()
    assert set(etcd.names()) == set(machines), etcd.names()


def check_silence(etcd, gateways, want):
    """etcd dies during a stream, and is down for longer than all leases."""
    gateways[0].hold("t0", layer=15)
    stream = Stream(gateways[0], BODIES[1])
    gateways[0].wait_held("t0")
    etcd.kill()
    gateways[0].release()
    for gateway in gateways:
        gateway.wait_health(200, "machines cannot be found: etcd at")
        assert gateway.metric("cleave_etcd_up") == 0
    time.sleep(LEASE_S + 1)
    for gateway in gateways:
        assert text(gateway, 0) == want[0]
        assert set(machines_of(gateway).values()) == {"up"}
    stream.expect(want[1])
    etcd.start()
    wait_names(etcd, ["p0", "t0"])
    for gateway in gateways:
        wait_until(lambda: b"cannot be found" not in gateway.request("GET", "/health")[2], "etcd is back", cluster=gateway)
        assert set(machines_of(gateway).values()) == {"up"} and gateway.metric("cleave_etcd_up") == 1


def check_lost_lease(etcd, gateway, want):
    """The lease of a running machine is revoked: the machine registers again, and serves all the time."""
    def entries():
        return etcd.post("/v3/kv/range", {"key": b64(PREFIX + "t0")}).get("kvs", [])
    lease = entries()[0]["lease"]
    etcd.post("/v3/lease/revoke", {"ID": lease})
    assert text(gateway, 0) == want[0]
    wait_until(lambda: entries() and entries()[0]["lease"] != lease, "t0 registers again", cluster=gateway)
    wait_machines([gateway], ["p0", "t0"])


def join(folder, etcd, pool, *more):
    """Starts a machine without a config file."""
    settings = [word for key, value in (("model", MODEL), ("threads", 1), ("kv/memory", "64MiB"), ("kv/dtype", "i16"),
                                        ("cluster/etcd_prefix", "/test/"), ("cluster/etcd_lease_s", LEASE_S))
                for word in ("--set", f"{key}={value}")]
    log = open(os.path.join(folder, f"join-{time.monotonic_ns()}.log"), "w")
    return subprocess.Popen([BINARY, "machine", "--join", f"etcd://127.0.0.1:{etcd.client}", "--pool", pool, *settings, *more],
                            stderr=log, cwd=folder), log.name


def check_join(folder, etcd, gateways, names):
    """A machine without a file gets a name from its host, and its address from the way to etcd."""
    port = free_ports(1)[0]
    host = os.uname().nodename.split(".")[0]
    own = f"{host[:31 - len('-token') - 1]}-token"
    joined = [join(folder, etcd, "token", "--listen", "127.0.0.1:0"), join(folder, etcd, "prompt", "extra", "--listen", f"127.0.0.1:{port}")]
    try:
        wait_machines(gateways, sorted([*names, own, "extra"]))
        assert json.loads(etcd.value("extra"))["address"] == f"127.0.0.1:{port}", etcd.value("extra")
        assert json.loads(etcd.value(own))["pool"] == "token", etcd.value(own)
        state = json.loads(gateways[0].request("GET", "/admin/state")[2])
        assert {m["name"]: m["pool"] for m in state["machines"]}["extra"] == "prompt", state
    finally:
        for process, _ in joined:
            process.terminate()
    for process, log in joined:
        assert process.wait(300) == 0, open(log).read()
    wait_machines(gateways, names)
    for words, part in ((["--join", "http://x:1", "--pool", "token"], "want etcd://HOST:PORT"),
                        (["--join", "etcd://127.0.0.1:1"], "want --join and --pool"),
                        (["--join", "etcd://127.0.0.1:1", "--pool", "token", "a", "b"], "machines of a file"),
                        (["--join", "etcd://127.0.0.1", "--pool", "token"], "127.0.0.1"),
                        (["--join", "etcd://127.0.0.1:1", "--pool", "token", "77"], "not only digits")):
        done = subprocess.run([BINARY, "machine", *words], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2 and part in done.stderr, done


def check_all(folder):
    etcd = Etcd(folder)
    dead = free_ports(1)[0]
    config = {"model": MODEL, "threads": 1, "kv": {"memory": "64MiB", "dtype": "i16"}, "transport": {"silence_ms": 60000},
              "cluster": {"membership": "etcd", "etcd_endpoints": f"http://127.0.0.1:{dead},{etcd.url}",
                          "etcd_prefix": "/test/", "etcd_lease_s": LEASE_S}}
    with Cluster({"threads": 1, "kv": {"memory": "64MiB"}}) as alone:
        want = [text(alone, 0), text(alone, 1)]
    machines, gates = [], os.path.join(folder, "gates")

    def start(name, pool):
        machines.append(Machine(folder, config, name, pool))
        return machines[-1]

    gateways = []
    try:
        gateways.append(Cluster({**config, "pools": {}}, ready=False, gates=gates))
        gateways[0].find_port()
        gateways[0].wait_health(503, "machines cannot be found: etcd at http://127.0.0.1")
        etcd.start()
        start("p0", "prompt"), start("t0", "token")
        wait_machines(gateways, ["p0", "t0"])
        gateways.append(Cluster({**config, "pools": {}}, gates=gates))
        wait_machines(gateways, ["p0", "t0"])
        assert [text(gateway, 0) for gateway in gateways] == [want[0]] * 2
        third = start("t1", "token")
        wait_machines(gateways, ["p0", "t0", "t1"])
        assert gateways[0].request("POST", "/admin/reload")[0] == 200  # The config file does not name these machines.
        assert set(machines_of(gateways[0])) == {"p0", "t0", "t1"}
        third.end()
        assert etcd.names() == ["p0", "t0"]
        wait_machines(gateways, ["p0", "t0"])
        third = start("t1", "token")
        wait_machines(gateways, ["p0", "t0", "t1"])
        third.kill()
        killed = time.monotonic()
        names = etcd.names()
        assert names == ["p0", "t0", "t1"] or time.monotonic() - killed > LEASE_S / 3, names
        wait_names(etcd, ["p0", "t0"])
        wait_machines(gateways, ["p0", "t0"])
        check_join(folder, etcd, gateways, ["p0", "t0"])
        check_bad_entries(etcd, gateways[0], ["p0", "t0"], start)
        check_lost_lease(etcd, gateways[0], want)
        check_silence(etcd, gateways, want)
        for machine in machines[:2]:
            machine.end()
        assert etcd.names() == []
        for gateway in gateways:
            assert gateway.stop() == 0
            assert "Sanitizer" not in gateway.logged()
    except BaseException:
        for each in (*gateways, *machines):
            print(each.logged(), file=sys.stderr)
        raise
    finally:
        for gateway in gateways:
            gateway.stop()
        for machine in machines:
            machine.kill()
        etcd.kill()


class Compacted(http.server.BaseHTTPRequestHandler):
    """An imitation of etcd. It answers the first watch that the revisions are compacted, or not with JSON. The entry is
    in its second list."""
    protocol_version = "HTTP/1.1"
    lists = 0
    said = None
    address = "127.0.0.1:9"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v3/watch":
            line = Compacted.said
            if Compacted.lists > 1:
                time.sleep(3)  # The gateway reads the list again each time the watch fails.
        else:
            Compacted.lists += 1
            value = {"address": Compacted.address, "pool": "mixed", "metadata_hash": "0" * 16, "model_hash": "0" * 64}
            kvs = [{"key": b64(PREFIX + "m0"), "value": b64(json.dumps(value)), "mod_revision": "7"}]
            line = {"header": {"revision": "5"}, **({"kvs": kvs} if Compacted.lists > 1 else {})}
        garbled = isinstance(line, str)
        data = (line if garbled else json.dumps(line)).encode() + b"\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(data) + garbled))  # A watch has no end.
        self.end_headers()
        try:
            self.wfile.write(data)
            time.sleep(40 if garbled else 0)
        except OSError:  # The gateway has closed this watch.
            self.close_connection = True

    def log_message(self, *arguments):
        pass


def kept_alive(port):
    """Returns the connections to the port that the kernel probes while they are idle."""
    with open("/proc/net/tcp") as file:
        lines = [line.split() for line in file][1:]
    return [at for at in lines if at[2].endswith(f":{port:04X}") and at[5].startswith("02:")]


def start_compacted(said, address):
    """Returns the server, and the part `cluster` of a config that names it."""
    Compacted.lists, Compacted.said, Compacted.address = 0, said, address
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Compacted)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, {"membership": "etcd", "etcd_endpoints": f"http://127.0.0.1:{server.server_address[1]}/",
                    "etcd_prefix": "/test/"}


def check_compaction(said):
    server, cluster = start_compacted(said, "127.0.0.1:9")
    with Cluster({"pools": {}, "cluster": cluster}, ready=False) as gateway:
        wait_logged(gateway, "machine m0 at 127.0.0.1:9, from etcd, has another model")
        assert gateway.logged().count("m0") == 1
        wait_until(lambda: kept_alive(server.server_address[1]), "the watch is kept alive", cluster=gateway)
    server.shutdown()


def check_allowed(said):
    """A machine that was not usable is used when a reload allows it."""
    server, cluster = start_compacted(said, "192.0.2.1:9")
    with Cluster({"pools": {}, "cluster": cluster}, ready=False) as gateway:
        gateway.find_port()
        wait_logged(gateway, "from etcd, is not used: other computers reach it")
        gateway.write("config.json", {**gateway.config, "cluster": {**cluster, "allow_insecure": True}})
        assert gateway.request("POST", "/admin/reload")[0] == 200, gateway.logged()
        wait_logged(gateway, "machine m0 at 192.0.2.1:9, from etcd, has another model")
    server.shutdown()


if __name__ == "__main__":
    need_model()
    if shutil.which("etcd") is None:
        skip("etcd is not installed (Debian: etcd-server)")
    gone = {"result": {"header": {"revision": "9"}, "canceled": True, "compact_revision": "8"}}
    check_compaction(gone)
    check_compaction("<html>")
    check_allowed(gone)
    with tempfile.TemporaryDirectory(prefix="cleave-test-") as scratch:
        check_all(scratch)
    print("machines register in etcd, two gateways find them, and none leaves because etcd is silent")
