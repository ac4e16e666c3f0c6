"""Goal: whatever a process of a machine with stages does, its head or one of its stages, in whatever phase of a request,
the client reads the bytes of an undisturbed run; the machine leaves its pool and comes back with all its stages; no block and no process is
left behind. Method: as test_phases.py, on two prompt and two token machines of two stages each: every process of the
machine is killed or stopped in every phase. Then the ends of a whole cluster, clients that leave, and stages that are
started by hand and outlive their heads. Arguments: kill, stop, few, lives or update; few: each process once, in a phase and with
a signal drawn anew in every run; ranks, behind these: each machine is one stage of two ranks that compute together, instead of two
stages, and of few it is three processes."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

import test_update
from cluster import BINARY, Cluster, free_ports, need_model
from test_cancel import drop_one
from test_stages import TWICE
from test_phases import PHASES, Stream, machine_of, state, undisturbed, wait_until

NAMES = {"prompt": ["p0", "p1"], "token": ["t0", "t1"]}
STAGES = 2
SILENCE_MS = 2500  # a stage that does not get its turn for so long ends its machine
CONFIG = {"pools": NAMES, "machines": {name: {"stages": STAGES} for names in NAMES.values() for name in names},
          "kv": {"memory": "128MiB", "prefix_cache": False}, "threads": 1,
          "transport": {"heartbeat_ms": 200, "silence_ms": SILENCE_MS}}
ALL = 4
SHORT = "The history of computing spans many centuries. " * 30


def processes(cluster):
    """{name: pid} of machines and stages."""
    return {**cluster.children(), **cluster.stages()}


def alive(pids):
    """Those that are there and no zombies."""
    found = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rsplit(")", 1)[1].split()[0] != "Z":
                    found.append(pid)
        except OSError:
            pass
    return found


def whole(cluster):
    """Everybody is up, in its own pool, with its stages."""
    machines = state(cluster)["machines"]
    return all(m["connection"] == "up" and m["pool"] == m["home"] for m in machines) and \
        len(processes(cluster)) == ALL * (1 + STAGES)


def half_way(cluster):
    """A stream whose prompt is half done: its layers are at the token machine, or on their way."""
    for share in (0.5, 0.4, 0.3, 0.2, 0.1):
        stream = Stream(cluster, tokens=60)
        wait_until(cluster, lambda: state(cluster)["requests"]["prefilling"] == 1, "it prefills")
        time.sleep(share * cluster.first_token_s)
        if state(cluster)["requests"]["prefilling"] == 1:
            return stream
        stream.join(120)  # others had the cores when it was measured
    raise AssertionError("no prompt is long enough")


def one(cluster, phase, victim, part, number, want):
    """The request comes to `phase`; then the head ("") or a stage ("/0") of its prompt or token machine gets the signal."""
    stopped, there = PHASES[phase]
    before = processes(cluster)
    held = [cluster.children()[name] for name in NAMES.get(stopped, [])]
    down = cluster.metric("cleave_requests_resumed_total")
    what = f"{victim} machine{part and ', stage ' + part[1:]}, {number.name}, {phase}"
    for pid in held:
        os.kill(pid, signal.SIGSTOP)
    try:
        if phase == "layers":
            stream = half_way(cluster)
        else:
            stream = Stream(cluster, tokens=60 if phase != "decoding" else 400)
            wait_until(cluster, lambda: there(cluster), what)
        name = machine_of(cluster, victim) or NAMES[victim][0]  # its prompt is done: any will do
        os.kill(before[name + part], number)
        hit = time.monotonic()
        for pid in held:
            if pid != before[name + part]:
                os.kill(pid, signal.SIGCONT)
        wait_until(cluster, lambda: cluster.metric("cleave_machine_up", machine=name) == 0 or
                   cluster.children().get(name) != before[name], f"{what}: it is seen")
        seen = time.monotonic() - hit
        stream.expect(want[phase == "decoding"], what)
    finally:
        for pid in before.values():
            if os.path.exists(f"/proc/{pid}"):
                os.kill(pid, signal.SIGCONT)
    wait_until(cluster, lambda: cluster.children().get(name) != before[name] and whole(cluster), f"{what}: it comes back")
    back = time.monotonic() - hit
    cluster.wait_all_free(10)
    old = [pid for each, pid in before.items() if each.split("/")[0] == name]
    wait_until(cluster, lambda: not alive(old), f"{what}: its processes end")
    others = [each for each, pid in before.items() if each.split("/")[0] != name and processes(cluster).get(each) != pid]
    assert not others, (what, "others were started again", others, cluster.logged())
    resumed = cluster.metric("cleave_requests_resumed_total") - down
    print(f"{what}: the same bytes, seen after {seen:.2f} s, back after {back:.1f} s, resumed {resumed:.0f} times", flush=True)


def cases(numbers):
    """Each process in each phase; with two signals each in one, with one of them, drawn anew in every run."""
    parts = [(victim, part) for victim in NAMES for part in ("", *[f"/{stage}" for stage in range(STAGES)])]
    if len(numbers) == 1:
        return [(phase, *each, *numbers) for phase in PHASES for each in parts]
    seed = int(os.environ.get("CLEAVE_SEED") or time.time_ns() % (1 << 31))
    print(f"seed: CLEAVE_SEED={seed}", flush=True)
    draw = random.Random(seed)
    if "ranks" in sys.argv[2:]:
        parts = draw.sample(parts, 3)
    signals = (list(numbers) * len(parts))[:len(parts)]
    draw.shuffle(signals)
    return [(draw.choice(list(PHASES)), *each, number) for each, number in zip(parts, signals)]


def check_phases(*numbers):
    with Cluster(CONFIG) as cluster:
        want = undisturbed(cluster)
        for phase, victim, part, number in cases(numbers):
            one(cluster, phase, victim, part, number, want)
        pids = list(processes(cluster).values())
        assert cluster.stop() == 0, cluster.logged()
        assert not alive(pids), alive(pids)


def check_ends():
    """Nobody outlives a gateway that is killed."""
    with Cluster(CONFIG) as cluster:
        pids = list(processes(cluster).values())
        assert len(pids) == ALL * (1 + STAGES)
        cluster.process.kill()
        wait_until(cluster, lambda: not alive(pids), "all end")
    print(f"the gateway killed: {len(pids)} processes of machines and stages end", flush=True)


def check_cancels():
    """Clients that leave, with batches of theirs in the pipelines."""
    with Cluster({**CONFIG, "pools": {"prompt": ["p0"], "token": ["t0"]}, "kv": {"memory": "96MiB"},
                  "machines": {"p0": {"stages": 3}, "t0": {"stages": 2}}}) as cluster:
        story = {"prompt": "Once upon a time", "max_tokens": 60, "temperature": 0}
        want = cluster.post("/v1/completions", story)["choices"][0]["text"]
        before = processes(cluster)
        threads = []
        for seed in range(60):
            threads.append(threading.Thread(target=drop_one, args=(cluster, seed)))
            threads[-1].start()
            time.sleep(0.02)
        for thread in threads:
            thread.join()
        begun = time.monotonic()
        cluster.wait_all_free(10)
        waited = time.monotonic() - begun
        assert cluster.post("/v1/completions", story)["choices"][0]["text"] == want
        assert processes(cluster) == before, cluster.logged()
        assert "assert" not in cluster.logged().lower() and "Sanitizer" not in cluster.logged(), cluster.logged()
    print(f"{len(threads)} streams dropped: all blocks free after {waited:.2f} s, nobody ended", flush=True)


def check_by_hand():
    """Stages that the machine does not start outlive its head, and serve the next one as they are."""
    ports = free_ports(4)
    config = {**CONFIG, "pools": {"prompt": ["p0"], "token": ["t0"]},
              "machines": {"p0": {"stages": [{"host": f"127.0.0.1:{ports[0]}"}, {"host": f"127.0.0.1:{ports[1]}"}]},
                           "t0": {"stages": [{}, {"host": f"127.0.0.1:{ports[2]}"}, {"host": f"127.0.0.1:{ports[3]}"}]}},
              "cluster": {"key_file": "cluster.key"}}  # without, the gateway makes one up, which these do not know
    cluster = Cluster(config, ready=False, files={"cluster.key": "a cluster key of more than 32 bytes\n"})
    path = os.path.join(cluster.folder.name, "config.json")
    stages = {}
    with open(os.path.join(cluster.folder.name, "log"), "w+") as log:
        def start(name):
            machine, place = name.split("/")
            stages[name] = subprocess.Popen([BINARY, "machine", path, machine, "--stage", place], stderr=log)

        def up(pids=None):
            machines = state(cluster)["machines"]
            return all(m["connection"] == "up" and m["pool"] == m["home"] for m in machines) and \
                all(cluster.children().get(name) != pid for name, pid in (pids or {}).items())
        try:
            for name in ("t0/2", "p0/1", "p0/0", "t0/1"):
                start(name)
            cluster.wait_ready(60)
            wait_until(cluster, up, "both machines are up")
            want = []
            for tokens in (60, 300):
                stream = Stream(cluster, SHORT, tokens)
                stream.join(120)
                want.append(stream.text)
            for name in ("p0", "t0"):
                for number in (signal.SIGKILL, signal.SIGTERM):
                    stream = Stream(cluster, SHORT, 300)
                    wait_until(cluster, lambda: stream.text, "a first token")
                    before = cluster.children()
                    os.kill(before[name], number)
                    stream.expect(want[1], f"{name} gets {number.name}")
                    wait_until(cluster, lambda: up({name: before[name]}), f"{name} comes back")
                    assert all(process.poll() is None for process in stages.values()), cluster.logged()
                    Stream(cluster, SHORT).expect(want[0], f"{name} is back")
            for name in ("p0/1", "t0/2"):  # the operator starts it again
                before = cluster.children()
                stages[name].kill()
                stages[name].wait()
                wait_until(cluster, lambda: cluster.children().get(name[:2]) != before[name[:2]], "its head ends")
                Stream(cluster, SHORT).expect(want[0], f"without {name}")
                start(name)
                wait_until(cluster, lambda: up({name[:2]: before[name[:2]]}), f"{name} is back")
                Stream(cluster, SHORT).expect(want[0], f"{name} is back")
            cluster.wait_all_free(10)
        except BaseException:
            log.seek(0)
            print(log.read(), flush=True)
            raise
        finally:
            cluster.stop()
            for process in stages.values():
                process.terminate()
            ends = [process.wait(30) for process in stages.values()]
        log.seek(0)
        said = log.read()
    assert ends == [0] * len(stages) and "Sanitizer" not in said and "assert" not in said.lower(), (ends, said)
    print("stages started by hand: the same ones serve a second head, and a head waits for a new one", flush=True)


def check_update():
    """Another model in the place of the one that is served, both with stages: no request has the bytes of two."""
    with tempfile.TemporaryDirectory(prefix="cleave-models-") as models:
        other = test_update.variant(models)
        old, new = test_update.wants(other, (12, 900))
        config = {**test_update.CONFIG, "machines": {"prompt-0": {"stages": 2}, "token-0": {"stages": TWICE}}}
        with Cluster(config) as cluster:
            # The token machine holds 40 layers of 30: its replicas count.
            said = test_update.reload(cluster, 409, model=other, kv={"memory": "3TiB"})["error"]["message"]
            assert f"KV {7 << 20})" in said, said
            streams = [test_update.Stream(cluster, 900) for _ in range(2)]
            loads = [test_update.Load(cluster, 12) for _ in range(2)]
            before = processes(cluster)
            test_update.reload(cluster, model=other)
            wait_until(cluster, lambda: test_update.update(cluster) == "draining", "the new version serves")
            assert len(processes(cluster)) == 2 * len(before) == 14, processes(cluster)
            streams.append(test_update.Stream(cluster, 900))
            os.kill(before["token-0/1"], signal.SIGKILL)  # a replica of the old model's: its requests stay with it
            for stream in streams[:2]:
                stream.expect(old[1], "begun on the old model")
            streams[2].expect(new[1], "begun on the new model")
            test_update.wait_done(cluster)
            texts = [load.stop() for load in loads]
            for each in texts:
                turn = each.index(new[0])
                assert each == [old[0]] * turn + [new[0]] * (len(each) - turn), each
            assert set(cluster.children()) == {"prompt-0.2", "token-0.2"} and len(cluster.stages()) == 5, processes(cluster)
            wait_until(cluster, lambda: not alive(before.values()), "the old ones end")
            cluster.wait_all_free(10)
    print(f"update: 3 long streams, {sum(len(each) for each in texts)} short ones, each with one model's bytes", flush=True)


def main():
    need_model()
    if "ranks" in sys.argv[2:]:
        CONFIG["machines"] = {name: {"tensor_parallel": STAGES} for names in NAMES.values() for name in names}
    if sys.argv[1] == "kill":
        check_phases(signal.SIGKILL)
    elif sys.argv[1] == "stop":
        check_phases(signal.SIGSTOP)
    elif sys.argv[1] == "few":
        check_phases(signal.SIGKILL, signal.SIGSTOP)
    elif sys.argv[1] == "update":
        check_update()
    else:
        check_ends()
        check_cancels()
        check_by_hand()


if __name__ == "__main__":
    main()
