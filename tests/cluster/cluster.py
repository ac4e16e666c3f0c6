"""cluster: starts and stops whole clusters of real cleave processes for tests, and sends requests as a client does.
Standard library only. All processes listen on loopback (or inside network namespaces of a test).

Most tests serve the tiny model (tiny_model.py), which has the default model's tokenizer, layers and KV shape and
computes far faster. Tests that compare with reference answers serve DEFAULT_MODEL. CLEAVE_MODEL names another file for
all tests.

A test must not depend on the computer's speed. To act in a certain phase of a request, a test holds a machine in that
phase (Cluster.hold); a phase that is only waited for can pass unnoticed.
"""

import http.client
import json
import os
import random
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from tiny_model import tiny_model

BINARY = os.environ.get("CLEAVE_BINARY", "build/cleave")
DEFAULT_MODEL = os.environ.get("CLEAVE_MODEL") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
    "cleave", "SmolLM2-135M-Instruct.Q4_1.gguf")
MODEL = os.environ.get("CLEAVE_MODEL") or (tiny_model(DEFAULT_MODEL) if os.path.exists(DEFAULT_MODEL) else DEFAULT_MODEL)
DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data")
GATE_PLUGIN = os.environ.get("CLEAVE_GATE_PLUGIN")  # libcleave-gate.so (tests/device/gate_plugin.c)
# Tests of the split phases run on one computer, where "auto" would use one machine for both. On a slow computer, a
# threshold in time would lend machines where a test wants the pools of its config; and machines that a test has held or
# stopped are slow by their measurements. Requests may wait at a gate for as long as a test needs.
SCHEDULER = {"placement": "split", "prompt_queue_threshold_ms": 0, "compare_time": False, "queue_ms": 0}


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)


def need_model():
    if not os.path.exists(MODEL):
        skip("the default model's file is not there (./dev test fetches it)")


class Failure(Exception):
    """An HTTP error reply."""

    def __init__(self, status, body, headers):
        super().__init__(f"{status}: {body[:300]}")
        self.status, self.body, self.headers = status, body, headers


