"""Goal: each mistake in a file, a flag or a request gets one clear error that names place and value. No process
crashes, and no other request is affected. Method: a table of mistakes against a real binary, and, for requests, against
a cluster whose token machine is held at a gate in the middle of an answer; that answer must be the undisturbed one."""

import json
import os
import shutil
import socket
import signal
import struct
import subprocess
import tempfile

from cluster import BINARY, MODEL, Cluster, free_ports, listening_ports, need_model, wait_until


SMALL = {"threads": 1, "kv": {"memory": "32MiB"}, "transport": {"silence_ms": 60000}}


def serve_fails(config, *parts, args=(), prefix=()):
    """Checks that `cleave serve` with this config text ends at once with status 1 and one line that contains all
    `parts`. The port is arbitrary unless `args` names one, because another program may have the default port."""
    if "--listen" not in args:
        args = ["--listen", "127.0.0.1:0", *args]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(config if isinstance(config, str) else json.dumps(config))
        file.flush()
        done = subprocess.run([*prefix, BINARY, "serve", file.name, *args], capture_output=True, text=True, timeout=300)
    said = done.stderr + done.stdout
    assert done.returncode in (1, 2), (done.returncode, said)
    for part in parts:
        assert part in said, f"no '{part}' in: {said}"
    assert "Sanitizer" not in said and "assert" not in said.lower(), said
    return done.stderr.splitlines()[-1]


def check_configs():
    serve_fails('{"kv": {"block_tokens": "16k"}}', "/kv/block_tokens", "16k")
    serve_fails('{\n\n"kv": {"block_tokens": 7}}', ":3", "/kv/block_tokens", "7")
    serve_fails('{"kvx": {}}', "kvx", "kv")
    serve_fails('{"pools": {"prompt": 1, "token": 0}}', "pools")
    serve_fails('{"pools": ', ":1")
    serve_fails('{"model": "no-such-model.gguf"}', "no-such-model.gguf")
    serve_fails('{"model": "/tmp"}', "/tmp", "a directory")
    serve_fails({"model": MODEL}, "256.1.1.1", args=["--listen", "256.1.1.1:80"])
    serve_fails({"model": MODEL}, "--frobnicate", args=["--frobnicate"])
    # The last line says why the machines could not start.
    last = serve_fails({"model": MODEL, "kv": {"memory": "1MiB", "block_tokens": 256}})
    assert last.startswith("cleave serve: ") and "kv_memory of 1048576 bytes" in last, last


def check_models():
    """Cut and corrupted model files cause an error, never a crash."""
    with open(MODEL, "rb") as file:
        head = file.read(4 << 20)
    cuts = {"empty": b"", "magic": b"GGUG" + head[4:], "cut in the metadata": head[:100000],
            "cut in the tensors": head, "version": head[:4] + struct.pack("<I", 99) + head[8:],
            "huge counts": head[:8] + b"\xff" * 16 + head[24:]}
    for name, data in cuts.items():
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            file.write(data)
            file.flush()
            serve_fails({"model": file.name}, os.path.basename(file.name))
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        key, value = b"general.architecture", b"gemma"
        file.write(b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, len(key)) + key + struct.pack("<IQ", 8, len(value)) + value)
        file.flush()
        serve_fails({"model": file.name}, os.path.basename(file.name), "gemma", "llama", "qwen2")


def check_few_open_files():
    """There are more idle clients than files may be open. A machine that dies still restarts, and the log says how many
    connections are possible."""
    limit = ("prlimit", "--nofile=62:62")
    with Cluster(SMALL, prefix=limit) as cluster:
        assert "62 open files allow 14 HTTP connections" in cluster.logged(), cluster.logged()
        idle = [socket.create_connection((cluster.host, cluster.port)) for _ in range(60)]
        os.kill(cluster.children()["token-0"], signal.SIGKILL)
        wait_until(lambda: cluster.logged().count("machine token-0 pool token is up") == 2, "token-0 is started again",
                   cluster=cluster)
        for connection in idle:
            connection.close()
        assert cluster.post("/v1/completions", {"prompt": "x", "max_tokens": 3})["choices"]
    serve_fails({"model": MODEL, "http": {"listen": "127.0.0.1:0"}}, "30 open files are too few",
                prefix=("prlimit", "--nofile=30:30"))
    # There is room for machines that are added later.
    with Cluster(SMALL, prefix=("prlimit", "--nofile=62:8000")) as cluster:
        with open(f"/proc/{cluster.process.pid}/limits") as file:
            files = next(int(line.split()[3]) for line in file if line.startswith("Max open files"))
        assert files == 24 + 2 * 6 * 256 + 4096, files


def check_port_in_use():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        serve_fails({"model": MODEL}, address, "in use", args=["--listen", address])


