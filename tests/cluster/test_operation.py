"""Goal: an operator may stop, reload and change a cluster while it serves, and no request that runs notices. Method:
real processes; streams run through every change, and must bring the bytes of an undisturbed run."""

import json
import os
import signal
import threading
import time

from cluster import Cluster, Failure, need_model

LONG = {"prompt": "Once upon a time", "temperature": 0, "ignore_eos": True}


class Stream(threading.Thread):
    """A streamed answer that is read by a thread of its own. `text` so far; `error` when it ended with one."""

    def __init__(self, cluster, tokens):
        super().__init__(daemon=True)
        self.cluster, self.tokens, self.text, self.error, self.begun = cluster, tokens, "", None, threading.Event()
        self.start()
        assert self.begun.wait(120), "no first token"

    def run(self):
        try:
            for event in self.cluster.stream("/v1/completions", {**LONG, "max_tokens": self.tokens}):
                self.text += event["choices"][0]["text"]
                self.begun.set()
        except Exception as error:  # whatever it is, the test looks at it
            self.error = error
        self.begun.set()

    def end(self, seconds=120):
        self.join(seconds)
        assert not self.is_alive(), "the stream does not end"
        return self


def undisturbed(cluster, tokens):
    return cluster.post("/v1/completions", {**LONG, "max_tokens": tokens})["choices"][0]["text"]


def check_seeing():
    """/admin/state, the event log and its rotation, and a full disk, which costs lines and nothing else."""
    config = {"kv": {"memory": "64MiB"}, "threads": 1, "log": {"events_file": "events.jsonl"}}
    with Cluster(config) as cluster:
        want = undisturbed(cluster, 200)
        stream = Stream(cluster, 400)
        wait_until(cluster, lambda: admin(cluster, "GET", "/admin/state")["requests"]["decoding"] == 1, "it decodes")
        state = admin(cluster, "GET", "/admin/state")
        assert state["ready"] and not state["stopping"] and state["keys"] == [], state
        machines = {machine["name"]: machine for machine in state["machines"]}
        assert set(machines) == {"prompt-0", "token-0"}, state
        assert machines["token-0"]["connection"] == "up" and machines["token-0"]["routed_decodes"] == 1, state
        assert sum(machines["token-0"]["kv_blocks"].values()) > 0
        assert {"from": "prompt-0", "to": "token-0", "up": True} in state["links"], state
        assert state["requests_open"] == 1, state
        assert stream.end().error is None and stream.text.startswith(want)
        path = os.path.join(cluster.folder.name, "events.jsonl")
        os.rename(path, path + ".1")
        admin(cluster, "POST", "/admin/reload")
        undisturbed(cluster, 5)
        wait_until(cluster, lambda: '"ended"' in open(path).read(), "the new file has events")
        lines = [json.loads(line) for line in open(path + ".1")]
        assert lines[0]["events"] == 1 and lines[0]["whole"] is True, lines[0]
        assert {"machine": 0, "name": "prompt-0"} in lines
        kinds = [line.get("event") for line in lines]
        assert kinds.count("arrived") == 2 and kinds.count("ended") == 2 and "link_up" in kinds, kinds
        routes = [action for line in lines for action in line.get("actions", []) if action["do"] == "route"]
        assert len(routes) == 2 and all(route["peer"] == 1 for route in routes), routes
        assert json.loads(open(path).readline())["whole"] is False
        for name in ("time_to_first_token_seconds", "time_per_output_token_seconds", "inter_token_latency_seconds",
                     "e2e_request_latency_seconds", "request_prompt_tokens", "request_generation_tokens"):
            assert cluster.metric(f"vllm:{name}_count") > 0, name
        for name in ("num_requests_running", "num_requests_waiting", "gpu_cache_usage_perc", "kv_cache_usage_perc",
                     "prompt_tokens_total", "generation_tokens_total", "request_success_total"):
            assert any(found == f"vllm:{name}" for found, _ in cluster.metrics()), name
        # The disk is full from now on.
        cluster.write("config.json", {**cluster.config, "log": {"events_file": "/dev/full"}})
        admin(cluster, "POST", "/admin/reload")
        for _ in range(3):
            assert undisturbed(cluster, 200) == want
        wait_until(cluster, lambda: cluster.metric("cleave_events_dropped_total") > 5, "dropped lines are counted")
        assert cluster.logged().count("log/events_file loses lines: No space left") == 1, cluster.logged()


