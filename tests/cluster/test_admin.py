"""Goal: an operator sees and changes running gateways with cleave's own commands: status, machines, drain, undrain, reload
and top, over the administrator's socket and over a URL with an API key. Method: one gateway with two token machines; the
commands are run as an operator runs them, and their output, exit status and effect are checked, also for gateways that
do not answer. The live screen runs in a pseudo-terminal."""

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from cluster import BINARY, MODEL, Cluster, need_model, wait_until

KEYS = {"keys": [{"name": "operator", "key": "sk-operator-0123456789", "admin": True},
                 {"name": "client", "key": "sk-client-0123456789abc"}]}
CONFIG = {"pools": {"prompt": 1, "token": 2}, "threads": 1, "server": {"api_keys_file": "keys.json"},
          "http": {"listen": "127.0.0.1:0", "admin_socket": "admin.sock"}}


def run(*arguments, status=0):
    """Returns standard output and standard error."""
    # A proxy of the environment must not get the key.
    environment = {**os.environ, "http_proxy": "http://127.0.0.1:1", "LC_ALL": "C.UTF-8"}
    done = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=300, env=environment,
                          stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == status, (arguments, done)
    return done.stdout, done.stderr


def check_status(where):
    out, _ = run("status", *where)
    lines = out.splitlines()
    assert lines[0].startswith("gateway ") and ": ready, serves " in lines[0] and ", cleave 0." in lines[0], out
    assert lines[1] == "  head-room: unknown, too little traffic", out
    assert lines[2].split()[:3] == ["MACHINE", "POOL", "STATE"] or lines[3].startswith("MACHINE"), out
    for name, pool in (("prompt-0", "prompt"), ("token-0", "token"), ("token-1", "token")):
        assert [row.split()[1:3] for row in lines if row.startswith(f"{name} ")] == [[pool, "up"]], out
    assert any(line.startswith("links ") for line in lines) and any(line.startswith("requests ") for line in lines), out
    state = json.loads(run("status", "--json", *where)[0])
    assert len(state) == 1 and state[0]["ready"] and state[0]["slo"]["ttft_ms"] > 0 and state[0]["headroom"] is None, state
    assert [m["name"] for m in json.loads(run("machines", "--json", *where)[0])[0]["machines"]] == \
        ["prompt-0", "token-0", "token-1"]


def check_drain(where):
    assert "machine token-1 is draining, idle" in run("drain", "token-1", "--wait", *where)[0]
    row = next(line for line in run("machines", *where)[0].splitlines() if line.startswith("token-1"))
    assert row.split()[2] == "draining", row
    assert "machine token-1 is serving" in run("undrain", "token-1", *where)[0]
    assert 'there is no machine "absent-0" here' in run("drain", "absent-0", *where, status=1)[1]
    assert "want the name of a machine" in run("drain", "../reload", *where, status=2)[1]


def check_machines(where):
    added = json.dumps({"name": "extra", "pool": "token", "threads": 1})
    assert "machine extra is starting" in run("machines", "--add", added, *where)[0]
    wait_until(lambda: any(line.split()[:3] == ["extra", "token", "up"] for line in run("machines", *where)[0].splitlines()),
               "the added machine serves", cluster=cluster)
    assert "machine extra is leaving" in run("machines", "--remove", "extra", *where)[0]
    wait_until(lambda: "extra" not in run("machines", *where)[0], "the removed machine is gone", cluster=cluster)
    assert "want one of them" in run("machines", "--add", added, "--remove", "extra", *where, status=2)[1]
    assert "HTTP 400" in run("machines", "--add", '{"name": "extra", "pool": "none"}', *where, status=1)[1]


