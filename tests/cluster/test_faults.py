"""Goal: a machine that is killed costs its requests time, not tokens: every stream goes on with the bytes of an
undisturbed run, local machines come back, and no block stays behind. Method: kill -9 of a token machine, then of a
prompt machine, under eight streams; SIGTERM of the gateway, after which no process is left; then SIGSTOP of machines, whose
requests go on elsewhere, and which do no harm when they run again."""

import os
import shutil
import signal
import sys
import tempfile
import threading
import time

from cluster import BINARY, Cluster, need_model

PROMPTS = [f"Write {n} sentences about the sea. " * n for n in range(1, 9)]


def body(prompt):
    return {"prompt": prompt, "max_tokens": 150, "temperature": 0.7, "seed": 42, "ignore_eos": True}


def streams(cluster):
    """Starts a stream per prompt; returns (threads, texts)."""
    texts = [[] for _ in PROMPTS]

    def read(index):
        for event in cluster.stream("/v1/completions", body(PROMPTS[index])):
            texts[index].append(event["choices"][0]["text"])

    threads = [threading.Thread(target=read, args=(i,)) for i in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    return threads, texts


def run(cluster, victim=None, number=signal.SIGKILL):
    threads, texts = streams(cluster)
    if victim is not None:
        time.sleep(0.6)
        os.kill(cluster.children()[victim], number)
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive(), "a stream hangs\n" + cluster.logged()
    return ["".join(text) for text in texts]


def killed():
    with Cluster({"pools": {"prompt": 2, "token": 2}, "kv": {"memory": "128MiB"}}) as cluster:
        want = run(cluster)
        for victim in ("token-0", "prompt-0", "token-1"):
            before = cluster.metric("cleave_requests_resumed_total")
            got = run(cluster, victim)
            assert got == want, (victim, [(w, g) for w, g in zip(want, got) if w != g], cluster.logged())
            print(f"{victim} killed: {len(got)} streams with the same bytes, "
                  f"{cluster.metric('cleave_requests_resumed_total') - before:.0f} resumed")
            deadline = time.monotonic() + 120
            while victim not in cluster.children() or cluster.metric("cleave_machine_up", machine=victim) != 1:
                assert time.monotonic() < deadline, f"{victim} did not come back\n" + cluster.logged()
                time.sleep(0.1)
            cluster.wait_all_free()
        children = cluster.children()
        assert len(children) == 4
        status = cluster.stop()
        assert status == 0, (status, cluster.logged())
        for name, pid in children.items():
            assert not os.path.exists(f"/proc/{pid}"), f"{name} is left behind"
    with Cluster() as cluster: # even kill -9 of the gateway leaves no machine behind
        children = cluster.children()
        cluster.process.kill()
        deadline = time.monotonic() + 60
        while any(os.path.exists(f"/proc/{pid}") for pid in children.values()):
            assert time.monotonic() < deadline, "machines outlive their gateway"
            time.sleep(0.05)


def upgraded():
    """The binary is replaced while it serves: a machine that dies is started again, of the version that runs."""
    with tempfile.TemporaryDirectory() as folder:
        binary = os.path.join(folder, "cleave")
        shutil.copy(BINARY, binary)
        with Cluster(binary=binary) as cluster:
            os.unlink(binary)
            with open(binary, "w") as file:
                file.write("another version")
            os.kill(cluster.children()["token-0"], signal.SIGKILL)
            deadline = time.monotonic() + 15
            while cluster.logged().count("machine token-0 pool token is up") < 2:
                assert time.monotonic() < deadline, cluster.logged()
                time.sleep(0.05)
            assert cluster.post("/v1/completions", {"prompt": "x", "max_tokens": 3})["choices"]


def wait_up(cluster, machine, value):
    """Silence takes its time to be noticed, and so does a machine that is back; streams need not last as long."""
    deadline = time.monotonic() + 30
    while cluster.metric("cleave_machine_up", machine=machine) != value:
        assert time.monotonic() < deadline, (machine, value, cluster.logged())
        time.sleep(0.05)


def frozen():
    with Cluster({"pools": {"prompt": 2, "token": 2}, "kv": {"memory": "128MiB"},
                  "transport": {"heartbeat_ms": 300, "silence_ms": 1500}}) as cluster:
        want = run(cluster)
        for victim in ("token-0", "prompt-1"):
            pid = cluster.children()[victim]
            try:
                assert run(cluster, victim, signal.SIGSTOP) == want, (victim, cluster.logged())
                wait_up(cluster, victim, 0)
            finally:
                os.kill(pid, signal.SIGCONT)
            again = run(cluster) # while what it had under way arrives late
            assert again == want, (victim, cluster.logged())
            wait_up(cluster, victim, 1)
            assert cluster.children()[victim] == pid
            cluster.wait_all_free(10)
            print(f"{victim} stopped and continued: nobody noticed")


need_model()
if "frozen" in sys.argv:
    frozen()
else:
    killed()
    upgraded()
