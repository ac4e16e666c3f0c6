#!/usr/bin/env python3
"""try-hosts.py [--suite SUITE] [--only-docs] [--previous DEB] DEB: two fresh minimal Debians, each with systemd as its first process.

Needs root, debootstrap, systemd-nspawn, iproute2 and the default model. Each host is a folder that systemd-nspawn boots,
with processes, mounts, users' /etc and a network of its own; a cable (veth) joins the networks. Only apt uses this
computer's network, and "scp" copies between the folders.

1. The commands of the section "Two hosts" of docs/install.md, as they stand there, until a stream has ended.
2. The units on these hosts: what systemd sees of the service, its limits, reload, a process that stands still, crashes,
   the journal, a stop while an answer is running.
3. With --previous, on the same hosts: the package of the previous release, with a gateway, a prompt machine and a token
   machine on each host. While clients stream, the commands of docs/upgrade.md upgrade one host and then the other. No
   stream fails, and each has the bytes that it had before.
"""
import argparse
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

from fresh_debian import MODEL, base_make, model_path, say

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIMIT_S = 300
ADDRESSES = {"a": "10.77.0.1", "b": "10.77.0.2"}
ENVIRONMENT = ["env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8",
               "DEBIAN_FRONTEND=noninteractive"]
# scp -p FILE… root@ADDRESS:FOLDER, through the folder that both hosts see.
SCP = """#!/bin/sh
set -e
[ "$1" != -p ] || shift
mkdir -p /run/cable/files
while [ $# -gt 1 ]; do cp -p "$1" /run/cable/files/; shift; done
echo "${1#*@}" >/run/cable/request
until [ ! -e /run/cable/request ]; do sleep 0.1; done
"""


def until(condition, what, seconds=LIMIT_S):
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            sys.exit(f"try-hosts: {what}: not within {seconds} s")
        time.sleep(0.2)


