"""Goal: KV that a machine stores in a file, or in memory of the host beside its KV memory, comes back after the KV memory
has lost it, and every answer is that of a cluster without: after restarts and kills, with a full, damaged, shortened,
unusable or encrypted file. Requests with different salts share nothing. What one tier has, another one gets from KV
memory, and no tier is written twice.

Method: the same requests (greedy, sampled, constrained, with penalties and stop strings) to a cluster without tiers and
to clusters that share a folder of files, one after the other. `cached_tokens` and the metrics say what was loaded.
`scheduler/compare_time` is false, so that stored KV is always loaded, however fast the computer is.
"""

import json
import os
import random
import signal
import subprocess
import tempfile

from cluster import BINARY, Cluster, need_model, wait_until
from tier_cases import BLOCK, CONFIG, MEMORY, RECORD, answer, cases, check_answers, check_killed_decode, check_salts, tokens

NAMES = ("hits_tokens", "misses_tokens", "loaded_bytes", "load_seconds", "stored_bytes", "dropped_tokens", "damaged")
SPANS = 12 + 6 + 10 + 6 + 2 + 7 + 4 + 2  # Full blocks of all prompts of cases(), each once.


def config(folder, size="64MiB", memory=MEMORY, **more):
    kv = {"memory": memory, "tiers": {"wait_ms": 60000, **more.pop("tiers", {}), "file": {"path": folder, "size": size}}}
    return {**CONFIG, "kv": kv, **more}


def tier(cluster, name, kind="file", **labels):
    return cluster.metric(f"cleave_kv_tier_{name}_total", tier=kind, **labels)


def states(cluster, kind):
    """Returns the part of /admin/state about the tier of each machine; None = it has none."""
    machines = json.loads(cluster.request("GET", "/admin/state")[2])["machines"]
    return {each["name"]: each.get("kv_tiers", {}).get(kind) for each in machines}


def wait_works(cluster, works=True, kind="file"):
    """Waits until the tier of every prompt machine is open, or is off."""
    def reached():
        tiers = [each for name, each in states(cluster, kind).items() if not name.startswith("token")]
        return tiers and all(each is not None and each["works"] == works for each in tiers)
    wait_until(reached, f"the tiers work: {works}", cluster=cluster)


def wait_stored(cluster, spans, kind="file"):
    """Waits until `spans` spans are stored."""
    wait_until(lambda: tier(cluster, "stored_bytes", kind) >= spans * RECORD, f"{spans} spans are stored", cluster=cluster)
    assert tier(cluster, "dropped_tokens", kind) == 0


def run(settings, wanted, spans, files=None):
    """Starts a cluster, compares the answers, waits until `spans` spans are stored. Returns (cached tokens, metrics of
    the tier, log)."""
    with Cluster(settings, files=files) as cluster:
        wait_works(cluster)
        found = check_answers(cluster, wanted)
        wait_stored(cluster, spans)
        cluster.wait_all_free()
        return found, {name: tier(cluster, name) for name in NAMES}, cluster.logged()


def check_restart(folder, wanted):
    """Cold, then warm in memory, then after a restart, then after a kill."""
    cold, numbers, _ = run(config(folder), wanted, SPANS)
    assert cold == 144 + 96 and numbers["hits_tokens"] == 0 and numbers["misses_tokens"] > 0, numbers
    with Cluster(config(folder)) as cluster:
        wait_works(cluster)
        after = check_answers(cluster, wanted)
        # All full blocks before the last token, of every prompt without echo: 200 + 240 + 170 + 100 + 140 + 120 + 64.
        assert after == 192 + 224 + 160 + 96 + 128 + 112 + 48, (cold, after)
        # Some blocks are in memory already, because an earlier prompt had the same: 144 and 96 tokens.
        wait_until(lambda: tier(cluster, "hits_tokens") == after - 144 - 96, "the loads are reported", cluster=cluster)
        assert tier(cluster, "loaded_bytes") > 0 and tier(cluster, "load_seconds") > 0
        assert check_answers(cluster, wanted) == after  # Warm: from memory.
        assert tier(cluster, "hits_tokens") == after - 144 - 96
        pid = cluster.children()["prompt-0"]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: cluster.children().get("prompt-0", pid) != pid, "prompt-0 has started again", cluster=cluster)
        wait_works(cluster)
        assert check_answers(cluster, wanted) == after
        cluster.wait_all_free()
    return after