def check_machine_that_does_not_answer():
    """A remote machine does not exist. The gateway says so in /health, and serves nothing until takeover_delay_ms has passed;
    then the prompt machine does both phases."""
    with socket.socket() as silent: # Accepts connections (backlog), and never answers.
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = "127.0.0.1:%d" % silent.getsockname()[1]
        config = {**SMALL, "pools": {"prompt": ["p0"], "token": ["t0"]}, "transport": {"connect_ms": 500},
                  "scheduler": {"takeover_delay_ms": 3600000},
                  "machines": {"p0": {"local": True}, "t0": {"address": address}}}
        with Cluster(config, ready=False) as cluster:
            cluster.find_port()
            cluster.wait_health(503, "t0")
            status, headers, body = cluster.request("POST", "/v1/completions", {"prompt": "x"})
            assert status == 503 and "Retry-After" in headers, (status, headers, body)
        config["scheduler"]["takeover_delay_ms"] = 100
        with Cluster(config, ready=False) as cluster:
            cluster.find_port()
            cluster.wait_health(200, "token machine t0 is missing")
            assert cluster.post("/v1/completions", {"prompt": "x", "max_tokens": 3})["choices"]
            cluster.wait_all_free()


def check_machines_that_do_not_match():
    """A machine that is started by hand has another configuration or model: /health and the log name the differences.
    The right machine, started later, serves."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"127.0.0.1:{free_ports(1)[0]}"
        other = os.path.join(folder, "other.gguf")
        shutil.copyfile(MODEL, other)
        with open(other, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"X")
        config = {**SMALL, "model": MODEL, "http": {"listen": "127.0.0.1:0"},
                  "pools": {"prompt": ["p0"], "token": ["t0"]},
                  "machines": {"p0": {"local": True}, "t0": {"address": address, "kv_memory": "32MiB"}},
                  "scheduler": {"takeover_delay_ms": 3600000}}
        path = os.path.join(folder, "config.json")
        with open(path, "w") as file:
            json.dump(config, file)

        def machine(*args):
            return subprocess.Popen([BINARY, "machine", path, "t0", "--log-level", "warn", *args])

        with Cluster(config, ready=False) as cluster:
            cluster.find_port()
            for args, part in ((["--set", "kv/block_tokens=32"], "block_tokens is 16 and 32"),
                               (["--set", "model=" + other], "model_hash is ")):
                process = machine(*args)
                try:
                    cluster.wait_health(503, part)
                    wait_until(lambda: part in cluster.logged(), part, cluster=cluster)
                finally:
                    process.terminate()
                    process.wait()
            process = machine()
            try:
                cluster.wait_health(200, "ready")
                assert cluster.post("/v1/completions", {"prompt": "x", "max_tokens": 3})["choices"]
                cluster.wait_all_free()
            finally:
                process.terminate()
                process.wait()


BAD_REQUESTS = [
    ("not JSON", b"{\"prompt\": ", 400, "JSON"),
    ("no UTF-8", b"{\"prompt\": \"\xff\xfe\"}", 400, "UTF-8"),
    ("too large", b"{\"prompt\": \"" + b"x" * (9 << 20) + b"\"}", 413, "body"),
    ("longer than the context", {"prompt": [5] * 9000}, 400, "9000"),
    ("answer over the context", {"prompt": "a", "max_tokens": 9000}, 400, "9000"),
    ("n", {"prompt": "a", "n": 0}, 400, "n must be"),
    ("temperature", {"prompt": "a", "temperature": -1}, 400, "temperature"),
    ("token id", {"prompt": [99999999]}, 400, "99999999"),
    ("model", {"prompt": "a", "model": "gpt-4"}, 404, "gpt-4"),
    ("role", {"messages": [{"role": "robot", "content": "x"}]}, 400, "robot"),
]


def check_requests():
    with Cluster({**SMALL, "kv": {"memory": "192MiB"}}, gates=True) as cluster:  # Room for the whole context.
        story = {"prompt": "Once upon a time", "max_tokens": 40, "temperature": 0, "ignore_eos": True}
        want = cluster.post("/v1/completions", story)["choices"][0]["text"]
        stream = cluster.held_streams("token-0", [story])[0]
        for name, body, want_status, part in BAD_REQUESTS:
            path = "/v1/chat/completions" if isinstance(body, dict) and "messages" in body else "/v1/completions"
            try:
                status, _, reply = cluster.request("POST", path, body)
            except (BrokenPipeError, ConnectionResetError):
                assert want_status == 413, name # The request is refused while the client still sends.
                continue
            error = json.loads(reply)["error"]
            assert status == want_status and part in error["message"], (name, status, error)
            assert set(error) == {"message", "type", "param", "code"}, error
        # Garbage on the HTTP port and on a machine's port does not affect requests.
        with socket.create_connection((cluster.host, cluster.port)) as stranger:
            stranger.sendall(os.urandom(4096))
        for port in machine_ports(cluster):
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.sendall(os.urandom(4096))
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.sendall(struct.pack("<Q", 0xffffffffffff))
        assert cluster.request("GET", "/health")[0] == 200
        cluster.release()
        stream.expect(want, "a stream noticed the bad requests")
        assert cluster.post("/v1/completions", story)["choices"][0]["text"] == want
        cluster.wait_all_free()


def machine_ports(cluster):
    """Returns the TCP ports on which the cluster's machines listen."""
    ports = [port for pid in cluster.children().values() for port in listening_ports(pid)]
    assert ports
    return ports


need_model()
check_configs()
check_models()
check_few_open_files()
check_port_in_use()
check_machine_that_does_not_answer()
check_machines_that_do_not_match()
check_requests()
print("every mistake had its own error, and no other request noticed")
