"""Goal: if the head or a stage process of a machine with stages fails in any phase of a request, the client still reads
the bytes of an undisturbed run. The machine leaves its pool and returns with all its stages; no block and no process is
left behind.

Method: one request at a time on two prompt and two token machines of two stages each. To bring the request to a phase,
the heads of the machines that its next step needs are stopped before the request starts, or stages are held at a gate.
Then a process of its prompt machine or its token machine is killed, or stopped until it counts as silent. Further: the
end of a whole cluster, clients that leave, stages that are started by hand and outlive their heads, and a live update.

usage: test_stages_faults.py kill|stop|few|lives|update [all] [ranks]
kill, stop: each process in each phase gets this signal; few: some processes, in phases that every run draws anew;
lives: the end of a cluster, clients that leave and stages started by hand, with more cases if `all` is given; ranks:
each machine is one stage of two ranks that compute together, instead of two stages.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

from cluster import BINARY, Cluster, Stream, free_ports, gated_environment, need_model, send_signal, wait_until
from test_cancel import drop_one
from test_stages import TWICE, state, up
from test_update import variant

NAMES = {"prompt": ["p0", "p1"], "token": ["t0", "t1"]}
STAGES = 2
# A process that a slow computer rarely runs must not count as dead. Where a test stops a process, its silence must be
# noticed soon; another process then counts as dead if the computer does not run it for five seconds.
SILENCE_MS, SILENCE_SOON_MS = 30000, 5000
CONFIG = {"pools": NAMES, "machines": {name: {"stages": STAGES} for names in NAMES.values() for name in names},
          "kv": {"memory": "24MiB", "prefix_cache": False}, "threads": 1,
          "scheduler": {"prompt_batch_tokens": 64, "adaptive_pools": False},
          "transport": {"heartbeat_ms": 200, "silence_ms": SILENCE_MS}}
ALL = 4
PROMPT = "The history of computing spans many centuries. " * 40  # 321 tokens, six batches
TOKENS = 30


def stream(cluster):
    """Starts the stream of the one request of these tests; its answer always has the same text."""
    return Stream(cluster, {"prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0.7, "seed": 5, "ignore_eos": True})


def undisturbed(cluster):
    done = stream(cluster).end()
    assert done.error is None and done.text, done.error
    return done.text


def processes(cluster):
    """Returns {name: pid} of machines and stages."""
    return {**cluster.children(), **cluster.stages()}


def alive(pids):
    """Returns the processes that exist and are not zombies."""
    found = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rsplit(")", 1)[1].split()[0] != "Z":
                    found.append(pid)
        except OSError:
            pass
    return found


def shared_memory(pids):
    """Returns the System V segments that these processes have made. Other processes could find them, and they would
    outlive their makers."""
    with open("/proc/sysvipc/shm") as file:
        names, *rows = [line.split() for line in file]
    return [row for row in rows if int(row[names.index("cpid")]) in pids]


def whole(cluster):
    """Returns whether all machines are up, in their own pools, with their stages."""
    return up(cluster) and len(processes(cluster)) == ALL * (1 + STAGES)


def machine_of(cluster, pool):
    """Returns the machine that has the request's prompt (`pool` "prompt") or its answer ("token"); None = neither."""
    for machine in state(cluster)["machines"]:
        if machine["routed_prompts" if pool == "prompt" else "routed_decodes"] > 0:
            return machine["name"]
    return None


def in_state(cluster, name):
    return state(cluster)["requests"][name] == 1


def hold_in_batch(cluster, names, count):
    """Returns the process among `names` that gets batch number `count` of the batches that these processes get from now
    on. It is held at that batch's first layer."""
    for batch in range(1, count + 1):
        for name in names:
            cluster.hold(name)
        if batch == 1:
            yield  # The request may start.
        wait_until(lambda: any(cluster.held(name) for name in names), f"one of {names} is held", cluster=cluster)


