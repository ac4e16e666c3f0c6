#!/usr/bin/env python3
"""on_a.py: host a, with the gateway and the prompt machine p0; host b has the token machine t0. Prints a line per scenario
and ends with status 1 if one of them failed. See test_hosts.py."""

import glob
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

OUT = "/out"
BOTH = f"{OUT}/both.json"
LAST = "both hosts killed"
KEY = "cp /out/cluster.key /tmp/cluster.key; chmod 600 /tmp/cluster.key"
BINARY = "/tree/build/cleave"
LATE_KV = "20MiB"  # fewer than the requests of late_writes want
PUT_GATE = {"CLEAVE_PUT_GATE": "/tmp/put", "LD_PRELOAD": "/tree/build/tests/device/libcleave-put-gate.so"}
BODIES = [{"prompt": "One, two, three, four, five. " * n, "max_tokens": 12, "temperature": 0, "ignore_eos": True,
           "cleave": {"transfer": mode}} for n in (2, 12) for mode in ("layerwise", "one-piece")]
LONG_S = 240  # only a hang takes this long
RDMA = {"link_ms": 60000}  # an emulated host is slow
TRANSPORTS = {"default": {**RDMA}, "rc_verbs": {"ucx_transports": "rc_verbs,ud_verbs,self", **RDMA},
              "ud_verbs": {"ucx_transports": "ud_verbs,self", **RDMA}, "own connections": {"ucx_transports": "none"}}
PATHS = {"default": "ucx put over rc_verbs", "rc_verbs": "ucx put over rc_verbs", "ud_verbs": "ucx am over ud_verbs",
         "own connections": "messages over tls"}


def until(condition, what, seconds=LONG_S):
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.2)


def read(path):
    with open(path, errors="replace") as file:
        return file.read()


class HostB:
    """Runs scripts on host b."""

    count = 0

    def start(self, text):
        self.count += 1
        path = f"{OUT}/b/{self.count:04}"
        with open(path + ".new", "w") as file:
            file.write(text + "\n")
        os.rename(path + ".new", path + ".sh")
        return path

    def run(self, text):
        path = self.start(text)
        until(lambda: os.path.exists(path + ".status") and os.path.getsize(path + ".status") > 0, f"host b: {text}")
        with open(path + ".status") as status, open(path + ".text") as said:
            assert status.read().strip() == "0", f"host b: {text}: {said.read()}"


b = HostB()


def shell(text):
    return subprocess.run(["sh", "-c", text], check=True, capture_output=True, text=True).stdout


