"""Goal: a machine that is killed or stopped costs its requests time but no tokens: every stream continues with the
bytes of an undisturbed run, local machines restart, and no block is lost.

Method: kill -9 of token machines and of a prompt machine that have some of eight streams, each in the middle of a
batch; SIGTERM and kill -9 of the gateway, after which no process is left; an executable that is replaced while the
cluster serves.

usage: test_faults.py [frozen]
frozen: machines get SIGSTOP instead. Their requests continue on other machines, and the stopped machines do no harm
when they run again.
"""

import os
import shutil
import signal
import sys
import tempfile

from cluster import BINARY, Cluster, Stream, need_model, send_signal, wait_until

PROMPTS = [f"Write {n} sentences about the sea. " * n for n in range(1, 9)]
CONFIG = {"pools": {"prompt": 2, "token": 2}, "kv": {"memory": "128MiB"}, "threads": 1}


def start(cluster):
    """Starts a stream for each prompt."""
    return [Stream(cluster, {"prompt": prompt, "max_tokens": 40, "temperature": 0.7, "seed": 42, "ignore_eos": True})
            for prompt in PROMPTS]


def run(cluster):
    return [stream.end().text for stream in start(cluster)]


def strike(cluster, victim, number, want):
    """Starts the streams, and sends the signal to the victim in the middle of one of their batches. want: the expected
    texts."""
    pid, pool = cluster.children()[victim], victim.split("-")[0]
    names = [name for name in cluster.children() if name.startswith(pool)]
    for name in names:  # Both machines of the pool get some of the streams.
        cluster.hold(name, layer=15)
    streams = start(cluster)
    wait_until(lambda: all(cluster.held(name) for name in names), f"{names} are held", cluster=cluster)
    os.kill(pid, number)
    cluster.release()
    for stream, text in zip(streams, want):
        stream.expect(text, f"{victim}, {number.name}")


def resumed(cluster):
    return cluster.metric("cleave_requests_resumed_total")


def wait_up(cluster, machine, value):
    wait_until(lambda: cluster.metric("cleave_machine_up", machine=machine) == value,
               f"{machine} is {'up' if value else 'down'}", cluster=cluster)


def killed():
    with Cluster(CONFIG, gates=True) as cluster:
        want = run(cluster)
        for victim in ("token-0", "prompt-0", "token-1"):
            before, old = resumed(cluster), cluster.children()[victim]
            strike(cluster, victim, signal.SIGKILL, want)
            assert resumed(cluster) > before
            print(f"{victim} killed: {len(want)} streams with the same bytes, {resumed(cluster) - before:.0f} resumed")
            wait_until(lambda: cluster.children().get(victim, old) != old, f"{victim} is started again", cluster=cluster)
            wait_up(cluster, victim, 1)
            cluster.wait_all_free()
        children = cluster.children()
        assert len(children) == 4
        status = cluster.stop()
        assert status == 0, (status, cluster.logged())
        for name, pid in children.items():
            assert not os.path.exists(f"/proc/{pid}"), f"{name} is left behind"
    with Cluster() as cluster:  # Even kill -9 of the gateway leaves no machine running.
        children = cluster.children()
        cluster.process.kill()
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in children.values()), "the machines end")


def upgraded():
    """The executable is replaced while the cluster serves. A machine that dies restarts with the release that runs."""
    with tempfile.TemporaryDirectory() as folder:
        binary = os.path.join(folder, "cleave")
        shutil.copy(BINARY, binary)
        with Cluster(binary=binary) as cluster:
            os.unlink(binary)
            with open(binary, "w") as file:
                file.write("another version")
            os.kill(cluster.children()["token-0"], signal.SIGKILL)
            wait_until(lambda: cluster.logged().count("machine token-0 pool token is up") >= 2, "token-0 comes back",
                       cluster=cluster)
            assert cluster.post("/v1/completions", {"prompt": "x", "max_tokens": 3})["choices"]


def frozen():
    with Cluster({**CONFIG, "transport": {"heartbeat_ms": 200, "silence_ms": 3000}}, gates=True) as cluster:
        want = run(cluster)
        for victim in ("token-0", "prompt-1"):
            pid = cluster.children()[victim]
            before = resumed(cluster)
            try:
                strike(cluster, victim, signal.SIGSTOP, want)
                assert resumed(cluster) > before
                wait_up(cluster, victim, 0)
            finally:
                send_signal(pid, signal.SIGCONT)
            again = run(cluster)  # Meanwhile late messages of the victim arrive.
            assert again == want, (victim, again, want, cluster.logged())
            wait_up(cluster, victim, 1)
            assert cluster.children()[victim] == pid
            cluster.wait_all_free()
            print(f"{victim} stopped and continued: the same bytes")


need_model()
if "frozen" in sys.argv:
    frozen()
else:
    killed()
    upgraded()
