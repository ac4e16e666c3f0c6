"""Servers of RESP for tests of the shared store: an imitation that misbehaves on demand, and a real redis-server. All
listen on loopback."""

import os
import socket
import subprocess
import threading
import time


class Fake:
    """A server that behaves as `behaviour` says."""

    def __init__(self, port=0):
        self.values, self.expiries = {}, {}
        self.behaviour, self.connections, self.commands, self.stopped = "good", 0, [], False
        self.open = []
        self.released = threading.Event()
        self.listen(port)

    def listen(self, port):
        self.listener = socket.create_server(("127.0.0.1", port))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def accept(self):
        listener = self.listener
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            self.connections += 1
            self.open.append(connection)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def hang_up(self):
        for connection in self.open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.open = []

    def stop(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join(300)
        self.listener.close()
        self.hang_up()

    def start_again(self):
        self.listen(int(self.address.split(":")[1]))

    def serve(self, connection):
        try:
            with connection, connection.makefile("rb") as file:
                while (head := file.readline()):
                    words = []
                    for _ in range(int(head[1:])):
                        words.append(file.read(int(file.readline()[1:])))
                        file.read(2)
                    self.commands.append(words[0].decode())
                    answer = self.answer(words)
                    if answer is None:
                        return
                    connection.sendall(answer)
        except OSError:
            pass

    def answer(self, words):
        kind = self.behaviour
        if kind == "garbage":
            return b"HTTP/1.1 400 Bad Request\r\n\r\n"
        if kind == "list":
            return b"*2\r\n$1\r\na\r\n*1\r\n:3\r\n"
        if kind == "slow":
            self.released.wait(300)
        if kind == "middle" and words[0] == b"GET":
            return self.last(b"$100000\r\nabc")
        if kind == "flood" and words[0] == b"GET":
            return b"$999999999999\r\n" + b"x" * 1000000
        if kind == "trickle" and words[0] == b"GET":
            return self.trickle()
        if kind == "loading":
            return b"-LOADING Redis is loading the dataset in memory\r\n"
        if kind == "full" and words[0] == b"SET":
            return b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"
        if kind == "refuses" and words[0] == b"AUTH":
            return b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"
        if kind == "tells" and words[0] == b"AUTH":
            return b"-ERR unknown command `AUTH`, with args beginning with: `%s`\r\n" % words[-1]
        return self.good(words)

    def last(self, answer):
        self.open[-1].sendall(answer)
        return None

    def trickle(self):
        self.open[-1].sendall(b"$100000\r\n")
        while self.behaviour == "trickle":
            self.open[-1].sendall(b"x")
            time.sleep(0.02)
        return None

    def good(self, words):
        verb, key = words[0], words[1] if len(words) > 1 else None
        if verb in (b"PING", b"AUTH"):
            return b"+OK\r\n"
        if verb == b"SET":
            if b"NX" in words[3:] and key in self.values:
                return b"$-1\r\n"
            self.values[key] = words[2]
            self.expiries[key] = int(words[-1]) if b"EX" in words[3:] else 0
            return b"+OK\r\n"
        if verb == b"GET":
            value = self.values.get(key)
            return b"$-1\r\n" if value is None else b"$%d\r\n%s\r\n" % (len(value), value)
        if verb in (b"TOUCH", b"EXPIRE"):
            return b":%d\r\n" % (key in self.values)
        assert verb == b"DEL", words
        return b":%d\r\n" % (self.values.pop(key, None) is not None)


def write(folder, name, content, mode=0o600):
    path = os.path.join(folder, name)
    with open(path, "w", opener=lambda path, flags: os.open(path, flags, mode)) as file:
        file.write(content)
    os.chmod(path, mode)
    return path


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Redis:
    def __init__(self, folder, lines=(), tls=False):
        self.folder, self.lines, self.tls = folder, list(lines), tls
        self.process = None
        while not self.start(free_port()):
            pass

    def start(self, port):
        """Returns False if the port is in use."""
        self.address = "127.0.0.1:%d" % port
        port_lines = ["port 0", "tls-port %d" % port] if self.tls else ["port %d" % port]
        path = write(self.folder, "redis.conf", "\n".join(
            port_lines + ["bind 127.0.0.1", 'dir "%s"' % self.folder, 'save ""', "appendonly no", "daemonize no"] + self.lines) + "\n")
        self.log = os.path.join(self.folder, "redis.log")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(["redis-server", path], stdout=log, stderr=log)
        said = ""
        deadline = time.monotonic() + 300
        while "Ready to accept connections" not in said:
            with open(self.log) as log:
                said = log.read()
            assert time.monotonic() < deadline, said
            if self.process.poll() is not None:
                assert "Address already in use" in said, said
                return False
            time.sleep(0.05)
        return True

    def stop(self):
        self.process.kill()
        self.process.wait(300)

    def command(self, *words):
        """Sends a command without TLS as the user `default`, and returns the first line of the answer."""
        host, port = self.address.split(":")
        with socket.create_connection((host, int(port)), timeout=300) as connection, connection.makefile("rb") as file:
            words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
            connection.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
            line = file.readline()
            return file.read(int(line[1:]) + 2)[:-2] if line.startswith(b"$") and line[1:2] != b"-" else line.strip()