class Host:
    """A folder with a Debian; its processes and its network."""

    def __init__(self, name, root, cable):
        self.name, self.root, self.cable = name, root, cable
        self.holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo made; exec cat"], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE)
        self.holder.stdout.readline()
        self.net = f"/proc/{self.holder.pid}/ns/net"
        self.nspawn, self.init = None, None

    def boot(self):
        # Without a systemd on this computer there is no unit to register the container in.
        keep = [] if os.path.isdir("/run/systemd/system") else ["--keep-unit"]
        self.nspawn = subprocess.Popen(
            ["systemd-nspawn", "--quiet", "--boot", "--register=no", *keep, f"--directory={self.root}",
             f"--machine=cleave-{self.name}-{os.getpid()}", f"--hostname={self.name}", "--console=pipe",
             f"--network-namespace-path={self.net}", "--resolv-conf=off", f"--bind={self.cable}:/run/cable"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"})
        self.init = until(self.init_find, f"{self.name}: systemd", 60)
        until(lambda: self.run("systemctl is-system-running", check=False).strip() in ("running", "degraded"),
              f"{self.name}: booted", 120)

    def init_find(self):
        if self.nspawn.poll() is not None:
            sys.exit(f"try-hosts: systemd-nspawn ended with {self.nspawn.returncode}")
        children = subprocess.run(["pgrep", "-P", str(self.nspawn.pid), "-x", "systemd"], capture_output=True, text=True,
                                  check=False)
        return children.stdout.split()[0] if children.stdout.strip() else None

    def command(self, text, outside=False):
        """The command that runs a shell's text on the host; outside = with this computer's network."""
        spaces = ["--mount", "--uts", "--ipc", "--pid", "--cgroup", "--root", "--wd"] + ([] if outside else ["--net"])
        return ["nsenter", "-t", str(self.init), *spaces, *ENVIRONMENT, "bash", "-ec", "cd; " + text]

    def start(self, text, outside=False):
        return subprocess.Popen(self.command(text, outside), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def run(self, text, check=True, outside=False, seconds=LIMIT_S):
        done = subprocess.run(self.command(text, outside), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=seconds, check=False)
        if check and done.returncode != 0:
            journal = self.run("journalctl -n 30 --no-pager", check=False)
            sys.exit(f"try-hosts: {self.name}: {text}: status {done.returncode}\n{done.stdout[-3000:]}\n{journal}")
        return done.stdout

    def show(self, unit, *names):
        """Properties of a unit, as a dictionary."""
        text = self.run(f"systemctl show {unit} " + " ".join(f"-p {name}" for name in names))
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    def journal(self, unit, options=""):
        return self.run(f"journalctl --no-pager -u '{unit}' {options}")

    def close(self):
        if self.nspawn is not None:
            for _ in range(2):  # The second one does not wait for its services.
                self.nspawn.send_signal(signal.SIGTERM)
                try:
                    self.nspawn.wait(timeout=15)
                    break
                except subprocess.TimeoutExpired:
                    continue
            else:
                self.nspawn.kill()
                self.nspawn.wait()
        self.holder.stdin.close()
        self.holder.wait()


def cable_lay(a, b):
    def ip(host, *words):
        subprocess.run(["nsenter", f"--net={host.net}", "ip", *words], check=True)
    ip(a, "link", "add", "host0", "type", "veth", "peer", "name", "host0", "netns", str(b.holder.pid))
    for host in (a, b):
        ip(host, "link", "set", "lo", "up")
        ip(host, "addr", "add", ADDRESSES[host.name] + "/24", "dev", "host0")
        ip(host, "link", "set", "host0", "up")


def scp_serve(hosts, cable):
    """Does what a host's scp has asked for; see SCP."""
    request = os.path.join(cable, "request")
    if not os.path.exists(request):
        return
    with open(request, encoding="utf-8") as file:
        address, _, folder = file.read().strip().partition(":")
    host = next(host for host in hosts.values() if ADDRESSES[host.name] == address)
    for name in os.listdir(os.path.join(cable, "files")):
        shutil.move(os.path.join(cable, "files", name), host.root + folder + name)
    os.remove(request)


# ---- the commands of the docs ----


def upgrade_block():
    """The commands of docs/upgrade.md for one host."""
    with open(os.path.join(SOURCE, "docs/upgrade.md"), encoding="utf-8") as file:
        return re.search(r"(?ms)^```sh\n# on each host\b.*?\n(.*?)^```", file.read()).group(1)


def docs_blocks():
    """Yields (hosts, text) of each block of commands of "Two hosts". Its first line is a comment with the hosts."""
    with open(os.path.join(SOURCE, "docs/install.md"), encoding="utf-8") as file:
        section = re.split(r"(?m)^## ", file.read().split("\n## Two hosts\n", 1)[1])[0]
    for text in re.findall(r"(?ms)^```sh\n(.*?)^```", section):
        where = re.match(r"# on (a|b|both hosts)\b.*\n", text)
        assert where, f"the block names no host: {text}"
        yield ("a", "b") if where.group(1) == "both hosts" else (where.group(1),), text[where.end():]


def pieces_of(text):
    """The commands of a block in pieces, because apt alone has this computer's network."""
    return [piece for piece in re.split(r"(?m)^(apt-get .*\n)", text) if piece.strip()]


def docs_run(hosts, cable):
    """Runs the blocks in order. Returns what the last one printed."""
    shown = ""
    for names, text in docs_blocks():
        for piece in pieces_of(text):
            running = [(name, hosts[name].start(piece, outside=piece.startswith("apt-get"))) for name in names]
            deadline = time.monotonic() + LIMIT_S
            outputs = {}
            while len(outputs) < len(running):
                scp_serve(hosts, cable)
                for name, process in running:
                    try:
                        outputs[name] = outputs.get(name) or process.communicate(timeout=0.2)[0]
                    except subprocess.TimeoutExpired:
                        pass
                if time.monotonic() > deadline:
                    sys.exit(f"try-hosts: not done after {LIMIT_S} s: {piece}")
            for name, process in running:
                if process.returncode != 0:
                    sys.exit(f"try-hosts: {name}: {piece}: status {process.returncode}\n{outputs[name][-3000:]}\n"
                             + hosts[name].run("journalctl -n 40 --no-pager", check=False))
            shown = outputs[names[-1]]
            first = piece.strip().splitlines()[0]
            say(f"{time.monotonic() - docs_run.begun:5.1f} s  on {' and '.join(names)}: {first}")
    return shown


# ---- the units ----


def stream(host, tokens, prompt="What is gravity?"):
    body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "temperature": 0, "stream": True,
            "ignore_eos": True}
    return host.start("curl -sSN http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' "
                      f"-d '{json.dumps(body)}'")


def check_stream(host, tokens=16):
    out = stream(host, tokens).communicate(timeout=LIMIT_S)[0]
    assert "data: [DONE]" in out and out.count('"content"') >= tokens // 2, out


def is_ready(host):
    return "200" in host.run("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8080/health", check=False)


def check_state(a, b):
    """Type=notify: the units are active, and say what they do."""
    for host, unit in ((a, "cleave"), (b, "cleave-machine@token-0")):
        shown = host.show(unit, "ActiveState", "SubState", "Type", "StatusText", "User", "WatchdogUSec", "NRestarts")
        assert shown["ActiveState"] == "active" and shown["SubState"] == "running" and shown["Type"] == "notify", shown
        assert shown["User"] == "cleave" and shown["WatchdogUSec"] == "1min" and shown["StatusText"], shown
        assert shown["NRestarts"] == "0", shown
        say(f"{host.name}: {unit}: {shown['ActiveState']}, \"{shown['StatusText']}\"")
        owner = host.run("stat -c '%U %a' /etc/cleave/cluster.key; getent passwd cleave; getent shadow cleave")
        assert owner.startswith("cleave 600") and "nologin" in owner and re.search(r"cleave:[!*]", owner), owner


def main_pid(host, unit):
    return host.show(unit, "MainPID")["MainPID"]


def check_sandbox(host, unit):
    """The limits of the unit hold for its processes: what systemd-analyze says, and what the processes can do."""
    verified = host.run(f"systemd-analyze --man=no verify {unit}.service 2>&1", check=False)
    assert "cleave" not in verified, verified
    exposure = host.run(f"systemd-analyze --no-pager security {unit}.service | tail -n 1").strip()
    level = float(re.search(r": ([\d.]+)", exposure).group(1))
    say(f"{host.name}: {exposure}")
    assert level < 2.5, exposure
    pids = host.run(f"cat /sys/fs/cgroup$(systemctl show {unit} -p ControlGroup --value)/cgroup.procs").split()
    for pid in pids:
        status = host.run(f"cat /proc/{pid}/status")
        for field, value in (("NoNewPrivs", "1"), ("Seccomp", "2"), ("CapEff", "0" * 16), ("CapBnd", "0" * 16)):
            assert re.search(rf"(?m)^{field}:\s*{value}$", status), (pid, field, status)
        assert not re.search(r"(?m)^Uid:.*\b0\b", status), status
    main = main_pid(host, unit)
    tries = {"touch /etc/cleave/x": False, "touch /usr/x": False, "ls /home/.": False, "ls /root/.": False,
             "touch /tmp/private && test ! -e /proc/1/root/tmp/private": True, "touch /var/lib/cleave/x": True,
             "touch /run/cleave/x": unit == "cleave", "test -e /dev/fuse": False}
    for text, may in tries.items():
        # With the mounts of the service, as its user.
        done = host.run(f"nsenter -t {main} -m setpriv --reuid=cleave --regid=cleave --clear-groups sh -c '{text}' "
                        "&& echo yes || echo no", check=False)
        assert done.rstrip().endswith("yes" if may else "no"), (unit, text, done)
    host.run("rm -f /var/lib/cleave/x /run/cleave/x")
    say(f"{host.name}: {unit}: {len(pids)} processes: no capability, seccomp, NoNewPrivs; the mounts are as the unit says")


def check_journal(a, b):
    """The journal has the level of each line as its priority."""
    for host, unit in ((a, "cleave"), (b, "cleave-machine@token-0")):
        lines = [json.loads(line) for line in host.journal(unit, "-o json").splitlines()]
        ours = [line for line in lines if line.get("_COMM") == "cleave" or line.get("SYSLOG_IDENTIFIER") == "cleave"]
        assert ours and all(not str(line["MESSAGE"]).startswith("<") for line in ours), ours[:3]
        wanted = {"debug": "7", "info": "6", "warn": "4", "error": "3"}
        levels = [(re.match(r"\S+Z (\w+)", str(line["MESSAGE"])), line["PRIORITY"]) for line in ours]
        levels = [(level.group(1), priority) for level, priority in levels if level]
        assert levels and all(wanted[level] == priority for level, priority in levels), levels
        assert host.name == "b" or "warn" in dict(levels), levels  # The crashes are warnings.
        counts = {level: sum(each == level for each, _ in levels) for level in sorted(dict(levels))}
        say(f"{host.name}: lines of {unit} in the journal, each with its priority: {counts}")


def check_reload(a, b):
    before = main_pid(a, "cleave")
    a.run("sed -i 's/\"pools\"/\"slo\": {\"tbt_ms\": 77}, \"pools\"/' /etc/cleave/cleave.json; systemctl reload cleave")
    assert "77" in a.run("cleave status --json --socket /run/cleave/admin.sock")
    a.run("cp /etc/cleave/cleave.json good; sed -i 's/\"pools\"/\"poools\"/' /etc/cleave/cleave.json")
    out = a.run("systemctl reload cleave && echo reloaded", check=False)
    assert "reloaded" not in out, out
    a.run("cp good /etc/cleave/cleave.json; systemctl reload cleave")
    assert main_pid(a, "cleave") == before and is_ready(a)
    machine = main_pid(b, "cleave-machine@token-0")
    b.run("systemctl reload cleave-machine@token-0")
    until(lambda: "the cluster keys are as before" in b.journal("cleave-machine@token-0"), "the machine has read its keys", 30)
    assert main_pid(b, "cleave-machine@token-0") == machine
    assert "poools" in a.journal("cleave")
    say("a: systemctl reload: a good config is used; a mistake fails the reload, and the service goes on")


def check_watchdog(host, unit, ready):
    before, begun = main_pid(host, unit), time.monotonic()
    host.run(f"kill -STOP {before}")
    until(lambda: host.show(unit, "NRestarts", "ActiveState", "MainPID")["MainPID"] not in (before, "0"),
          f"{unit} is started again", 200)
    restarted = time.monotonic()
    until(ready, "serves again")
    assert "Watchdog timeout" in host.journal(unit)
    say(f"{host.name}: {unit} stood still (SIGSTOP): a new process after {restarted - begun:.0f} s, and it serves again "
        f"after {time.monotonic() - begun:.0f} s")


def children(host, pid):
    return host.run(f"cat /proc/{pid}/task/*/children 2>&1", check=False).split()


def check_machine_crash(a, b):
    """A crash of the machine with a unit of its own, and of a machine of the gateway."""
    before = main_pid(b, "cleave-machine@token-0")
    b.run(f"kill -SEGV {before}")
    begun = time.monotonic()
    until(lambda: main_pid(b, "cleave-machine@token-0") not in (before, "0"), "the machine's unit starts it again", 60)
    until(lambda: is_ready(a), "the gateway serves again")
    check_stream(a)
    say(f"b: cleave-machine@token-0 crashed (SIGSEGV): its unit has started it again, and a stream ends after "
        f"{time.monotonic() - begun:.1f} s")
    gateway = main_pid(a, "cleave")
    local = children(a, gateway)
    a.run(f"kill -KILL {local[0]}")
    begun = time.monotonic()
    until(lambda: children(a, gateway) not in (local, []), "a new process", 60)
    until(lambda: is_ready(a), "the gateway serves again")
    check_stream(a)
    assert a.show("cleave", "NRestarts")["NRestarts"] == "0"
    say(f"a: a machine process of cleave.service was killed: the gateway has started it again, and a stream ends after "
        f"{time.monotonic() - begun:.1f} s")


def check_stop(a, b):
    """SIGTERM of systemd: the stream that is running ends well."""
    running = stream(a, 600)
    until(lambda: "1 decoding" in a.run("cleave status --socket /run/cleave/admin.sock", check=False) or
          running.poll() is not None, "an answer is running")
    assert running.poll() is None, "the answer was over before the stop"
    begun = time.monotonic()
    a.run("systemctl stop cleave", seconds=700)
    stopped = time.monotonic() - begun
    out = running.communicate(timeout=LIMIT_S)[0]
    shown = a.show("cleave", "Result", "ActiveState", "ExecMainStatus")
    assert "data: [DONE]" in out and '"finish_reason":"length"' in out, out[-600:]
    assert shown == {"Result": "success", "ActiveState": "inactive", "ExecMainStatus": "0"}, shown
    assert not a.run("find /proc -maxdepth 1 -user cleave").strip()
    begun = time.monotonic()
    b.run("systemctl stop cleave-machine@token-0")
    shown = b.show("cleave-machine@token-0", "Result", "ActiveState")
    assert shown == {"Result": "success", "ActiveState": "inactive"}, shown
    say(f"systemctl stop: an answer of 600 tokens ended whole, the gateway after {stopped:.1f} s; then the machine of b "
        f"after {time.monotonic() - begun:.1f} s")


def check_units(a, b):
    check_state(a, b)
    check_sandbox(a, "cleave")
    check_sandbox(b, "cleave-machine@token-0")
    check_reload(a, b)
    check_machine_crash(a, b)
    check_watchdog(a, "cleave", lambda: is_ready(a))
    check_watchdog(b, "cleave-machine@token-0", lambda: is_ready(a))
    check_stream(a)
    check_journal(a, b)
    check_stop(a, b)
    for host in (a, b):
        host.run("apt-get -qq purge -y cleave; test ! -e /usr/bin/cleave")
    say("purged")


# ---- the rolling upgrade ----


class Clients:
    """Clients that stream all the time from a gateway that is ready, as a load balancer chooses it. Only a gateway that
    refuses the connection or the request before it begins to answer is left for another one."""

    COUNT, PROMPTS, TOKENS = 3, 4, 64

    def __init__(self, hosts):
        self.hosts, self.done, self.others, self.errors, self.stopping = hosts, 0, 0, [], False
        self.want = [self.ask(n) for n in range(self.PROMPTS)]
        self.threads = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(self.COUNT)]
        for thread in self.threads:
            thread.start()

    def ask(self, n):
        body = {"prompt": f"Story number {n}. Once upon a time", "max_tokens": self.TOKENS, "temperature": 0.7, "seed": n,
                "ignore_eos": True, "stream": True}
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            for host in self.hosts:
                if not is_ready(host):
                    self.others += 1
                    continue
                out = host.run("curl -sSN -w '\\n%{http_code}' http://127.0.0.1:8080/v1/completions "
                               f"-H 'Content-Type: application/json' -d '{json.dumps(body)}'", check=False)
                text, _, code = out.rpartition("\n")
                if code in ("000", "429", "503"):
                    self.others += 1
                    continue
                events = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
                assert code == "200" and "data: [DONE]" in text and '"error"' not in text, out[-2000:]
                return "".join(choice["text"] for event in events for choice in json.loads(event)["choices"])
        raise AssertionError("no gateway takes the request")

    def run(self, n):
        try:
            while not self.stopping:
                text = self.ask(n % self.PROMPTS)
                assert text == self.want[n % self.PROMPTS], (text, self.want[n % self.PROMPTS])
                self.done += 1
                n += 1
        except Exception as error:  # The trial judges every exception.
            self.errors.append(repr(error))

    def wait(self, count):
        before = self.done
        until(lambda: self.done >= before + count or self.errors, "streams end")
        assert not self.errors, self.errors

    def stop(self):
        self.stopping = True
        for thread in self.threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive()
        assert not self.errors, self.errors


def builds(host):
    """The builds of the gateway and of all machines that are up."""
    said = host.run("cleave status --json --socket /run/cleave/admin.sock 2>/dev/null", check=False)
    state = json.loads(said)[0] if said.startswith("[") else {}
    return [state.get("version"), *(m["build"] for m in state.get("machines", []) if m["connection"] == "up")]


def version(host):
    return host.run("dpkg-query -W -f '${Version}' cleave")


def upgrade_begin(hosts, previous):
    """The previous release on both hosts."""
    config = {"model": MODEL, "http": {"listen": "127.0.0.1:8080", "admin_socket": "/run/cleave/admin.sock"},
              "cluster": {"key_file": "cluster.key"}, "threads": 1, "kv": {"memory": "256MiB"},
              "pools": {"prompt": ["prompt-a", "prompt-b"], "token": ["token-a", "token-b"]},
              "machines": {f"{pool}-{name}": {"local": False, "address": f"{address}:{port}"} for name, address in
                           ADDRESSES.items() for pool, port in (("prompt", 7400), ("token", 7401))}}
    for host in hosts:
        shutil.copy(previous, host.root + "/root/previous.deb")
        host.run("rm -f ./cleave_*.deb; apt-get install -qq -y ./previous.deb; rm previous.deb; "
                 f"cp {MODEL} /var/lib/cleave/models/", outside=True)
        with open(host.root + "/etc/cleave/cleave.json", "w", encoding="utf-8") as file:
            json.dump(config, file)
        host.run("echo 'a cluster key of more than 32 bytes, for a trial only' | install -m 600 -o cleave /dev/stdin "
                 "/etc/cleave/cluster.key; systemctl reset-failed; "
                 f"systemctl enable -q --now cleave cleave-machine@prompt-{host.name} cleave-machine@token-{host.name}")
    for host in hosts:
        until(lambda: len(builds(host)) == 5 and is_ready(host), f"{host.name}: the previous release serves")


def check_upgrade(hosts, previous, deb):
    begun = time.monotonic()
    upgrade_begin(hosts, previous)
    before, old_builds = version(hosts[0]), set(builds(hosts[0]))
    assert len(old_builds) == 1, old_builds
    clients = Clients(hosts)
    clients.wait(2 * clients.COUNT)
    say(f"both hosts serve with {before} after {time.monotonic() - begun:.0f} s; {clients.COUNT} clients stream")
    for host in hosts:
        shutil.copy(deb, host.root + "/root/")
        upgraded = time.monotonic()
        for piece in pieces_of(upgrade_block()):
            host.run(piece, outside=piece.startswith("apt-get"))
        assert version(host) != before
        say(f"{host.name}: upgraded to {version(host)} and restarted, one unit after the other, in "
            f"{time.monotonic() - upgraded:.0f} s; {clients.done} streams have ended well")
        clients.wait(clients.COUNT)
    clients.stop()
    for host in hosts:
        found = builds(host)
        assert len(found) == 5 and len(set(found)) == 1 and not set(found) & old_builds, (found, old_builds)
    say(f"rolling upgrade: {clients.done} streams, none failed, all bytes as before; {clients.others} times a client went to "
        f"the other gateway; {time.monotonic() - begun:.0f} s")


def main():
    trial_begun = time.monotonic()
    parser = argparse.ArgumentParser()
    parser.add_argument("deb")
    parser.add_argument("--previous", metavar="DEB", help="the package of the previous release, to be upgraded")
    parser.add_argument("--suite", default="bookworm")
    parser.add_argument("--only-docs", action="store_true")
    parser.add_argument("--base", help="a folder with the minimal Debian; made if it is not there, and kept")
    options = parser.parse_args()
    missing = [name for name in ("debootstrap", "systemd-nspawn", "ip", "nsenter", "pgrep") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        sys.exit(f"try-hosts: needs root{''.join(', ' + name for name in missing)}")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    folder = tempfile.mkdtemp(prefix="cleave-hosts-", dir="/var/tmp")
    os.chmod(folder, 0o755)
    cable = os.path.join(folder, "cable")
    os.mkdir(cable)
    base = options.base or os.path.join(folder, "base")
    hosts = {}
    try:
        if not os.path.exists(base):
            base_make(base, options.suite, ["systemd", "systemd-sysv", "dbus"])
        for name in ADDRESSES:
            root = os.path.join(folder, name)
            subprocess.run(["cp", "-a", base, root], check=True)
            shutil.copy(options.deb, root + "/root/")
            shutil.copy(model_path(), root + f"/root/{MODEL}")
            with open(root + "/etc/hostname", "w", encoding="utf-8") as file:
                file.write(name + "\n")
            with open(root + "/usr/local/bin/scp", "w", encoding="utf-8", opener=lambda p, f: os.open(p, f, 0o755)) as file:
                file.write(SCP)
            hosts[name] = Host(name, root, cable)
        cable_lay(hosts["a"], hosts["b"])
        for host in hosts.values():
            host.boot()
        docs_run.begun = time.monotonic()
        shown = docs_run(hosts, cable)
        took = time.monotonic() - docs_run.begun
        print(shown, end="")
        assert "data: [DONE]" in shown, shown
        assert took < 300, f"from the package to the end of a stream in {took:.0f} s: want less than 300"
        say(f"from the package to the end of a stream over two hosts: {took:.0f} s")
        if not options.only_docs:
            check_units(hosts["a"], hosts["b"])
            if options.previous:
                check_upgrade(list(hosts.values()), options.previous, options.deb)
        say(f"all of it took {time.monotonic() - trial_begun:.0f} s")
    finally:
        for host in hosts.values():
            host.close()
        shutil.rmtree(folder)


main()