def check_graceful_stop():
    with Cluster(prefix=("setsid",)) as cluster:
        want = undisturbed(cluster, 300)
        stream = Stream(cluster, 300)
        os.killpg(cluster.process.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
        cluster.wait_health(503, '"draining"')
        status, headers, body = cluster.request("POST", "/v1/completions", {"prompt": "x"})
        assert status == 503 and int(headers["Retry-After"]) > 0 and b"stopping" in body, (status, headers, body)
        assert stream.end().error is None and stream.text == want, (stream.error, stream.text)
        assert cluster.process.wait(30) == 0
        said = cluster.logged()
        assert "refuses new requests, 1 are running" in said and "died" not in said, said


def check_hasty_stop():
    for how in ("twice", "drain_ms"):
        config = {"server": {"drain_ms": 500}} if how == "drain_ms" else {}
        with Cluster(config) as cluster:
            stream = Stream(cluster, 4000)
            cluster.process.send_signal(signal.SIGTERM)
            if how == "twice":
                cluster.wait_health(503, '"draining"')
                cluster.process.send_signal(signal.SIGTERM)
            assert isinstance(stream.end(30).error, Failure) and "stopping" in str(stream.error), stream.error
            assert cluster.process.wait(30) == 0


def wait_until(cluster, condition, what, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s\n{cluster.logged()}"
        time.sleep(0.05)


def up(cluster):
    """{machine: pool} of those that are connected."""
    return {dict(labels)["machine"]: dict(labels)["pool"] for (name, labels), value in cluster.metrics().items()
            if name == "cleave_machine_up" and value == 1}


def admin(cluster, method, path, body=None, want=200, headers=None):
    status, _, data = cluster.request(method, path, body, headers)
    assert status == want, (method, path, status, data)
    return json.loads(data)


def check_reload():
    first = {"kv": {"memory": "64MiB"}, "threads": 1}
    with Cluster(first) as cluster:
        want = undisturbed(cluster, 400)
        stream = Stream(cluster, 400)
        # One machine more, another limit; what cannot change is named.
        cluster.write("config.json", {**cluster.config, "pools": {"prompt": 1, "token": 2},
                                      "scheduler": {"queue_requests_max": 7}, "slo": {"ttft_ms": 400}})
        cluster.process.send_signal(signal.SIGHUP)
        wait_until(cluster, lambda: up(cluster).get("token-1") == "token", "token-1 serves")
        assert "reload: scheduler/queue_requests_max: 7, was 1024" in cluster.logged()
        cluster.write("config.json", {**cluster.config, "pools": {"prompt": 1, "token": 2},
                                      "http": {"listen": "127.0.0.1:1"}, "threads": 2,
                                      "kv": {"memory": "64MiB", "block_tokens": 32}})
        said = admin(cluster, "POST", "/admin/reload")
        assert 'http/listen: stays "127.0.0.1:0", not "127.0.0.1:1"' in said["needs_restart"], said
        assert "kv/block_tokens: stays 16, not 32" in said["needs_restart"], said
        assert "scheduler/queue_requests_max: 1024, was 7" in said["changed"], said
        assert "machines/token-1/threads: 2, was 1" in said["for_machines_that_start"], said
        check_bad_files(cluster)
        # Back to one token machine: whichever streams are on it, they end there.
        streams = [stream] + [Stream(cluster, 400) for _ in range(5)]
        cluster.write("config.json", {**cluster.config, "pools": {"prompt": 1, "token": ["token-1"]}})
        admin(cluster, "POST", "/admin/reload")
        for each in streams:
            assert each.end().error is None and each.text == want, each.error
        wait_until(cluster, lambda: "token-0" not in cluster.children(), "token-0 has ended")
        wait_until(cluster, lambda: "token-0" not in up(cluster), "token-0 is forgotten")
        assert "machine token-0 is no longer of this cluster" in cluster.logged()
        # Both swap their pools, under a stream.
        stream = Stream(cluster, 400)
        cluster.write("config.json", {**cluster.config, "pools": {"prompt": ["token-1"], "token": ["prompt-0"]}})
        said = admin(cluster, "POST", "/admin/reload")
        assert "machines/prompt-0: pool token, was prompt" in said["changed"], said
        assert stream.end().error is None and stream.text == want
        wait_until(cluster, lambda: cluster.request("GET", "/health")[0] == 200, "serves again")
        assert undisturbed(cluster, 400) == want
        assert up(cluster) == {"prompt-0": "token", "token-1": "prompt"}, up(cluster)
        cluster.wait_all_free()
        assert "died" not in cluster.logged(), cluster.logged()


def check_bad_files(cluster):
    """A config or a key file with a mistake changes nothing at all."""
    before = up(cluster)
    keys = cluster.write("keys.json", {"keys": [{"name": "x", "key": "short"}]})
    for content, part in (('{"pools": ', "not JSON"),
                          ({**cluster.config, "pools": {"prompt": 5, "token": 5, "mixd": 1}}, "/pools/mixd"),
                          ({**cluster.config, "pools": {"prompt": 5, "token": 0}}, "nobody can serve"),
                          ({**cluster.config, "pools": {"prompt": ["p"], "token": ["t"]},
                            "machines": {"t": {"address": "127.0.0.1:7"}}}, "all were local"),
                          ({**cluster.config, "pools": {"mixed": 3}, "server": {"api_keys_file": keys}},
                           "/keys/0/key")):
        cluster.write("config.json", content)
        said = admin(cluster, "POST", "/admin/reload", want=400)
        assert part in said["error"]["message"], said
    cluster.process.send_signal(signal.SIGHUP)
    wait_until(cluster, lambda: cluster.logged().count("reload: nothing is changed") == 6, "the log says so")
    assert up(cluster) == before and cluster.process.poll() is None
    assert cluster.request("GET", "/v1/models")[0] == 200  # no keys are wanted


def check_machines():
    with Cluster({"kv": {"memory": "64MiB"}, "threads": 1}) as cluster:
        want = undisturbed(cluster, 300)
        stream = Stream(cluster, 300)
        assert admin(cluster, "POST", "/admin/drain/token-0")["idle"] is False
        # Nobody is left for tokens: the prompt machine does both, until another one is added.
        assert undisturbed(cluster, 300) == want
        assert cluster.metric("cleave_machine_in_pool", machine="prompt-0") == 2
        assert cluster.metric("cleave_machine_generated_tokens_total", machine="prompt-0") > 0
        added = admin(cluster, "POST", "/admin/machines", {"name": "t9", "pool": "token", "kv_memory": "32MiB"}, 202)
        assert added == {"machine": "t9", "state": "starting"}, added
        assert stream.end().error is None and stream.text == want
        wait_until(cluster, lambda: cluster.metric("cleave_machine_in_pool", machine="prompt-0") == 0, "it goes home")
        assert undisturbed(cluster, 300) == want
        assert cluster.metric("cleave_machine_generated_tokens_total", machine="t9") > 0
        assert admin(cluster, "POST", "/admin/undrain/token-0")["state"] == "serving"
        for path, method, body, status, part in (
                ("/admin/drain/nobody", "POST", None, 404, "nobody"),
                ("/admin/machines", "POST", {"name": "t9", "pool": "token"}, 409, "already"),
                ("/admin/machines", "POST", {"name": "t8"}, 400, "pool"),
                ("/admin/machines", "POST", {"name": "t8", "pool": "token", "thread": 1}, 400, "thread"),
                ("/admin/machines", "POST", {"name": "a b", "pool": "token"}, 400, "name"),
                ("/admin/machines", "POST", {"name": "t8", "pool": "token", "address": "127.0.0.1:7"}, 409, "local"),
                ("/admin/machines/prompt-0", "DELETE", None, 409, "nobody can serve"),
                ("/admin/reload/x", "POST", None, 404, "/admin/reload/x")):
            said = admin(cluster, method, path, body, status)
            assert part in said["error"]["message"], (path, said)
        admin(cluster, "POST", "/admin/drain/t9", None, 403, {"Origin": "http://evil.example"})
        # A machine goes while streams run on it, and a new one takes its place.
        streams = [Stream(cluster, 300) for _ in range(4)]
        assert admin(cluster, "DELETE", "/admin/machines/token-0", None, 202)["state"] == "leaving"
        for each in streams:
            assert each.end().error is None and each.text == want, each.error
        wait_until(cluster, lambda: "token-0" not in cluster.children(), "token-0 has ended")
        wait_until(cluster, lambda: "token-0" not in up(cluster), "token-0 is forgotten")
        admin(cluster, "POST", "/admin/machines", {"name": "t8", "pool": "mixed", "threads": 1}, 202)
        wait_until(cluster, lambda: up(cluster).get("t8") == "mixed", "t8 serves")
        assert admin(cluster, "DELETE", "/admin/machines/t9", None, 202)["state"] == "leaving"
        wait_until(cluster, lambda: set(up(cluster)) == {"prompt-0", "t8"}, "t9 is forgotten")
        assert undisturbed(cluster, 300) == want
        cluster.wait_all_free()
        assert "died" not in cluster.logged(), cluster.logged()


need_model()
check_reload()
check_machines()
check_seeing()
check_graceful_stop()
check_hasty_stop()
print("what ran went on through every change")