# Phases that are reached without a gate: (the pool whose heads are stopped before the request starts, whether the request is
# in the phase).
STOPPED = {"queued": ("token", lambda cluster: in_state(cluster, "queued") and machine_of(cluster, "token")),
           "reserved": ("prompt", lambda cluster: in_state(cluster, "prefilling"))}
# Phases that are reached at a gate: (the process of the machine that is held, the number of the batch). In `layers` the
# last stage has computed two batches of the prompt, and their KV is sent or being sent to the token machine.
HELD = {"layers": ("prompt", 1, 3), "decoding": ("token", 0, 8)}
PHASES = [*STOPPED, *HELD]


def reach(cluster, phase, before):
    """Starts the request and brings it to the phase. Returns (the stream, the stopped heads)."""
    if phase in HELD:
        pool, stage, batch = HELD[phase]
        steps = hold_in_batch(cluster, [f"{name}/{stage}" for name in NAMES[pool]], batch)
        next(steps)
        found = stream(cluster)
        for _ in steps:
            pass
        assert in_state(cluster, "prefilling" if phase == "layers" else "decoding"), state(cluster)
        return found, []
    pool, reached = STOPPED[phase]
    for name in NAMES[pool]:
        os.kill(before[name], signal.SIGSTOP)
    found = stream(cluster)
    wait_until(lambda: reached(cluster), phase, cluster=cluster)
    return found, NAMES[pool]


def one(cluster, phase, victim, part, number, want):
    """Brings the request to `phase`; then the head ("") or a stage ("/0") of its prompt or token machine gets the
    signal."""
    before = processes(cluster)
    down = cluster.metric("cleave_requests_resumed_total")
    what = f"{victim} machine{part and ', stage ' + part[1:]}, {number.name}, {phase}"
    try:
        found, stopped = reach(cluster, phase, before)
        name = machine_of(cluster, victim) or NAMES[victim][0]  # The prompt is done: any machine of the pool will do.
        os.kill(before[name + part], number)
        hit = time.monotonic()
        for other in stopped:
            if before[other] != before[name + part]:
                send_signal(before[other], signal.SIGCONT)
        cluster.release()
        wait_until(lambda: cluster.metric("cleave_machine_up", machine=name) == 0 or
                   cluster.children().get(name) != before[name], f"{what}: it is noticed", cluster=cluster)
        seen = time.monotonic() - hit
        found.expect(want, what)
    finally:
        cluster.release()
        for pid in before.values():
            send_signal(pid, signal.SIGCONT)
    # A stopped machine may continue before it is started anew: then it is up again as it was.
    wait_until(lambda: (number == signal.SIGSTOP or cluster.children().get(name) != before[name]) and whole(cluster),
               f"{what}: it comes back", cluster=cluster)
    back = time.monotonic() - hit
    cluster.wait_all_free()
    old = [pid for each, pid in before.items() if each.split("/")[0] == name]
    wait_until(lambda: cluster.children().get(name) == before[name] or not alive(old), f"{what}: its processes end",
               cluster=cluster)
    now = processes(cluster)
    others = [each for each, pid in before.items() if each.split("/")[0] != name and now.get(each) != pid]
    assert not others, (what, "others were started again", others, cluster.logged())
    resumed = cluster.metric("cleave_requests_resumed_total") - down
    assert resumed > 0 or (victim, phase) == ("prompt", "decoding"), (what, cluster.logged())
    print(f"{what}: the same bytes, noticed after {seen:.2f} s, back after {back:.1f} s, resumed {resumed:.0f} times",
          flush=True)


PARTS = [(victim, part) for victim in NAMES for part in ("", *[f"/{stage}" for stage in range(STAGES)])]


