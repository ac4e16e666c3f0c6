"""Goal: tiers (kv/tiers) of machines with stages and ranks, and of machines with a GPU, hold the same bytes as those of a
machine of one process on the CPU: KV that one has stored is loaded by any other one, and each answer is that of a cluster
without tiers. While stage processes are killed, answers stay right.

Method: a machine with a file and an empty store copies what the file has into the store, through its own processes. So
the stores of machines with different splits, which share one file, must have equal records.

usage: test_tiers_stages.py splits|answers|gpu|kills|lives|windows FAKE-DEVICE-LIBRARY
"""

import json
import os
import signal
import subprocess
import sys
import tempfile

from cluster import BINARY, DEFAULT_MODEL, Cluster, free_ports, need_model, wait_until
from test_stages import up
from tiny_model import write
from tier_cases import BLOCK, CONFIG, RECORD, Load, answer, cases, check_answers, tokens

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "kvcache"))
from resp_servers import Fake

# Prompts of 43, 10 and 6 full blocks, which do not end with a block: so that all full blocks are loaded. The blocks of the
# first one do not fit a slot of the staging memory (machine/executor/staging.h). One token: only prompts are stored.
BODIES = [{"prompt": tokens(70 + i, count), "temperature": 0, "max_tokens": 1} for i, count in enumerate((700, 170, 100))]
BLOCKS = 43 + 10 + 6
UNEQUAL = [{"layers": "0-0"}, {"layers": "1-21"}, {"layers": "22-29"}]
SPLITS = {"one process": {}, "2 stages": {"stages": 2}, "3 unequal stages": {"stages": UNEQUAL},
          "2 ranks": {"tensor_parallel": 2}, "2 stages of 3 ranks": {"stages": 2, "tensor_parallel": 3}, "2 stages over TCP": {"stages": 2},
          "a GPU and a CPU": {"stages": [{"device": "cuda:0"}, {"device": "cpu"}]}, "a GPU": {"device": "cuda:0"}}


def config(machine, memory="64MiB", tiers=None, **more):
    return {**CONFIG, "pools": {"prompt": ["p0"], "token": ["t0"]}, "machines": {"p0": machine},
            "kv": {"memory": memory, "tiers": {"wait_ms": 60000, **tiers}}, "scheduler": {"compare_time": False}, **more}


def tier(cluster, name, kind, **labels):
    return cluster.metric(f"cleave_kv_tier_{name}_total", tier=kind, **labels)


def wait_works(cluster, names):
    """Waits until all tiers of these machines work."""
    def reached():
        machines = {each["name"]: each for each in json.loads(cluster.request("GET", "/admin/state")[2])["machines"]}
        tiers = [each for name in names for each in machines.get(name, {}).get("kv_tiers", {}).values()]
        return up(cluster) and len(tiers) >= len(names) and all(each["works"] for each in tiers)
    wait_until(reached, "the tiers work", cluster=cluster)


def run(name, folder, hits):
    """Sends BODIES to a machine with the split `name`, with the files of `folder` and an empty store. `hits`: tokens that
    the file has. Returns the records of the store."""
    server = Fake()
    tiers = {"file": {"path": folder, "size": "64MiB"}, "store": {"servers": server.address, "deadline_ms": 60000}}
    more = {"transport": {**CONFIG["transport"], "ucx_transports": "none"}} if "TCP" in name else {}
    with Cluster(config(SPLITS[name], tiers=tiers, **more)) as cluster:
        wait_works(cluster, ["p0"])
        got = [answer(cluster, body) for body in BODIES]
        assert sum(cached for _, cached in got) == hits, got
        wait_until(lambda: len(server.values) == BLOCKS, "the store has all prompts", cluster=cluster)
        wait_until(lambda: tier(cluster, "hits_tokens", "file") == hits, "the loads are reported", cluster=cluster)
        wait_until(lambda: tier(cluster, "stored_bytes", "store") == BLOCKS * RECORD, "storing is reported", cluster=cluster)
        if hits == 0:
            wait_until(lambda: tier(cluster, "stored_bytes", "file") == BLOCKS * RECORD, "the file has all", cluster=cluster)
        else:
            assert tier(cluster, "stored_bytes", "file") == 0
        assert tier(cluster, "dropped_tokens", "file") + tier(cluster, "dropped_tokens", "store") == 0
        cluster.wait_all_free()
    server.stop()
    return server.values, [choices for choices, _ in got]


