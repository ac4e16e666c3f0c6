"""Goal: every process of a cluster runs in the sandbox, unless the config says otherwise (cluster/sandbox), and works
as it does without the sandbox: it restarts machines, reads a replaced key file, and writes the event log and the admin
socket.

Method: reads what the kernel reports about the processes (/proc/PID/status): a gateway, a machine and a machine with
two stages; then a machine is killed, and a reload adds another one. What the sandbox refuses:
tests/host/test_sandbox.c.
"""

import os
import signal

from cluster import Cluster, need_model, wait_until

MACHINES = {"p0": {}, "t0": {"stages": [{}, {}]}}
CONFIG = {"kv": {"memory": "32MiB"}, "threads": 1, "pools": {"prompt": ["p0"], "token": ["t0"]}, "machines": MACHINES,
          "cluster": {"key_file": "cluster.key"}, "log": {"events_file": "events.log"},
          "http": {"listen": "127.0.0.1:0", "admin_socket": "admin.sock"}}
KEYS = ["%064x\n" % number for number in (7, 8)]


def processes(cluster):
    return {"gateway": cluster.process.pid, **cluster.children(), **cluster.stages()}


def limits(cluster):
    """Returns {process: (Seccomp, NoNewPrivs)}."""
    found = {}
    for name, pid in processes(cluster).items():
        with open(f"/proc/{pid}/status") as file:
            lines = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        found[name] = lines["Seccomp"], lines["NoNewPrivs"]
    return found


def answer(cluster):
    return cluster.post("/v1/completions", {"prompt": "Once", "max_tokens": 4, "temperature": 0})["choices"][0]["text"]


def main():
    need_model()
    with Cluster({**CONFIG, "cluster": {"key_file": "cluster.key", "sandbox": False}}, files={"cluster.key": KEYS[0]}) as cluster:
        found = limits(cluster)
        assert len(found) == 5 and set(found.values()) == {("0", "0")}, found
        want = answer(cluster)
    with Cluster(CONFIG, files={"cluster.key": KEYS[0]}) as cluster:
        found = limits(cluster)
        assert len(found) == 5 and set(found.values()) == {("2", "1")}, found
        assert answer(cluster) == want
        said = cluster.logged()
        assert said.count("sandbox: system calls are limited") == 5, said
        killed = cluster.children()["p0"]
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: cluster.children().get("p0", killed) != killed, "p0 runs again", cluster=cluster)
        cluster.wait_health(200, "")
        cluster.write("cluster.key", KEYS[0] + KEYS[1])
        cluster.config["pools"]["prompt"] = ["p0", "p1"]
        cluster.config["machines"] = {**MACHINES, "p1": {}}
        cluster.write("config.json", cluster.config)
        os.kill(cluster.process.pid, signal.SIGHUP)
        wait_until(lambda: cluster.metric("cleave_machine_up", machine="p1") == 1, "p1 is up", cluster=cluster)
        assert answer(cluster) == want
        folder = cluster.folder.name
        assert os.path.getsize(os.path.join(folder, "events.log")) > 0
        assert os.path.exists(os.path.join(folder, "admin.sock"))
        said = cluster.logged()
        assert "cluster keys" in said or "cluster/key_file" in said, said
        assert len(limits(cluster)) == 6 and set(limits(cluster).values()) == {("2", "1")}, limits(cluster)
    assert not os.path.exists(os.path.join(folder, "admin.sock"))  # The gateway has removed the socket.


main()