def check_memory(folder, wanted):
    """Prompts that memory has evicted come back without a restart."""
    with Cluster(config(folder, memory="8MiB")) as cluster:
        wait_works(cluster)

        def loaded():
            check_answers(cluster, wanted)
            return tier(cluster, "hits_tokens") > 0
        wait_until(loaded, "evicted KV is loaded", cluster=cluster)
        cluster.wait_all_free()


def check_host_memory(wanted):
    """Prompts that KV memory has evicted come back from memory of the host, until the machine ends."""
    with Cluster({**CONFIG, "kv": {"memory": "8MiB", "tiers": {"wait_ms": 60000, "memory": {"size": "64MiB"}}}}) as cluster:
        wait_works(cluster, kind="memory")

        def loaded():
            check_answers(cluster, wanted)
            return tier(cluster, "hits_tokens", "memory") > 0
        wait_until(loaded, "evicted KV is loaded", cluster=cluster)
        # The measured loads are shown; with compare_time off, they decide nothing.
        state = states(cluster, "memory")["prompt-0"]
        assert state["load_fixed_us"] + state["load_token_ns"] > 0 and state["least_tokens"] == 1, state
        assert tier(cluster, "stored_bytes", "memory", machine="token-0") == 0
        pid = cluster.children()["prompt-0"]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: cluster.children().get("prompt-0", pid) != pid, "prompt-0 has started again", cluster=cluster)
        wait_works(cluster, kind="memory")
        check_answers(cluster, wanted)
        cluster.wait_all_free()


def check_host_memory_sizes(wanted):
    """Memory for three records is too small, and turns the tier off; memory for a few more is of use."""
    for size, works in ((3 * RECORD, False), (6 * RECORD, True)):
        with Cluster({**CONFIG, "kv": {"memory": "8MiB", "tiers": {"wait_ms": 60000, "memory": {"size": size}}}}) as cluster:
            wait_works(cluster, works, "memory")
            for _ in range(2):
                check_answers(cluster, wanted)
            log = cluster.logged()
            assert ("KV tier memory is off" in log and "want at least" in log) != works, log
            cluster.wait_all_free()


def check_host_memory_and_file(folder, wanted):
    """After a restart the file has everything. Its KV also gets into memory of the host, and is loaded from there when
    KV memory has lost it; the file is not written again."""
    both = {"tiers": {"memory": {"size": "64MiB"}}}
    run(config(folder, **both), wanted, SPANS)
    with Cluster(config(folder, memory="8MiB", **both)) as cluster:
        wait_works(cluster)
        wait_works(cluster, kind="memory")
        check_answers(cluster, wanted)
        wait_until(lambda: tier(cluster, "hits_tokens") > 0, "the file is loaded", cluster=cluster)

        def loaded():
            check_answers(cluster, wanted)
            return tier(cluster, "hits_tokens", "memory") > 0
        wait_until(loaded, "what the file had is loaded from memory of the host", cluster=cluster)
        assert tier(cluster, "stored_bytes") == 0, tier(cluster, "stored_bytes")
        cluster.wait_all_free()


