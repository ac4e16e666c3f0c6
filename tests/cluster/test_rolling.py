"""Goal: machines and gateways of one release are replaced by those of the next one while clients stream, one after the
other, and then back: no stream fails, and each has the bytes that an undisturbed cluster gives. Method: two prompt
machines, two token machines and two gateways, each a process of its own; clients send to the gateways that are ready,
as a load balancer does. Each process gets SIGTERM and must end with status 0 before the other release takes its place.
At each step the gateway says which version of the protocol a machine speaks. Without an argument, the older release is
this program with CLEAVE_PROTOCOL, which makes it speak and send as the version before. previous: the older release is
built from the commit in the file previous_release; without git's history the test is skipped.

Then, at fixed mixtures of the two: a token machine that is killed, and one whose answers are handed over."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from cluster import BINARY, MODEL, Cluster, free_ports, need_model, wait_until

SOURCE = os.environ["CLEAVE_SOURCE"]
KEY = "a cluster key of more than 32 bytes\n"
MACHINES = ("prompt-0", "prompt-1", "token-0", "token-1")
CLIENTS, BODIES = 3, 6
# A token machine is replaced again if it generated no answer, or only the end of one, when it was told to end: the
# gateway may let the prompt machines generate the answers.
REPLACEMENTS_MAX = 20
# However the test ends, the kernel then ends its processes.
ENDS_WITH_TEST = ["setpriv", "--pdeathsig", "KILL"]


def protocol_versions():
    with open(os.path.join(SOURCE, "transport/protocol.h")) as file:
        text = file.read()
    return [int(re.search(rf"TRANSPORT_PROTOCOL_{name}\s+(\d+)", text).group(1)) for name in ("LOWEST", "VERSION")]


class Release:
    """A program, with a prefix of its command line, and the highest version of the protocol that it speaks."""

    def __init__(self, name, protocol, binary=BINARY, prefix=()):
        self.name, self.protocol, self.binary, self.prefix = name, protocol, binary, [*ENDS_WITH_TEST, *prefix]


def previous_built(folder):
    """Builds the previous release. Returns None, with the reason on standard output, where that is impossible."""
    with open(os.path.join(SOURCE, "tests/cluster/previous_release")) as file:
        words = dict(line.split() for line in file if line.strip() and not line.startswith("#"))
    commit = words["commit"]
    if subprocess.run(["git", "-C", SOURCE, "cat-file", "-e", commit + "^{commit}"], stderr=subprocess.DEVNULL,
                      check=False).returncode != 0:
        print(f"SKIP: commit {commit} is not in this checkout's history")
        return None
    source, build = os.path.join(folder, "source"), os.path.join(folder, "build")
    os.makedirs(source)
    archive = subprocess.run(["git", "-C", SOURCE, "archive", commit], stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x", "-C", source], input=archive, check=True)
    for command in (["meson", "setup", build, source, "--buildtype=release", "-Dtests=false", "-Dcuda=disabled"],
                    ["ninja", "-C", build, "cleave"]):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        assert done.returncode == 0, done.stdout.decode()[-4000:]
    return Release("previous", int(words["protocol"]), os.path.join(build, "cleave"))


class Gateway(Cluster):
    """A gateway whose config has no keys of the tests' defaults, which an older release may not know."""

    def write(self, name, content, mode=0o600):
        return super().write(name, content if isinstance(content, str) else json.dumps(content), mode)