def check_splits(folder):
    """Each split copies what one process has stored. Stages compute the bytes of one process, ranks do not; what ranks have
    stored, one process copies."""
    want, answers = run("one process", folder("one"), 0)
    for name in SPLITS:
        got, said = run(name, folder("one"), BLOCKS * BLOCK)
        assert got == want, f"{name}: other records than those of the file"
        if "ranks" not in name:
            assert said == answers, (name, said, answers)
    for name in ("2 stages", "2 ranks", "a GPU"):
        stored, _ = run(name, folder(name), 0)
        assert stored.keys() == want.keys() and (stored == want) == (name != "2 ranks"), name
        got, _ = run("one process", folder(name), BLOCKS * BLOCK)
        assert got == stored, f"one process: other records than those of {name}"


def check_all_answers(folder, wanted, machine):
    """Evicted KV comes back from memory of the (head's) host and from the file; a restarted machine reads the file."""
    tiers = {"memory": {"size": "24MiB"}, "file": {"path": folder("answers"), "size": "64MiB"}}
    settings = config(machine, memory="8MiB", tiers=tiers)
    for _ in range(2):
        with Cluster(settings) as cluster:
            wait_works(cluster, ["p0"])
            load = Load(cluster, wanted)
            for kind in ("memory", "file"):
                load.wait_for(lambda: tier(cluster, "hits_tokens", kind) > 0, f"KV is loaded from {kind}")
            load.wait_rounds()
            load.end()
            cluster.wait_all_free()
    with Cluster(config({"stages": 2}, tiers=tiers)) as cluster:
        wait_works(cluster, ["p0"])
        assert check_answers(cluster, wanted) == 192 + 224 + 160 + 96 + 128 + 112 + 48
        cluster.wait_all_free()


def check_kills(folder, wanted):
    """Stage processes are killed while KV is stored and loaded. Their machine starts again, and reads its file."""
    tiers = {"file": {"path": folder("kills"), "size": "64MiB"}}
    settings = {**config({}, memory="8MiB", tiers=tiers), "pools": {"mixed": ["m0", "m1"]},
                "machines": {"m0": {"stages": 2}, "m1": {"stages": 3}}}
    with Cluster(settings) as cluster:
        wait_works(cluster, ["m0", "m1"])
        load = Load(cluster, wanted)
        for stage in ("m0/1", "m1/0", "m0/0", "m1/2"):
            hits = tier(cluster, "hits_tokens", "file")
            load.wait_for(lambda: tier(cluster, "hits_tokens", "file") > hits, "KV is loaded")
            pid = cluster.stages()[stage]
            os.kill(pid, signal.SIGKILL)
            load.wait_for(lambda: up(cluster) and cluster.stages().get(stage, pid) != pid, f"{stage} has started again")
        load.wait_rounds()
        load.end()
        cluster.wait_all_free()


def check_lives(folder, wanted):
    """Stages that were started by hand outlive their head, which is killed while it loads and stores. The next head reads
    the file through the same stages."""
    tiers = {"file": {"path": folder("lives"), "size": "64MiB"}}
    ports = free_ports(2)
    stages = [{"host": f"127.0.0.1:{port}"} for port in ports]
    # Without a key file, the gateway would make a key that these stages do not know.
    settings = config({"stages": stages}, memory="8MiB", tiers=tiers, cluster={"key_file": "cluster.key"})
    files = {"cluster.key": "a cluster key of more than 32 bytes\n"}
    with Cluster(settings, ready=False, files=files) as cluster, tempfile.TemporaryFile("w+") as log:
        path = os.path.join(cluster.folder.name, "config.json")
        processes = [subprocess.Popen([BINARY, "machine", path, "p0", "--stage", str(i)], stderr=log) for i in range(2)]
        try:
            cluster.wait_ready(300)
            wait_works(cluster, ["p0"])
            load = Load(cluster, wanted)
            for _ in range(3):
                hits = tier(cluster, "hits_tokens", "file")
                load.wait_for(lambda: tier(cluster, "hits_tokens", "file") > hits, "KV is loaded")
                pid = cluster.children()["p0"]
                os.kill(pid, signal.SIGKILL)
                load.wait_for(lambda: up(cluster) and cluster.children().get("p0", pid) != pid, "p0 has started again")
            load.wait_rounds()
            load.end()
            assert all(process.poll() is None for process in processes), cluster.logged()
            cluster.wait_all_free()
        except BaseException:
            log.seek(0)
            print(log.read(), flush=True)
            raise
        finally:
            for process in processes:
                process.kill()
                process.wait()


