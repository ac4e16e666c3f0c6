"""Goal: gateways and machines work with an etcd that requires a user, a password and a client certificate. A wrong
password, a file that other users may read, and a missing certificate each cause one clear error. When etcd forgets its
tokens, and when the password is changed, machines stay registered and are found without a restart.

Method: a real etcd with TLS, client certificates and users, with a CA made here. A small imitation of etcd in this
script accepts no token at all. Skipped without etcd or openssl.
"""

import http.server
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import urllib.error

from cluster import MODEL, Cluster, need_model, skip, wait_until
from test_etcd import LEASE_S, PREFIX, Etcd, Machine, b64, text, wait_logged, wait_machines, wait_names

PASSWORD, LATER = "the first password", "the second password"


def certificates(folder):
    """Makes ca.pem, other-ca.pem; server.pem and client.pem of the first CA, with their keys."""
    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=300)
    for ca in ("ca", "other-ca"):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-keyout", f"{ca}.key", "-out", f"{ca}.pem",
                "-subj", f"/CN={ca}")
    with open(os.path.join(folder, "extensions"), "w") as file:  # etcd's JSON gateway is itself a client of etcd.
        file.write("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n"
                   "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n")
    # At its JSON gateway, etcd with users refuses a client certificate that has a common name.
    for name in ("server", "client"):
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key",
                "-out", f"{name}.csr", "-subj", f"/O={name}")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
                "-extfile", "extensions", "-out", f"{name}.pem")
        os.chmod(os.path.join(folder, f"{name}.key"), 0o600)


def start_etcd(folder):
    """Returns the config with the user `cleave`, who may read and write the keys below PREFIX."""
    at = {name: os.path.join(folder, name) for name in ("ca.pem", "server.pem", "server.key", "client.pem", "client.key")}
    context = ssl.create_default_context(cafile=at["ca.pem"])
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # The default since Python 3.13.
    context.load_cert_chain(at["client.pem"], at["client.key"])
    etcd = Etcd(folder, ["--client-cert-auth", "--trusted-ca-file", at["ca.pem"], "--cert-file", at["server.pem"],
                         "--key-file", at["server.key"]], context)
    etcd.start()
    for path, value in (("user/add", {"name": "root", "password": "root"}), ("role/add", {"name": "root"}),
                        ("user/grant", {"user": "root", "role": "root"}),
                        ("user/add", {"name": "cleave", "password": PASSWORD}), ("role/add", {"name": "machines"}),
                        ("role/grant", {"name": "machines", "perm": {"permType": "READWRITE", "key": b64(PREFIX),
                                                                     "range_end": b64(PREFIX[:-1] + "0")}}),
                        ("user/grant", {"user": "cleave", "role": "machines"}), ("enable", {})):
        etcd.post("/v3/auth/" + path, value)
    etcd.token = etcd.post("/v3/auth/authenticate", {"name": "root", "password": "root"})["token"]
    return etcd


def write(folder, name, content, mode=0o600):
    path = os.path.join(folder, name)
    with open(path + ".new", "w", opener=lambda path, flags: os.open(path, flags, mode)) as file:
        file.write(content)
    os.chmod(path + ".new", mode)
    os.replace(path + ".new", path)
    return path


def check_refused_files(config):
    """A gateway does not start with files that it must not use or cannot use."""
    cluster = config["cluster"]
    folder = os.path.dirname(cluster["etcd_ca_file"])
    open_password = write(folder, "open", PASSWORD, 0o644)
    open_key = write(folder, "open.key", open(cluster["etcd_key_file"]).read(), 0o640)
    for change, says in (({"etcd_password_file": open_password}, "/open: mode 0644 lets other users read a secret"),
                         ({"etcd_password_file": write(folder, "empty", "\n")}, "/empty: want a password in the first line"),
                         ({"etcd_key_file": open_key}, "/open.key: mode 0640 lets other users read a secret"),
                         ({"etcd_ca_file": "/nowhere"}, "/nowhere: No such file"),
                         ({"etcd_user": ""}, "want etcd_user and etcd_password_file, or neither"),
                         ({"etcd_key_file": ""}, "want etcd_certificate_file and etcd_key_file, or neither"),
                         ({"etcd_endpoints": "http://127.0.0.1:1"}, "etcd_ca_file and etcd_certificate_file need https://")):
        with Cluster({**config, "cluster": {**cluster, **change}}, ready=False) as gateway:
            assert gateway.process.wait(300) != 0
            assert gateway.logged().count(says) == 1, (says, gateway.logged())


