"""Goal: an operator who asks learns which of eleven faults there is: `cleave status`, `cleave top`, GET /admin/state and the
page of GET / name it by the name of its alarm, with the machine, the reason, since when, and the row of docs/operation.md.

Method: each fault is planted in a real cluster: a GPU that is not there, a slow relay of TCP for a cable, a token machine
with little KV memory, one API key with most of the load, a gateway and a machine that stand still, an etcd
that stops, a machine with another model, a certificate of a day, a full disk of the event log, a machine that dies again
and again, KV tiers whose file or server cannot be used. Before each fault its problem must not be in the list. The page is checked where there is a Chromium.

usage: test_planted.py [gateway]
gateway: only processes that stand still; otherwise the other faults
"""
import contextlib
import fcntl
import functools
import json
import os
import pty
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

from browser import Browser, find_chromium
from cluster import BINARY, DEFAULT_MODEL, MODEL, Cluster, free_ports, need_model, wait_until
from test_etcd import Etcd

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "kvcache"))
from resp_servers import Fake

KEYS = {"keys": [{"name": "operator", "key": "sk-operator-0123456789", "admin": True},
                 {"name": "hot", "key": "sk-hot-0123456789abcdef"}, {"name": "cold", "key": "sk-cold-0123456789abcde"}]}
OPERATOR = {"Authorization": "Bearer sk-operator-0123456789"}
CONFIG = {"model": MODEL, "threads": 1, "kv": {"memory": "16MiB"}, "server": {"api_keys_file": "keys.json"},
          "transport": {"silence_ms": 60000}}
FOUND_S = 120  # Within this time each problem is in the list.
PAGE = None  # A Browser; None = there is none.
PICTURES = os.environ.get("CLEAVE_PICTURES")  # A folder for pictures of the page.
SHORT = {"prompt": "The sea was calm that day.", "max_tokens": 4, "ignore_eos": True}


def start(config=None, files=None, **more):
    cluster = Cluster({**CONFIG, **(config or {})}, files={"keys.json": json.dumps(KEYS), **(files or {})}, ready=False,
                      **more)
    cluster.headers.update(OPERATOR)
    return cluster


def problems(cluster):
    return json.loads(cluster.request("GET", "/admin/state")[2])["problems"]


def where_is(cluster):
    """The options of a command that asks the cluster."""
    key = cluster.write("operator.key", OPERATOR["Authorization"].split()[1])
    url = f"http{'s' if cluster.tls else ''}://{cluster.host}:{cluster.port}"
    trust = ["--ca-file", os.path.join(cluster.folder.name, "cert.pem")] if cluster.tls else []
    return ["--url", url, "--api-key-file", key, *trust]


def status(cluster, *options):
    """What `cleave status` prints about the cluster."""
    done = subprocess.run([BINARY, "status", *where_is(cluster), *options], capture_output=True, text=True, timeout=300,
                          check=False)
    assert done.stdout, (done, cluster.logged())
    return done.stdout