def check_phases(cases, number):
    """Each case is (phase, pool of the machine, part of the machine)."""
    silence_ms = SILENCE_SOON_MS if number == signal.SIGSTOP else SILENCE_MS
    with Cluster({**CONFIG, "transport": {"heartbeat_ms": 200, "silence_ms": silence_ms}}, gates=True) as cluster:
        wait_until(lambda: whole(cluster), "all machines are up", cluster=cluster)
        want = undisturbed(cluster)
        for phase, victim, part in cases:
            one(cluster, phase, victim, part, number, want)
        pids = list(processes(cluster).values())
        assert cluster.stop() == 0, cluster.logged()
        wait_until(lambda: not alive(pids), "all processes end")


def check_few(ranks):
    """A head and a stage of each pool are killed, each in another phase, and one process is stopped. The phases and the
    stages are drawn anew in every run."""
    seed = int(os.environ.get("CLEAVE_SEED") or time.time_ns() % (1 << 31))
    print(f"seed: CLEAVE_SEED={seed}", flush=True)
    draw = random.Random(seed)
    parts = [(victim, part) for victim in NAMES for part in ("", f"/{draw.randrange(STAGES)}")]
    phases = draw.sample(PHASES, len(PHASES))
    kills = [(phase, *part) for phase, part in zip(phases, parts)]
    # Heads of machines with ranks do not differ from other heads.
    check_phases(kills[1::2] if ranks else kills, signal.SIGKILL)
    # In phases at a gate, no process has been stopped before.
    check_phases([(draw.choice(list(HELD)), *draw.choice(PARTS))], signal.SIGSTOP)


def check_ends():
    """All processes end when the gateway is killed."""
    with Cluster(CONFIG) as cluster:
        wait_until(lambda: whole(cluster), "all machines are up", cluster=cluster)
        pids = list(processes(cluster).values())
        cluster.process.kill()
        wait_until(lambda: not alive(pids), "all processes end")
    print(f"the gateway killed: {len(pids)} processes of machines and stages end", flush=True)


