"""Goal: another model takes the place of the one that is served without a pause: every request ends on the model that it
began with, with that model's bytes, none fails, and the old processes are gone in the end; an update that cannot be is
refused, given up or cancelled, and the old model serves on. Method: the default model, and a copy that rotates otherwise
and has a shorter context (other metadata, other bytes); streams run all the time, machines of either model are killed."""

import json
import os
import signal
import struct
import subprocess
import tempfile
import threading
import time

from cluster import BINARY, MODEL, Cluster, Failure, free_ports, need_model

LONG = {"prompt": "Once upon a time", "temperature": 0, "ignore_eos": True}
CONFIG = {"kv": {"memory": "192MiB"}, "threads": 1, "model_name": ""}
OLD, NEW = 8192, 1024  # context tokens
LONGEST = 1800  # tokens of answers that are still open when the new version serves, on a fast computer too


def variant(folder, name="other.gguf", base=8000.0):
    """The default model's copy with llama.rope.freq_base and llama.context_length changed."""
    with open(MODEL, "rb") as file:
        data = bytearray(file.read())
    for key, kind, value in ((b"llama.rope.freq_base", "<f", base), (b"llama.context_length", "<I", NEW)):
        at = data.index(struct.pack("<Q", len(key)) + key) + 8 + len(key) + 4
        data[at:at + 4] = struct.pack(kind, value)
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        file.write(data)
    return path


def wait_until(cluster, what, text, seconds=60):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, (text, cluster.logged())
        time.sleep(0.02)


def text_of(cluster, tokens):
    return cluster.post("/v1/completions", {**LONG, "max_tokens": tokens})["choices"][0]["text"]


def served(cluster):
    model = json.loads(cluster.request("GET", "/v1/models")[2])["data"][0]
    return model["id"], model["max_model_len"]


def state(cluster):
    return json.loads(cluster.request("GET", "/admin/state")[2])


def update(cluster):
    return state(cluster)["update"]["state"]


def reload(cluster, want=200, **changes):
    cluster.write("config.json", {**cluster.config, **changes})
    status, _, body = cluster.request("POST", "/admin/reload")
    assert status == want, (status, body, cluster.logged())
    return json.loads(body)


def wait_done(cluster, seconds=60):
    wait_until(cluster, lambda: update(cluster) == "none", "the update ends", seconds)


class Stream(threading.Thread):
    def __init__(self, cluster, tokens):
        super().__init__(daemon=True)
        self.cluster, self.tokens, self.text, self.error, self.begun = cluster, tokens, "", None, threading.Event()
        self.start()
        assert self.begun.wait(60), "no first token"

    def run(self):
        try:
            for event in self.cluster.stream("/v1/completions", {**LONG, "max_tokens": self.tokens}):
                self.text += event["choices"][0]["text"]
                self.begun.set()
        except Exception as error:  # the test looks at it
            self.error = error
        self.begun.set()

    def expect(self, want, what):
        self.join(120)
        assert not self.is_alive(), f"{what}: the stream hangs\n" + self.cluster.logged()
        assert self.error is None and self.text == want, (what, self.error, self.text, want, self.cluster.logged())


class Load(threading.Thread):
    """One short stream after another, with time for others between them."""

    def __init__(self, cluster, tokens):
        super().__init__(daemon=True)
        self.cluster, self.tokens, self.texts, self.error, self.over = cluster, tokens, [], None, False
        self.start()

    def run(self):
        try:
            while not self.over:
                events = self.cluster.stream("/v1/completions", {**LONG, "max_tokens": self.tokens})
                self.texts.append("".join(event["choices"][0]["text"] for event in events))
                time.sleep(0.1)
        except Exception as error:
            self.error = error

    def stop(self):
        self.over = True
        self.join(120)
        assert not self.is_alive() and self.error is None, (self.error, self.cluster.logged())
        return self.texts


def wants(other, old_lengths=(12, 900, LONGEST)):
    """What either model answers: [short, long] of each, and of the old one longest."""
    found = []
    for model, lengths in ((MODEL, old_lengths), (other, (12, 900))):
        with Cluster({**CONFIG, "model": model, "pools": {"mixed": 1}}) as cluster:
            found.append([text_of(cluster, length) for length in lengths])
    assert found[0][0] != found[1][0] and found[0][1] != found[1][1]
    return found


