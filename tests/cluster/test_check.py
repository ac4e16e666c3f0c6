"""Goal: `cleave check` finds everything that will fail with a config, all at once, and is content with a good one. Method:
a config with a planted mistake of each kind, whose key and reason must be in the report, as text and as JSON; then good
configs as a gateway and as a machine see them, also with peers that answer (--deep)."""

import json
import os
import re
import socket
import struct
import subprocess
import tempfile

from cluster import BINARY, MODEL, need_model
from tiny_model import renamed_token, write as tiny_write

PLANTED = {
    "modell": "x.gguf",
    "model": MODEL,
    "http": {"listen": "127.0.0.1:99999", "ping_ms": "many", "admin_socket": "x" * 95 + ".sock"},
    "server": {"api_keys_file": "keys.json"},
    "kv": {"block_tokens": 7, "memory": "16TiB"},
    "log": {"events_file": "/nonexistent/x.jsonl", "access_file": "/"},
    "chat_template_file": "missing.jinja",
    "cluster": {"key_file": "missing.key"},
    "pools": {"prompt": ["p0", "p1"], "token": ["t0", "t1", "t2"]},
    "machines": {"p0": {"device": "cuda:0"}, "p1": {"stages": 60}, "t0": {"address": "no-such-host.invalid:7000"}, "t1": {"threads": 2000},
                 "t2": {"device": "cuda:0", "fallback": True}, "t9": {}},
}
FOUND = [  # key (or part of the text), result, part of the text
    ("", "error", "/modell: unknown key; did you mean /model?"),
    ("", "error", '/http/listen = "127.0.0.1:99999": want HOST:PORT'),
    ("", "error", '/http/ping_ms = "many": want a whole number'),
    ("", "error", "/kv/block_tokens = 7: want a whole number from 8 to 256"),
    ("", "error", "/machines/t1/threads = 2000: want a whole number from 0 to 1024"),
    ("", "error", "/machines/t9: no pool names this machine"),
    ("model", "ok", "MiB, context"),
    ("server/api_keys_file", "error", "mode 0644 lets other"),
    ("cluster/key_file", "error", "missing.key: No such file"),
    ("http/admin_socket", "error", "want at most 107"),
    ("log/events_file", "error", "no file can be made in /nonexistent"),
    ("log/access_file", "error", "/ is a folder: want a file"),
    ("chat_template_file", "error", "missing.jinja: No such file"),
    ("", "error", "machines/p1/stages: 60 stages, the model has 30 layers"),
    ("machines/p0/device", "error", "device cuda:0: no plugin"),
    ("machines/t2/device", "warning", "will compute on the CPU"),
    ("machines/t0/address", "error", "no-such-host.invalid"),
    ("kv/memory", "error", "MiB are available: smaller pools"),
]
FEWEST_KEYS = {"keys": [{"name": "a", "key": "sk-0123456789abcdef"}]}


def run(*arguments, status):
    environment = {**os.environ, "CLEAVE_CUDA_PLUGIN": "/nowhere/plugin.so"}
    done = subprocess.run([BINARY, "check", *arguments], capture_output=True, text=True, timeout=120, env=environment,
                          check=False)
    assert done.returncode == status and done.stderr == "", (arguments, done)
    return done.stdout


def write(folder, name, content, mode=0o600):
    path = os.path.join(folder, name)
    with open(path, "w", opener=lambda p, flags: os.open(p, flags, mode)) as file:
        file.write(content if isinstance(content, str) else json.dumps(content, indent=1))
    os.chmod(path, mode)
    return path


def check_planted(folder):
    write(folder, "keys.json", FEWEST_KEYS, mode=0o644)
    path = write(folder, "planted.json", PLANTED)
    report = json.loads(run(path, "--json", status=1))
    assert not report["good"], report
    for key, result, text in FOUND:
        assert any(r["key"] == key and r["result"] == result and text in r["text"] for r in report["results"]), \
            (key, text, report)
    errors = sum(result == "error" for _, result, _ in FOUND)
    assert sum(r["result"] == "error" for r in report["results"]) == errors, report
    lines = run(path, status=1).splitlines()
    warnings = sum(r["result"] == "warning" for r in report["results"])  # Port 8080 may be in use.
    assert lines[-1] == f"{errors} errors, {warnings} warning{'' if warnings == 1 else 's'}" and len(lines) == len(report["results"]) + 1, lines


def check_broken(folder):
    assert "No such file" in run(os.path.join(folder, "none.json"), status=1)
    assert "not JSON" in run(write(folder, "broken.json", '{"model": "a",}'), status=1)
    assert "want an object" in run(write(folder, "list.json", "[]"), status=1)
    # A key with "/" is one mistake, also beside the key that it looks like.
    lines = run(write(folder, "path.json", {"http": {"listen": "127.0.0.1:0"}, "http/listen": "127.0.0.1:1", "model": MODEL}),
                status=1).splitlines()
    assert 'unknown key "http/listen"' in lines[0] and lines[-1].startswith("1 error, 0 warn"), lines
    # A mistake in the pools does not hide those of other sections, and `machines` makes no more of them.
    lines = run(write(folder, "pools.json", {"pools": {"prompt": "two"}, "machines": {"t9": {}}, "kv": {"dtype": "x"}}),
                status=1).splitlines()
    assert sum(line.startswith("error") and "pools.json:" in line for line in lines) == 2, lines
    assert "--set: /kv/dtype" in run("--set", "kv/dtype=x", write(folder, "plain.json", {"model": MODEL}), status=1)


