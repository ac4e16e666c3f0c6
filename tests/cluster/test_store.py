"""Goal: machines share KV in a store (kv/tiers/store): what one machine has computed, another one loads, also after the
first one was killed. While the store is stopped, killed, slow, full, closed or answers with something strange, under
load, every answer is that of a cluster without a store, and each machine says once what is wrong. Tenants share nothing.
With a key, the store holds nothing that can be read. The next turn of a conversation finds the answer of the turn before,
which a token machine has stored. A request whose machine dies in the middle of the answer does not compute its prompt
again.

Method: the requests of tier_cases.py, to clusters that share a server: a redis-server if it is installed, and an
imitation that misbehaves on demand (tests/kvcache/resp_servers.py). `cached_tokens` and the metrics say what was loaded.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

from cluster import BINARY, DEFAULT_MODEL, MODEL, Cluster, need_model, skip, wait_until
from tier_cases import BLOCK, CONFIG, MEMORY, Load, answer, cases, check_answers, check_killed_decode, check_salts, tokens

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "kvcache"))
from resp_servers import Fake, Redis

# All full blocks before the last token, of every prompt without echo.
ALL_CACHED = 192 + 224 + 160 + 96 + 128 + 112 + 48
OTHERS_KEPT = 144 + 96  # Tokens that an earlier prompt has left in memory.


def config(shared, deadline_ms=60000, tiers=None, store=None, **more):
    return {**CONFIG, "kv": {"memory": MEMORY, "tiers": {"wait_ms": 60000, **(tiers or {}), "store": {
        "servers": shared.address, "deadline_ms": deadline_ms, **(store or {})}}}, **more}


def metric(cluster, name, **labels):
    return cluster.metric(f"cleave_kv_tier_{name}_total", tier="store", **labels)


def states(cluster):
    machines = json.loads(cluster.request("GET", "/admin/state")[2])["machines"]
    return [each["kv_tiers"]["store"]["works"] if "kv_tiers" in each else None for each in machines]


def wait_works(cluster, works=True):
    wait_until(lambda: set(states(cluster)) == {works}, f"the stores work: {works}", cluster=cluster)


def wait_stored(cluster, requests):
    """Waits until the prompts of `requests` requests are computed, and their KV is stored: blocks that are being stored
    are not free."""
    wait_until(lambda: cluster.metric("cleave_prompt_batches_total") >= requests and metric(cluster, "stored_bytes") > 0,
               "the machines report their batches", cluster=cluster)
    cluster.wait_all_free()
    assert metric(cluster, "dropped_tokens") == 0


def check_shared(server, wanted, **more):
    """A second cluster, with other machines, loads what the first one has stored, and computes none of it."""
    with Cluster(config(server, **more)) as first:
        wait_works(first)
        assert check_answers(first, wanted) == OTHERS_KEPT
        wait_stored(first, len(wanted))
        assert metric(first, "hits_tokens") == 0
        with Cluster(config(server, **more)) as second:
            wait_works(second)
            assert check_answers(second, wanted) == ALL_CACHED
            wait_until(lambda: metric(second, "hits_tokens") == ALL_CACHED - OTHERS_KEPT, "the loads are reported",
                       cluster=second)
            second.wait_all_free()
        first.wait_all_free()


def check_killed_machine(server):
    """Of two prompt machines, the one that has computed a prompt is killed. The prompt's KV comes from the store."""
    body = {"prompt": tokens(40, 200), "temperature": 0}
    with Cluster({**config(server), "pools": {"prompt": 2, "token": 1}}) as cluster:
        wait_works(cluster)
        want, cached = answer(cluster, body)
        assert cached == 0
        wait_stored(cluster, 1)
        computed = wait_until(lambda: [name for name in ("prompt-0", "prompt-1")
                                       if cluster.metric("cleave_prompt_batches_total", machine=name)],
                              "a machine reports its batch", cluster=cluster)
        pid = cluster.children()[computed[0]]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: cluster.children().get(computed[0], pid) != pid, "the machine has started again", cluster=cluster)
        wait_works(cluster)
        got, cached = answer(cluster, body)
        assert got == want and cached == 192, cached
        wait_until(lambda: metric(cluster, "hits_tokens") == 192, "the load is reported", cluster=cluster)
        cluster.wait_all_free()


