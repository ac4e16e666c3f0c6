"""Goal: another model replaces the model that is served, without a pause. Every request ends on the model that it began
with, with the bytes of that model; no request fails; the old processes end. An update that is impossible is refused,
given up or cancelled, and the old model still serves. Method: the tiny model and a copy with another rotation and a
shorter context (other metadata, other bytes). Token machines are held at gates, so that streams stay open as long as a
check needs them; machines of either model are killed. Without an argument, all checks except those of `more` run. more:
remote machines, and updates that are cancelled, interrupted and reversed."""

import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

from cluster import (BINARY, MODEL, Cluster, Failure, Stream, free_ports, gated, gated_environment, need_model, send_signal,
                     wait_until)

LONG = {"prompt": "Once upon a time", "temperature": 0, "ignore_eos": True}
CONFIG = {"kv": {"memory": "32MiB"}, "threads": 1, "model_name": "",
          "transport": {"silence_ms": 60000},
          # A machine that drains keeps its answers.
          "scheduler": {"context_tokens_max": 1200, "handover_tokens_min": 1200}}
OLD, NEW = 1200, 1024  # Context tokens.
SHORT, ANSWER = 6, 30  # In tokens.


def variant(folder, name="other.gguf", base=8000.0):
    """Writes a copy of the model with another llama.rope.freq_base and llama.context_length."""
    with open(MODEL, "rb") as file:
        data = bytearray(file.read())
    for key, kind, value in ((b"llama.rope.freq_base", "<f", base), (b"llama.context_length", "<I", NEW)):
        at = data.index(struct.pack("<Q", len(key)) + key) + 8 + len(key) + 4
        data[at:at + 4] = struct.pack(kind, value)
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(data)
    return path


def text_of(cluster, tokens):
    return cluster.post("/v1/completions", {**LONG, "max_tokens": tokens})["choices"][0]["text"]


def served(cluster):
    model = json.loads(cluster.request("GET", "/v1/models")[2])["data"][0]
    return model["id"], model["max_model_len"]


def state(cluster):
    return json.loads(cluster.request("GET", "/admin/state")[2])


def update(cluster):
    return state(cluster)["update"]["state"]


def reload(cluster, want=200, dry=False, **changes):
    config = {**cluster.config, **changes}
    config["kv"] = {**cluster.config["kv"], **config["kv"]}
    if cluster.gates:
        remote = {name: machine for name, machine in config["machines"].items() if "address" in machine}
        config["machines"] = gated({**config, "machines": remote})
    cluster.write("config.json", config)
    status, _, body = cluster.request("POST", "/admin/reload/dry-run" if dry else "/admin/reload")
    assert status == want, (status, body, cluster.logged())
    return json.loads(body)


def wait_done(cluster):
    wait_until(lambda: update(cluster) == "none", "the update ends", cluster=cluster)


def drain(cluster, *names, undo=False):
    for name in names:
        status, _, body = cluster.request("POST", f"/admin/{'undrain' if undo else 'drain'}/{name}")
        assert status == 200, (name, body)


def held_stream(cluster, name, others=()):
    """Returns a stream that has begun on this token machine, which is then held. `others` get no new requests
    meanwhile."""
    drain(cluster, *others)
    streams = cluster.held_streams(name, [{**LONG, "max_tokens": ANSWER}])
    drain(cluster, *others, undo=True)
    return streams[0]


