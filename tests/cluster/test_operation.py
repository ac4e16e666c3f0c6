"""Goal: an operator may stop, reload and change a cluster while it serves, without effect on running requests. Method:
real processes. Streams are held at a gate of their token machine during every change, and must give the bytes of an
undisturbed run."""

import json
import os
import shutil
import signal
import subprocess

from cluster import BINARY, Cluster, Failure, Stream, need_model, wait_until

ANSWER = 40  # In tokens.
LONG = {"prompt": "Once upon a time", "temperature": 0, "ignore_eos": True, "max_tokens": ANSWER}
CONFIG = {"kv": {"memory": "32MiB"}, "threads": 1, "transport": {"silence_ms": 60000}}


def undisturbed(cluster, tokens=ANSWER):
    return cluster.post("/v1/completions", {**LONG, "max_tokens": tokens})["choices"][0]["text"]


def held_stream(cluster, name):
    """Returns a stream that has begun on this token machine, which is then held."""
    return cluster.held_streams(name, [LONG])[0]


def check_seeing():
    """Tests /admin/state, the event log and its rotation, and a full disk, which only loses log lines."""
    with Cluster({**CONFIG, "log": {"events_file": "events.jsonl"}}, gates=True) as cluster:
        want = undisturbed(cluster)
        stream = held_stream(cluster, "token-0")
        state = admin(cluster, "GET", "/admin/state")
        assert state["ready"] and not state["stopping"] and state["keys"] == [], state
        machines = {machine["name"]: machine for machine in state["machines"]}
        assert set(machines) == {"prompt-0", "token-0"}, state
        assert machines["token-0"]["connection"] == "up" and machines["token-0"]["routed_decodes"] == 1, state
        assert sum(machines["token-0"]["kv_blocks"].values()) > 0
        assert [(link["to"], link["up"]) for link in state["links"] if link["from"] == "prompt-0"] == [("token-0", True)], state
        assert state["requests_open"] == 1, state
        cluster.release()
        stream.expect(want)
        path = os.path.join(cluster.folder.name, "events.jsonl")
        check_log_goes_on(cluster, path)
        os.rename(path, path + ".1")
        admin(cluster, "POST", "/admin/reload")
        undisturbed(cluster, 5)
        wait_until(lambda: os.path.exists(path) and '"ended"' in open(path).read(), "the new file has events",
                   cluster=cluster)
        lines = [json.loads(line) for line in open(path + ".1")]
        assert lines[0]["events"] == 1 and lines[0]["whole"] is True, lines[0]
        assert {"machine": 0, "name": "prompt-0"} in lines
        kinds = [line.get("event") for line in lines]
        assert kinds.count("arrived") == 3 and kinds.count("ended") == 3 and "link_up" in kinds, kinds
        routes = [action for line in lines for action in line.get("actions", []) if action["do"] == "route"]
        assert len(routes) == 3 and all(route["peer"] == 1 for route in routes), routes
        assert json.loads(open(path).readline())["whole"] is False
        for name in ("time_to_first_token_seconds", "time_per_output_token_seconds", "inter_token_latency_seconds",
                     "e2e_request_latency_seconds", "request_prompt_tokens", "request_generation_tokens"):
            assert cluster.metric(f"vllm:{name}_count") > 0, name
        for name in ("num_requests_running", "num_requests_waiting", "gpu_cache_usage_perc", "kv_cache_usage_perc",
                     "prompt_tokens_total", "generation_tokens_total", "request_success_total"):
            assert any(found == f"vllm:{name}" for found, _ in cluster.metrics()), name
        check_own_figures(cluster)
        # From here on, the disk is full.
        cluster.write("config.json", {**cluster.config, "log": {"events_file": "/dev/full"}})
        admin(cluster, "POST", "/admin/reload")
        for _ in range(3):
            assert undisturbed(cluster) == want
        wait_until(lambda: cluster.metric("cleave_events_dropped_total") > 5, "dropped lines are counted",
                   cluster=cluster)
        wait_until(lambda: "log/events_file loses lines" in cluster.logged(), "the log says so", cluster=cluster)
        assert cluster.logged().count("log/events_file loses lines: No space left") == 1, cluster.logged()