def top(cluster):
    """What `cleave top` shows in a terminal of 44 lines and 130 columns."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 44, 130, 0, 0))
    process = subprocess.Popen([BINARY, "top", "--count", "1", *where_is(cluster)], stdin=child, stdout=child)
    os.close(child)
    shown = b""
    with contextlib.suppress(OSError):  # The terminal has no more users.
        while data := os.read(parent, 65536):
            shown += data
    os.close(parent)
    assert process.wait(300) == 0, (shown, cluster.logged())
    screen = shown.decode().split("\x1b[H", 1)[1].split("\x1b[J", 1)[0]
    return screen.replace("\x1b[K", "").replace("\r", "")


def absent(cluster, *names):
    found = problems(cluster)
    assert not [each for each in found if each["name"] in names], found


def check_top(cluster, name, where, severity):
    """The problem and its age are on the screen of `cleave top`."""
    screen = top(cluster)
    row = next((line for line in screen.split("\n") if line.startswith(f"  {severity}: {name}, {where}, for ")), None)
    assert row and len(row) <= 130 and "MACHINE " in screen and "links " in screen, screen
    if PICTURES and PAGE is not None:
        PAGE.open("about:blank")
        PAGE.size(1100, 780)
        PAGE.run(f"""document.body.style = 'margin: 8px; background: #111; color: #ddd';
                     document.body.innerHTML = '<pre style="font: 13px monospace"></pre>';
                     document.querySelector('pre').textContent = {json.dumps(screen)}""")
        PAGE.picture(os.path.join(PICTURES, f"top-{name}.png"))


def check_page(cluster, name, where, part):
    PAGE.open(f"http://{cluster.host}:{cluster.port}/")
    PAGE.run(f"at('key').value = '{OPERATOR['Authorization'].split()[1]}'; at('key').dispatchEvent(new Event('change'))")
    PAGE.wait("!at('problems').hidden", "the problems")
    rows = PAGE.run("[...document.querySelectorAll('#problems-list li')].map(node => node.innerText)")
    row = next((row for row in rows if row.startswith(name) and where in row), None)
    assert row and part in row and f"#at-three-oclock, {name}" in row, (name, rows)
    if PICTURES:
        for width, theme in ((1280, "light"), (1280, "dark"), (400, "light")):
            PAGE.size(width, 800)
            PAGE.theme(theme)
            PAGE.picture(os.path.join(PICTURES, f"{name}-{width}-{theme}.png"))


def expect(cluster, name, where, part, page=True):
    """The problem is in the list, in `cleave status`, in `cleave top` and on the page."""
    def find():
        time.sleep(0.2)  # Each look is a line of the log.
        return next((each for each in problems(cluster) if each["name"] == name and each["where"] == where), None)
    try:
        found = wait_until(find, f"{name} of {where}", FOUND_S)
    except AssertionError as failure:
        raise AssertionError(f"{failure}; found: {problems(cluster)}\n{status(cluster)}") from failure
    assert part in found["what"] and found["what_to_do"] and found["severity"] in ("critical", "warning"), found
    assert found["page"] == f"docs/operation.md#at-three-oclock, {name}" and found["since_s"] >= 0, found
    said = status(cluster)
    lines = [line.strip() for line in said.split("\n") if f": {name}, {where}, for " in line]
    assert len(lines) == 1 and part in lines[0] and lines[0].startswith(found["severity"]), said
    assert f"to do: {found['what_to_do']} (docs/operation.md#at-three-oclock, {name})" in said, said
    listed = json.loads(status(cluster, "--json"))[0]["problems"]
    assert name in [each["name"] for each in listed], listed
    check_top(cluster, name, where, found["severity"])
    if PAGE is not None and page:
        check_page(cluster, name, where, part)
    print(lines[0])


def gone(cluster, name, where):
    """The fault is mended, so the problem leaves the list."""
    wait_until(lambda: time.sleep(0.2) or not [each for each in problems(cluster) if each["name"] == name and
                                               each["where"] == where], f"{name} of {where} is gone", FOUND_S)


# ---- faults of one cluster ----


# Starts a command with mounts of its own. Refused in a chroot whose root is not a mount point.
APART = ["unshare", *(["--user", "--map-root-user"] if os.geteuid() != 0 else []), "--mount"]


def can_mount():
    return subprocess.run([*APART, "true"], capture_output=True).returncode == 0


@contextlib.contextmanager
def small_disk():
    """Yields (a folder, the start of a command whose processes see a file system of 16 KiB there)."""
    with tempfile.TemporaryDirectory(prefix="cleave-disk-") as folder:
        yield folder, [*APART, "sh", "-c", 'mount -t tmpfs -o size=16k tmpfs "$0" && exec "$@"', folder]


def one_cluster():
    with small_disk() as (folder, prefix):
        config = {"pools": {"prompt": 1, "token": 2}, "log": {"events_file": os.path.join(folder, "events.jsonl")},
                  "machines": {"token-1": {"device": "cuda:0", "fallback": True}}}
        with start(config, prefix=prefix) as cluster:
            cluster.wait_ready(300)
            device_gone(cluster)
            disk_full(cluster)
            machine_restarts(cluster)


def device_gone(cluster):
    expect(cluster, "CleaveMachineOnCpu", "token-1", "instead of its device")


def disk_full(cluster):
    absent(cluster, "CleaveLogLosesLines")
    wait_until(lambda: cluster.post("/v1/completions", SHORT) and
               cluster.metric("cleave_events_dropped_total") > 0, "lines are lost", cluster=cluster)
    expect(cluster, "CleaveLogLosesLines", "gateway", "log/events_file lost lines")


def machine_restarts(cluster):
    absent(cluster, "CleaveMachineRestarts", "CleaveMachineDown")
    for _ in range(6):
        before = wait_until(lambda: cluster.children().get("token-0"), "token-0 runs", cluster=cluster)
        wait_until(lambda: cluster.metric("cleave_machine_up", machine="token-0") == 1, "token-0 is up", cluster=cluster)
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: cluster.children().get("token-0") not in (before, None), "token-0 starts again", cluster=cluster)
    expect(cluster, "CleaveMachineRestarts", "token-0", "again and again")
    gone(cluster, "CleaveMachineDown", "token-0")


def kv_full_and_hot_tenant():
    """A token machine with memory for a few streams is held. One key has most of the tokens and of the queue."""
    config = {"kv": {"memory": "4MiB", "prefix_cache": False}, "pools": {"prompt": 1, "token": 1},
              "scheduler": {"adaptive_pools": False}}  # Otherwise the prompt machine would help the held one.
    with start(config, gates=True) as cluster:
        cluster.wait_ready(300)
        absent(cluster, "CleaveKvFull", "CleaveHotTenant")
        threads = []

        def ask(name, tokens, generated):
            key = next(key["key"] for key in KEYS["keys"] if key["name"] == name)
            cluster.request("POST", "/v1/completions",
                            {"prompt": [100 + n % 400 for n in range(tokens)], "max_tokens": generated, "ignore_eos": True},
                            {"Authorization": f"Bearer {key}"})

        ask("cold", 20, 4)
        ask("hot", 150, 4)
        cluster.hold("token-0")
        for _ in range(8):
            threads.append(threading.Thread(target=ask, args=("hot", 140, 30), daemon=True))
            threads[-1].start()
        expect(cluster, "CleaveHotTenant", "gateway", "API key hot takes")
        expect(cluster, "CleaveKvFull", "gateway", "of the token machines' KV blocks are in use")
        cluster.release()
        for thread in threads:
            thread.join(300)
        gone(cluster, "CleaveKvFull", "gateway")


@contextlib.contextmanager
def remote_machine(cluster, name, config):
    """A machine that somebody else has started, with these changes of the cluster's config."""
    path = cluster.write(f"{name}.json", {**cluster.config, **config})
    with open(os.path.join(cluster.folder.name, f"{name}.log"), "w+") as log:
        machine = subprocess.Popen([BINARY, "machine", path, name], stderr=log)
        try:
            yield
        finally:
            machine.terminate()
            machine.wait(300)