class Load(threading.Thread):
    """Sends one short stream after another, with a pause between them."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.texts, self.error, self.over = cluster, [], None, False
        self.start()

    def run(self):
        try:
            while not self.over:
                events = self.cluster.stream("/v1/completions", {**LONG, "max_tokens": SHORT})
                self.texts.append("".join(event["choices"][0]["text"] for event in events))
                time.sleep(0.05)
        except Exception as error:
            self.error = error

    def wait_text(self, want):
        wait_until(lambda: want in self.texts or self.error, "an answer of the load", cluster=self.cluster)

    def stop(self):
        self.over = True
        self.join(300)
        assert not self.is_alive() and self.error is None, (self.error, self.cluster.logged())
        return self.texts


def wants(other):
    """Returns each model's answers: [short, long] of the old model, and of the new model."""
    found = []
    for model in (MODEL, other):
        with Cluster({**CONFIG, "model": model, "pools": {"mixed": 1}}) as cluster:
            found.append([text_of(cluster, tokens) for tokens in (SHORT, ANSWER)])
    assert found[0][0] != found[1][0] and found[0][1] != found[1][1]
    return found


def check_update(other, old, new):
    """Streams run before, during and after the update, and an old machine is killed after new requests have moved to the
    new version. Then the first model is served again."""
    with Cluster({**CONFIG, "pools": {"prompt": 1, "token": 3}}, gates=True) as cluster:
        assert served(cluster)[1] == OLD
        streams = [held_stream(cluster, "token-0", ["token-1", "token-2"]),
                   held_stream(cluster, "token-1", ["token-0", "token-2"])]
        drain(cluster, "token-0", "token-1")  # No other request waits there.
        loads = [Load(cluster) for _ in range(2)]
        for load in loads:
            load.wait_text(old[0])
        before = state(cluster)
        dry = reload(cluster, dry=True, model=other)["changed"]
        assert f"model: {other} starts beside " in dry[0], dry
        assert [m["name"] for m in state(cluster)["machines"]] == [m["name"] for m in before["machines"]]
        said = reload(cluster, model=other)
        assert len(said["changed"]) == len(dry) and said["changed"][1:] == dry[1:], (said, dry)
        assert f"model: {other} starts as version 2 beside {MODEL}" in said["changed"], said
        assert said["needs_restart"] == [], said
        # A third model, other machines and one more machine are refused; all other changes are made.
        assert "is under way" in reload(cluster, 409, model=variant(cluster.folder.name, "third.gguf"))[
            "error"]["message"]
        assert "while a model update is under way" in reload(cluster, 409, model=other, pools={"mixed": 1})["error"][
            "message"]
        said = reload(cluster, model=other, scheduler={**CONFIG["scheduler"], "queue_requests_max": 7})
        assert said["changed"] == ["scheduler/queue_requests_max: 7, was 1024"], said
        status, _, body = cluster.request("POST", "/admin/machines", {"name": "t9", "pool": "token"})
        assert status == 409, body
        wait_until(lambda: update(cluster) != "starting", "the new version serves", cluster=cluster)
        assert update(cluster) == "draining" and served(cluster) == ("other", NEW), (state(cluster), served(cluster))
        assert text_of(cluster, SHORT) == new[0]
        for load in loads:
            load.wait_text(new[0])
        wait_until(lambda: cluster.metric("cleave_model_requests_open", version="1") == 2,
                   "the held streams are all that the old version has", cluster=cluster)
        assert "of version 1" in json.loads(cluster.request("GET", "/health")[2])["detail"]
        assert cluster.metric("cleave_model_version", version="1", state="draining") == 1
        assert cluster.metric("cleave_model_version", version="2", state="serving", model="other") == 1
        # An old machine dies. Its request stays with the old model.
        cluster.hold("token-2")
        os.kill(cluster.children()["token-0"], signal.SIGKILL)
        cluster.wait_held("token-2")
        assert cluster.metric("cleave_model_requests_open", version="1") == 2
        late = Stream(cluster, {**LONG, "max_tokens": ANSWER})
        late.expect(new[1], "begun on the new model")
        assert update(cluster) == "draining"
        cluster.release()
        for stream in streams:
            stream.expect(old[1], "begun on the old model")
        wait_done(cluster)
        texts = [load.stop() for load in loads]
        for each in texts:  # First the old model's answers, then the new model's: no request returns to the old model.
            turn = each.index(new[0])
            assert turn > 0 and each == [old[0]] * turn + [new[0]] * (len(each) - turn), each
        assert set(cluster.children()) == {"prompt-0.2", "token-0.2", "token-1.2", "token-2.2"}, cluster.children()
        assert {m["name"]: m["version"] for m in state(cluster)["machines"]} == {
            "prompt-0.2": 2, "token-0.2": 2, "token-1.2": 2, "token-2.2": 2}
        assert cluster.metric("cleave_model_requests_total", version="2") > 0
        assert not [name for name in cluster.metrics() if ("version", "1") in name[1]]
        cluster.wait_all_free()
        # A reload of the same file changes nothing; two machines fewer leave; the first model is served again.
        assert reload(cluster, model=other)["changed"] == ["scheduler/queue_requests_max: 1024, was 7"]
        reload(cluster, model=other, pools={"prompt": 1, "token": 1})
        wait_until(lambda: set(cluster.children()) == {"prompt-0.2", "token-0.2"}, "token-1.2 and token-2.2 leave",
                   cluster=cluster)
        reload(cluster, model=MODEL, pools={"prompt": 1, "token": 1})
        wait_done(cluster)
        assert text_of(cluster, SHORT) == old[0] and served(cluster)[1] == OLD
        assert set(cluster.children()) == {"prompt-0.3", "token-0.3"}, cluster.children()
        print(f"update: 3 held streams, {sum(len(each) for each in texts)} short ones, each with one model's bytes")