def check_route(folder):
    """With `policy` prefix, a prompt goes to the machine whose file has its KV, also after that machine's restart. The
    event log says why, and a scheduler that reads the log decides the same. Each batch takes 0.2 s, much longer than a
    load."""
    settings = {**config(folder), "pools": {"prompt": 2, "token": 1}, "scheduler": {"policy": "prefix"},
                "log": {"events_file": "events.jsonl"}}
    body = {"prompt": tokens(60, 200), "temperature": 0}
    with Cluster(settings, gates=True, pace_us=200000) as cluster:
        def linked():
            links = json.loads(cluster.request("GET", "/admin/state")[2])["links"]
            return {"prompt-0", "prompt-1"} <= {link["from"] for link in links if link["up"] and link["to"] == "token-0"}

        wait_works(cluster)
        wait_until(linked, "links to the token machine", cluster=cluster)  # Without, it would compute the prompt itself.
        assert cluster.request("POST", "/admin/drain/prompt-0")[0] == 200
        want, cached = answer(cluster, body)
        assert cached == 0
        assert cluster.request("POST", "/admin/undrain/prompt-0")[0] == 200
        wait_stored(cluster, 12)
        cluster.wait_all_free()
        before = cluster.children()
        for name in ("prompt-1", "token-0"):  # Both hold the prompt in memory.
            os.kill(before[name], signal.SIGKILL)
        wait_until(lambda: all(cluster.children().get(name, before[name]) != before[name] for name in ("prompt-1", "token-0")),
                   "they have started again", cluster=cluster)
        wait_until(linked, "links to the token machine", cluster=cluster)
        wait_works(cluster)
        got, cached = answer(cluster, body)
        assert got == want and cached == 192, cached
        wait_until(lambda: tier(cluster, "hits_tokens", machine="prompt-1") == 192, "the load is reported", cluster=cluster)
        cluster.wait_all_free()
        path = os.path.join(cluster.folder.name, "events.jsonl")
        with open(path) as log:
            lines = [json.loads(line) for line in log if line.endswith("\n")]
        last = [action for line in lines for action in line.get("actions", []) if action["do"] == "route"][-1]
        assert last["load_tokens"] == 128 and 0 < last["decision.load_us"] < last["decision.compute_us"], last
        done = subprocess.run([BINARY, "simulate", "--replay-log", path], capture_output=True, text=True, timeout=300,
                              check=False)
        assert done.returncode == 0 and "\n0 decided differently" in done.stdout, (done.stdout, done.stderr)


def check_conversation(folder):
    """A machine for both phases loads the prompt and the answer of the turn before."""
    mixed = {"pools": {"prompt": 0, "token": 0, "mixed": 1}}
    body = {"prompt": tokens(20, 100), "max_tokens": 60, "ignore_eos": True, "temperature": 0.8, "seed": 2,
            "return_token_ids": True}
    with Cluster({**config(folder), **mixed}) as first:
        wait_works(first)
        reply = first.post("/v1/completions", body)
        wait_stored(first, (100 + 59) // BLOCK)
        said = {**body, "prompt": body["prompt"] + reply["choices"][0]["token_ids"] + tokens(21, 30)}
        want = answer(first, said)
        assert want[1] == 144, want
        wait_stored(first, (190 + 59) // BLOCK)
    with Cluster({**config(folder), **mixed}) as second:
        wait_works(second)
        got = answer(second, said)
        assert got == (want[0], 176), (got, want)
        second.wait_all_free()


def damage(path):
    """Flips bits all over the file, except in its header and its index."""
    draws = random.Random(1)
    with open(path, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        for at in range(65536, size, 4096):
            file.seek(at + draws.randrange(4096))
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1 << draws.randrange(8)]))