def check_conversation(server):
    """Prompt machines load what token machines have stored: of the second turn of a chat, only what follows the answer of
    the first turn is computed. The real model is used, because its answer is tokenised again to the same tokens."""
    said = [{"role": "user", "content": "Tell me a long story about a ship, a storm and a lighthouse."}]

    def turn(cluster):
        reply = cluster.post("/v1/chat/completions", {"messages": said, "max_tokens": 80, "temperature": 0})
        said.append({"role": "assistant", "content": reply["choices"][0]["message"]["content"]})
        said.append({"role": "user", "content": "Who was in the lighthouse?"})
        return said[-2]["content"], reply["usage"]

    split = {"model": DEFAULT_MODEL, "scheduler": {"policy": "jsq"}}
    with Cluster({**CONFIG, **split, "kv": {"memory": MEMORY, "prefix_cache": False}}) as plain:
        wanted = [turn(plain)[0] for _ in range(2)]
    del said[1:]
    with Cluster({**config(server), **split, "pools": {"prompt": 2, "token": 2}}) as cluster:
        wait_works(cluster)
        text, usage = turn(cluster)
        assert text == wanted[0], (text, wanted)
        first, known = usage["prompt_tokens"], (usage["total_tokens"] - 1) // BLOCK * BLOCK
        wait_stored(cluster, 1)
        text, usage = turn(cluster)
        assert text == wanted[1], (text, wanted)
        assert usage["prompt_tokens_details"]["cached_tokens"] == known > first + 2 * BLOCK, (usage, known, first)
        wait_until(lambda: sum(metric(cluster, "hits_tokens", machine=f"prompt-{i}") for i in range(2)) >=
                   known - first // BLOCK * BLOCK, "a prompt machine reports the load", cluster=cluster)
        cluster.wait_all_free()


def lines(cluster, part):
    """Returns how many lines each process has logged that have these words."""
    found = {}
    for line in cluster.logged().splitlines():
        if "KV tier store" in line and part in line:
            name = next(name for name in ("prompt-0", "token-0") if name in line)
            found[name] = found.get(name, 0) + 1
    return found


def check_faults(wanted):
    """The prefix cache is small, so that prompts are loaded and stored all the time."""
    server = Fake()
    small = config(server)
    small["kv"]["memory"] = "8MiB"
    with Cluster(small) as cluster:
        wait_works(cluster)
        load = Load(cluster, wanted)
        load.wait_for(lambda: metric(cluster, "hits_tokens") > 0, "KV is loaded")
        faults = [("garbage", "the answer is not RESP"), ("list", "the answer is of an unexpected kind"),
                  ("flood", "the answer is larger than a block"), ("loading", "LOADING Redis is loading"),
                  ("gone", "until it works again")]
        for behaviour, part in faults:
            before = lines(cluster, "until it works again")
            if behaviour == "gone":
                server.stop()
            else:
                server.behaviour = behaviour
            load.wait_for(lambda: lines(cluster, part), f"{behaviour}: the log says so")
            # The log may have the words of "gone" from a fault before.
            load.wait_for(lambda: False in states(cluster), f"{behaviour}: the state says so")
            load.wait_rounds()
            after = lines(cluster, "until it works again")
            assert all(after[name] - before.get(name, 0) <= 1 for name in after), (behaviour, before, after)
            if behaviour == "gone":
                server.start_again()
            server.behaviour = "good"
            wait_works(cluster)
            load.wait_rounds()
        dropped = metric(cluster, "dropped_tokens")
        server.behaviour = "full"
        server.values.clear()
        load.wait_for(lambda: lines(cluster, "stores nothing: OOM"), "full: the log says so")
        load.wait_rounds()
        assert max(lines(cluster, "stores nothing: OOM").values()) <= 2  # At most one a minute.
        wait_until(lambda: metric(cluster, "dropped_tokens") > dropped, "dropped KV is counted", cluster=cluster)
        wait_works(cluster)
        server.behaviour = "good"
        hits = metric(cluster, "hits_tokens")
        load.wait_for(lambda: metric(cluster, "hits_tokens") > hits, "KV is loaded again")
        # Damaged records.
        for key, value in list(server.values.items()):
            server.values[key] = value[:-1] + bytes([value[-1] ^ 1])
        load.wait_for(lambda: metric(cluster, "damaged") > 0, "damage is counted")
        load.wait_rounds()
        load.end()
        cluster.wait_all_free()
    server.stop()


def check_slow(wanted):
    server = Fake()
    with Cluster(config(server, deadline_ms=300)) as cluster:
        load = Load(cluster, wanted)
        load.wait_for(lambda: True in states(cluster), "the store works")
        server.behaviour = "slow"
        load.wait_for(lambda: lines(cluster, "no answer within the time limit"), "the log says so")
        load.wait_rounds()
        server.behaviour = "good"
        server.released.set()
        load.wait_for(lambda: True in states(cluster), "the store works again")
        load.wait_rounds()
        load.end()
        cluster.wait_all_free()
    server.stop()


def check_real_server(server, wanted):
    """The server is stopped, goes on, is killed and starts again, under load."""
    small = config(server, deadline_ms=2000)
    small["kv"]["memory"] = "8MiB"
    with Cluster(small) as cluster:
        def wait_loads():
            hits = metric(cluster, "hits_tokens")
            load.wait_for(lambda: metric(cluster, "hits_tokens") > hits, "KV is loaded")
        load = Load(cluster, wanted)
        wait_loads()
        os.kill(server.process.pid, signal.SIGSTOP)
        load.wait_for(lambda: lines(cluster, "no answer within the time limit"), "the log says so")
        load.wait_rounds()
        assert False in states(cluster) and cluster.metric("cleave_kv_tier_up", tier="store") < 2
        os.kill(server.process.pid, signal.SIGCONT)
        wait_loads()
        before = lines(cluster, "until it works again")
        server.stop()
        load.wait_for(lambda: lines(cluster, "until it works again") != before, "the log says so")
        # The line may be another machine's, of the first outage.
        load.wait_for(lambda: False in states(cluster), "the store counts as down")
        load.wait_rounds()
        assert server.start(int(server.address.split(":")[1]))
        wait_loads()
        load.end()
        cluster.wait_all_free()


def check_absent(wanted):
    """No server at the start; the password is wrong at first."""
    server = Fake()
    server.stop()
    with Cluster(config(server)) as cluster:
        wait_until(lambda: lines(cluster, "Connection refused"), "the log says so", cluster=cluster)
        assert check_answers(cluster, wanted) == OTHERS_KEPT
        server.start_again()
        wait_works(cluster)
        assert max(lines(cluster, "Connection refused").values()) == 1
    server.behaviour = "refuses"
    settings = config(server, store={"user": "cleave", "password_file": "store.password"})
    with Cluster(settings, files={"store.password": "not the password\n"}) as cluster:
        wait_until(lambda: lines(cluster, "the server refuses user or password (WRONGPASS)"), "the log says so", cluster=cluster)
        check_answers(cluster, wanted)
        server.behaviour = "good"
        wait_works(cluster)
        assert "not the password" not in cluster.logged()
    server.stop()


def pieces(values):
    """Returns pieces of the KV of all records that are not zeros."""
    found = []
    for value in values:
        found += [value[at:at + 64] for at in range(2048, len(value) - 64, 4096)]
    return {piece for piece in found if len(set(piece)) > 16}


def check_encryption(wanted):
    files = {"kv.key": "5a" * 32}
    server = Fake()
    with Cluster(config(server)) as cluster:
        wait_works(cluster)
        check_answers(cluster, wanted)
        wait_stored(cluster, len(wanted))
    plain = dict(server.values)
    assert len(pieces(plain.values())) > 50
    server.values.clear()
    for cached in (OTHERS_KEPT, ALL_CACHED):
        with Cluster(config(server, tiers={"key_file": "kv.key"}), files=files) as cluster:
            wait_works(cluster)
            assert check_answers(cluster, wanted) == cached
            if cached == OTHERS_KEPT:
                wait_stored(cluster, len(wanted))
    everything = b"".join(server.values.values())
    assert not set(plain) & set(server.values)  # Names tell nothing either.
    assert not any(piece in everything for piece in pieces(plain.values()))
    for body in cases():
        for size in (2, 4):
            words = b"".join(token.to_bytes(size, "little") for token in body["prompt"][:8])
            assert words not in everything and words not in b"".join(plain.values())
    server.stop()


def check_check():
    """`cleave check` tries each server as a machine does."""
    server, gone = Fake(), Fake()
    gone.stop()
    for behaviour, store, deep, level, part in (
            ("good", {}, True, "ok", f"{server.address} answers"),
            ("good", {}, False, "ok", f"{server.address} can be used"),
            ("good", {"servers": gone.address}, True, "warning", f"store {gone.address}: Connection refused"),
            ("loading", {}, True, "warning", "LOADING Redis is loading"),
            ("garbage", {}, True, "warning", "is not RESP"),
            ("refuses", {"password_file": "p"}, True, "warning", "the server refuses user or password (WRONGPASS)"),
            ("good", {"password_file": "absent"}, True, "error", "absent: No such file"),
            ("good", {"tls": True, "ca_file": "absent"}, True, "error", "absent: ")):
        server.behaviour = behaviour
        with tempfile.TemporaryDirectory(prefix="cleave-test-") as folder:
            for name, content in (("p", "secret\n"), ("c.json", json.dumps({**config(server, store=store), "model": MODEL}))):
                with open(os.path.join(folder, name), "w", opener=lambda p, flags: os.open(p, flags, 0o600)) as file:
                    file.write(content)
            said = subprocess.run([BINARY, "check", os.path.join(folder, "c.json"), "--json", *(["--deep"] if deep else [])],
                                  capture_output=True, text=True, timeout=300, check=False).stdout
            found = [(each["result"], each["text"]) for each in json.loads(said)["results"]
                     if each["key"] == "kv/tiers/store/servers"]
            assert len(found) == 1 and found[0][0] == level and part in found[0][1], (behaviour, store, found)
    server.stop()


def main():
    need_model()
    which = sys.argv[1]
    with Cluster({**CONFIG, "kv": {"memory": MEMORY}}) as plain:
        wanted = [answer(plain, body)[0] for body in cases()]
    if which == "fake":
        server = Fake()
        check_shared(server, wanted)
        check_killed_machine(server)
        check_salts(config(server), wait_works, lambda cluster: wait_stored(cluster, 1))
        check_conversation(server)
        check_killed_decode(config(server), "store", 2, wait_works)
        server.stop()
        check_encryption(wanted)
        check_absent(wanted)
        check_check()
    elif which == "faults":
        check_faults(wanted)
        check_slow(wanted)
    else:
        if shutil.which("redis-server") is None:
            skip("redis-server is not installed (Debian: redis-server)")
        with tempfile.TemporaryDirectory(prefix="cleave-test-") as folder:
            server = Redis(folder)
            try:
                check_shared(server, wanted)
                check_killed_machine(server)
                check_real_server(server, wanted)
            finally:
                server.stop()
    print("ok")


if __name__ == "__main__":
    main()