class Rolling:
    """The processes of the cluster, by name, and the clients. end() ends those that were started."""

    def __init__(self, folder):
        self.folder, self.processes, self.gateways = folder, {}, {}
        ports = free_ports(len(MACHINES) + 2)
        self.http_ports = dict(zip(("g0", "g1"), ports[len(MACHINES):]))
        self.config = {
            "model": MODEL, "threads": 1, "pools": {"prompt": list(MACHINES[:2]), "token": list(MACHINES[2:])},
            "machines": {name: {"address": f"127.0.0.1:{port}", "local": False} for name, port in zip(MACHINES, ports)},
            "cluster": {"key_file": "cluster.key"}, "kv": {"memory": "64MiB"}, "transport": {"silence_ms": 60000},
            "scheduler": {"handover_tokens_min": 4}}
        self.path = os.path.join(folder, "config.json")
        with open(self.path, "w") as file:
            json.dump(self.config, file)
        with open(os.path.join(folder, "cluster.key"), "w", opener=lambda p, flags: os.open(p, flags, 0o600)) as file:
            file.write(KEY)
        self.log = open(os.path.join(folder, "machines.log"), "w")
        self.done, self.errors, self.stopping, self.threads = 0, [], False, []

    def start(self, release):
        for name in MACHINES:
            self.machine_start(name, release)
        for name in self.http_ports:
            self.gateway_start(name, release)

    def machine_start(self, name, release):
        self.processes[name] = (release, subprocess.Popen(
            [*release.prefix, release.binary, "machine", self.path, name], stdin=subprocess.DEVNULL, stdout=self.log,
            stderr=self.log))

    def gateway_start(self, name, release):
        config = {**self.config, "http": {"listen": f"127.0.0.1:{self.http_ports[name]}"}}
        self.gateways[name] = Gateway(config, files={"cluster.key": KEY}, binary=release.binary, prefix=release.prefix)
        self.gateways[name].program = release
        self.gateways[name].wait_health(200, "ready")

    def speaks(self, gateway, name, want):
        """Returns whether a machine is up at a gateway, by this version (a gateway before version 31 does not say which
        it is), and linked to both machines of the other pool."""
        state = json.loads(gateway.request("GET", "/admin/state")[2])
        machine = next(each for each in state["machines"] if each["name"] == name)
        pairs = {(link["from"], link["to"]) for link in state["links"] if link["up"]}
        linked = all((a, b) in pairs for a in MACHINES[:2] for b in MACHINES[2:] if name in (a, b))
        up = machine["connection"] == "up" and not machine["draining"]
        return linked and up and machine.get("protocol", want if gateway.program.protocol < 31 else None) == want

    def wait_protocols(self):
        """Waits until all gateways use all machines, over the highest version that both sides speak."""
        for gateway in self.gateways.values():
            for name in MACHINES:
                want = min(gateway.program.protocol, self.processes[name][0].protocol)
                wait_until(lambda: self.speaks(gateway, name, want), f"{name} by version {want}", cluster=gateway)

    def machine_replace(self, name, release):
        process = self.processes[name][1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0, name
        self.machine_start(name, release)
        self.wait_protocols()

    def gateway_replace(self, name, release):
        """The gateway stops to be ready, finishes its streams and ends; the other one has all clients meanwhile."""
        old = self.gateways.pop(name)
        assert old.stop() == 0
        self.gateway_start(name, release)
        self.wait_protocols()

    # ---- clients ----

    def body(self, n):
        prompt = [(n * 31 + k * 13) % 40000 + 100 for k in range(100)]
        return {"prompt": prompt, "max_tokens": 48, "temperature": 0.8, "seed": n, "ignore_eos": True}

    def ask(self, n):
        """Streams one answer from a gateway that is ready, as a load balancer chooses it. Only a gateway that refuses
        the connection or the request before it begins to answer is left for another one."""
        while True:
            for gateway in list(self.gateways.values()):
                try:
                    if gateway.request("GET", "/health")[0] != 200:
                        continue
                    connection = gateway.connect()
                    connection.request("POST", "/v1/completions", json.dumps({**self.body(n), "stream": True}),
                                       gateway.headers)
                    reply = connection.getresponse()
                except OSError:
                    continue
                if reply.status in (429, 503):
                    continue
                assert reply.status == 200, (reply.status, reply.read())
                text, ended = "", False
                for line in reply:
                    line = line.decode().strip()
                    ended = ended or line == "data: [DONE]"
                    if line.startswith("data: {"):
                        event = json.loads(line[6:])
                        assert "error" not in event, line
                        text += event["choices"][0]["text"] if event["choices"] else ""
                assert ended, f"the stream ended early after {len(text)} characters"
                return text
            time.sleep(0.02)

    def client(self, first):
        n = first
        while not self.stopping:
            try:
                text = self.ask(n % BODIES)
                assert text == self.want[n % BODIES], (text, self.want[n % BODIES])
                self.done += 1
            except Exception as error:  # The test judges every exception.
                self.errors.append(repr(error))
                return
            n += 1

    def clients_start(self, want):
        self.want = want
        self.threads = [threading.Thread(target=self.client, args=(i,), daemon=True) for i in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def answers_wait(self, count):
        """Waits until `count` more answers have ended well."""
        before = self.done
        wait_until(lambda: self.done >= before + count or self.errors, "answers",
                   cluster=next(iter(self.gateways.values())))
        assert not self.errors, (self.errors, self.logs())

    def handed_over(self):
        return sum(gateway.metric("cleave_requests_handed_over_total") for gateway in self.gateways.values())

    def clients_stop(self):
        self.stopping = True
        for thread in self.threads:
            thread.join(300)
            assert not thread.is_alive()
        assert not self.errors, (self.errors, self.logs())

    def logs(self):
        return "\n".join([open(self.log.name).read(), *(gateway.logged() for gateway in self.gateways.values())])

    def end(self):
        """Asks all processes to end; those that still drain after a minute are killed."""
        self.stopping = True
        processes = [gateway.process for gateway in self.gateways.values()]
        processes += [process for _, process in self.processes.values()]
        for process in processes:
            process.terminate()
        deadline = time.monotonic() + 60
        for process in processes:
            try:
                process.wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for gateway in self.gateways.values():
            gateway.stop()
        self.log.close()


def check_roll(rolling, new, old):
    """All machines and gateways, one by one, to the new release and back."""
    for release in (new, old):
        for name in MACHINES:
            rolling.machine_replace(name, release)
            rolling.answers_wait(CLIENTS)
        for name in ("g0", "g1"):
            rolling.gateway_replace(name, release)
            rolling.answers_wait(CLIENTS)
        print(f"{rolling.done} streams so far; all processes are of the release \"{release.name}\" now")


def check_mixtures(rolling, new, old):
    """Gateway g0 is new and g1 old; prompt-0 and token-0 are new. A token machine of either release is killed, and the
    answers of either are handed over."""
    rolling.gateway_replace("g0", new)
    for name in ("prompt-0", "token-0"):
        rolling.machine_replace(name, new)
    for name in ("token-0", "token-1"):
        release, process = rolling.processes[name]
        process.kill()
        process.wait(300)
        rolling.answers_wait(2 * CLIENTS)
        rolling.machine_start(name, release)
        rolling.wait_protocols()
        rolling.answers_wait(CLIENTS)
        before = rolling.handed_over()
        for _ in range(REPLACEMENTS_MAX):
            rolling.machine_replace(name, release)
            rolling.answers_wait(CLIENTS)
            if rolling.handed_over() > before:
                break
        assert rolling.handed_over() > before, (name, rolling.logs())
    print(f"{rolling.done} streams; answers handed over between the releases: {rolling.handed_over():.0f}")


def main():
    need_model()
    lowest, highest = protocol_versions()
    with tempfile.TemporaryDirectory(prefix="cleave-test-") as folder:
        new = Release("this one", highest)
        if sys.argv[1:] == ["previous"]:
            old = previous_built(folder)
            if old is None:
                sys.exit(77)
            assert lowest <= old.protocol, "this release refuses the previous one: CHANGELOG.md must say so"
        else:
            if lowest == highest:
                print("SKIP: this program speaks one version only")
                sys.exit(77)
            old = Release("the version before", highest - 1, prefix=["env", f"CLEAVE_PROTOCOL={highest - 1}"])
        rolling = Rolling(folder)
        try:
            rolling.start(old)
            rolling.wait_protocols()
            want = [rolling.ask(n) for n in range(BODIES)]
            rolling.clients_start(want)
            check_roll(rolling, new, old)
            check_mixtures(rolling, new, old)
            rolling.clients_stop()
        except BaseException:
            print(rolling.logs()[-20000:], file=sys.stderr)
            raise
        finally:
            rolling.end()
        said = open(rolling.log.name).read() if os.path.exists(rolling.log.name) else ""
        assert "not valid" not in said and "assert" not in said.lower(), said[-4000:]


main()
print("two releases replaced each other under load, and no stream failed")