def check_damage(folder, wanted, after):
    path = os.path.join(folder, "prompt-0.kv")
    damage(path)
    # The last full blocks of the prompts of 240 and 64 tokens, and those with echo, are never loaded.
    _, numbers, log = run(config(folder), wanted, SPANS - 2)
    assert numbers["damaged"] > 0, numbers
    assert log.count("KV tier file: ") == 1 and "its tokens are computed instead" in log, log
    found, numbers, _ = run(config(folder), wanted, 0)  # The damaged records were replaced.
    assert found == after and numbers["damaged"] == 0, (found, after, numbers)
    os.truncate(path, os.path.getsize(path) // 50)
    _, numbers, log = run(config(folder), wanted, 0)
    assert numbers["damaged"] == 0 and log.count("has become smaller: ") == 1, (numbers, log)
    with Cluster(config(folder)) as cluster:
        wait_works(cluster)
        os.truncate(path, 4096)
        check_answers(cluster, wanted)
        wait_works(cluster, False)
        check_answers(cluster, wanted)
        log = cluster.logged()
        assert log.count("is off until the machine starts again") == 1 and "was made shorter" in log, log
        cluster.wait_all_free()
    with open(path, "r+b") as file:
        file.write(b"something else")
    run(config(folder), wanted, SPANS)


def check_resized(folder, wanted, after):
    """A larger file keeps everything, a smaller one what fits; the log says once what does not."""
    run(config(folder), wanted, SPANS)
    found, numbers, log = run(config(folder, size="80MiB"), wanted, 0)
    assert found == after and numbers["damaged"] == 0 and "has become smaller" not in log, (found, numbers, log)
    _, numbers, log = run(config(folder, size="8MiB"), wanted, 0)
    assert numbers["damaged"] == 0 and numbers["hits_tokens"] > 0, numbers
    assert log.count("KV tier file works: ") == log.count("records are kept") == 1, log


def check_full(folder, wanted):
    """A file with room for few blocks: it holds the latest, and the answers are right."""
    for _ in range(2):
        run(config(folder, size="3MiB"), wanted, 0)
    assert os.path.getsize(os.path.join(folder, "prompt-0.kv")) == 3 << 20


def check_unusable(folder, wanted):
    for settings, parts in ((config(folder + "/absent"), ["No such file or directory"]),
                            (config(folder, size="1000TiB"), ["1099511627776000 bytes", "cannot be made so large"]),
                            (config(folder, size="1MiB"), ["want at least"])):
        with Cluster(settings) as cluster:
            def lines():
                return [line for line in cluster.logged().splitlines() if "is off until" in line and "prompt-0" in line]
            wait_until(lines, "prompt-0 says that its tier is off", cluster=cluster)
            check_answers(cluster, wanted)
            wait_works(cluster, False)
            assert len(lines()) == 1 and any(part in lines()[0] for part in parts), cluster.logged()
    replicas = config(folder)
    replicas["machines"] = {"prompt-0": {"stages": [{"layers": "0-9"}, {"layers": "0-9"}, {"layers": "10-29"}]}}
    with Cluster(replicas) as cluster:
        check_answers(cluster, wanted)
        assert "prompt-0 does not use kv/tiers, because it has no prefix cache" in cluster.logged()


def payloads(path):
    """Returns pieces of 64 bytes of the file that are not zeros, one of each page. Records begin at a page, so equal
    records have equal pieces, wherever they are."""
    with open(path, "rb") as file:
        data = file.read()
    pieces = (data[at + 2048:at + 2112] for at in range(65536, len(data) - 4096, 4096))
    return {piece for piece in pieces if len(set(piece)) > 16}


def check_encryption(plain_folder, folder, wanted, after):
    secret = {"tiers": {"key_file": "kv.key"}}
    files = {"kv.key": "5a" * 32}
    run(config(folder, **secret), wanted, SPANS, files)
    found, numbers, _ = run(config(folder, **secret), wanted, 0, files)
    assert found == after and numbers["damaged"] == 0, (found, after, numbers)
    plain = payloads(os.path.join(plain_folder, "prompt-0.kv"))
    sealed = payloads(os.path.join(folder, "prompt-0.kv"))
    assert len(plain) > 50 and len(sealed) > 50 and not plain & sealed, (len(plain), len(sealed))
    run(config(folder + "/.."), wanted, SPANS)  # The method sees equal KV: that of another plain file.
    assert plain & payloads(os.path.join(folder, "..", "prompt-0.kv"))
    # With another key, and without one, nothing is found.
    for other in ({"kv.key": "6b" * 32}, None):
        _, numbers, _ = run(config(folder, **(secret if other else {})), wanted, SPANS, other)
        assert numbers["hits_tokens"] == 0, numbers
    with Cluster(config(folder, **secret), ready=False) as cluster:  # No key file.
        wait_until(lambda: "kv.key" in cluster.logged(), "the log names the key file", cluster=cluster)


def main():
    need_model()
    with Cluster({**CONFIG, "kv": {"memory": MEMORY}}) as plain:
        wanted = [answer(plain, body)[0] for body in cases()]
    with tempfile.TemporaryDirectory(prefix="cleave-test-") as root:
        def folder(name):
            os.mkdir(os.path.join(root, name))
            return os.path.join(root, name)
        first = folder("first")
        after = check_restart(first, wanted)
        check_damage(first, wanted, after)
        check_memory(folder("memory"), wanted)
        check_host_memory(wanted)
        check_host_memory_sizes(wanted)
        check_host_memory_and_file(folder("both"), wanted)
        check_conversation(folder("conversation"))
        check_salts(config(folder("salts")), wait_works, lambda cluster: wait_stored(cluster, 12))
        check_route(folder("route"))
        check_killed_decode(config(folder("killed")), "file", 1, wait_works)
        check_resized(folder("resized"), wanted, after)
        check_full(folder("full"), wanted)
        check_unusable(folder("unusable"), wanted)
        check_encryption(first, folder("encrypted"), wanted, after)
    print("ok")


main()
