"""Goal: API keys and TLS over a real connection: which clients may use a cluster, and which errors an operator gets for
wrong files. Method: real processes, python's own TLS, certificates made by openssl for this run. A token machine that
is held at a gate keeps streams open while a client leaves or keys change."""

import http.client
import json
import os
import socket
import ssl
import stat
import subprocess
import tempfile

from cluster import BINARY, MODEL, Cluster, Stream, free_ports, need_model, wait_until

KEYS = {"keys": [{"name": "user", "key": "sk-user-0123456789", "requests_max": 4},
                 {"name": "seer", "key": "sk-seer-0123456789", "metrics": True},
                 {"name": "root", "key": "sk-root-0123456789", "admin": True}]}
USER, SEER, ROOT = ({"Authorization": f"Bearer {key['key']}"} for key in KEYS["keys"])
SECRETS = {"api_keys_file": "keys.json", "tls_certificate_file": "cert.pem", "tls_key_file": "key.pem"}


def certificate(name="localhost"):
    """Returns (certificate, private key), self-signed, as PEM texts."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, file) for file in ("cert.pem", "key.pem")]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext",
                        f"subjectAltName=DNS:{name},IP:127.0.0.1", "-out", paths[0], "-keyout", paths[1]],
                       check=True, capture_output=True)
        return tuple(open(path).read() for path in paths)


def trusting(certificate_text):
    return ssl.create_default_context(cadata=certificate_text)


def files(cert, key, **changed):
    return {"cert.pem": cert, "key.pem": key, "keys.json": KEYS, **changed}


def check_served(cert, key):
    config = {"server": SECRETS, "http": {"admin_socket": "admin.sock"}, "threads": 1, "kv": {"memory": "64MiB"}, "transport": {"silence_ms": 60000}}
    with Cluster(config, files=files(cert, key), gates=True) as cluster:
        cluster.tls = trusting(cert)
        ask = {"prompt": "The sky is", "max_tokens": 8, "temperature": 0}
        assert cluster.request("GET", "/health")[0] == 200
        status, headers, body = cluster.request("POST", "/v1/completions", ask)
        assert status == 401 and json.loads(body)["error"]["code"] == "invalid_api_key", body
        assert headers["WWW-Authenticate"] == "Bearer"
        assert cluster.request("GET", "/metrics", headers=USER)[0] == 403
        assert cluster.request("GET", "/metrics", headers=SEER)[0] == 200
        cluster.headers.update(USER)
        whole = cluster.post("/v1/completions", ask)
        events = list(cluster.stream("/v1/completions", ask))
        assert "".join(event["choices"][0]["text"] for event in events) == whole["choices"][0]["text"]
        assert cluster.post("/v1/completions", {"prompt": [7] * 600, "max_tokens": 1})["usage"]["prompt_tokens"] == 600
        words = "word " * 9000  # More than one TLS record in each direction.
        assert len(cluster.post("/tokenize", {"prompt": words})["tokens"]) >= 9000
        check_gone(cluster)
        cluster.headers.update(SEER)
        assert cluster.metric("cleave_key_requests_total", key="user") == 4
        assert cluster.metric("cleave_key_generated_tokens_total", key="user") >= 17
        assert cluster.metric("cleave_key_requests_in_flight", key="user") == 0
        check_other_protocols(cluster, cert)
        check_admin_socket(cluster)
        check_reload(cluster, cert)
        said = cluster.logged()
        for secret in ("0123456789", "PRIVATE"):
            assert secret not in said, said


def check_gone(cluster):
    """A client leaves in the middle of a TLS stream. Its request ends, although its token machine does not compute."""
    cluster.hold("token-0")
    connection = cluster.connect()
    connection.request("POST", "/v1/completions", json.dumps({"prompt": "On and on", "max_tokens": 50,
                                                              "ignore_eos": True, "stream": True}), cluster.headers)
    cluster.wait_held("token-0")
    cluster.step("token-0")
    reply = connection.getresponse()
    assert reply.status == 200 and reply.readline().startswith(b"data: ")
    assert open_requests(cluster) == 1
    connection.sock.close()
    reply.close()
    connection.close()
    wait_until(lambda: open_requests(cluster) == 0, "the request has ended", cluster=cluster)
    cluster.release()
    cluster.headers.update(SEER)
    cluster.wait_all_free()
    cluster.headers.update(USER)


def open_requests(cluster):
    return json.loads(cluster.request("GET", "/admin/state", headers=ROOT)[2])["requests_open"]


def check_other_protocols(cluster, cert):
    """Plain HTTP, TLS 1.1, an unknown authority and noise get no answer, and do not disturb other clients."""
    plain = http.client.HTTPConnection(cluster.host, cluster.port, timeout=300)
    try:
        plain.request("GET", "/health")
        raise AssertionError(f"plain HTTP was answered: {plain.getresponse().status}")
    except (http.client.HTTPException, OSError):
        pass
    for context in (ssl.create_default_context(), trusting(certificate()[0])):
        try:
            with socket.create_connection((cluster.host, cluster.port), timeout=300) as raw:
                context.wrap_socket(raw, server_hostname="localhost")
            raise AssertionError("a certificate without a trusted signer was accepted")
        except ssl.SSLError:
            pass
    noise = socket.create_connection((cluster.host, cluster.port), timeout=300)
    noise.sendall(bytes(range(256)) * 64)
    silent = socket.create_connection((cluster.host, cluster.port), timeout=300)
    assert cluster.request("GET", "/health", timeout=300)[0] == 200  # The silent client does not delay other clients.
    noise.close()
    silent.close()


def check_admin_socket(cluster):
    """The socket is accessible to this user only. It needs no key and no TLS, and accepts only administrative requests.
    """
    path = os.path.join(cluster.folder.name, "admin.sock")
    assert stat.S_ISSOCK(os.stat(path).st_mode) and stat.S_IMODE(os.stat(path).st_mode) == 0o600, os.stat(path)
    for url, status in (("/admin/state", 200), ("/health", 200), ("/v1/models", 403)):
        connection = http.client.HTTPConnection("localhost", timeout=300)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(path)
        connection.request("GET", url)
        reply = connection.getresponse()
        said = reply.read()
        assert reply.status == status, (url, reply.status, said)
        connection.close()
    assert cluster.audited(reads=True)[-1] == ("GET /admin/state", "", f"admin socket uid {os.getuid()}", 200)


def check_reload(cluster, cert):
    """Another certificate and other keys apply to connections and requests that begin after the reload."""
    cluster.headers.update(USER)
    assert cluster.request("POST", "/admin/reload")[0] == 403
    assert cluster.audited()[-1] == ("POST /admin/reload", "", "key user", 403)
    cluster.hold("token-0")
    stream = Stream(cluster, {"prompt": "On", "max_tokens": 20, "temperature": 0, "ignore_eos": True})
    cluster.wait_held("token-0")
    newer = certificate()
    for name, text in {"cert.pem": newer[0], "key.pem": newer[1], "keys.json": {"keys": KEYS["keys"][1:]}}.items():
        cluster.write(name, text)
    status, _, body = cluster.request("POST", "/admin/reload", headers=ROOT)
    said = json.loads(body)
    assert status == 200 and said["needs_restart"] == [] and said["changed"] == [
        "server/tls_certificate_file: read again", "server/api_keys_file: read again"], body
    # The request's key is gone: the stream ends while its machine is still held, and the request is cancelled there.
    assert "this API key was removed or replaced" in str(stream.end().error), stream.error
    cluster.release()
    who = ("key root", 200)
    assert cluster.audited()[-3:] == [("TLS certificate read again", "", *who), ("API key removed", "user", *who),
                                      ("POST /admin/reload", "", *who)], cluster.audited()
    try:
        cluster.request("GET", "/health")
        raise AssertionError("the old certificate is still shown")
    except ssl.SSLError:
        cluster.tls = trusting(newer[0])
    assert cluster.request("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 401
    cluster.headers.update(ROOT)
    assert cluster.request("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200
    cluster.write("cert.pem", cert)  # The old certificate with the new private key.
    status, _, body = cluster.request("POST", "/admin/reload")
    assert status == 400 and b"it is not the key of the certificate" in body, body
    assert cluster.request("GET", "/health")[0] == 200


def check_mistakes(cert, key):
    other = certificate("other")
    cases = [(files(cert, key), {"server": {**SECRETS, "tls_key_file": ""}}, "tls_certificate_file and tls_key_file"),
             (files(cert, other[1]), {"server": SECRETS}, "it is not the key of the certificate in"),
             (files("no certificate", key), {"server": SECRETS}, "no certificate in PEM"),
             (files(cert, "no key"), {"server": SECRETS}, "no private key in PEM"),
             (files(cert, key, **{"keys.json": {"keys": [{"name": "x"}]}}), {"server": SECRETS}, "/keys/0/key"),
             (files(cert, key), {"server": {**SECRETS, "api_keys_file": "absent.json"}}, "absent.json"),
             (files(cert, key), {"server": SECRETS}, "chmod 600")]
    for number, (content, config, part) in enumerate(cases):
        with tempfile.TemporaryDirectory() as folder:
            config = {"model": MODEL, "http": {"listen": "127.0.0.1:0"}, **config}
            for name, text in {"config.json": config, **content}.items():
                mode = 0o640 if number == len(cases) - 1 and name == "key.pem" else 0o600
                path = os.path.join(folder, name)
                with open(path, "w") as file:
                    file.write(text if isinstance(text, str) else json.dumps(text))
                os.chmod(path, mode)
            for check in ([], ["--check"]):
                done = subprocess.run([BINARY, "serve", os.path.join(folder, "config.json"), *check],
                                      capture_output=True, text=True, timeout=300)
                said = done.stderr + done.stdout
                assert done.returncode in (1, 2) and part in said, (number, check, said)
                assert said.count("\n") == 1 and "0123456789" not in said, said


def check_public():
    """Without keys and TLS, a gateway or machine that other computers could reach starts only if the config allows
    this."""
    public = {"model": MODEL, "http": {"listen": "0.0.0.0:0"}, "pools": {"prompt": ["p0"], "token": ["t0"]}}
    remote = {**public, "http": {"listen": "127.0.0.1:0"}, "machines": {"t0": {"address": "192.0.2.1:7400"}}}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config.json")
        cases = [(public, ["serve", path, "--check"], "server/api_keys_file and server/tls_certificate_file"),
                 (remote, ["serve", path, "--check"], "/machines/t0/address"),
                 (remote, ["machine", path, "t0"], "want cluster/key_file"),
                 ({**public, "server": {"allow_insecure": True}}, ["machine", path, "t0", "--listen", "0.0.0.0:0"],
                  "listen on 0.0.0.0:0: other computers reach it: want cluster/key_file")]
        for config, arguments, part in cases:
            with open(path, "w") as file:
                json.dump(config, file)
            done = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=300)
            assert done.returncode in (1, 2) and part in done.stderr, (arguments, done.stderr)
        with open(path, "w") as file:
            json.dump({**remote, "server": {"allow_insecure": True}, "cluster": {"allow_insecure": True}}, file)
        subprocess.run([BINARY, "serve", path, "--check", "--listen", "0.0.0.0:0"], check=True, capture_output=True,
                       timeout=300)


def check_cluster_key():
    """A machine that is started by hand joins only with the right key. /health reports a wrong key."""
    right, wrong = "r" * 32, "w" * 32
    address = f"127.0.0.1:{free_ports(1)[0]}"
    config = {"pools": {"prompt": ["p0"], "token": ["t0"]}, "cluster": {"key_file": "cluster.key"},
              "kv": {"memory": "64MiB"}, "machines": {"p0": {"local": True}, "t0": {"address": address, "kv_memory": "64MiB"}}}
    with Cluster(config, files={"cluster.key": right, "wrong.key": wrong}, ready=False) as cluster:
        cluster.find_port()
        path = os.path.join(cluster.folder.name, "config.json")
        for key, says in (("wrong.key", "the cluster keys differ"), ("", "it has a cluster key, and here is none"),
                          ("cluster.key", None)):
            machine = subprocess.Popen([BINARY, "machine", path, "t0", "--set", f"cluster/key_file={key}"],
                                       stderr=subprocess.PIPE, text=True)
            try:
                if says is not None:
                    cluster.wait_health(503, says)
                else:
                    cluster.wait_health(200, "ready")
                    assert cluster.post("/v1/completions", {"prompt": "x", "max_tokens": 3})["choices"]
            finally:
                machine.terminate()
                said = machine.communicate(timeout=300)[1]
            assert right not in said and wrong not in said
            assert says is None or "t0" in said


need_model()
check_public()
check_cluster_key()
CERT, KEY = certificate()
check_mistakes(CERT, KEY)
check_served(CERT, KEY)
print("clients with the right keys were served over TLS, all others had their error")