def check_refused(other):
    """A reload that is impossible is an error that changes nothing."""
    with Cluster(CONFIG) as cluster:
        short = os.path.join(cluster.folder.name, "short.gguf")
        with open(MODEL, "rb") as file, open(short, "wb") as copy:
            copy.write(file.read(3 << 20))
        for model, kv, status, part in (("nowhere.gguf", "32MiB", 400, "nowhere.gguf"),
                                        (short, "32MiB", 400, "short.gguf"),
                                        (other, "8TiB", 409, "MiB are available")):
            said = reload(cluster, status, model=model, kv={"memory": kv})
            assert part in said["error"]["message"], said
        found = state(cluster)
        assert found["update"] == {"state": "none"} and [v["version"] for v in found["versions"]] == [1], found
        assert set(cluster.children()) == {"prompt-0", "token-0"}
        # Machines that cannot start end the update at once: one block is larger than the configured memory.
        reload(cluster, model=other, kv={"memory": "1MiB", "block_tokens": 256})
        wait_done(cluster)
        found = state(cluster)["update"]["text"]
        assert "is given up" in found and "ended before it was ready: " in found and "kv_memory of" in found, found
        assert set(cluster.children()) == {"prompt-0", "token-0"} and served(cluster)[1] == OLD

    # A machine that has the name of another machine's next version would be mistaken for that version.
    with Cluster({**CONFIG, "pools": {"prompt": ["a"], "token": ["b", "a.2"]}}) as cluster:
        said = reload(cluster, 400, model=other)
        assert "machines/a.2: a machine of version 2 would have the same name" in said["error"]["message"], said
        assert update(cluster) == "none" and {m["name"] for m in state(cluster)["machines"]} == {"a", "b", "a.2"}


def stop_new(cluster, name):
    """Stops a machine's process when it exists, usually before it serves. Its version can then not take over."""
    pid = wait_until(lambda: cluster.children().get(name), f"{name} starts", cluster=cluster)
    os.kill(pid, signal.SIGSTOP)
    return pid


def go_back(cluster, stopped):
    """Ends an update whose machine was stopped too late, when its version could already serve."""
    send_signal(stopped, signal.SIGCONT)
    reload(cluster, model=MODEL)
    wait_done(cluster)


