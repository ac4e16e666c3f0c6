"""Goal: the backend for a shared store (kvcache/tiers/tier_store.h) stores and finds records in one server or several, and
a server that is down, slow, full, closed to this user or no RESP server at all costs one clear error, at most one call's
time, and nothing else; no password gets into an error.

Method: the program store_client makes the calls. `fake`: the servers are threads of this script, which misbehave on
demand. `redis`: the server is a real redis-server, with users, TLS and little memory; skipped without redis-server.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time

from resp_servers import Fake, Redis, write

CLIENT, MODE = sys.argv[1:3]
LONG_MS, SHORT_MS = 300000, 300
RECORD = 100000
PASSWORD = "a good password"


def wait_until(true, what, seconds=300):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


class Client:
    """The backend in a process of its own. ca: None = no TLS."""

    def __init__(self, servers, user="", password_file="", ca=None, expire_s=0, call_ms=LONG_MS, record=RECORD, opens=True):
        self.process = subprocess.Popen([CLIENT, ", ".join(servers), user, password_file, "-" if ca is None else ca,
                                         str(expire_s), str(call_ms), str(record)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.said = ""
        if opens:
            self.want("ok", "open")

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self.process.stdin.close()
        assert self.process.wait(300) == 0
        self.process.stdout.close()
        assert PASSWORD not in self.said and "good" not in self.said, self.said

    def send(self, *words):
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()

    def call(self, *words):
        self.send(*words)
        line = self.process.stdout.readline()
        if line.startswith("SKIP"):
            print(line.strip())
            sys.exit(77)
        self.said += line
        return line.rstrip("\n")

    def want(self, answer, *words):
        got = self.call(*words)
        assert got == answer, (words[:3], got)

    def want_part(self, status, part, *words):
        got = self.call(*words)
        assert got.startswith(status + ": ") and part in got, (words[:3], got)


def check_good():
    server = Fake()
    with Client([server.address]) as client:
        client.want("ok 0", "has", "a", "b")
        client.want_part("not found", "no record", "get", "a")
        client.want("ok", "put", "a")
        client.want("ok", "put", "b")
        client.want("ok", "put", "b")  # It is there already.
        client.want("ok", "get", "a")
        client.want("ok 2", "has", "a", "b", "c", "a")
        client.want("ok", "drop", "a")
        client.want("ok", "drop", "a")
        client.want("ok 0", "has", "a", "b")
        names = ["n%d" % i for i in range(700)]
        for name in names[:600]:
            client.want("ok", "put", name)
        client.want("ok 600", "has", *names)
        assert server.connections == 1, server.connections
        server.hang_up()  # As a server does with idle connections; that is no failure.
        wait_until(lambda: not server.open, "the connection has ended")
        client.want("ok", "get", "b")
        assert all(key.startswith(b"cleave:") and len(key) == 71 for key in server.values)
        assert set(server.expiries.values()) == {0} and "EXPIRE" not in server.commands
    with Client([server.address], expire_s=77) as client:
        client.want("ok", "put", "d")
        client.want("ok 1", "has", "d")
        assert 77 in server.expiries.values() and server.commands[-1] == "EXPIRE"
    server.stop()


def check_recovers(server, client, name):
    server.behaviour = "good"
    wait_until(lambda: client.call("get", name) == "ok", "the server is asked again")


def check_garbage():
    """Damaged or strange answers."""
    server = Fake()
    with Client([server.address]) as client:
        client.want("ok", "put", "a")
        for behaviour, status, part in (("garbage", "unreachable", "is not RESP"), ("list", "unreachable", "of an unexpected kind"),
                                        ("flood", "unreachable", "larger than a block"),
                                        ("middle", "unreachable", "closed the connection"),
                                        ("loading", "unreachable", "LOADING Redis is loading")):
            server.behaviour = behaviour
            client.want_part(status, "store %s: " % server.address, "get", "a")
            assert part in client.said.splitlines()[-1], client.said
            connections = server.connections
            client.want_part("unreachable", part, "get", "a")  # It is skipped.
            client.want_part("unreachable", part, "has", "a")
            client.want_part("unreachable", part, "put", "b")
            assert server.connections == connections
            check_recovers(server, client, "a")
        key = next(iter(server.values))
        server.values[key] = server.values[key][:-1]
        client.want_part("invalid", "a record has 99999 bytes instead of 100000", "get", "a")
        client.want("ok", "drop", "a")
        client.want_part("not found", "", "get", "a")
    server.stop()


def check_slow():
    server = Fake()
    with Client([server.address], call_ms=SHORT_MS, opens=False) as client:
        wait_until(lambda: client.call("open") == "ok", "the store is open")
        wait_until(lambda: client.call("put", "a") == "ok", "a record is stored")
        for behaviour, part in (("slow", "no answer within the time limit"), ("trickle", "within the time limit")):
            wait_until(lambda: client.call("get", "a") == "ok", "the server is asked again")
            server.behaviour = behaviour
            client.want_part("unreachable", "store %s: " % server.address, "get", "a")
            assert part in client.said.splitlines()[-1], client.said
            server.released.set()
            check_recovers(server, client, "a")
    server.stop()


def check_hurried():
    """The caller's deadlines end the calls before the server's time limit: only the third in a row is a failure."""
    server = Fake()
    with Client([server.address]) as client:
        client.want("ok", "put", "a")
        server.behaviour = "slow"
        client.send("limit", "100")
        for call in (("get", "a"), ("has", "a")):
            client.want_part("not found", "no answer within the time limit", *call)
        client.want_part("unreachable", "no answer within the time limit", "get", "a")
        connections = server.connections
        client.want_part("unreachable", "no answer within the time limit", "get", "a")
        assert server.connections == connections
        client.send("limit", str(LONG_MS))
        server.released.set()
        check_recovers(server, client, "a")
    server.stop()


def check_full():
    server = Fake()
    with Client([server.address]) as client:
        client.want("ok", "put", "a")
        server.behaviour = "full"
        client.want_part("no resource", "store %s stores nothing: OOM command not allowed" % server.address, "put", "b")
        commands = len(server.commands)
        client.want_part("no resource", "stores nothing: OOM", "put", "c")
        assert len(server.commands) == commands
        client.want("ok", "get", "a")  # It is still read.
        server.behaviour = "good"
        wait_until(lambda: client.call("put", "b") == "ok", "the server is asked to store again")
        client.want("ok", "get", "b")
    server.stop()


def check_password(folder):
    server = Fake()
    path = write(folder, "password", PASSWORD + "\nnotes\n")
    for behaviour, part in (("refuses", "(WRONGPASS)"), ("tells", "(ERR)")):
        server.behaviour = behaviour
        with Client([server.address], user="cleave", password_file=path, opens=False) as client:
            client.want_part("unreachable", "store %s: the server refuses user or password %s" % (server.address, part), "open")
            server.behaviour = "good"
            wait_until(lambda: client.call("open") == "ok", "the server takes the password")
    for content, mode, part in ((PASSWORD, 0o644, "mode 0644 lets other users read a secret"), ("\n", 0o600, "want a password")):
        check_refused([server.address], part, password_file=write(folder, "other", content, mode))
    check_refused([server.address], "No such file", password_file="/nowhere")
    check_refused(["nothing"], 'want "host:port"')
    check_refused(["h:%d" % i for i in range(17)], "want up to 16 addresses")
    check_refused([server.address], "/nowhere: ", ca="/nowhere")
    server.stop()


def check_refused(servers, part, **options):
    """No backend is made."""
    client = Client(servers, opens=False, **options)
    said, _ = client.process.communicate(timeout=300)
    if said.startswith("SKIP"):
        print(said)
        sys.exit(77)
    assert client.process.returncode == 1 and part in said, said


def check_several():
    servers = [Fake() for _ in range(3)]
    names = ["n%d" % i for i in range(120)]
    with Client([server.address for server in servers]) as client:
        for name in names:
            client.want("ok", "put", name)
        counts = [len(server.values) for server in servers]
        assert sum(counts) == len(names) and min(counts) > 10, counts
        client.want("ok 120", "has", *names, "absent")
        # A client with the same servers in another order finds all; one with a server less, those of the other two.
        with Client([server.address for server in reversed(servers)]) as other:
            other.want("ok 120", "has", *names)
        with Client([server.address for server in servers[:2]]) as other:
            found = sum(other.call("get", name) == "ok" for name in names)
            assert found == counts[0] + counts[1], (found, counts)
        gone = servers[1]
        gone.stop()
        answers = [client.call("get", name) for name in names]
        failed = [answer for answer in answers if answer.startswith("unreachable")]
        absent = [answer for answer in answers if answer.startswith("not found")]
        assert len(failed) == 1 and gone.address in failed[0], failed
        assert len(absent) == counts[1] - 1 and answers.count("ok") == len(names) - counts[1], answers
        for name in names:
            client.want("ok", "put", name)  # Its names belong to the others meanwhile.
        client.want("ok 120", "has", *names)
        gone.start_again()
        size = len(gone.values)

        def back():
            client.call("put", "more%d" % len(client.said))
            return len(gone.values) > size
        wait_until(back, "the server is used again")
    servers[1].stop()
    with Client([server.address for server in servers], opens=False) as client:
        client.want_part("ok", "without 1 of 3 servers: store %s: " % servers[1].address, "open")
    for server in (servers[0], servers[2]):
        server.stop()
    with Client([server.address for server in servers], opens=False) as client:
        client.want_part("unreachable", "Connection refused", "open")


def check_redis(folder):
    server = Redis(folder, ["maxmemory 8mb", "maxmemory-policy noeviction"])
    try:
        with Client([server.address], expire_s=1000) as client, Client([server.address], record=RECORD) as other:
            client.want("ok", "put", "a")
            client.want("ok", "put", "a")
            client.want("ok", "get", "a")
            other.want("ok", "get", "a")
            key = server.command("RANDOMKEY")
            assert 0 < int(server.command("TTL", key)[1:]) <= 1000
            server.command("EXPIRE", key, 500)
            client.want("ok 1", "has", "a", "b")
            assert int(server.command("TTL", key)[1:]) > 500  # A record that is looked for is kept.
            client.want("ok", "drop", "a")
            client.want_part("not found", "", "get", "a")
            stored = 0
            while (answer := other.call("put", "n%d" % stored)) == "ok":
                stored += 1
                assert stored < 1000
            assert answer.startswith("no resource") and "stores nothing: OOM command not allowed" in answer, answer
            other.want("ok %d" % stored, "has", *["n%d" % i for i in range(stored + 5)])
            server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            wait_until(lambda: other.call("put", "later") == "ok", "the server stores again")
            port = int(server.address.split(":")[1])
            server.stop()
            assert server.start(port)
            other.want_part("not found", "", "get", "later")  # The new process has no values.
            other.want("ok", "put", "later")
            server.command("REPLICAOF", "127.0.0.1", "1")
            other.want_part("no resource", "READONLY", "put", "more")
    finally:
        server.stop()


def check_redis_uses(folder):
    """A record that is looked up counts as used, so that a server with an eviction policy keeps it. Without time: a use
    raises the counter of the policy LFU, here always by one."""
    server = Redis(folder, ["maxmemory-policy allkeys-lfu", "lfu-log-factor 0"])
    try:
        for expire_s in (0, 1000):
            with Client([server.address], expire_s=expire_s) as client:
                client.want("ok", "put", "a")
                key = server.command("RANDOMKEY")
                uses = int(server.command("OBJECT", "FREQ", key)[1:])
                client.want("ok 1", "has", "a", "b")
                assert int(server.command("OBJECT", "FREQ", key)[1:]) == uses + 1
    finally:
        server.stop()


def check_redis_users(folder):
    server = Redis(folder, ["user default off", "user cleave on >first-secret ~cleave:* +ping +get +set +touch +expire +del",
                            "user stranger on >first-secret ~other:* +@all"])
    password = write(folder, "password", "first-secret\n")
    try:
        with Client([server.address], user="cleave", password_file=password, expire_s=60) as client:
            client.want("ok", "put", "a")
            client.want("ok 1", "has", "a")
            client.want("ok", "get", "a")
            client.want("ok", "drop", "a")
        with Client([server.address], user="stranger", password_file=password) as client:
            client.want_part("unreachable", "NOPERM", "get", "a")
        with Client([server.address], opens=False) as client:
            client.want_part("unreachable", "NOAUTH", "open")
        write(folder, "password", "wrong-secret\n")
        with Client([server.address], user="cleave", password_file=password, opens=False) as client:
            client.want_part("unreachable", "refuses user or password (WRONGPASS)", "open")
            write(folder, "password", "first-secret\n")  # It is read again at each login.
            wait_until(lambda: client.call("open") == "ok", "the password is right")
            assert "secret" not in client.said
    finally:
        server.stop()


def certificates(folder):
    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=300)
    for ca in ("ca", "other-ca"):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-keyout", ca + ".key", "-out", ca + ".pem", "-subj", "/CN=" + ca)
    for name, subject in (("server", "IP:127.0.0.1"), ("elsewhere", "DNS:elsewhere.example")):
        write(folder, "extensions", "subjectAltName=%s\n" % subject)
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", name + ".key",
                "-out", name + ".csr", "-subj", "/O=" + name)
        openssl("x509", "-req", "-in", name + ".csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
                "-extfile", "extensions", "-out", name + ".pem")


def check_redis_tls(folder):
    if "libssl" not in subprocess.run(["ldd", shutil.which("redis-server")], capture_output=True, text=True).stdout:
        print("not tried: this redis-server was built without TLS")
        return
    if shutil.which("openssl") is None:
        print("not tried: TLS, because openssl is not installed (Debian: openssl)")
        return
    certificates(folder)

    def lines(name):
        return ["tls-cert-file %s/%s.pem" % (folder, name), "tls-key-file %s/%s.key" % (folder, name), "tls-auth-clients no",
                "requirepass tls-secret"]
    password = write(folder, "password", "tls-secret")
    at = {name: os.path.join(folder, name + ".pem") for name in ("ca", "other-ca")}
    server = Redis(folder, lines("server"), tls=True)
    try:
        with Client([server.address], password_file=password, ca=at["ca"], record=3000000) as client:
            names = ["n%d" % i for i in range(300)]
            for name in names[:5]:
                client.want("ok", "put", name)
                client.want("ok", "get", name)
            client.want("ok 5", "has", *names)
        for options, part in (({"ca": at["other-ca"]}, "certificate is NOT trusted"), ({"ca": ""}, "certificate is NOT trusted"),
                              ({}, "store " + server.address)):  # The last one without TLS.
            with Client([server.address], password_file=password, opens=False, **options) as client:
                client.want_part("unreachable", part, "open")
    finally:
        server.stop()
    server = Redis(folder, lines("elsewhere"), tls=True)
    try:
        with Client([server.address], password_file=password, ca=at["ca"], opens=False) as client:
            client.want_part("unreachable", "does not match", "open")
    finally:
        server.stop()


def main():
    with tempfile.TemporaryDirectory(prefix="cleave-test-") as folder:
        if MODE == "fake":
            check_good()
            check_garbage()
            check_slow()
            check_hurried()
            check_full()
            check_password(folder)
            check_several()
        else:
            if shutil.which("redis-server") is None:
                print("SKIP: redis-server is not installed (Debian: redis-server)")
                sys.exit(77)
            check_redis(folder)
            check_redis_uses(folder)
            check_redis_users(folder)
            check_redis_tls(folder)
    print("the store's backend did all that was wanted")


if __name__ == "__main__":
    main()