def check_update(other, old, new):
    """Under streams, with an old machine killed after new requests have gone over; and there again."""
    with Cluster({**CONFIG, "pools": {"prompt": 1, "token": 2}}) as cluster:
        assert served(cluster)[1] == OLD
        streams = [Stream(cluster, LONGEST) for _ in range(2)]
        loads = [Load(cluster, 12) for _ in range(2)]
        said = reload(cluster, model=other)
        assert f"model: {other} starts as version 2 beside {MODEL}" in said["changed"], said
        assert said["needs_restart"] == [], said
        # A third model, other machines or a machine more must wait; whatever else changes, changes.
        assert "is under way" in reload(cluster, 409, model=variant(cluster.folder.name, "third.gguf"))[
            "error"]["message"]
        assert "while a model update is under way" in reload(cluster, 409, model=other, pools={"mixed": 1})["error"][
            "message"]
        said = reload(cluster, model=other, scheduler={"queue_requests_max": 7})
        assert said["changed"] == ["scheduler/queue_requests_max: 7, was 1024"], said
        status, _, body = cluster.request("POST", "/admin/machines", {"name": "t9", "pool": "token"})
        assert status == 409, body
        wait_until(cluster, lambda: update(cluster) != "starting", "the new version serves")
        assert update(cluster) == "draining" and served(cluster) == ("other", NEW), (state(cluster), served(cluster))
        assert text_of(cluster, 12) == new[0]
        os.kill(cluster.children()["token-0"], signal.SIGKILL)  # an old one: its requests stay with the old model
        late = Stream(cluster, 900)
        assert "of version 1" in json.loads(cluster.request("GET", "/health")[2])["detail"]
        assert cluster.metric("cleave_model_version", version="1", state="draining") == 1
        assert cluster.metric("cleave_model_version", version="2", state="serving", model="other") == 1
        wait_until(cluster, lambda: cluster.metric("cleave_model_requests_open", version="1") == 2,
                   "the long streams are all that the old version has")
        for stream in streams:
            stream.expect(old[2], "begun on the old model")
        late.expect(new[1], "begun on the new model")
        wait_done(cluster)
        texts = [load.stop() for load in loads]
        for each in texts:  # the old one's, then the new one's: nobody goes back
            turn = each.index(new[0])
            assert each == [old[0]] * turn + [new[0]] * (len(each) - turn), each
        assert set(cluster.children()) == {"prompt-0.2", "token-0.2", "token-1.2"}, cluster.children()
        assert {m["name"]: m["version"] for m in state(cluster)["machines"]} == {
            "prompt-0.2": 2, "token-0.2": 2, "token-1.2": 2}
        assert cluster.metric("cleave_model_requests_total", version="2") > 0
        assert not [name for name in cluster.metrics() if ("version", "1") in name[1]]
        cluster.wait_all_free()
        # Reloading the same file changes nothing; one machine less leaves; the first model comes back.
        assert reload(cluster, model=other)["changed"] == ["scheduler/queue_requests_max: 1024, was 7"]
        reload(cluster, model=other, pools={"prompt": 1, "token": 1})
        wait_until(cluster, lambda: set(cluster.children()) == {"prompt-0.2", "token-0.2"}, "token-1.2 leaves")
        reload(cluster, model=MODEL, pools={"prompt": 1, "token": 1})
        wait_done(cluster)
        assert text_of(cluster, 12) == old[0] and served(cluster)[1] == OLD
        assert set(cluster.children()) == {"prompt-0.3", "token-0.3"}, cluster.children()
        print(f"update: 3 long streams, {sum(len(each) for each in texts)} short ones, each with one model's bytes")


def check_refused(other):
    """What cannot be is an error that changes nothing."""
    with Cluster(CONFIG) as cluster:
        short = os.path.join(cluster.folder.name, "short.gguf")
        with open(MODEL, "rb") as file, open(short, "wb") as copy:
            copy.write(file.read(3 << 20))
        for model, kv, status, part in (("nowhere.gguf", "192MiB", 400, "nowhere.gguf"),
                                        (short, "192MiB", 400, "short.gguf"),
                                        (other, "8TiB", 409, "MiB are available")):
            said = reload(cluster, status, model=model, kv={"memory": kv})
            assert part in said["error"]["message"], said
        found = state(cluster)
        assert found["update"] == {"state": "none"} and [v["version"] for v in found["versions"]] == [1], found
        assert set(cluster.children()) == {"prompt-0", "token-0"}
        # Machines that cannot start end it at once: one block is larger than this.
        reload(cluster, model=other, kv={"memory": "1MiB", "block_tokens": 256})
        wait_done(cluster)
        found = state(cluster)["update"]["text"]
        assert "is given up" in found and "ended before it was ready" in found, found
        assert set(cluster.children()) == {"prompt-0", "token-0"} and served(cluster)[1] == OLD

    # A machine that has the name of another one's next version would be taken for it.
    with Cluster({**CONFIG, "pools": {"prompt": ["a"], "token": ["b", "a.2"]}}) as cluster:
        said = reload(cluster, 400, model=other)
        assert "machines/a.2: a machine of version 2 would be called so" in said["error"]["message"], said
        assert update(cluster) == "none" and {m["name"] for m in state(cluster)["machines"]} == {"a", "b", "a.2"}