def check_given_up(other, old):
    """A machine of the new model dies each time it is up, until server/update_ms is over."""
    version, deaths, given_up = 1, 0, False
    with Cluster({**CONFIG, "pools": {"prompt": 1, "token": 2}}, gates=True) as cluster:
        stream = held_stream(cluster, "token-0", ["token-1"])
        for update_ms in (1500, 6000, 24000, 96000):  # Long enough for one death on a computer of any speed.
            version, deaths = version + 1, 0
            reload(cluster, server={"update_ms": 3600000})
            reload(cluster, model=other, server={"update_ms": update_ms})  # This update has the new limit.
            stopped = stop_new(cluster, f"token-1.{version}")
            while update(cluster) == "starting":
                victim = cluster.children().get(f"token-0.{version}")
                if victim is not None and f"machine token-0.{version} serves" in cluster.logged():
                    deaths += send_signal(victim, signal.SIGKILL)
                time.sleep(0.02)
            if update(cluster) == "draining":
                go_back(cluster, stopped)
                continue
            send_signal(stopped, signal.SIGCONT)
            wait_done(cluster)
            assert "is given up" in state(cluster)["update"]["text"], state(cluster)
            assert set(cluster.children()) == {"prompt-0", "token-0", "token-1"}
            if deaths > 0:
                given_up = True
                break
        assert given_up
        cluster.release()
        stream.expect(old[1], "while the update fails")
        assert text_of(cluster, SHORT) == old[0]
        cluster.wait_all_free()


def check_back(other, old, new):
    """A machine of the new model hangs, until the operator goes back to the old model. Then an operator goes back after
    new requests have moved: the two versions change places. A stream on the first version is open all the time."""
    names = {"prompt-0", "token-0", "token-1"}
    with Cluster({**CONFIG, "pools": {"prompt": 1, "token": 2}}, gates=True) as cluster:
        streams = [held_stream(cluster, "token-0", ["token-1"])]
        drain(cluster, "token-0")  # No other request waits there.
        for version in range(2, 12):
            reload(cluster, model=other)
            hung = stop_new(cluster, f"token-0.{version}")
            time.sleep(1.2)  # Longer than a version must be complete before it serves.
            if update(cluster) == "starting" and f"machine token-0.{version} pool token is up" not in cluster.logged():
                break
            go_back(cluster, hung)
        assert update(cluster) == "starting" and text_of(cluster, SHORT) == old[0]
        said = reload(cluster, model=MODEL)
        assert f"model: back to {os.path.basename(MODEL)[:-5]}, version 1" in said["changed"], said
        wait_done(cluster)
        assert "was cancelled" in state(cluster)["update"]["text"]
        assert set(cluster.children()) == names and text_of(cluster, SHORT) == old[0]
        assert not os.path.exists(f"/proc/{hung}")  # SIGTERM did not end it, but SIGKILL did.
        reload(cluster, model=other)
        wait_until(lambda: update(cluster) == "draining", "the new version serves", cluster=cluster)
        name = f"token-0.{version + 1}"
        streams.append(held_stream(cluster, name, [f"token-1.{version + 1}"]))
        reload(cluster, model=MODEL)
        assert served(cluster)[1] == OLD and text_of(cluster, SHORT) == old[0] and update(cluster) == "draining"
        cluster.release("token-0")
        streams[0].expect(old[1], "on the first version")
        assert update(cluster) == "draining" and cluster.held(name)
        cluster.release()
        streams[1].expect(new[1], "on the version that took its place for a while")
        wait_done(cluster)
        assert set(cluster.children()) == names
        cluster.wait_all_free()


def check_cut(other, old):
    """Requests that do not finish within server/drain_ms end with an error event."""
    with Cluster({**CONFIG, "server": {"drain_ms": 300}}, gates=True) as cluster:
        stream = held_stream(cluster, "token-0")
        reload(cluster, model=other)
        stream.end()
        cluster.release()
        wait_done(cluster)
        assert isinstance(stream.error, Failure) and "the model was updated" in str(stream.error), stream.error
        assert stream.text and old[1].startswith(stream.text), (stream.text, old)
        assert set(cluster.children()) == {"prompt-0.2", "token-0.2"}
        cluster.wait_all_free()
        children = cluster.children()
        assert cluster.stop() == 0
        assert not [pid for pid in children.values() if os.path.exists(f"/proc/{pid}")]