def check_windows(folder, model):
    """A model of which most layers have a window of 40 tokens. What one process has stored, machines with stages and ranks
    load, and their stores get the same records; ranks compute what they do not load, so their answers may differ. Each
    prompt has records of all blocks in one layer group, and of its last three blocks in five groups with a window."""
    bodies = [{**body, "max_tokens": 12} for body in BODIES]
    more = {"model": model}
    with Cluster({**CONFIG, **more, "kv": {"memory": "64MiB", "prefix_cache": False}}) as plain:
        wanted = [answer(plain, body)[0] for body in bodies]
        many = [{"prompt": tokens(80 + i, 390), "temperature": 0} for i in range(9)]
        many_wanted = [answer(plain, body)[0] for body in many]
    first = None
    for name, hits in (("one process", 0), ("one process", BLOCKS), ("2 stages", BLOCKS), ("a GPU", BLOCKS), ("2 ranks", BLOCKS)):
        server = Fake()
        tiers = {"file": {"path": folder("windows"), "size": "64MiB"}, "store": {"servers": server.address, "deadline_ms": 60000}}
        with Cluster(config(SPLITS[name], tiers=tiers, **more)) as cluster:
            wait_works(cluster, ["p0", "t0"])
            got = [answer(cluster, body) for body in bodies]
            assert sum(cached for _, cached in got) == hits * BLOCK, (name, got)
            if name != "2 ranks":
                assert [choices for choices, _ in got] == wanted, (name, got, wanted)
            wait_until(lambda: tier(cluster, "hits_tokens", "file") == hits * BLOCK, "the loads are reported", cluster=cluster)
            wait_until(lambda: tier(cluster, "stored_bytes", "store", machine="p0") > 0, "the store has KV", cluster=cluster)
            cluster.wait_all_free()
            assert tier(cluster, "damaged", "file") + tier(cluster, "dropped_tokens", "store") == 0
        server.stop()
        first = first or server.values
        equal = [key for key, value in first.items() if server.values.get(key) == value]
        assert len(equal) >= (BLOCKS + 3 * 3 * 5 if name == "2 ranks" else len(first)), (name, len(equal), len(first))
    small = config({"stages": 2}, memory="7MiB", tiers={"memory": {"size": "64MiB"}}, **more)
    with Cluster(small) as cluster:  # KV that is evicted and loaded again and again.
        wait_works(cluster, ["p0"])

        def loaded():
            for body, want in zip(many, many_wanted):
                assert answer(cluster, body)[0] == want, body
            return tier(cluster, "hits_tokens", "memory") > 2000
        wait_until(loaded, "evicted KV is loaded", cluster=cluster)
        cluster.wait_all_free()


def main():
    need_model()
    which = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="cleave-test-") as base:
        def folder(name):
            path = os.path.join(base, name)
            os.makedirs(path, exist_ok=True)
            return path
        os.environ["CLEAVE_CUDA_PLUGIN"] = os.path.abspath(sys.argv[2])
        if which == "splits":
            check_splits(folder)
        elif which == "windows":
            check_windows(folder, write(DEFAULT_MODEL, os.path.join(base, "windows.gguf"), 14, window=40, context=4096))
        else:
            with Cluster({**CONFIG, "kv": {"memory": "64MiB"}}) as plain:
                wanted = [answer(plain, body)[0] for body in cases()]
            if which in ("answers", "gpu"):
                check_all_answers(folder, wanted, {"stages": 3} if which == "answers" else SPLITS["a GPU"])
            else:
                {"kills": check_kills, "lives": check_lives}[which](folder, wanted)
    print("ok")


main()