class Cluster:
    def __init__(self, name, transport, *has):
        """Words of `has`: "alone": one machine, on host a. "stages": the prompt machine's second half runs on host b.
        "ranks": each machine has two. "etcd": it runs on host b, and the machines register themselves there.
        "two prompt machines": p1 is on host a, too. "little memory": of t0. "put gate": of the prompt machines.
        "an RDMA device each": p0 and p1."""
        self.name, self.logs = re.sub(r"\W+", "-", name), {}
        prompts = ["p0", "p1"] if "two prompt machines" in has else ["p0"]
        all_machines = {"tensor_parallel": 2} if "ranks" in has else {}
        machines = {"machines": {"mixed-0": all_machines}} if "alone" in has else {
            "pools": {"prompt": prompts, "token": ["t0"]},
            "machines": {**{each: {"address": f"10.77.0.1:740{n}", "local": False, **all_machines}
                            for n, each in enumerate(prompts)},
                         "t0": {"address": "10.77.0.2:7400", "local": False, **all_machines}},
            "cluster": {"key_file": "/tmp/cluster.key", "sandbox": False}}
        if "stages" in has:
            machines["machines"]["p0"]["stages"] = [{}, {"host": "10.77.0.2:7500"}]
        if "little memory" in has:
            machines["machines"]["t0"]["kv_memory"] = LATE_KV
        if "an RDMA device each" in has:
            for n, each in enumerate(prompts):
                machines["machines"][each]["ucx_devices"] = f"rxe{n}:1"
        config = {"model": os.environ["MODEL"], "threads": 1, "http": {"listen": "127.0.0.1:8080"},
                  "pools": {"mixed": 1}, "kv": {"memory": "64MiB", "prefix_cache": False},
                  "scheduler": {"queue_ms": 0},  # However slow the hosts are, no request is refused.
                  "transport": {"silence_ms": 30000, "connect_ms": 60000, **transport}, **machines}
        self.config = self.gateway_config = f"{OUT}/{self.name}.json"
        if "etcd" in has:
            config["cluster"].update(membership="etcd", etcd_endpoints="http://10.77.0.2:2379")
            self.gateway_config = f"{OUT}/{self.name}-gateway.json"
            with open(self.gateway_config, "w") as file:
                json.dump({**config, "pools": {}, "machines": {}}, file)
            b.run("etcd --data-dir /tmp/etcd --listen-client-urls http://10.77.0.2:2379 --advertise-client-urls "
                  f"http://10.77.0.2:2379 --log-level error >{OUT}/etcd.log 2>&1 & echo $! >/tmp/etcd.pid")
        with open(self.config, "w") as file:
            json.dump(config, file)
        self.processes = []
        if "alone" not in has:
            self.start_t0()
            if "stages" in has:
                b.run(f"{BINARY} machine {self.config} p0 --stage 1 >{OUT}/{self.name}-p0-1.log 2>&1 & echo $! >/tmp/stage.pid")
            for each in prompts:
                self.start(each, [BINARY, "machine", self.config, each], PUT_GATE if "put gate" in has else {})
        self.start("gateway", [BINARY, "serve", self.gateway_config])
        until(self.ready, f"{name}: ready")

    def start(self, name, words, environment={}):
        self.logs[name] = f"{OUT}/{self.name}-{name}.log"
        with open(self.logs[name], "w") as log:
            self.processes.append(subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, **environment}))

    def start_t0(self):
        self.logs["t0"] = f"{OUT}/{self.name}-t0.log"
        b.run(f"{BINARY} machine {self.config} t0 >>{self.logs['t0']} 2>&1 & echo $! >/tmp/t0.pid")

    def log(self, name):
        return read(self.logs[name])

    def ready(self):
        try:
            with urllib.request.urlopen("http://127.0.0.1:8080/health", timeout=20) as answer:
                return answer.status == 200 and ("p0" not in self.logs or self.path())
        except (urllib.error.URLError, OSError):
            return False

    def path(self):
        """How KV travels from p0 to t0, of the link that came up last."""
        found = re.findall(r"link to t0 is up: (.*)", self.log("p0"))
        if "p1" in self.logs and "link to t0 is up" not in self.log("p1"):
            return None
        return found[-1] if found else None

    def falls(self):
        return len(re.findall(r"link to t0 is down", self.log("p0")))

    def ask(self, body, seconds=LONG_S):
        request = urllib.request.Request("http://127.0.0.1:8080/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return json.load(answer)["choices"][0]["text"]

    def metrics(self):
        with urllib.request.urlopen("http://127.0.0.1:8080/metrics", timeout=60) as answer:
            return answer.read().decode()

    def blocks(self, state):
        """t0's KV blocks in this state."""
        found = re.findall(rf'^cleave_kv_blocks{{machine="t0".*state="{state}".*}} (\S+)$', self.metrics(), re.M)
        return sum(int(float(value)) for value in found)

    def exposed_ms(self):
        text = self.metrics()
        total, count = (sum(float(value) for value in re.findall(
            rf"^cleave_request_exposed_transfer_seconds_{each}(?:{{.*}})? (\S+)$", text, re.M)) for each in ("sum", "count"))
        return total / count * 1000 if count else 0

    def stop(self):
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            process.wait(LONG_S)
        if "t0" in self.logs:
            b.run("for file in /tmp/t0.pid /tmp/stage.pid /tmp/etcd.pid; do [ -e $file ] || continue; kill $(cat $file) 2>/dev/null; "
                  "while kill -0 $(cat $file) 2>/dev/null; do sleep 0.2; done; rm $file; done; true")


def check(cluster, want):
    for body, text in zip(BODIES, want):
        got = cluster.ask(body)
        assert got == text, f"other bytes: {got!r}, not {text!r}"


rows, failed = [], 0


def alone(name, *has):
    """The answers of one machine on host a."""
    cluster = Cluster(name, {}, "alone", *has)
    found = [cluster.ask(body) for body in BODIES]
    cluster.stop()
    assert all(found)
    return found


def scenario(name, transport, act, path=None, falls=0, has=()):
    """One cluster: its bytes before and after `act`; falls None = any number."""
    global failed
    begun = time.monotonic()
    cluster, why = None, ""
    row = {"scenario": name, "bytes": "not compared", "path": "", "exposed_ms": 0, "falls": 0}
    try:
        want = alone("one machine with ranks", "ranks") if "ranks" in has else WANT  # Their sums have another order.
        cluster = Cluster(name, transport, *has)
        row["path"] = cluster.path()
        assert path is None or row["path"] == path, f"path {row['path']!r}, not {path!r}: {cluster.log('p0')}"
        check(cluster, want)
        row["exposed_ms"] = cluster.exposed_ms()
        if act is not None:
            act(cluster)
            check(cluster, WANT)
        row.update(bytes="equal", falls=cluster.falls(), path=cluster.path())
        assert falls is None or row["falls"] == falls, f"the link fell {row['falls']} times: {cluster.log('p0')}"
    except (AssertionError, OSError) as error:
        why, failed = f" FAILED: {error}", failed + 1
    finally:
        if cluster is not None:
            cluster.stop()
    row["seconds"] = time.monotonic() - begun
    print("| {scenario} | {path} | {bytes} | {exposed_ms:.1f} | {falls} | {seconds:.0f} |".format(**row) + why, flush=True)


def link(words):
    """What the wire does, in both directions."""
    text = f"tc qdisc replace dev eth0 root netem {words}" if words else "tc qdisc del dev eth0 root"
    b.run(text)
    shell(text)


def cut(seconds):
    def act(cluster):
        text = "tc qdisc replace dev eth0 root netem loss 100%"
        b.start(f"sleep 1; {text}; sleep {seconds}; tc qdisc del dev eth0 root")
        time.sleep(1)
        shell(f"{text}; sleep {seconds}; tc qdisc del dev eth0 root")
        until(cluster.ready, "ready again")
    return act


def paused(cluster):
    """Host b stands still for 20 s, longer than the silence that the config allows."""
    before = len(re.findall(r"link to t0 is up", cluster.log("p0")))
    shell("two-hosts pause b; sleep 20; two-hosts resume b")
    until(lambda: len(re.findall(r"link to t0 is up", cluster.log("p0"))) > before, "the link is up again")
    until(cluster.ready, "ready again")


def clock_ahead(cluster):
    """Host b's clock jumps an hour ahead, and back."""
    b.run("date -s '+1 hour'")
    check(cluster, WANT)
    b.run("date -s '-1 hour'")


def b_again():
    """Cuts host b's power, and waits until it has booted."""
    boots = len(glob.glob(f"{OUT}/b/up*"))
    shell("two-hosts kill b && two-hosts start b")
    until(lambda: len(glob.glob(f"{OUT}/b/up*")) > boots, "host b is up again")
    b.run(KEY)


def killed(cluster):
    before = len(re.findall(r"link to t0 is up", cluster.log("p0")))
    b_again()
    cluster.start_t0()
    until(lambda: len(re.findall(r"link to t0 is up", cluster.log("p0"))) > before, "the link is up again")
    until(cluster.ready, "ready again")


def no_rdma(on):
    """Drops the packets of RoCE (UDP 4791) that arrive at either host. (Dropped on their way out, they lock up the kernel: rdma_rxe
    sends them again at once, for ever.)"""
    text = ("tc qdisc add dev eth0 clsact && tc filter add dev eth0 ingress protocol ip u32 match ip protocol 17 0xff "
            "match ip dport 4791 0xffff action drop") if on else "tc qdisc del dev eth0 clsact"
    b.run(text)
    shell(text)


def processor_seconds(process):
    """The processor time of the machine's process so far."""
    with open(f"/proc/{process.pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle(seconds):
    def act(cluster):
        p0 = cluster.processes[0]
        before = processor_seconds(p0)
        time.sleep(seconds)
        print(f"idle for {seconds} s: p0 took {100 * (processor_seconds(p0) - before) / seconds:.2f} % of a core")
    return act


def idle_then_streams(cluster):
    idle(600)(cluster)
    body = {**BODIES[0], "max_tokens": 4}
    want = cluster.ask(body)
    with ThreadPoolExecutor(200) as threads:
        texts = list(threads.map(lambda _: cluster.ask(body, 1200), range(200)))
    assert texts == [want] * 200, f"{sum(text != want for text in texts)} of 200 streams have other bytes"
    print("200 streams at once: the same bytes")


def tools(cluster):
    """doctor sees the RDMA device, and profile measures the link to host b. The cluster serves meanwhile."""
    said = subprocess.run([BINARY, "doctor", "--timeout-s", "60"], capture_output=True, text=True)
    assert said.returncode == 0 and "rxe0" in said.stdout, said.stdout + said.stderr
    b.run(f"{BINARY} profile --serve-link 10.77.0.2:7600 --key-file /tmp/cluster.key >{OUT}/serve-link.log 2>&1 & "
          "echo $! >/tmp/link.pid")
    try:
        until(lambda: "end at" in read(f"{OUT}/serve-link.log"), "profile --serve-link listens")
        said = subprocess.run(
            [BINARY, "profile", "--quick", "--no-links", "--model", os.environ["MODEL"], "--key-file", "/tmp/cluster.key",
             "--link", "10.77.0.2:7600", "--out", f"{OUT}/profile.json"], capture_output=True, text=True, timeout=LONG_S)
        assert said.returncode == 0, said.stdout + said.stderr
    finally:
        b.run("kill $(cat /tmp/link.pid)")
    with open(f"{OUT}/profile.json") as file:
        found = json.load(file)["links"]
    assert len(found) == 1 and found[0]["bandwidth_bytes_per_s"] > 0, found
    print(f"profile --link: {found[0]['path']}, {found[0]['bandwidth_bytes_per_s'] / 1e6:.1f} MB/s, "
          f"{found[0]['latency_us']:.0f} us")


def mtu(value):
    """The wire's MTU changes while no cluster runs: rdma_rxe then has another one for RoCE, too."""
    text = f"ip link set eth0 mtu {value}"
    b.run(text)
    shell(text)


def late_writes(cluster):
    """A prompt machine is stopped when it begins to write KV by RDMA, until it counts as dead; its blocks are then in
    quarantine. Other requests take all others. It continues, and its late writes change no byte of them."""
    before = cluster.blocks("free")
    body = {**BODIES[3], "max_tokens": 40}
    others = [{**body, "prompt": f"Story {n}. " + body["prompt"]} for n in range(10, 18)]
    want = [cluster.ask(each) for each in others]
    until(lambda: cluster.blocks("free") == before, "all blocks are free")
    open(PUT_GATE["CLEAVE_PUT_GATE"], "w").close()
    with ThreadPoolExecutor(len(others) + 1) as threads:
        moved = threads.submit(cluster.ask, body, 1200)
        held = PUT_GATE["CLEAVE_PUT_GATE"] + ".held"
        pid = int(until(lambda: os.path.exists(held) and read(held).strip(), "a prompt machine is held in a put"))
        os.kill(pid, signal.SIGSTOP)
        os.unlink(PUT_GATE["CLEAVE_PUT_GATE"])
        kept = until(lambda: cluster.blocks("quarantined"), "blocks are in quarantine")
        moved = moved.result()  # The other prompt machine has computed it.
        texts = [threads.submit(cluster.ask, each, 1200) for each in others]
        least = until(lambda: cluster.blocks("free") < 10 and cluster.blocks("free") + 1, "the others have nearly all blocks") - 1
        assert cluster.blocks("quarantined") >= kept, cluster.metrics()
        os.kill(pid, signal.SIGCONT)
        texts = [each.result() for each in texts]
    assert texts == want and moved == cluster.ask(body), "other bytes"
    until(lambda: cluster.blocks("free") == before, "all blocks are free again")
    print(f"{kept} of {before} blocks in quarantine while the writer stood still, {least} free; {len(others)} other answers: the same "
          "bytes")


def rails(on):
    """Both hosts get a second address and a second RDMA device on it."""
    for run, address in ((b.run, "10.77.0.4"), (shell, "10.77.0.3")):
        run("ip link add eth1 link eth0 type macvlan mode bridge && ip link set eth1 mtu 9000 up && "
            f"ip addr add {address}/24 dev eth1 && rdma link add rxe1 type rxe netdev eth1" if on else
            "rdma link del rxe1; ip link del eth1")


def sent_packets(device):
    return int(read(f"/sys/class/infiniband/{device}/ports/1/hw_counters/sent_pkts"))


def both_rails(cluster):
    before = [sent_packets(device) for device in ("rxe0", "rxe1")]
    with ThreadPoolExecutor(8) as threads:
        texts = list(threads.map(cluster.ask, BODIES * 2))
    assert texts == WANT * 2, "other bytes"
    after = [sent_packets(device) for device in ("rxe0", "rxe1")]
    up = [re.findall(r"link to t0 is up: (.*)", cluster.log(name))[-1] for name in ("p0", "p1")]
    assert up == [PATHS["default"]] * 2 and all(new > old for new, old in zip(after, before)), (up, before, after)
    print(f"p0 has sent {after[0] - before[0]} packets over rxe0, p1 {after[1] - before[1]} over rxe1")


def little_locked(cluster):
    """A machine that may lock less memory than its KV needs says so and ends."""
    said = subprocess.run(["setpriv", "--bounding-set", "-ipc_lock", "sh", "-c", f"ulimit -l 1024; exec {BINARY} machine "
                           f"{cluster.config} p0"], capture_output=True, text=True, timeout=LONG_S)
    assert said.returncode != 0 and "this process may lock 1024 KiB" in said.stderr, (said.returncode, said.stderr)
    print("with 1 MiB of lockable memory: " + said.stderr.strip().splitlines()[-1])


def slow(words):
    return lambda cluster: (link(words), check(cluster, WANT), link(""))


def both_killed():
    """The power of both hosts is cut; on_a.py then begins again on host a, with what it finds in BOTH."""
    with open(BOTH, "w") as file:
        json.dump({"want": WANT, "failed": failed, "scripts": b.count + 2}, file)
    b_again()
    b.start("two-hosts kill a; two-hosts start a")
    time.sleep(LONG_S)
    raise AssertionError("host a's power was not cut")


def after_both():
    """Host a's second start: the cluster is started again."""
    global WANT, failed
    with open(BOTH) as file:
        found = json.load(file)
    WANT, failed, b.count = found["want"], found["failed"], found["scripts"] + 10
    shell(KEY)
    scenario(LAST, RDMA, None, PATHS["default"], 0)


def end():
    open(f"{OUT}/b/end", "w").close()
    sys.exit(1 if failed else 0)


if os.environ["TWO_HOSTS_START"] != "1":
    after_both()
    end()
shell(f"umask 077; printf 'a cluster key of more than 32 bytes\\n' >{OUT}/cluster.key; {KEY}")
until(lambda: os.path.exists(f"{OUT}/b/up1"), "host b is up")
b.run(KEY)
WANT = alone("one machine")
wanted = sys.argv[1:]
SCENARIOS = [(each, TRANSPORTS[each], None, PATHS[each], 0) for each in TRANSPORTS] + [
    ("RDMA does not arrive", {"link_ms": 2000}, None, "messages over tls", 0),
    ("idle for 60 s", RDMA, idle(60), PATHS["default"], 0),
    ("1 Gbit/s", TRANSPORTS["own connections"], slow("rate 1gbit"), None, 0),
    ("50 ms away", TRANSPORTS["own connections"], slow("delay 50ms"), None, 0),
    ("1 Gbit/s, RDMA", RDMA, slow("rate 1gbit"), PATHS["default"], 0),
    ("10 Gbit/s, 1 ms away, RDMA", RDMA, slow("rate 10gbit delay 1ms"), PATHS["default"], 0),
    ("a clock that jumps by an hour", RDMA, clock_ahead, PATHS["default"], 0),
    ("a writer stands still", {**RDMA, "silence_ms": 8000}, late_writes, None, None),
    ("an RDMA device for each machine", RDMA, both_rails, PATHS["default"], 0),
    ("stages on both hosts", RDMA, None, None, 0),
    ("stages on both hosts, own connections", TRANSPORTS["own connections"], None, None, 0),
    ("locked memory", RDMA, little_locked, PATHS["default"], 0),
    ("cut for 2 s, RDMA", RDMA, cut(2), PATHS["default"], None),
    ("cut for 20 s, RDMA", {**RDMA, "silence_ms": 8000}, cut(20), PATHS["default"], None),
    ("ranks on both hosts", RDMA, None, None, 0),
    ("etcd on host b", RDMA, None, PATHS["default"], 0),
    ("doctor and profile", RDMA, tools, PATHS["default"], 0),
    ("MTU 1500", RDMA, None, PATHS["default"], 0),
    ("host b stands still for 20 s", {**RDMA, "silence_ms": 8000}, paused, PATHS["default"], None),
    ("cut for 2 s", TRANSPORTS["own connections"], cut(2), None, 0),
    ("cut for 20 s", {**TRANSPORTS["own connections"], "silence_ms": 8000}, cut(20), None, None),
    ("host b killed", TRANSPORTS["own connections"], killed, None, None),
]
# Only when named.
MORE = [("idle for 10 minutes, then 200 streams", {**RDMA, "silence_ms": 120000}, idle_then_streams, PATHS["default"], 0)]
HAS = {"a writer stands still": ["two prompt machines", "little memory", "put gate"],
       "an RDMA device for each machine": ["two prompt machines", "an RDMA device each"],
       "stages on both hosts": ["stages"], "stages on both hosts, own connections": ["stages"],
       "ranks on both hosts": ["ranks"], "etcd on host b": ["etcd"]}
AROUND = {"RDMA does not arrive": (lambda: no_rdma(True), lambda: no_rdma(False)),
          "an RDMA device for each machine": (lambda: rails(True), lambda: rails(False)),
          "MTU 1500": (lambda: mtu(1500), lambda: mtu(9000))}
print("| scenario | KV travels by | bytes | exposed transfer, ms | link fell | s |\n|---|---|---|---|---|---|", flush=True)
for each in [*SCENARIOS, *(scenario for scenario in MORE if scenario[0] in wanted)]:
    if wanted and each[0] not in wanted:
        continue
    before, after = AROUND.get(each[0], (lambda: None, lambda: None))
    before()
    scenario(*each, HAS.get(each[0], ()))
    after()
if not wanted or LAST in wanted:
    both_killed()
end()