def check_refused_logins(config):
    """A gateway starts, and reports etcd's answer once, however often it tries."""
    cluster = config["cluster"]
    folder = os.path.dirname(cluster["etcd_ca_file"])
    for change, says in (({"etcd_ca_file": os.path.join(folder, "other-ca.pem")}, "certificate"),
                         ({"etcd_certificate_file": "", "etcd_key_file": ""}, "certificate"),
                         ({"etcd_user": "nobody"}, "user nobody: etcdserver: authentication failed, invalid user ID or password"),
                         ({"etcd_user": "", "etcd_password_file": ""}, "etcdserver: user name is empty")):
        with Cluster({**config, "cluster": {**cluster, **change}}, ready=False) as gateway:
            gateway.find_port()
            for _ in range(3):
                gateway.wait_health(503, "machines cannot be found: etcd at https://127.0.0.1")
            wait_logged(gateway, says)
            said = [line for line in gateway.logged().splitlines() if "etcd at" in line]
            assert len(said) == 1 and says in said[0], said


def check_local(config, etcd):
    """The gateway starts a machine; the config names files relative to the config's folder."""
    named = {name: f"file-{name}" for name in config["cluster"] if name.endswith("_file")}
    files = {named[name]: open(config["cluster"][name]).read() for name in named}
    with Cluster({**config, "pools": {"mixed": ["m5"]}, "machines": {"m5": {"local": True}},
                  "cluster": {**config["cluster"], **named}}, files=files) as gateway:
        wait_names(etcd, ["m5"])
        wait_machines([gateway], ["m5"])
    assert etcd.names() == []


def check_served(folder, config, etcd, want):
    password = config["cluster"]["etcd_password_file"]
    machines, machine_config = [], {**config, "pools": {}}
    try:
        write(folder, "password", "a wrong one\n")
        with Cluster({**config, "pools": {}}, ready=False) as gateway:
            gateway.find_port()
            wait_logged(gateway, "user cleave: etcdserver: authentication failed")
            write(folder, "password", PASSWORD + "\n")  # The file is read again at the next login.
            machines.append(Machine(folder, machine_config, "m0", "mixed"))
            wait_machines([gateway], ["m0"])
            assert text(gateway, 0) == want
            assert gateway.logged().count("authentication failed") == 1, gateway.logged()
            start = len(gateway.logged())
            # With another password, etcd ends the user's tokens at once. m0 registers again when its entry is gone.
            write(folder, "password", LATER + "\n")
            etcd.post("/v3/auth/user/changepw", {"name": "cleave", "password": LATER})
            etcd.delete("m0")
            wait_names(etcd, ["m0"])
            # A restarted etcd does not know its earlier tokens.
            etcd.kill()
            before = etcd.token
            etcd.token = None
            etcd.start_process()
            wait_until(lambda: refused(etcd, before), "etcd has forgotten its tokens")
            etcd.token = etcd.post("/v3/auth/authenticate", {"name": "root", "password": "root"})["token"]
            etcd.delete("m0")
            wait_names(etcd, ["m0"])
            machines.append(Machine(folder, machine_config, "m1", "mixed"))
            wait_machines([gateway], ["m0", "m1"])
            assert text(gateway, 0) == want
            said = gateway.logged()[start:] + "".join(machine.logged() for machine in machines)
            assert "token" not in said.replace("kv tokens", "").replace("of 16 tokens", "").replace("prompt to token", ""), said
            for machine in machines:
                machine.end()
            assert etcd.names() == []
            for secret in (PASSWORD, LATER):
                assert secret not in gateway.logged() and not any(secret in machine.logged() for machine in machines)
    except BaseException:
        for machine in machines:
            print(machine.logged(), file=sys.stderr)
        print(gateway.logged(), file=sys.stderr)
        raise
    finally:
        for machine in machines:
            machine.kill()