def check_good(folder):
    with socket.create_server(("127.0.0.1", 0)) as peer:
        port = peer.getsockname()[1]
        config = {"model": MODEL, "http": {"listen": "127.0.0.1:0", "admin_socket": "admin.sock"}, "threads": 1,
                  "server": {"api_keys_file": "private.json"}, "cluster": {"key_file": "cluster.key"},
                  "kv": {"memory": "16MiB"}, "pools": {"prompt": 1, "token": ["t0"]},
                  "machines": {"t0": {"address": f"127.0.0.1:{port}"}}}
        write(folder, "private.json", FEWEST_KEYS)
        write(folder, "cluster.key", "0123456789abcdef" * 4 + "\n")
        path = write(folder, "good.json", config)
        out = run(path, "--deep", status=0)
        assert "accepts connections" in out and "tokenizer and chat template are read" in out, out
        # As the machine itself sees it: its address is taken.
        out = run(path, "--machine", "t0", status=0)
        assert "warning  machines/t0/address" in out and "http/listen" not in out, out
    assert "ok       machines/t0/address" in run(path, "--machine", "t0", status=0)
    assert "warning  machines/t0/address" in run(path, "--deep", status=0)  # It may start later.
    assert '"good": true' in run(path, "--json", status=0)
    assert not os.path.exists(os.path.join(folder, "admin.sock"))
    done = subprocess.run([BINARY, "check", path, "--machine", "t9"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "has no such machine" in done.stderr, done


def weights_of(report):
    text = next(r["text"] for r in report["results"] if r["key"] == "kv/memory")
    return int(re.search(r"weights (\d+)", text).group(1))


def check_draft(folder):
    """The draft model's file is opened, its vocabulary compared and its memory counted, if a machine here has one."""
    def config_of(draft, drafts):
        return write(folder, "draft.json", {"model": MODEL, "http": {"listen": "127.0.0.1:0"}, "kv": {"memory": "16MiB"},
                                            "scheduler": {"speculative_tokens": drafts, "draft_model": draft},
                                            "pools": {"prompt": ["p0"], "token": ["t0"]}})

    def results(draft, drafts, *arguments, status=0):
        report = json.loads(run(config_of(draft, drafts), "--json", *arguments, status=status))
        return weights_of(report), [(r["result"], r["text"]) for r in report["results"]
                                    if r["key"] == "scheduler/draft_model"]

    without, none = results("", 4)
    assert none == [], none
    weights, found = results(MODEL, 4)
    megabytes = os.path.getsize(MODEL) >> 20
    assert megabytes <= weights - without <= megabytes + 1, (weights, without, megabytes)
    assert len(found) == 1 and found[0][0] == "ok" and "the vocabulary of the model" in found[0][1], found
    assert results(MODEL, 4, "--machine", "p0")[1] == []  # It computes prompts only.
    assert [result for result, _ in results(MODEL, 4, "--machine", "t0")[1]] == ["ok"]
    assert [result for result, _ in results(MODEL, 0)[1]] == ["warning"]
    other = renamed_token(os.path.join(folder, "other.gguf"), MODEL)
    for draft, why in ((other, "its token 300 is "), ("missing.gguf", "no model file")):
        weights, found = results(draft, 4, status=1)
        assert weights == without and len(found) == 1 and found[0][0] == "error" and why in found[0][1], (weights, found)
        done = subprocess.run([BINARY, "serve", config_of(draft, 4), "--check"], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "scheduler/draft_model: " + why in done.stderr, done


def check_tensors(folder):
    """With --deep, tensors of another name or shape are found, in the model and in the draft model."""
    good = tiny_write(MODEL, os.path.join(folder, "good.gguf"), layers=2)
    with open(good, "rb") as file:
        data = file.read()
    name, dims = b"blk.1.ffn_down.weight", struct.pack("<QQ", 96, 64)
    assert data.count(name + struct.pack("<I", 2) + dims) == 1

    def broken(path, what, instead):
        with open(os.path.join(folder, path), "wb") as file:
            file.write(data.replace(what, instead))
        return file.name

    missing = broken("missing.gguf", name, b"blk.1.ffn_over.weight")
    shape = broken("shape.gguf", name + struct.pack("<I", 2) + dims, name + struct.pack("<IQQ", 2, 64, 96))

    def errors(model, draft, machines, status):
        path = write(folder, "tensors.json", {"model": model, "http": {"listen": "127.0.0.1:0"}, "kv": {"memory": "16MiB"},
                                              "scheduler": {"speculative_tokens": 4, "draft_model": draft},
                                              "pools": {"prompt": ["p0"], "token": ["t0"]}, "machines": machines})
        assert json.loads(run(path, "--json", status=0))["good"]  # Only --deep looks at the tensors.
        results = json.loads(run(path, "--json", "--deep", status=status))["results"]
        return [(r["key"], r["text"]) for r in results if r["result"] == "error"]

    for machines in ({}, {"p0": {"stages": 2}, "t0": {"tensor_parallel": 3}}):
        assert errors(good, good, machines, 0) == []
        found = errors(shape, "", machines, 1)
        assert {machine for _, text in found for machine in machines if machine in text} == set(machines), found
        assert all(key == "model" and "blk.1.ffn_down.weight has shape 64 x 96, want 96 x 64" in text for key, text in found), found
    found = errors(good, missing, {}, 1)
    assert len(found) == 1 and found[0][0] == "scheduler/draft_model" and "tensor blk.1.ffn_over.weight" in found[0][1], found


need_model()
with tempfile.TemporaryDirectory(prefix="cleave-test-") as scratch:
    check_planted(scratch)
    check_broken(scratch)
    check_good(scratch)
    check_draft(scratch)
    check_tensors(scratch)
print("ok")
