#!/usr/bin/env python3
"""bench_handshakes: measures what a flood of TLS connections does to a stream of another client.

The machines only wait (the device `wait`), so the figures show the gateway. One client reads a stream; another program
opens connections: full handshakes, handshakes that it stops, garbage. Prints, for each kind of flood, the gaps between
the stream's events, the longest time in which a new client got its first answer, and how busy the gateway was. The
flood's program runs with nice 19, because in reality it would run on another computer. Standard library and openssl
only.
"""

import argparse
import http.client
import json
import os
import select
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("CLEAVE_BINARY", os.path.join(ROOT, "build", "cleave"))
from bench_cluster import cluster  # noqa: E402 (reads CLEAVE_BINARY)
from bench_table import number, table  # noqa: E402

FLOODS = {"none": "no flood",
          "handshakes": "handshakes, each closed after the server's first bytes",
          "burst": "all connections opened first, then all ClientHellos at once",
          "stopped": "half a ClientHello, then nothing",
          "garbage": "plain HTTP"}
KEYS = {"ec": ["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"], "rsa2048": ["rsa:2048"], "rsa4096": ["rsa:4096"]}


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="of each flood (%(default)s)")
    parser.add_argument("--connections", type=int, default=1000, help="open at a time (%(default)s)")
    parser.add_argument("--key", choices=KEYS, default="ec", help="of the certificate (%(default)s)")
    parser.add_argument("--host", default="127.0.0.1",
                        help="address of the gateway (%(default)s); one of the host's other addresses has "
                             "http/connections_per_address_max, but is open to the network, without API keys")
    parser.add_argument("--floods", default=",".join(FLOODS), help="(%(default)s)")
    parser.add_argument("--flood", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def trusting_all():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


# --- the flood: a process of its own ---

def client_hello():
    out = ssl.MemoryBIO()
    session = trusting_all().wrap_bio(ssl.MemoryBIO(), out)
    try:
        session.do_handshake()
    except ssl.SSLWantReadError:
        return out.read()


class Flood:
    """Keeps `connections` sockets open. Each sends `text`; it is replaced when the server answers or closes it."""

    def __init__(self, address, connections, text):
        self.address, self.connections, self.text = address, connections, text
        self.poll, self.sockets, self.ended = select.epoll(), {}, 0

    def open(self, text):
        one = socket.socket()
        one.setblocking(False)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # The port is free at once.
        one.connect_ex(self.address)
        self.sockets[one.fileno()] = [one, text]
        self.poll.register(one, select.EPOLLIN | select.EPOLLOUT)

    def close(self, fd):
        self.ended += 1
        self.poll.unregister(fd)
        self.sockets.pop(fd)[0].close()

    def turn(self, wait_s):
        """Sends the texts of connected sockets, and closes those that were answered."""
        for fd, events in self.poll.poll(wait_s):
            one, text = self.sockets[fd]
            if events & ~select.EPOLLOUT:
                self.close(fd)
                continue
            self.poll.modify(fd, select.EPOLLIN)
            try:
                one.send(text)
            except OSError:
                self.close(fd)

    def steady(self):
        while True:
            while len(self.sockets) < self.connections:
                self.open(self.text)
            self.turn(1)

    def burst(self):
        """Opens all connections first, and then lets all of them send at the same time."""
        while True:
            while len(self.sockets) < self.connections:
                self.open(b"")
            settled = time.monotonic() + 1
            while time.monotonic() < settled:
                self.turn(0.05)
            for one, _ in list(self.sockets.values()):
                try:
                    one.send(self.text)
                except OSError:
                    pass
            end = time.monotonic() + 10
            while self.sockets and time.monotonic() < end:
                self.turn(0.1)
            for fd in list(self.sockets):
                self.close(fd)


def flood(kind, address, connections, seconds):
    hello = client_hello()
    text = {"stopped": hello[:len(hello) // 2],
            "garbage": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"}.get(kind, hello)
    attack = Flood(address, connections, text)

    def end(*_):
        print(attack.ended, flush=True)
        os._exit(0)
    signal.signal(signal.SIGTERM, end)
    signal.alarm(int(seconds) + 60)  # Ends this process if the bench could not.
    attack.burst() if kind == "burst" else attack.steady()


# --- the clients that are measured ---

class Victim(threading.Thread):
    """Reads a stream, and notes the time of each event."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPSConnection(*address, context=trusting_all(), timeout=60)
        self.times, self.failure = [], None
        body = {"prompt": [7] * 20, "max_tokens": 2000, "ignore_eos": True, "stream": True}
        self.connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        self.reply = self.connection.getresponse()
        assert self.reply.status == 200, self.reply.read()
        self.start()

    def run(self):
        try:
            for line in self.reply:
                if line.startswith(b"data:"):
                    self.times.append(time.monotonic())
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.failure = error


class Newcomers(threading.Thread):
    """Ten times a second a client of another address than the flood's connects and sends GET /ping."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.address, self.waits, self.stopped = address, [], False
        self.start()

    def run(self):
        context = trusting_all()
        while not self.stopped:
            begin = time.monotonic()
            connection = http.client.HTTPSConnection(*self.address, context=context, timeout=60,
                                                     source_address=("127.0.0.1", 0))
            try:
                connection.request("GET", "/ping")
                assert connection.getresponse().read()
                self.waits.append((time.monotonic() - begin) * 1e3)
            except (OSError, http.client.HTTPException):
                self.waits.append(float("inf"))
            connection.close()
            time.sleep(0.1)


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(kind, settings, gateway, address):
    victim, newcomers = Victim(address), Newcomers(address)
    time.sleep(1)
    attack = None
    if kind != "none":
        words = ["nice", "-n", "19", sys.executable, os.path.abspath(__file__), "--flood", kind, "--host", address[0],
                 "--port", str(address[1]), "--connections", str(settings.connections),
                 "--seconds", str(settings.seconds)]
        attack = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        time.sleep(1)
    begun, cpu = time.monotonic(), cpu_seconds(gateway)
    newcomers.waits.clear()
    time.sleep(settings.seconds)
    cpu, ended = cpu_seconds(gateway) - cpu, time.monotonic()
    closed = 0
    if attack:
        attack.terminate()
        closed = int(attack.communicate(timeout=30)[0])
    newcomers.stopped = True
    newcomers.join()
    if victim.failure:
        raise SystemExit(f"{kind}: the stream ended: {victim.failure}")
    times = [begun] + [at for at in victim.times if begun <= at <= ended] + [ended]
    gaps = sorted((late - early) * 1e3 for early, late in zip(times, times[1:]))
    victim.connection.sock and victim.connection.sock.shutdown(socket.SHUT_RDWR)
    return [FLOODS[kind], number(closed / (settings.seconds + 1)), number(gaps[len(gaps) // 2]),
            number(gaps[int(len(gaps) * 0.99)]), number(gaps[-1]), number(max(newcomers.waits)),
            number(100 * cpu / (ended - begun))]


def certificate(folder, key):
    paths = [os.path.join(folder, name) for name in ("cert.pem", "key.pem")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", *KEYS[key], "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-out", paths[0], "-keyout", paths[1]], check=True, capture_output=True)
    os.chmod(paths[1], 0o600)
    return paths


def main():
    settings = options()
    if settings.flood:
        return flood(settings.flood, (settings.host, settings.port), settings.connections, settings.seconds)
    with tempfile.TemporaryDirectory() as folder:
        cert, key = certificate(folder, settings.key)
        config = {"http": {"listen": f"{settings.host}:0"}, "machines": {"prompt-0": {"device": "wait:330+0"},
                                                                         "token-0": {"device": "wait:330+0"}},
                  "server": {"tls_certificate_file": cert, "tls_key_file": key, "allow_insecure": True}}
        with cluster.Cluster(config) as server:
            address = (server.host, server.port)
            rows = [measure(kind, settings, server.process.pid, address) for kind in settings.floods.split(",")]
            lost = [line for line in server.logged().splitlines() if "lost" in line or "silent" in line]
    print(table(["flood", "closed/s", "gap P50 ms", "P99", "longest", "new client ms", "gateway CPU %"], rows))
    print(*lost, sep="\n")


if __name__ == "__main__":
    main()
