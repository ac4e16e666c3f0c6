"""Goal: two gateways serve with the same machines at the same time. Each gives the bytes of a single gateway and sees
the other's load. A killed gateway leaves nothing behind and does not affect the other. Method: real processes. Two
machines are started by hand, as on other computers, and two gateways connect to them. Streams of both gateways are held
at a gate of the token machine during each check. Argument few (for sanitizers): without machines that a gateway starts
or moves."""

import json
import os
import signal
import subprocess
import sys
import tempfile

from cluster import BINARY, MODEL, Cluster, Stream, free_ports, gated_environment, need_model, wait_until

KEY = "a cluster key of more than 32 bytes\n"
COUNT, SHORT, LONG = 4, 12, 40  # Streams of each gateway; tokens of an answer.
TRANSPORT = {"silence_ms": 60000}


def body(n, tokens):
    return {"prompt": f"{n}: The sea was calm that day, and nobody spoke.", "max_tokens": tokens, "temperature": 0.8,
            "seed": n, "ignore_eos": True}


def text(cluster, n, tokens):
    return "".join(e["choices"][0]["text"] for e in cluster.stream("/v1/completions", body(n, tokens)))


class Streams:
    """Sends COUNT streams at once through one gateway."""

    def __init__(self, cluster, first, tokens):
        self.cluster = cluster
        self.streams = [Stream(cluster, body(first + i, tokens)) for i in range(COUNT)]

    def wait_decoding(self):
        """Waits until the token machine has all of the streams."""
        wait_until(lambda: json.loads(self.cluster.request("GET", "/admin/state")[2])["requests"]["decoding"] == COUNT,
                   "all streams are decoded", cluster=self.cluster)

    def expect(self, want, what=""):
        for stream, its_want in zip(self.streams, want):
            stream.expect(its_want, what)

    def end(self):
        for stream in self.streams:
            stream.end()


def check(config, gates, machines_log):
    with Cluster({"threads": 1, "kv": {"memory": "64MiB"}}) as alone:
        want = [text(alone, n, SHORT) for n in range(2 * COUNT)]
        late = [text(alone, 100 + n, LONG) for n in range(COUNT)]
    files = {"cluster.key": KEY}
    with Cluster(config, files=files, gates=gates) as first, Cluster(config, files=files, gates=gates) as second:
        both = (first, second)
        streams = [Streams(first, 0, SHORT), Streams(second, COUNT, SHORT)]
        streams[0].expect(want[:COUNT])
        streams[1].expect(want[COUNT:])
        for gateway in both:
            wait_until(lambda: gateway.metric("cleave_machine_gateways", machine="token-0") == 2, "two gateways",
                       cluster=gateway)
        wait_until(lambda: sum(gateway.metric("cleave_gateway_leads") for gateway in both) == 1, "one gateway leads",
                   cluster=first)
        # Each gateway sees the other gateway's load.
        first.hold("token-0")
        streams = [Streams(first, 100, LONG)]
        wait_until(lambda: second.metric("cleave_machine_others_kv_tokens", machine="token-0") >= COUNT * LONG,
                   "the other gateway's load is seen", cluster=second)
        streams.append(Streams(second, 0, SHORT))
        first.release()
        streams[0].expect(late)
        streams[1].expect(want[:COUNT])
        # A gateway dies while the token machine decodes streams of both gateways.
        first.hold("token-0")
        streams = [Streams(first, 100, LONG), Streams(second, 100, LONG)]
        for each in streams:
            each.wait_decoding()
        first.wait_held("token-0")
        first.step("token-0")
        first.step("token-0")
        os.kill(first.process.pid, signal.SIGKILL)
        first.release()
        streams[0].end()
        assert all(stream.error is not None for stream in streams[0].streams)
        streams[1].expect(late, "the other gateway's streams")
        assert second.metric("cleave_requests_resumed_total") == 0
        second.wait_all_free()
        wait_until(lambda: second.metric("cleave_machine_gateways", machine="token-0") == 1 and
                   second.metric("cleave_machine_others_kv_tokens") == 0, "the dead gateway is no longer counted",
                   cluster=second)
        wait_until(lambda: second.metric("cleave_gateway_leads") == 1, "the other gateway leads", cluster=second)
        # A new gateway replaces the dead one.
        with Cluster(config, files=files, gates=gates) as third:
            assert text(third, 0, SHORT) == want[0]
    with open(machines_log) as log:
        assert "disconnects" not in log.read()