def check_log_goes_on(cluster, path):
    """After a reload that finds the event log where it was, the replay of the log has all events."""
    admin(cluster, "POST", "/admin/reload")
    undisturbed(cluster, 5)
    wait_until(lambda: open(path).read().count('"event":"ended"') == 3, "the log has all answers", cluster=cluster)
    done = subprocess.run([BINARY, "simulate", "--replay-log", path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and ", 1 starts of the gateway" in done.stdout, (done.stdout, done.stderr)
    assert "left out" not in done.stdout and "\n0 decided differently" in done.stdout, done.stdout


def check_own_figures(cluster):
    """Answers against the SLO, the gateway's process, the machines' work. Conventional names: promtool has no complaint,
    except about the colon in vLLM's names."""
    for slo in ("ttft", "tbt", "all"):
        assert cluster.metric("cleave_slo_answers_total", slo=slo) == cluster.metric("vllm:request_success_total"), slo
    assert cluster.metric("vllm:time_to_first_token_seconds_bucket", le="0.5") == cluster.metric(
        "cleave_slo_answers_total", slo="ttft", met="true")
    wait_until(lambda: cluster.metric("cleave_machine_busy_seconds_total", machine="prompt-0", phase="prompt") > 0
               and cluster.metric("cleave_machine_busy_seconds_total", machine="token-0", phase="token") > 0,
               "both machines report their work", cluster=cluster)
    assert cluster.metric("cleave_machine_starts_total") == 2 and cluster.metric("cleave_ready") == 1
    assert cluster.metric("cleave_event_loop_seconds_count") > 0
    pid = f"/proc/{cluster.process.pid}"
    assert 0 < cluster.metric("process_cpu_seconds_total") < 1000
    assert abs(cluster.metric("process_open_fds") - len(os.listdir(f"{pid}/fd"))) < 10
    assert abs(cluster.metric("process_start_time_seconds") - os.stat(pid).st_ctime) < 60
    if shutil.which("promtool"):
        page = cluster.request("GET", "/metrics")[2]
        said = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True).stderr.decode()
        assert [line for line in said.splitlines() if not line.startswith("vllm:")] == [], said


def check_graceful_stop():
    with Cluster(CONFIG, prefix=("setsid",), gates=True) as cluster:
        want = undisturbed(cluster)
        stream = held_stream(cluster, "token-0")
        os.killpg(cluster.process.pid, signal.SIGINT)  # As Ctrl-C in a terminal does.
        cluster.wait_health(503, '"draining"')
        status, headers, body = cluster.request("POST", "/v1/completions", {"prompt": "x"})
        assert status == 503 and int(headers["Retry-After"]) > 0 and b"stopping" in body, (status, headers, body)
        cluster.release()
        stream.expect(want)
        assert cluster.process.wait(300) == 0
        said = cluster.logged()
        assert "refuses new requests, 1 are running" in said and "died" not in said, said
        assert cluster.audited() == [("stop", "", f"uid {os.getuid()} pid {os.getpid()}", 200)], cluster.audited()


def check_noticed_stop():
    """During server/drain_notice_ms a load balancer sees 503, and requests are still served: also those of connections
    that were open before. A new notice is read by a reload. After it, new requests are refused and the cluster ends."""
    with Cluster({**CONFIG, "server": {"drain_notice_ms": 30000}}, gates=True) as cluster:
        want = undisturbed(cluster)
        stream = held_stream(cluster, "token-0")
        old = cluster.connect()
        old.request("GET", "/ping")
        assert old.getresponse().read()
        cluster.process.send_signal(signal.SIGTERM)
        cluster.wait_health(503, '"draining"')
        for connection in (old, cluster.connect()):  # One token: the held machine is not needed.
            connection.request("POST", "/v1/completions", json.dumps({"prompt": "x", "max_tokens": 1}), cluster.headers)
            reply = connection.getresponse()
            assert reply.status == 200 and reply.getheader("Connection") == "close", (reply.status, reply.read())
            assert json.loads(reply.read())["usage"]["completion_tokens"] == 1
        cluster.release()
        stream.expect(want)
        said = cluster.logged()
        assert "new requests are refused in 30000 ms" in said and "refuses new requests" not in said, said
        cluster.process.send_signal(signal.SIGTERM)  # A second one does not wait for the end of the notice.
        assert cluster.process.wait(300) == 0
    with Cluster(CONFIG, gates=True) as cluster:
        cluster.write("config.json", {**cluster.config, "server": {"drain_notice_ms": 300}})
        admin(cluster, "POST", "/admin/reload")
        want = undisturbed(cluster)
        stream = held_stream(cluster, "token-0")
        cluster.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "refuses new requests, 1 are running" in cluster.logged(), "the notice is over", cluster=cluster)
        status, headers, body = cluster.request("POST", "/v1/completions", {"prompt": "x"})
        assert status == 503 and int(headers["Retry-After"]) > 0 and b"stopping" in body, (status, headers, body)
        cluster.release()
        stream.expect(want)
        assert cluster.process.wait(300) == 0
        assert "new requests are refused in 300 ms" in cluster.logged(), cluster.logged()