def wrong_model():
    """The machine of another host has another model; then the model, and other blocks of KV."""
    port, = free_ports(1)
    config = {"pools": {"prompt": ["p0"], "token": ["t0", "t1"]}, "cluster": {"key_file": "cluster.key"},
              "machines": {"t1": {"address": f"127.0.0.1:{port}", "local": False}}}
    with start(config, files={"cluster.key": "a" * 64}) as cluster:
        cluster.wait_ready(300)
        expect(cluster, "CleaveMachineDown", "t1", "onnect")
        with remote_machine(cluster, "t1", {"model": DEFAULT_MODEL}):
            expect(cluster, "CleaveMachineMismatch", "t1", "do not match: metadata_hash")
            absent(cluster, "CleaveMachineDown")  # The mismatch is the reason.
        with remote_machine(cluster, "t1", {"kv": {"memory": "16MiB", "block_tokens": 32}}):
            expect(cluster, "CleaveLinkDown", "p0", "do not match: block_tokens is 16 and 32")
            absent(cluster, "CleaveMachineDown")


def certificate_expires():
    with tempfile.TemporaryDirectory(prefix="cleave-certificate-") as folder:
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-days", "1", "-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=IP:127.0.0.1"], cwd=folder, check=True, capture_output=True, timeout=300)
        files = {}
        for name in ("key.pem", "cert.pem"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                files[name] = file.read()
    server = {**CONFIG["server"], "tls_certificate_file": "cert.pem", "tls_key_file": "key.pem"}
    with start({"server": server}, files=files) as cluster:
        cluster.tls = ssl.create_default_context(cadata=files["cert.pem"])
        cluster.wait_ready(300)
        expect(cluster, "CleaveCertificateExpires", "gateway", "the TLS certificate ends in 1.0 days", page=False)


def etcd_lost():
    if shutil.which("etcd") is None:
        print("SKIP in part: etcd_lost: there is no etcd here")
        return
    with tempfile.TemporaryDirectory(prefix="cleave-etcd-") as folder:
        etcd = Etcd(folder)
        etcd.start()
        try:
            members = {"membership": "etcd", "etcd_endpoints": etcd.url, "etcd_prefix": "/test/"}
            with start({"cluster": members}) as cluster:
                cluster.wait_ready(300)
                wait_until(lambda: cluster.metric("cleave_etcd_up") == 1, "etcd answers", cluster=cluster)
                absent(cluster, "CleaveEtcdLost")
                etcd.kill()
                expect(cluster, "CleaveEtcdLost", "gateway", "no endpoint of etcd answers")
                assert cluster.post("/v1/completions", SHORT)
                etcd.start()
                gone(cluster, "CleaveEtcdLost", "gateway")
        finally:
            etcd.kill()


def kv_tier_down():
    """Something else has the file's name, and the store's server is not there. Both are mended, then the server goes."""
    name, store = "CleaveKvTierDown", Fake()
    store.stop()
    with tempfile.TemporaryDirectory(prefix="cleave-tier-") as folder:
        os.mkdir(os.path.join(folder, "prompt-0.kv"))
        tiers = {"file": {"path": folder, "size": "16MiB"}, "store": {"servers": store.address}}
        with start({"kv": {"memory": "16MiB", "tiers": tiers}, "scheduler": {"placement": "split"}}) as cluster:
            cluster.wait_ready(300)
            expect(cluster, name, "prompt-0", "cannot use KV tier file or store;")
            store.start_again()
            up = functools.partial(cluster.metric, "cleave_kv_tier_up", machine="prompt-0")
            wait_until(lambda: up(tier="store") == 1, "the store works", cluster=cluster)
            expect(cluster, name, "prompt-0", "cannot use KV tier file;", page=False)
            os.rmdir(os.path.join(folder, "prompt-0.kv"))
            os.kill(cluster.children()["prompt-0"], signal.SIGKILL)
            wait_until(lambda: up(tier="file") == 1 and up(tier="store") == 1, "both work", cluster=cluster)
            gone(cluster, name, "prompt-0")
            store.stop()
            assert cluster.post("/v1/completions", {**SHORT, "prompt": [100 + n for n in range(40)]})
            expect(cluster, name, "prompt-0", "cannot use KV tier store;", page=False)


# ---- processes that stand still ----


def gateway_stalls():
    """A gateway that stands still cannot say so: `cleave status` does. Afterwards, it says itself that it did."""
    with start({"transport": {"silence_ms": 1000, "heartbeat_ms": 100}}) as cluster:
        cluster.wait_ready(300)
        victim = cluster.children()["token-0"]
        os.kill(victim, signal.SIGSTOP)
        expect(cluster, "CleaveMachineDown", "token-0", "the gateway is not connected to it: ")
        absent(cluster, "CleaveLinkDown")
        os.kill(victim, signal.SIGCONT)
        gone(cluster, "CleaveMachineDown", "token-0")
        absent(cluster, "CleaveEventLoopStalled")
        cluster.process.send_signal(signal.SIGSTOP)
        try:
            said = status(cluster)
            listed = json.loads(status(cluster, "--json"))[0]["problems"]
        finally:
            cluster.process.send_signal(signal.SIGCONT)
        assert "critical: CleaveGatewayDown, gateway: it does not answer" in said, said
        assert [each["name"] for each in listed] == ["CleaveGatewayDown"], listed
        print(next(line.strip() for line in said.split("\n") if "CleaveGatewayDown" in line))
        expect(cluster, "CleaveEventLoopStalled", "gateway", "event loop stood still")


# ---- a slow cable ----


class SlowCable:
    """Passes on the bytes of TCP connections, and those from the connecting side at RATE bytes per second at most, from
    when `slow` is set. Like a cable, it holds back little."""
    RATE, PIECE = 1 << 20, 1 << 14

    def __init__(self, port):
        self.to, self.slow = port, threading.Event()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.server.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                near.close()
                continue
            for one in (near, far):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.carry, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self.carry, args=(far, near, False), daemon=True).start()

    def carry(self, source, sink, slowly):
        try:
            while piece := source.recv(self.PIECE):
                if slowly and self.slow.is_set():
                    time.sleep(len(piece) / self.RATE)
                sink.sendall(piece)
        except OSError:
            pass
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def slow_link():
    port, = free_ports(1)
    cable = SlowCable(port)
    config = {"pools": {"prompt": ["p0"], "token": ["t0"]}, "cluster": {"key_file": "cluster.key"}, "kv": {"memory": "64MiB"},
              "scheduler": {"adaptive_pools": False}, "transport": {"ucx_transports": "none", "silence_ms": 60000},
              "machines": {"t0": {"address": f"127.0.0.1:{cable.port}", "local": False}}}
    with start(config, files={"cluster.key": "a" * 64}) as cluster:
        own = {"machines": {"t0": {"address": f"127.0.0.1:{port}", "local": False}}}
        with remote_machine(cluster, "t0", own):
            cluster.wait_ready(300)
            absent(cluster, "CleaveLinkSlow")
            cable.slow.set()
            prompt = [100 + n % 400 for n in range(300)]  # 7 MB of KV
            assert cluster.post("/v1/completions", {**SHORT, "prompt": prompt})
            expect(cluster, "CleaveLinkSlow", "p0", "after the first token")
    cable.server.close()


def main():
    global PAGE
    need_model()
    with contextlib.ExitStack() as stack:
        if find_chromium() is not None:
            PAGE = stack.enter_context(Browser(find_chromium()))
        begun = time.monotonic()
        faults = [gateway_stalls] if "gateway" in sys.argv else [
            one_cluster, slow_link, kv_full_and_hot_tenant, wrong_model, certificate_expires, etcd_lost, kv_tier_down]
        for fault in faults:
            if fault is one_cluster and not can_mount():
                print("SKIP in part: one_cluster: this process may not mount file systems")
                continue
            fault()
            print(f"{fault.__name__}: after {time.monotonic() - begun:.0f} s")
        if PAGE is not None:
            # Without a key, and while no machines are ready, the page is refused something.
            errors = [each for each in PAGE.errors if "Failed to load resource" not in each]
            assert not errors, errors


if __name__ == "__main__":
    main()