def check_given_up(other, old, new):
    """Machines of the new model that die whenever they are up; then one that hangs, until the operator goes back."""
    with Cluster({**CONFIG, "server": {"update_ms": 4000}}) as cluster:
        stream = Stream(cluster, 900)
        reload(cluster, model=other)
        while update(cluster) == "starting":
            victim = cluster.children().get("token-0.2")
            if victim is not None and "machine token-0.2 serves" in cluster.logged():
                os.kill(victim, signal.SIGKILL)
            time.sleep(0.02)
        stream.expect(old[1], "while the update fails")
        wait_done(cluster)
        assert "is given up" in state(cluster)["update"]["text"], state(cluster)
        assert text_of(cluster, 12) == old[0] and set(cluster.children()) == {"prompt-0", "token-0"}
        reload(cluster, model=other, server={"update_ms": 60000})
        wait_until(cluster, lambda: "token-0.3" in cluster.children(), "token-0.3 starts")
        os.kill(cluster.children()["token-0.3"], signal.SIGSTOP)
        time.sleep(1)
        assert update(cluster) == "starting" and text_of(cluster, 12) == old[0]
        said = reload(cluster, model=MODEL, server={"update_ms": 60000})
        assert f"model: back to {os.path.basename(MODEL)[:-5]}, version 1" in said["changed"], said
        wait_done(cluster)
        assert "was cancelled" in state(cluster)["update"]["text"]
        assert set(cluster.children()) == {"prompt-0", "token-0"} and text_of(cluster, 12) == old[0]
        # Back again after new requests have gone over: the two change places.
        streams = [Stream(cluster, 900)]
        reload(cluster, model=other, server={"update_ms": 60000})
        wait_until(cluster, lambda: update(cluster) == "draining", "the new version serves")
        streams.append(Stream(cluster, 900))
        reload(cluster, model=MODEL, server={"update_ms": 60000})
        assert text_of(cluster, 12) == old[0] and served(cluster)[1] == OLD
        streams[0].expect(old[1], "on the first version")
        streams[1].expect(new[1], "on the version that had its place for a while")
        wait_done(cluster)
        assert set(cluster.children()) == {"prompt-0", "token-0"}
        cluster.wait_all_free()


def check_cut(other, old):
    """Requests that do not finish in server/drain_ms end with an error event."""
    with Cluster({**CONFIG, "server": {"drain_ms": 500}}) as cluster:
        stream = Stream(cluster, 6000)
        reload(cluster, model=other, server={"drain_ms": 500})
        wait_done(cluster)
        stream.join(60)
        assert isinstance(stream.error, Failure) and "the model was updated" in str(stream.error), stream.error
        assert stream.text.startswith(old[1][:100]) and set(cluster.children()) == {"prompt-0.2", "token-0.2"}
        cluster.wait_all_free()
        children = cluster.children()
        assert cluster.stop() == 0
        assert not [pid for pid in children.values() if os.path.exists(f"/proc/{pid}")]


def check_remote(other, old, new):
    """Machines that the gateway does not start are restarted one by one; one with a third model is refused."""
    names = ["p0", "p1", "t0", "t1"]
    ports = dict(zip(names, free_ports(4)))
    config = {**CONFIG, "pools": {"prompt": ["p0", "p1"], "token": ["t0", "t1"]},
              "machines": {name: {"address": f"127.0.0.1:{port}", "local": False} for name, port in ports.items()}}
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "log"), "w+") as log:
        processes = {}

        def start(name, model):
            if name in processes:
                processes[name].terminate()
                processes[name].wait(60)
            path = os.path.join(folder, name + ".json")
            with open(path, "w") as file:
                json.dump({**config, "model": model}, file)
            processes[name] = subprocess.Popen([BINARY, "machine", path, name], stderr=log)

        try:
            for name in names:
                start(name, MODEL)
            with Cluster(config) as cluster:
                streams = [Stream(cluster, 900) for _ in range(2)]
                reload(cluster, model=other)
                start("t1", variant(folder, "third.gguf", 3000.0))
                wait_until(cluster, lambda: "t1 do not match: metadata_hash is" in cluster.logged(), "t1 is refused")
                start("t1", other)
                # A token machine alone serves nothing of the new model.
                wait_until(cluster, lambda: {m["name"]: m["version"] for m in state(cluster)["machines"]}["t1"] == 2,
                           "t1 is of version 2")
                time.sleep(1.5)
                assert update(cluster) == "starting" and text_of(cluster, 12) == old[0]
                start("p1", other)
                wait_until(cluster, lambda: served(cluster)[0] == "other", "p1 and t1 serve")
                assert text_of(cluster, 12) == new[0]
                for stream in streams:  # on p0 and t0, wherever they were
                    stream.expect(old[1], "begun on the old model")
                wait_done(cluster)
                assert text_of(cluster, 12) == new[0]
                for name in ("p0", "t0"):
                    assert cluster.metric("cleave_machine_up", machine=name) == 0
                    start(name, other)
                wait_until(cluster, lambda: cluster.metric("cleave_machine_up") == 4, "all are back")
                assert text_of(cluster, 12) == new[0]
                cluster.wait_all_free()
        finally:
            for process in processes.values():
                process.terminate()
            for process in processes.values():
                process.wait(60)


def main():
    need_model()
    with tempfile.TemporaryDirectory(prefix="cleave-models-") as models:
        other_model = variant(models)
        old_wants, new_wants = wants(other_model)
        check_update(other_model, old_wants, new_wants)
        check_refused(other_model)
        check_given_up(other_model, old_wants, new_wants)
        check_cut(other_model, old_wants)
        check_remote(other_model, old_wants, new_wants)
    print("a model took another's place under load")


if __name__ == "__main__":
    main()