QUOTA = {"keys": [{"name": "tenant", "key": "sk-tenant-0123456789", "requests_max": 5, "metrics": True}]}


def taken(cluster, count, first):
    """Sends `count` requests of the tenant; they wait at the held token machine. Returns how many of them the gateway
    has in flight when each request is taken or refused."""
    def sums():
        return (cluster.metric("cleave_key_requests_in_flight", key="tenant"),
                cluster.metric("cleave_key_refused_total", key="tenant"))

    before = sum(sums())
    streams = [Stream(cluster, body(first + i, SHORT)) for i in range(count)]
    wait_until(lambda: sum(sums()) == before + count, "all are taken or refused", cluster=cluster)
    in_flight = int(sums()[0])
    refused = [stream for stream in streams if not stream.is_alive()]
    for stream in refused:
        assert stream.error.status == 429 and "answers in flight" in str(stream.error), stream.error
    return in_flight


def check_quota(config, gates):
    """Two gateways have one key with requests_max 5. Together they never take more than 5. When one is killed, the
    other one gets all 5."""
    files = {"cluster.key": KEY, "keys.json": QUOTA}
    config = {**config, "server": {"api_keys_file": "keys.json"}}
    with Cluster(config, files=files, gates=gates) as first, Cluster(config, files=files, gates=gates) as second:
        for gateway in (first, second):
            gateway.headers["Authorization"] = "Bearer sk-tenant-0123456789"
            wait_until(lambda: "that serve on these machines: 2, was 1" in gateway.logged(), "two gateways",
                       cluster=gateway)
        first.hold("token-0")
        shares = [taken(gateway, 7, 0) for gateway in (first, second)]
        assert sorted(shares) == [2, 3], shares
        assert [taken(gateway, 2, 10) for gateway in (first, second)] == shares
        os.kill(first.process.pid, signal.SIGKILL)
        wait_until(lambda: "that serve on these machines: 1, was 2" in second.logged(), "the other one is alone",
                   cluster=second)
        assert taken(second, 7, 20) == 5
        first.release()
        second.wait_all_free()


def check_launched():
    """A second gateway uses machines that the first gateway has started. It sees the machines end with the first
    gateway, and serves again when they are back."""
    ports = free_ports(2)
    machines = {name: {"address": f"127.0.0.1:{port}", "local": True} for name, port in zip(("prompt-0", "token-0"), ports)}
    config = {"threads": 1, "kv": {"memory": "32MiB"}, "transport": TRANSPORT,
              "cluster": {"key_file": "cluster.key"}, "machines": machines, "pools": {"prompt": ["prompt-0"], "token": ["token-0"]}}
    remote = {**config, "machines": {name: {**machine, "local": False} for name, machine in machines.items()}}
    files = {"cluster.key": KEY}
    with Cluster(config, files=files) as owner, Cluster(remote, files=files) as guest:
        want = text(owner, 0, SHORT)
        assert text(guest, 0, SHORT) == want and guest.children() == {}
        guest.stop()  # The machines belong to another gateway, so they stay.
        assert text(owner, 0, SHORT) == want
        with Cluster(remote, files=files) as again:
            owner.stop()
            again.wait_health(503, "machine token-0 is missing")
            with Cluster(config, files=files) as heir:
                again.wait_health(200, "ready")
                assert text(again, 0, SHORT) == want and text(heir, 0, SHORT) == want