class Cluster:
    """A gateway and its local machines. `config` is merged over the test's defaults. `files` {name: content} are
    written beside the config, readable only for this user. `gates`: every machine of the config computes behind a gate,
    so that hold() works; each batch then takes at least `pace_us` microseconds. A test that starts machines itself
    gives the folder of gated_environment() as `gates`."""

    def __init__(self, config=None, args=(), ready=True, prefix=(), timeout=300, binary=BINARY, files=None, gates=False,
                 pace_us=0):
        self.config = {"model": MODEL, "http": {"listen": "127.0.0.1:0"}, "pools": {"prompt": 1, "token": 1}}
        self.config.update(config or {})
        self.folder = tempfile.TemporaryDirectory(prefix="cleave-test-")
        environment, self.gates = dict(os.environ), None
        if gates:
            self.config["machines"] = gated(self.config)
            self.config["kv"] = {"dtype": "i16", **self.config.get("kv", {})}  # The meaning of "auto" on a CPU.
            self.gates = gates if isinstance(gates, str) else os.path.join(self.folder.name, "gates")
            environment = gated_environment(self.gates, pace_us)
        path = self.write("config.json", self.config)
        for name, content in (files or {}).items():
            self.write(name, content)
        self.log_path = os.path.join(self.folder.name, "stderr")
        self.log = open(self.log_path, "w+")
        self.process = subprocess.Popen([*prefix, binary, "serve", path, *args], stdout=subprocess.PIPE,
                                        stderr=self.log, env=environment)
        self.host, self.port = None, None
        self.headers = {"Content-Type": "application/json"}  # Headers of every request.
        self.tls = None  # An ssl.SSLContext, or None.
        if ready:
            self.wait_ready(timeout)

    def write(self, name, content, mode=0o600):
        """Writes a file of the cluster's folder, replacing the old file at once. A config gets SCHEDULER's defaults.
        Returns its path."""
        path = os.path.join(self.folder.name, name)
        if isinstance(content, dict) and "pools" in content:
            content = {**content, "scheduler": {**SCHEDULER, **content.get("scheduler", {})}}
        with open(path + ".new", "w", opener=lambda p, flags: os.open(p, flags, mode)) as file:
            file.write(content if isinstance(content, str) else json.dumps(content, indent=1))
        os.replace(path + ".new", path)
        return path

    def gate_of(self, name):
        """Returns the path of the gate file of a machine ("t0") or a stage process ("t0/1")."""
        return os.path.join(self.gates, name.replace("/", ":"))

    def hold(self, name, layer=0, rows=1):
        """From now on the process stops before this layer (of those it computes) of a batch of at least `rows` rows,
        until release(). Its event loop still runs. A new hold replaces the old one, and lets a held process continue.
        """
        path = self.gate_of(name)
        self.gate_number = getattr(self, "gate_number", 0) + 1
        with open(path + ".new", "w") as file:
            file.write(f"{layer} {rows} number {self.gate_number}")
        os.replace(path + ".new", path)
        return self.gate_number

    def held(self, name):
        """Returns whether the process waits at its last hold()."""
        path = self.gate_of(name)
        try:
            with open(path) as gate, open(path + ".held") as held:
                return gate.read() == held.read()
        except OSError:
            return False

    def wait_held(self, name, seconds=300):
        wait_until(lambda: self.held(name), f"{name} is held at its gate", seconds, self)

    def release(self, *names):
        """Lets these processes continue, or all that are held."""
        for path in [self.gate_of(name) for name in names] or \
                [os.path.join(self.gates, name) for name in (os.listdir(self.gates) if self.gates else [])]:
            if os.path.exists(path) and not path.endswith(".held"):
                os.unlink(path)

    def step(self, name):
        """Lets a held process compute until it stops at its next gate."""
        self.hold(name)
        self.wait_held(name)

    def held_streams(self, name, bodies):
        """Returns streams of these bodies. Each has begun to receive tokens from the token machine `name`, which is
        then held. Requires that no other token machine takes requests, and that no request arrives or ends meanwhile.
        """
        def state():
            return json.loads(self.request("GET", "/admin/state")[2])

        def decoding():
            return state()["requests"]["decoding"]

        def linked():
            now = state()
            machines = {machine["name"]: machine for machine in now["machines"]}
            links = [link["from"] for link in now["links"] if link["up"] and link["to"] == name]
            return name in machines and all(other in links for other, machine in machines.items()
                                            if machine["pool"] == "prompt" and machine["connection"] == "up"
                                            and machine["version"] == machines[name]["version"])

        # Without links to the token machine, a prompt machine would also do its work.
        wait_until(linked, f"links to {name}", cluster=self)
        before = decoding()
        self.hold(name)
        streams = [Stream(self, body) for body in bodies]
        wait_until(lambda: decoding() == before + len(bodies), "all streams are decoded", cluster=self)
        self.wait_held(name)
        self.step(name)  # The held batch may lack some of the streams.
        while min(stream.events for stream in streams) == 0:
            self.step(name)
        return streams

    def wait_ready(self, timeout):
        deadline = time.monotonic() + timeout
        said = b""
        while select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
            piece = os.read(self.process.stdout.fileno(), 4096)
            said += piece
            found = re.search(rb"ready on https?://([^:]+):(\d+)\s", said)
            if found:
                self.host, self.port = found.group(1).decode(), int(found.group(2))
                return
            if piece == b"":
                break
        raise RuntimeError(f"not ready: {said.decode()}\n{self.logged()}")

    def find_port(self, seconds=300):
        """Returns the listening address of a cluster that is not ready yet."""
        deadline = time.monotonic() + seconds
        while self.port is None:
            ports = listening_ports(self.process.pid)
            assert time.monotonic() < deadline and self.process.poll() is None, self.logged()
            self.host, self.port = "127.0.0.1", ports[0] if ports else None
            time.sleep(0.02)

    def wait_health(self, want_status, part, seconds=300):
        """Waits until /health has this status and these words."""
        deadline = time.monotonic() + seconds
        while True:
            status, _, body = self.request("GET", "/health")
            if status == want_status and part in body.decode():
                return
            assert time.monotonic() < deadline, (status, body, self.logged())
            time.sleep(0.05)

    def logged(self):
        with open(self.log_path) as file:
            return file.read()

    def audited(self, reads=False):
        """Returns [(act, target, who, status)] of the audit lines so far. Lines of /admin/state are left out unless
        `reads`."""
        lines = [json.loads(line.split(": audit: ", 1)[1]) for line in self.logged().splitlines() if ": audit: " in line]
        return [(line["act"], line["target"], line["who"], line["status"]) for line in lines
                if reads or line["act"] != "GET /admin/state"]

    def __enter__(self):
        return self

    def __exit__(self, *why):
        self.stop()

    def stop(self):
        """Stops the cluster and returns the exit status."""
        self.release()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(120)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
        self.log.close()
        return self.process.returncode

    def connect(self, timeout=600):
        if self.tls is not None:
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=self.tls)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None, timeout=600):
        """Returns (status, headers, bytes) of one exchange."""
        connection = self.connect(timeout)
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        connection.request(method, path, body, {**self.headers, **(headers or {})})
        reply = connection.getresponse()
        data = reply.read()
        connection.close()
        return reply.status, dict(reply.getheaders()), data

    def post(self, path, body):
        status, headers, data = self.request("POST", path, body)
        if status != 200:
            raise Failure(status, data.decode(), headers)
        return json.loads(data)

    def stream(self, path, body):
        """Returns the parsed events of a streamed reply, without the final [DONE], which must exist."""
        connection = self.connect()
        connection.request("POST", path, json.dumps({**body, "stream": True}), self.headers)
        reply = connection.getresponse()
        if reply.status != 200:
            raise Failure(reply.status, reply.read().decode(), dict(reply.getheaders()))
        assert reply.getheader("Content-Type") == "text/event-stream"
        for line in reply:
            line = line.decode().rstrip("\n")
            if line == "data: [DONE]":
                connection.close()
                return
            if line and not line.startswith(":"):  # ":" begins a comment, such as a ping.
                assert line.startswith("data: "), line
                event = json.loads(line[6:])
                if "error" in event:
                    raise Failure(200, line, {})
                yield event
        raise AssertionError("the stream ended without [DONE]")

    def metrics(self):
        """Returns {(name, (("label", "value"), …)): number}."""
        values = {}
        for line in self.request("GET", "/metrics")[2].decode().splitlines():
            found = re.fullmatch(r'([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)', line)
            if line.startswith("#") or not line:
                continue
            assert found, f"not a metrics line: {line}"
            labels = tuple(sorted(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', found.group(2) or "")))
            values[found.group(1), labels] = float(found.group(3))
        return values

    def metric(self, name, **labels):
        """Returns the sum over all series of that name with these labels."""
        return sum(value for (each, given), value in self.metrics().items()
                   if each == name and all(dict(given).get(k) == v for k, v in labels.items()))

    def blocks(self):
        """Returns {state: blocks} over all machines."""
        found = {}
        for (name, labels), value in self.metrics().items():
            if name == "cleave_kv_blocks":
                state = dict(labels)["state"]
                found[state] = found.get(state, 0) + int(value)
        return found

    def wait_all_free(self, seconds=300):
        """Waits until all blocks are free or cached. Cached blocks can be taken at any time."""
        deadline = time.monotonic() + seconds
        while True:
            blocks = self.blocks()
            used = {state: n for state, n in blocks.items() if state not in ("free", "cached") and n}
            if blocks.get("free") and not used:
                return blocks
            if time.monotonic() > deadline:
                raise AssertionError(f"blocks that are not free after {seconds} s: {used}")
            time.sleep(0.05)

    def children(self):
        """Returns {machine name: pid} of the local machines."""
        return machines_of(self.process.pid)

    def stages(self):
        """Returns {"t0/1": pid} of the local machines' stages on this computer."""
        found = {}
        for pid in self.children().values():
            found.update(machines_of(pid))
        return found


class Stream(threading.Thread):
    """A streamed answer that its own thread reads. `text`: the text that has arrived; `events`: the number of events
    that have arrived; `error`: the exception that ended the stream, None = none."""

    def __init__(self, cluster, body, path="/v1/completions"):
        super().__init__(daemon=True)
        self.cluster, self.body, self.path = cluster, body, path
        self.text, self.events, self.error = "", 0, None
        self.start()

    def run(self):
        try:
            for event in self.cluster.stream(self.path, self.body):
                for choice in event["choices"]:
                    self.text += choice["text"] if "text" in choice else choice["delta"].get("content") or ""
                self.events += 1
        except Exception as error:  # The test judges every exception.
            self.error = error

    def wait_events(self, count=1):
        """Waits until this many events have arrived, and returns the stream."""
        wait_until(lambda: self.events >= count or not self.is_alive(), f"{count} events of {self.body}",
                   cluster=self.cluster)
        assert self.events >= count, (self.error, self.text, self.cluster.logged())
        return self

    def end(self, seconds=300):
        """Waits until the stream has ended, and returns the stream."""
        self.join(seconds)
        assert not self.is_alive(), f"the stream does not end\n{self.cluster.logged()}"
        return self

    def expect(self, want, what=""):
        """Waits until the stream has ended. It must have ended without an error and with the text `want`."""
        self.end()
        assert self.error is None and self.text == want, (what, self.error, self.text, want, self.cluster.logged())


def send_signal(pid, number):
    """Sends a signal to a process that may have ended. Returns True if it was there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def wait_until(condition, what, seconds=300, cluster=None):
    """Waits until condition() is true, and returns its result. The limit only ends a test that hangs."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s\n{cluster.logged() if cluster else ''}"
        time.sleep(0.01)


def wait_passes(check, seconds=60):
    """Calls check() until it raises no AssertionError, because machines report their figures with a delay."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return check()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def gated(config):
    """Returns the config's machines with the gate as their device."""
    names = []
    for pool, machines in config["pools"].items():
        names += machines if isinstance(machines, (list, tuple)) else [f"{pool}-{i}" for i in range(machines)]
    found = dict(config.get("machines", {}))
    for name in names:
        found[name] = {"device": "cuda:0", **found.get(name, {})}
    return found


def built(path):
    """Ends the test if a library that it needs was not built. Without gates, the test would wait for minutes."""
    if path is None or not os.path.exists(path):
        raise SystemExit(f"{path} is missing: build the targets of this test first (./dev test does)")
    return os.path.abspath(path)


def gated_environment(folder, pace_us=0):
    """Returns the environment of a process whose machines have their gate files in `folder`."""
    os.makedirs(folder, exist_ok=True)
    return {**os.environ, "CLEAVE_CUDA_PLUGIN": built(GATE_PLUGIN), "CLEAVE_GATES": folder,
            "CLEAVE_GATE_PACE_US": str(pace_us)}


def machines_of(parent):
    """Returns {name: pid} of the `cleave machine` processes that this process has started; a stage is called "t0/1"."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat") as file:
                its_parent = int(file.read().rsplit(")", 1)[1].split()[1])
            with open(f"/proc/{entry}/cmdline") as file:
                words = file.read().split("\0")
        except OSError:
            continue
        if its_parent == parent and "machine" in words:
            names = [word for word in words if re.fullmatch(r"((\w+-)?(prompt|token|mixed)-\d+|[ptm]\d+)(\.\d+)?", word)]
            stage = "/" + words[words.index("--stage") + 1] if "--stage" in words else ""
            found[names[0] + stage] = int(entry)
    return found


def free_ports(count):
    """Returns free ports for machines whose config names them. They lie outside the range from which the kernel takes
    ports, so no other test can get one meanwhile."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        end = int(file.read().split()[0])
    found = []
    while len(found) < count:
        port = random.randrange(max(1024, end // 3), end) if end > 4096 else 0
        try:
            with socket.create_server(("127.0.0.1", port)) as server:
                port = server.getsockname()[1]
        except OSError:
            continue
        if port not in found:
            found.append(port)
    return found


def listening_ports(pid):
    """Returns the TCP ports (IPv4) on which a process listens."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            link = os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            continue
        if link.startswith("socket:["):
            inodes.add(link[8:-1])
    ports = []
    with open(f"/proc/{pid}/net/tcp") as file:
        for line in list(file)[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                ports.append(int(fields[1].split(":")[1], 16))
    return ports


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