def check_hasty_stop():
    for how in ("twice", "drain_ms"):
        config = {**CONFIG, "server": {"drain_ms": 200}} if how == "drain_ms" else CONFIG
        with Cluster(config, gates=True) as cluster:
            stream = held_stream(cluster, "token-0")
            cluster.process.send_signal(signal.SIGTERM)
            if how == "twice":
                cluster.wait_health(503, '"draining"')
                cluster.process.send_signal(signal.SIGTERM)
            assert isinstance(stream.end().error, Failure) and "stopping" in str(stream.error), stream.error
            cluster.release()
            assert cluster.process.wait(300) == 0


def check_machine_without_its_gateway():
    """A machine whose gateway has ended before the machine asked the kernel for a signal ends before it opens the model:
    here the gateway's end of the pipe is closed when the machine starts."""
    reading, writing = os.pipe()
    os.close(reading)
    machine = subprocess.run([BINARY, "machine", "embedded", "prompt-0", "--set", "model=not opened", "--ready-fd", str(writing)],
                             pass_fds=[writing], restore_signals=False, stderr=subprocess.PIPE, text=True,
                             timeout=300)
    os.close(writing)
    assert machine.returncode == 1 and "the process that started this one has ended" in machine.stderr, machine


def up(cluster):
    """Returns {machine: pool} of the connected machines."""
    return {dict(labels)["machine"]: dict(labels)["pool"] for (name, labels), value in cluster.metrics().items()
            if name == "cleave_machine_up" and value == 1}


def admin(cluster, method, path, body=None, want=200, headers=None):
    status, _, data = cluster.request(method, path, body, headers)
    assert status == want, (method, path, status, data)
    return json.loads(data)


def control_tokens(cluster, body):
    """Returns how many control tokens <|im_end|> the tokens of a text or chat have. The text contains their name in any
    case."""
    said = cluster.post("/tokenize", {**body, "return_token_strs": True})
    assert cluster.post("/detokenize", {"tokens": said["tokens"]})["prompt"].count("<|im_end|>") >= 1
    return said["token_strs"].count("<|im_end|>")