def check_remote(other, old, new):
    """Machines that the gateway does not start are restarted one by one. A machine with a third model is refused."""
    names = ["p0", "p1", "t0", "t1"]
    ports = dict(zip(names, free_ports(4)))
    config = {**CONFIG, "pools": {"prompt": ["p0", "p1"], "token": ["t0", "t1"]},
              "kv": {**CONFIG["kv"], "dtype": "i16"},
              "machines": {name: {"address": f"127.0.0.1:{port}", "local": False, "device": "cuda:0"}
                           for name, port in ports.items()}}
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "log"), "w+") as log:
        processes, gates = {}, os.path.join(folder, "gates")

        def start(name, model):
            if name in processes:
                processes[name].terminate()
                if os.path.exists(os.path.join(gates, name)):
                    os.unlink(os.path.join(gates, name))
                processes[name].wait(300)
            path = os.path.join(folder, name + ".json")
            with open(path, "w") as file:
                json.dump({**config, "model": model}, file)
            processes[name] = subprocess.Popen([BINARY, "machine", path, name], stderr=log, env=gated_environment(gates))

        try:
            for name in names:
                start(name, MODEL)
            with Cluster(config, gates=gates) as cluster:
                wait_until(lambda: cluster.metric("cleave_machine_up") == 4, "all machines are up", cluster=cluster)
                drain(cluster, "p1")
                streams = [held_stream(cluster, "t0", ["t1"]), held_stream(cluster, "t1", ["t0"])]
                drain(cluster, "p1", undo=True)
                reload(cluster, model=other)
                start("t1", variant(folder, "third.gguf", 3000.0))
                wait_until(lambda: "t1 do not match: metadata_hash is" in cluster.logged(), "t1 is refused",
                           cluster=cluster)
                wait_until(lambda: cluster.metric("cleave_machine_mismatch", machine="t1") == 1, "an alarm sees t1",
                           cluster=cluster)
                start("t1", other)
                # A token machine alone cannot serve requests of the new model.
                wait_until(lambda: {m["name"]: m["version"] for m in state(cluster)["machines"]}["t1"] == 2,
                           "t1 is of version 2", cluster=cluster)
                assert cluster.metric("cleave_machine_mismatch") == 0
                time.sleep(1.2)  # Longer than a version must be complete before it serves.
                assert update(cluster) == "starting" and served(cluster)[1] == OLD
                start("p1", other)
                wait_until(lambda: served(cluster)[0] == "other", "p1 and t1 serve", cluster=cluster)
                assert text_of(cluster, SHORT) == new[0]
                cluster.release()
                for stream in streams:
                    stream.expect(old[1], "begun on the old model")
                wait_done(cluster)
                assert text_of(cluster, SHORT) == new[0]
                for name in ("p0", "t0"):
                    assert cluster.metric("cleave_machine_up", machine=name) == 0
                    start(name, other)
                wait_until(lambda: cluster.metric("cleave_machine_up") == 4, "all are back", cluster=cluster)
                assert text_of(cluster, SHORT) == new[0]
                cluster.wait_all_free()
        finally:
            for process in processes.values():
                process.terminate()
            for process in processes.values():
                process.wait(300)


def main():
    need_model()
    with tempfile.TemporaryDirectory(prefix="cleave-models-") as models:
        other = variant(models)
        old, new = wants(other)
        if sys.argv[1:] == ["more"]:
            check_given_up(other, old)
            check_back(other, old, new)
            check_cut(other, old)
            check_remote(other, old, new)
        else:
            check_update(other, old, new)
            check_refused(other)
    print("a model replaced another model under load")


if __name__ == "__main__":
    main()