def large(n):
    """Returns a request with a prompt of 200, 800 or 1,700 tokens. The last is larger than a mixed machine's share of
    memory."""
    return {**body(n, SHORT), "prompt": f"{n}: " + "The sea was calm that day, and nobody spoke. " * (18, 72, 153)[n % 3]}


def check_pressure():
    """Machines move to the mixed pool for one gateway but not for the other, while the prompt machine has more work
    than scheduler/prompt_queue_threshold_tokens for each of them."""
    ports = free_ports(3)
    names = ("prompt-0", "token-0", "token-1")
    machines = {name: {"address": f"127.0.0.1:{port}", "local": True} for name, port in zip(names, ports)}
    config = {"threads": 1, "kv": {"memory": "64MiB"}, "transport": TRANSPORT, "cluster": {"key_file": "cluster.key"},
              "machines": machines, "pools": {"prompt": names[:1], "token": names[1:]},
              "scheduler": {"prompt_queue_threshold_tokens": 400}}
    remote = {**config, "machines": {name: {**machine, "local": False} for name, machine in machines.items()}}
    files = {"cluster.key": KEY}
    with Cluster(config, files=files, gates=True) as first, Cluster(remote, files=files, gates=first.gates) as second:
        want = ["".join(e["choices"][0]["text"] for e in first.stream("/v1/completions", large(n))) for n in range(COUNT)]
        first.hold("prompt-0")
        streams = [Stream(gateway, large(n)) for gateway in (first, second) for n in range(COUNT)]

        def moves():
            return [gateway.metric("cleave_pool_moves_total") for gateway in (first, second)]

        wait_until(lambda: sum(moves()) > 0, "machines move under pressure", cluster=first)
        first.release()
        for i, stream in enumerate(streams):
            stream.expect(want[i % COUNT], f"gateway {i // COUNT}, request {i % COUNT}")
        print("while both gateways waited for the prompt machine, machines moved %.0f and %.0f times" % tuple(moves()))
        for gateway in (first, second):
            gateway.wait_all_free()
            wait_until(lambda: gateway.metric("cleave_machine_in_pool", machine="token-0") == 1, "token-0 goes home",
                       cluster=gateway)


def main():
    need_model()
    if sys.argv[1:] != ["few"]:
        check_launched()
        check_pressure()
    ports = free_ports(2)
    config = {"model": MODEL, "threads": 1, "pools": {"prompt": ["prompt-0"], "token": ["token-0"]},
              "machines": {name: {"address": f"127.0.0.1:{port}", "local": False, "device": "cuda:0"}
                           for name, port in zip(("prompt-0", "token-0"), ports)},
              "cluster": {"key_file": "cluster.key"}, "kv": {"memory": "64MiB", "dtype": "i16"}, "transport": TRANSPORT}
    with tempfile.TemporaryDirectory(prefix="cleave-test-") as folder:
        path, log, gates = (os.path.join(folder, name) for name in ("config.json", "log", "gates"))
        with open(path, "w") as file:
            json.dump(config, file)
        with open(os.path.join(folder, "cluster.key"), "w", opener=lambda p, flags: os.open(p, flags, 0o600)) as file:
            file.write(KEY)
        with open(log, "w") as logs:
            machines = [subprocess.Popen([BINARY, "machine", path, name], stderr=logs, env=gated_environment(gates))
                        for name in ("prompt-0", "token-0")]
        try:
            check_quota(config, gates)
            check(config, gates, log)
        except BaseException:
            print(open(log).read(), file=sys.stderr)
            raise
        finally:
            for machine in machines:
                machine.terminate()
            for machine in machines:
                assert machine.wait(300) == 0
        said = open(log).read()
        assert "Sanitizer" not in said and "assert" not in said.lower() and "KV blocks:" not in said.replace(" KV blocks of", ""), said


if __name__ == "__main__":
    main()
    print("two gateways share machines; one dies, and the other serves on")