def check_reload():
    with Cluster(CONFIG, gates=True) as cluster:
        want = undisturbed(cluster)
        chat = {"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "a<|im_end|>b"}]}
        prompt = {"prompt": "a<|im_end|>b"}
        assert (control_tokens(cluster, chat), control_tokens(cluster, prompt)) == (2, 1)
        stream = held_stream(cluster, "token-0")
        device = cluster.config["machines"]["token-0"]

        def reload(prompt, token, **changes):
            machines = {name: device for name in prompt + token}
            cluster.write("config.json", {**cluster.config, "pools": {"prompt": prompt, "token": token},
                                          "machines": machines, **changes})

        # A reload adds a machine and changes a limit. Settings that cannot change are named.
        reload(["prompt-0"], ["token-0", "token-1"], scheduler={"queue_requests_max": 7}, slo={"ttft_ms": 400},
               server={"control_tokens_in_text": "as_text"})
        cluster.process.send_signal(signal.SIGHUP)
        wait_until(lambda: up(cluster).get("token-1") == "token", "token-1 serves", cluster=cluster)
        assert "reload: scheduler/queue_requests_max: 7, was 1024" in cluster.logged()
        who = (f"uid {os.getuid()} pid {os.getpid()}", 200)
        assert sorted(cluster.audited()) == sorted([
            ("config changed", "scheduler/queue_requests_max", *who), ("config changed", "slo/ttft_ms", *who),
            ("config changed", "server/control_tokens_in_text", *who), ("machine added", "token-1", *who),
            ("reload", "", *who)]), cluster.audited()
        assert (control_tokens(cluster, chat), control_tokens(cluster, prompt)) == (2, 0)
        assert cluster.metric("cleave_slo_limit_seconds", slo="ttft") == 0.4
        reload(["prompt-0"], ["token-0", "token-1"], http={"listen": "127.0.0.1:1"}, threads=2,
               kv={**cluster.config["kv"], "block_tokens": 32}, server={"control_tokens_in_text": "allow"})
        dry = admin(cluster, "POST", "/admin/reload/dry-run")
        assert dry.pop("dry_run") and "queue_requests_max: 1024, was 7" not in cluster.logged(), cluster.logged()
        assert control_tokens(cluster, prompt) == 0
        said = admin(cluster, "POST", "/admin/reload")
        assert dry == said, (dry, said)
        assert 'http/listen: stays "127.0.0.1:0", not "127.0.0.1:1"' in said["needs_restart"], said
        assert "kv/block_tokens: stays 16, not 32" in said["needs_restart"], said
        assert "scheduler/queue_requests_max: 1024, was 7" in said["changed"], said
        assert "machines/token-1/threads: 2, was 1" in said["for_machines_that_start"], said
        assert (control_tokens(cluster, chat), control_tokens(cluster, prompt)) == (3, 1)
        check_bad_files(cluster)
        reloaded = cluster.metric("cleave_config_last_reload_success_timestamp_seconds")
        assert cluster.metric("cleave_config_last_reload_successful") == 0 and reloaded > 1e9
        reload(["prompt-0"], ["token-1", "token-2"])
        said = admin(cluster, "POST", "/admin/reload/dry-run")
        assert "machines/token-2: added to pool token" in said["changed"], said
        assert "machines/token-0: drains, then leaves" in said["changed"] and "token-2" not in cluster.logged(), said
        assert not any(act == "machine added" and name == "token-2" for act, name, _, _ in cluster.audited())
        # Back to one token machine: the streams of the other machine continue, on either machine.
        streams = [stream] + [Stream(cluster, LONG) for _ in range(3)]
        reload(["prompt-0"], ["token-1"])
        admin(cluster, "POST", "/admin/reload")
        assert cluster.metric("cleave_config_last_reload_successful") == 1
        assert cluster.metric("cleave_config_last_reload_success_timestamp_seconds") >= reloaded
        cluster.release()
        for each in streams:
            each.expect(want)
        wait_until(lambda: "token-0" not in cluster.children(), "token-0 has ended", cluster=cluster)
        wait_until(lambda: "token-0" not in up(cluster), "token-0 is forgotten", cluster=cluster)
        wait_until(lambda: "machine token-0 has left the cluster" in cluster.logged(), "it is logged", cluster=cluster)
        # The two machines swap their pools during a stream.
        stream = held_stream(cluster, "token-1")
        reload(["token-1"], ["prompt-0"])
        dry, before = admin(cluster, "POST", "/admin/reload/dry-run"), up(cluster)
        assert dry.pop("dry_run") and before == {"prompt-0": "prompt", "token-1": "token"}, before
        said = admin(cluster, "POST", "/admin/reload")
        assert dry == said, (dry, said)
        assert "machines/prompt-0: pool token, was prompt" in said["changed"], said
        assert {("machine moved to another pool", name, "loopback client", 200) for name in ("prompt-0", "token-1")} <= set(
            cluster.audited())
        cluster.release()
        stream.expect(want)
        wait_until(lambda: cluster.request("GET", "/health")[0] == 200, "serves again", cluster=cluster)
        assert undisturbed(cluster) == want
        assert up(cluster) == {"prompt-0": "token", "token-1": "prompt"}, up(cluster)
        cluster.wait_all_free()
        assert "died" not in cluster.logged(), cluster.logged()


def check_bad_files(cluster):
    """A mistake in a config or key file changes nothing at all."""
    before, config = up(cluster), {**cluster.config, "machines": {}}
    keys = cluster.write("keys.json", {"keys": [{"name": "x", "key": "short"}]})
    for content, part in (('{"pools": ', "not JSON"),
                          ({**config, "pools": {"prompt": 5, "token": 5, "mixd": 1}}, "/pools/mixd"),
                          ({**config, "pools": {"prompt": 5, "token": 0}}, "no machine can serve requests"),
                          ({**config, "pools": {"prompt": ["p"], "token": ["t"]},
                            "machines": {"t": {"address": "127.0.0.1:7"}}}, "started with local machines only"),
                          ({**config, "pools": {"mixed": 3}, "server": {"api_keys_file": keys}},
                           "/keys/0/key")):
        cluster.write("config.json", content)
        said = admin(cluster, "POST", "/admin/reload/dry-run", want=400)
        assert part in said["error"]["message"] and "reload: nothing is changed: " + part not in cluster.logged(), said
        said = admin(cluster, "POST", "/admin/reload", want=400)
        assert part in said["error"]["message"], said
    cluster.process.send_signal(signal.SIGHUP)
    wait_until(lambda: cluster.logged().count("reload: nothing is changed") == 6, "the log says so", cluster=cluster)
    wait_until(lambda: cluster.audited()[-1][0::3] == ("reload", 400), "the audit log says so", cluster=cluster)
    assert cluster.audited().count(("POST /admin/reload", "", "loopback client", 400)) == 5
    assert up(cluster) == before and cluster.process.poll() is None
    assert cluster.request("GET", "/v1/models")[0] == 200  # No key is needed.


def check_machines():
    with Cluster(CONFIG, gates=True) as cluster:
        want = undisturbed(cluster)
        stream = held_stream(cluster, "token-0")
        assert admin(cluster, "POST", "/admin/drain/token-0")["idle"] is False
        # No machine is left for tokens: the prompt machine does both phases until a token machine is added.
        assert undisturbed(cluster) == want
        assert cluster.metric("cleave_machine_in_pool", machine="prompt-0") == 2
        wait_until(lambda: cluster.metric("cleave_machine_generated_tokens_total", machine="prompt-0") > 0,
                   "prompt-0 reports its tokens", cluster=cluster)
        added = admin(cluster, "POST", "/admin/machines", {"name": "t9", "pool": "token", "kv_memory": "32MiB"}, 202)
        assert added == {"machine": "t9", "state": "starting"}, added
        cluster.release()
        stream.expect(want)
        wait_until(lambda: cluster.metric("cleave_machine_in_pool", machine="prompt-0") == 0, "prompt-0 goes home",
                   cluster=cluster)
        assert undisturbed(cluster) == want
        wait_until(lambda: cluster.metric("cleave_machine_generated_tokens_total", machine="t9") > 0,
                   "t9 reports its tokens", cluster=cluster)
        assert admin(cluster, "POST", "/admin/undrain/token-0")["state"] == "serving"
        for path, method, body, status, part in (
                ("/admin/drain/nobody", "POST", None, 404, "nobody"),
                ("/admin/machines", "POST", {"name": "t9", "pool": "token"}, 409, "already"),
                ("/admin/machines", "POST", {"name": "t8"}, 400, "pool"),
                ("/admin/machines", "POST", {"name": "t8", "pool": "token", "thread": 1}, 400, "thread"),
                ("/admin/machines", "POST", {"name": "a b", "pool": "token"}, 400, "name"),
                ("/admin/machines", "POST", {"name": "t8", "pool": "token", "address": "127.0.0.1:7"}, 409, "local"),
                ("/admin/machines/prompt-0", "DELETE", None, 409, "no machine can serve requests"),
                ("/admin/reload/x", "POST", None, 404, "/admin/reload/x")):
            said = admin(cluster, method, path, body, status)
            assert part in said["error"]["message"], (path, said)
        admin(cluster, "POST", "/admin/drain/t9", None, 403, {"Origin": "http://evil.example"})
        # A machine is removed while streams run on it, and a new machine replaces it.
        admin(cluster, "POST", "/admin/drain/t9")
        streams = cluster.held_streams("token-0", [LONG] * 2)
        admin(cluster, "POST", "/admin/undrain/t9")
        streams += [Stream(cluster, LONG) for _ in range(2)]
        assert admin(cluster, "DELETE", "/admin/machines/token-0", None, 202)["state"] == "leaving"
        cluster.release()
        for each in streams:
            each.expect(want)
        wait_until(lambda: "token-0" not in cluster.children(), "token-0 has ended", cluster=cluster)
        wait_until(lambda: "token-0" not in up(cluster), "token-0 is forgotten", cluster=cluster)
        admin(cluster, "POST", "/admin/machines", {"name": "t8", "pool": "mixed", "threads": 1}, 202)
        wait_until(lambda: up(cluster).get("t8") == "mixed", "t8 serves", cluster=cluster)
        assert admin(cluster, "DELETE", "/admin/machines/t9", None, 202)["state"] == "leaving"
        wait_until(lambda: set(up(cluster)) == {"prompt-0", "t8"}, "t9 is forgotten", cluster=cluster)
        assert undisturbed(cluster) == want
        cluster.wait_all_free()
        assert "died" not in cluster.logged(), cluster.logged()


need_model()
check_reload()
check_machines()
check_seeing()
check_graceful_stop()
check_noticed_stop()
check_hasty_stop()
check_machine_without_its_gateway()
print("all running requests went on through every change")