def drop(cluster, count):
    """Opens this number of connections with a request on each. The last four of eight ask for two choices."""
    def open_one(index):
        connection = cluster.connect()
        connection.request("POST", "/v1/completions", json.dumps({
            "prompt": [1000 + index * 31 + k * 13 for k in range(30)], "max_tokens": 60, "ignore_eos": True,
            "stream": index % 3 > 0, "n": 1 + index // 4}), cluster.headers)
        return connection
    return [open_one(index) for index in range(count)]


def check_cancels(storm):
    """Clients leave while batches with their requests are in the pipelines. storm: also at random moments."""
    with Cluster({**CONFIG, "pools": {"prompt": ["p0"], "token": ["t0"]}, "kv": {"memory": "48MiB"},
                  "machines": {"p0": {"stages": 3}, "t0": {"stages": 2}}}, gates=True) as cluster:
        wait_until(lambda: up(cluster), "all machines are up", cluster=cluster)
        story = {"prompt": "Once upon a time", "max_tokens": 20, "temperature": 0}
        want = cluster.post("/v1/completions", story)["choices"][0]["text"]
        before = processes(cluster)
        for held in ("p0/1", "p0/2", "t0/0", "t0/1"):
            cluster.hold(held)
            connections = drop(cluster, 8)
            cluster.wait_held(held)
            wait_until(lambda: state(cluster)["requests_open"] == 12, "all requests have come", cluster=cluster)
            for connection in connections[::2]:
                connection.close()
            wait_until(lambda: state(cluster)["requests_open"] == 6, "half of the requests end while a stage is held",
                       cluster=cluster)
            cluster.release()
            for connection in connections[1::2]:
                connection.close()
            cluster.wait_all_free()
        threads = [threading.Thread(target=drop_one, args=(cluster, seed)) for seed in range(60 if storm else 0)]
        for thread in threads:
            thread.start()
            time.sleep(0.02)
        for thread in threads:
            thread.join()
        cluster.wait_all_free()
        assert cluster.post("/v1/completions", story)["choices"][0]["text"] == want
        assert processes(cluster) == before, cluster.logged()
        assert "assert" not in cluster.logged().lower() and "Sanitizer" not in cluster.logged(), cluster.logged()
    print(f"{4 * 8 + len(threads)} clients leave: all blocks are free, no process ended", flush=True)


def check_by_hand(every):
    """Stages that the machine does not start outlive its head, and serve the next head unchanged."""
    ports = free_ports(4)
    config = {**CONFIG, "pools": {"prompt": ["p0"], "token": ["t0"]},
              "machines": {"p0": {"stages": [{"host": f"127.0.0.1:{ports[0]}"}, {"host": f"127.0.0.1:{ports[1]}"}]},
                           "t0": {"stages": [{}, {"host": f"127.0.0.1:{ports[2]}"}, {"host": f"127.0.0.1:{ports[3]}"}]}},
              # Otherwise the gateway makes a random key, which these stages do not know.
              "cluster": {"key_file": "cluster.key"}}
    stages = {}
    with tempfile.TemporaryDirectory(prefix="cleave-stages-") as folder, open(os.path.join(folder, "log"), "w+") as log:
        gates = os.path.join(folder, "gates")
        cluster = Cluster(config, ready=False, files={"cluster.key": "a cluster key of more than 32 bytes\n"}, gates=gates)
        path = os.path.join(cluster.folder.name, "config.json")

        def start(name):
            machine, place = name.split("/")
            stages[name] = subprocess.Popen([BINARY, "machine", path, machine, "--stage", place], stderr=log,
                                            env=gated_environment(gates))

        def wait_up(what, pids=None):
            wait_until(lambda: up(cluster) and all(cluster.children().get(name) != pid for name, pid in (pids or {}).items()),
                       what, cluster=cluster)
        try:
            for name in ("t0/2", "p0/1", "p0/0", "t0/1"):
                start(name)
            cluster.wait_ready(300)
            wait_up("both machines are up")
            want = undisturbed(cluster)
            for name, number in (("p0", signal.SIGKILL), ("t0", signal.SIGTERM),
                                 *((("p0", signal.SIGTERM), ("t0", signal.SIGKILL)) if every else ())):
                steps = hold_in_batch(cluster, ["t0/2"], 5)
                next(steps)
                found = stream(cluster)
                for _ in steps:
                    pass
                before = cluster.children()
                os.kill(before[name], number)
                cluster.release()
                found.expect(want, f"{name} gets {number.name}")
                wait_up(f"{name} comes back", {name: before[name]})
                assert all(process.poll() is None for process in stages.values()), cluster.logged()
                stream(cluster).expect(want, f"{name} is back")
            for name in ("p0/1", "t0/2") if every else ("t0/2",):  # The operator starts it again.
                before = cluster.children()
                stages[name].kill()
                stages[name].wait()
                wait_until(lambda: cluster.children().get(name[:2]) != before[name[:2]], "its head ends", cluster=cluster)
                found = stream(cluster)
                start(name)
                found.expect(want, f"without {name}")
                wait_up(f"{name} is back", {name[:2]: before[name[:2]]})
                stream(cluster).expect(want, f"{name} is back")
            cluster.wait_all_free()
        except BaseException:
            log.seek(0)
            print(log.read(), flush=True)
            raise
        finally:
            cluster.stop()
            for process in stages.values():
                process.terminate()
            ends = [process.wait(300) for process in stages.values()]
        log.seek(0)
        said = log.read()
    assert ends == [0] * len(stages) and "Sanitizer" not in said and "assert" not in said.lower(), (ends, said)
    print("stages started by hand: the same ones serve a second head, and a head waits for a new one", flush=True)


def reload(cluster, want=200, **changes):
    """Changes the config of the running cluster."""
    cluster.write("config.json", {**cluster.config, **changes})
    status, _, body = cluster.request("POST", "/admin/reload")
    assert status == want, (status, body, cluster.logged())
    return json.loads(body)


class Load(threading.Thread):
    """Sends one stream after another. texts: the finished answers."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.texts, self.error, self.over = cluster, [], None, False
        self.start()

    def run(self):
        while not self.over and self.error is None:
            done = stream(self.cluster).end()
            self.texts.append(done.text)
            self.error = done.error
            time.sleep(0.05)

    def stop(self):
        self.over = True
        self.join(300)
        assert not self.is_alive() and self.error is None, (self.error, self.cluster.logged())
        return self.texts


def wait_update(cluster, want):
    wait_until(lambda: state(cluster)["update"]["state"] == want, f"the update is in state {want}", cluster=cluster)


def check_update(machines, held, victim=None, refused_kv=None):
    """Another model replaces the served model, both with stages: no request has bytes of two models. held: the process
    of the token machine at which streams of the old model wait until the new model serves. victim: the process that is
    then killed. refused_kv: a part of the error when each machine is to have 3 TiB of KV."""
    config = {**CONFIG, "pools": {"prompt": 1, "token": 1}, "machines": machines, "model_name": ""}
    with tempfile.TemporaryDirectory(prefix="cleave-models-") as models:
        other = variant(models)
        with Cluster({**config, "model": other, "pools": {"prompt": 1, "token": 1}}) as cluster:
            wait_until(lambda: up(cluster), "all machines are up", cluster=cluster)
            new = undisturbed(cluster)
        with Cluster(config, gates=True) as cluster:
            wait_until(lambda: up(cluster), "all machines are up", cluster=cluster)
            old = undisturbed(cluster)
            assert old != new
            before = processes(cluster)
            if refused_kv:
                said = reload(cluster, 409, model=other, kv={**cluster.config["kv"], "memory": "3TiB"})["error"]["message"]
                assert refused_kv in said, said
            steps = hold_in_batch(cluster, [held], 5)
            next(steps)
            streams = [stream(cluster) for _ in range(2)]
            for _ in steps:
                pass
            load = Load(cluster)
            wait_until(lambda: state(cluster)["requests_open"] == 3, "three requests have come", cluster=cluster)
            reload(cluster, model=other)
            wait_update(cluster, "draining")
            assert len(processes(cluster)) == 2 * len(before), processes(cluster)
            stream(cluster).expect(new, "begun on the new model")
            assert state(cluster)["update"]["state"] == "draining", state(cluster)
            if victim:
                os.kill(before[victim], signal.SIGKILL)  # The requests stay with the old model.
            cluster.release()
            for each in streams:
                each.expect(old, "begun on the old model")
            wait_update(cluster, "none")
            wait_until(lambda: new in load.texts or load.error, "the load is served by the new model", cluster=cluster)
            texts = load.stop()
            turn = texts.index(new)
            assert turn > 0 and texts == [old] * turn + [new] * (len(texts) - turn), texts
            stream(cluster).expect(new, "after the update")
            now = processes(cluster)
            assert set(now) == {name.replace("-0", "-0.2") for name in before}, now
            wait_until(lambda: not alive(before.values()), "the old processes end", cluster=cluster)
            cluster.wait_all_free()
            assert not shared_memory(before.values()), shared_memory(before.values())
    print(f"update: each of {4 + len(texts)} streams has one model's bytes, the old processes have ended", flush=True)


def main():
    need_model()
    ranks, every = "ranks" in sys.argv[2:], "all" in sys.argv[2:]
    if ranks:
        CONFIG["machines"] = {name: {"tensor_parallel": STAGES} for names in NAMES.values() for name in names}
    numbers = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
    if sys.argv[1] in numbers:
        check_phases([(phase, *part) for phase in PHASES for part in PARTS], numbers[sys.argv[1]])
    elif sys.argv[1] == "few":
        check_few(ranks)
    elif sys.argv[1] == "update":
        # The token machine holds the KV of 40 layers, including its replicas'; the model has 30 layers: 3 TiB become 4
        # TiB.
        check_update({"prompt-0": {"stages": 2}, "token-0": {"stages": TWICE}}, "token-0/2", "token-0/1", f"KV {7 << 20})")
    else:
        check_ends()
        check_cancels(every)
        check_by_hand(every)


if __name__ == "__main__":
    main()