class Unchanged(BaseHTTPRequestHandler):
    """Answers as a gateway whose config has not changed. (This test's gateway always reads its API keys again.)"""
    def do_POST(self):
        body = json.dumps({"dry_run": self.path.endswith("/dry-run"), "changed": [], "for_machines_that_start": [],
                           "needs_restart": []}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def check_reload_unchanged():
    with HTTPServer(("127.0.0.1", 0), Unchanged) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        where = ["--url", f"http://127.0.0.1:{server.server_port}"]
        assert ": nothing is changed; a reload would change nothing\n" in run("reload", "--dry-run", *where)[0]
        assert ": read again, nothing has changed\n" in run("reload", *where)[0]
        server.shutdown()


def check_reload(where):
    cluster.write("config.json", {**cluster.config, "scheduler": {"queue_requests_max": 7}})
    dry = run("reload", "--dry-run", *where)[0]
    assert "nothing is changed" in dry and "scheduler/queue_requests_max: 7, was 1024" in dry, dry
    assert "scheduler/queue_requests_max: 7, was 1024" in run("reload", *where)[0]
    cluster.write("config.json", {**cluster.config, "scheduler": {"queue_requests_max": "many"}})
    error = run("reload", *where, status=1)[1]
    assert "HTTP 400" in error and 'queue_requests_max = "many"' in error, error
    cluster.write("config.json", cluster.config)
    assert json.loads(run("reload", "--json", *where)[0])[0]["changed"] != []


def check_access(socket, url):
    client = cluster.write("client.key", "sk-client-0123456789abc\n")
    assert "HTTP 403" in run("status", "--url", url, "--api-key-file", client, status=1)[1]
    assert "HTTP 401" in run("status", "--url", url, status=1)[1]
    assert "want http" in run("status", "--url", "localhost", status=2)[1]
    open_file = cluster.write("open.key", "sk-operator-0123456789\n", mode=0o644)
    assert "0644" in run("status", "--url", url, "--api-key-file", open_file, status=1)[1]
    # One of two gateways does not answer: the other is still shown.
    out, error = run("status", "--socket", socket, "--socket", socket + ".none", status=1)
    assert ": ready, " in out and ".none: cannot connect: No such file or directory" in error, (out, error)


def check_top(where):
    out, _ = run("top", "--count", "2", "--interval-s", "0.1", *where)
    assert out.count("cleave top ") == 2 and "\x1b" not in out, out
    for part in ("problems  none\n", "since the start", "in this interval", "TTFT ", " within ", "exposed transfer", "token-1"):
        assert part in out, (part, out)
    out, _ = run("top", "--count", "1", *where, "--socket", "/nowhere/admin.sock", status=1)
    assert "problems  none\n" in out and "problems  1\n  critical: CleaveGatewayDown, gateway: it does not answer" in out, out
    parent, child = pty.openpty()
    process = subprocess.Popen([BINARY, "top", *where], stdin=child, stdout=child, stderr=child)
    shown = b""
    while b"links " not in shown and b"requests " not in shown:
        assert select.select([parent], [], [], 300)[0], shown
        shown += os.read(parent, 65536)
    os.write(parent, b"q")
    while process.poll() is None:
        if select.select([parent], [], [], 0.1)[0]:
            shown += os.read(parent, 65536)
    while select.select([parent], [], [], 0)[0]:
        shown += os.read(parent, 65536)
    assert process.returncode == 0 and shown.startswith(b"\x1b[?1049h") and shown.endswith(b"\x1b[?1049l"), shown
    os.close(parent)
    os.close(child)


def check_not_restarted(where, model):
    """A machine whose processes end before they are ready: the status says why, also as JSON."""
    os.replace(cluster.write("wrong.gguf", "no model"), model)
    os.kill(cluster.children()["token-0"], signal.SIGKILL)
    why = f"its process has ended: {os.path.basename(model)}: not a GGUF file"
    wait_until(lambda: f"  token-0: {why}" in run("status", *where)[0], "the status has the reason", cluster=cluster)
    machines = json.loads(run("status", "--json", *where)[0])[0]["machines"]
    assert next(m["why"] for m in machines if m["name"] == "token-0").startswith(why), machines


need_model()
with tempfile.TemporaryDirectory(prefix="cleave-test-") as scratch, \
        Cluster({**CONFIG, "model": shutil.copy(MODEL, scratch)}, files={"keys.json": KEYS}) as cluster:
    cluster.headers["Authorization"] = "Bearer sk-operator-0123456789"
    cluster.wait_health(200, "")
    cluster.post("/v1/completions", {"prompt": "a b c", "max_tokens": 4, "ignore_eos": True})
    admin_socket = os.path.join(cluster.folder.name, "admin.sock")
    base = f"http://{cluster.host}:{cluster.port}"
    by_url = ["--url", base + "/", "--api-key-file", cluster.write("operator.key", "sk-operator-0123456789\n")]
    by_socket = ["--socket", admin_socket]
    wait_until(lambda: all(m["connection"] == "up" for m in json.loads(run("status", "--json", *by_socket)[0])[0]["machines"]),
               "all machines are up", cluster=cluster)
    check_status(by_socket)
    check_status(by_url)
    check_status([*by_url, "--every-address"])
    check_drain(by_socket)
    check_machines(by_url)
    check_reload(by_socket)
    check_reload_unchanged()
    check_access(admin_socket, base)
    check_top(by_socket)
    check_not_restarted(by_socket, cluster.config["model"])
print("ok")