def refused(etcd, token):
    """Returns whether etcd answers that it does not know this token."""
    etcd.token, kept = token, etcd.token
    try:
        etcd.names()
        return False
    except urllib.error.HTTPError as error:
        return error.code == 401
    except OSError:
        return False  # etcd is not up yet.
    finally:
        etcd.token = kept


class Forgetful(http.server.BaseHTTPRequestHandler):
    """An imitation of etcd that issues tokens and accepts none."""
    protocol_version = "HTTP/1.1"
    logins, lists = 0, 0
    text = "error"  # The key of an error's text, as in etcd 3.4; etcd 3.5 can have "message".

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        login = self.path == "/v3/auth/authenticate"
        if login:
            Forgetful.logins += 1
        else:
            assert self.headers["Authorization"] == f"token-{Forgetful.logins}", self.headers
            Forgetful.lists += 1
        data = json.dumps({"token": f"token-{Forgetful.logins}"} if login else
                          {Forgetful.text: "etcdserver: invalid auth token", "code": 16}).encode()
        self.send_response(200 if login else 401)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        pass


def check_forgetful(folder, text):
    """A refused token causes one more login and one more try. Then the call fails, and waits like any other failed
    call."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Forgetful)
    Forgetful.logins, Forgetful.lists, Forgetful.text = 0, 0, text
    threading.Thread(target=server.serve_forever, daemon=True).start()
    cluster = {"membership": "etcd", "etcd_endpoints": f"http://127.0.0.1:{server.server_address[1]}", "etcd_user": "cleave",
               "etcd_password_file": write(folder, "any", PASSWORD)}
    with Cluster({"pools": {}, "cluster": cluster}, ready=False) as gateway:
        wait_until(lambda: Forgetful.lists >= 6, "three lists and their second tries", cluster=gateway)
        assert Forgetful.logins <= Forgetful.lists // 2 + 2, (Forgetful.logins, Forgetful.lists)
        assert gateway.logged().count("etcdserver: invalid auth token") == 1, gateway.logged()
    server.shutdown()


def main():
    need_model()
    if shutil.which("etcd") is None or shutil.which("openssl") is None:
        skip("etcd or openssl is not installed (Debian: etcd-server, openssl)")
    with Cluster({"threads": 1, "kv": {"memory": "64MiB"}}) as alone:
        want = text(alone, 0)
    with tempfile.TemporaryDirectory(prefix="cleave-test-") as folder:
        check_forgetful(folder, "error")
        check_forgetful(folder, "message")
        certificates(folder)
        etcd = start_etcd(folder)
        cluster = {"membership": "etcd", "etcd_endpoints": etcd.url, "etcd_prefix": "/test/", "etcd_lease_s": LEASE_S,
                   "etcd_user": "cleave", "etcd_password_file": write(folder, "password", PASSWORD + "\n"),
                   "etcd_ca_file": os.path.join(folder, "ca.pem"), "etcd_certificate_file": os.path.join(folder, "client.pem"),
                   "etcd_key_file": os.path.join(folder, "client.key")}
        config = {"model": MODEL, "threads": 1, "kv": {"memory": "64MiB", "dtype": "i16"},
                  "transport": {"silence_ms": 60000}, "cluster": cluster}
        try:
            check_refused_files({**config, "pools": {}})
            check_refused_logins({**config, "pools": {}})
            check_local(config, etcd)
            check_served(folder, config, etcd, want)
        finally:
            etcd.kill()
    print("etcd's user, password and client certificate were asked for and given")


if __name__ == "__main__":
    main()
