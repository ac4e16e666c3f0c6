"""Goal: an operator finds a request by its id, and sees where its time went: one id in headers, body, access log, event log
and log; phases that add up; machines and resumptions; a log whose level and form change while it serves; a full disk that
stops nothing. Method: real processes; requests are held at a gate of their token machine, which is then killed."""

import json
import os
import signal
import subprocess
import tarfile

from cluster import BINARY, Cluster, Stream, need_model, wait_passes, wait_until

CONFIG = {"pools": {"prompt": 1, "token": 2}, "kv": {"memory": "32MiB"}, "threads": 1, "transport": {"silence_ms": 60000}}
LOG = {"access_file": "access.log", "events_file": "events.jsonl", "format": "json"}
BODY = {"prompt": "Once upon a time", "temperature": 0, "ignore_eos": True, "max_tokens": 12}


def log_lines(cluster):
    """Returns the lines of all processes, which must be JSON."""
    return [json.loads(line) for line in cluster.logged().splitlines() if line.startswith("{")]


def access_lines(cluster, count, name="access.log"):
    """Waits until the access log has this many lines, and returns them."""
    path = os.path.join(cluster.folder.name, name)

    def lines():
        with open(path) as file:
            found = file.read().splitlines()
        assert len(found) <= count, found
        return found if len(found) == count else None

    return wait_until(lines, f"{count} lines of the access log", cluster=cluster)


def reload(cluster, **log):
    cluster.write("config.json", {**cluster.config, "log": {**cluster.config["log"], **log}})
    status, _, body = cluster.request("POST", "/admin/reload")
    assert status == 200, body


def check_one_id(cluster):
    status, headers, body = cluster.request("POST", "/v1/completions", BODY, {"x-request-id": "ticket-4711"})
    body = json.loads(body)
    assert status == 200 and headers["x-request-id"] == "ticket-4711" and body["id"] == "cmpl-ticket-4711", (headers, body)
    status, headers, body = cluster.request("POST", "/v1/completions", BODY, {"x-request-id": 'forged" 200'})
    drawn, body = headers["x-request-id"], json.loads(body)
    assert len(drawn) == 24 and body["id"] == f"cmpl-{drawn}", (headers, body)
    given, forged = (json.loads(line) for line in access_lines(cluster, 2))
    assert given["request"] == "ticket-4711" and forged["request"] == drawn, (given, forged)
    assert given["answer"] == "cmpl-ticket-4711" and given["finish"] == "length", given
    assert given["prompt_machine"] == "prompt-0" and given["token_machine"].startswith("token-"), given
    assert [given["prompt_tokens"], given["answer_tokens"]] == \
        [body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]], (given, body)
    assert abs(sum(given["phases"].values()) - given["seconds"]) < 1e-4, given
    assert 0 < given["first_token"] <= given["seconds"] and given["phases"]["prompt"] > 0, given
    with open(os.path.join(cluster.folder.name, "events.jsonl")) as file:
        wait_until(lambda: '"id":"ticket-4711"' in file.read() or file.seek(0), "the event log has the id", cluster=cluster)


def check_killed(cluster):
    """The line of an answer whose token machine died names both the wait and the machine that ended it."""
    access = len(access_lines(cluster, 2))
    cluster.hold("token-0")
    cluster.hold("token-1")
    stream = Stream(cluster, {**BODY, "stream_options": {"include_usage": True}})
    held = wait_until(lambda: [name for name in ("token-0", "token-1") if cluster.held(name)], "a token machine is held",
                      cluster=cluster)[0]
    other = "token-1" if held == "token-0" else "token-0"
    os.kill(cluster.children()[held], signal.SIGKILL)
    cluster.release(other)
    stream.end()
    assert stream.error is None, stream.error
    cluster.release()
    line = json.loads(access_lines(cluster, access + 1)[-1])
    assert line["resumed"] >= 1 and line["stream"] and line["answer_tokens"] == BODY["max_tokens"], line
    assert abs(sum(line["phases"].values()) - line["seconds"]) < 1e-4, line


def check_log(cluster):
    processes = {line["process"] for line in log_lines(cluster)}
    assert {"gateway", "prompt-0", "token-0", "token-1"} <= processes, processes
    assert {"info"} <= {line["level"] for line in log_lines(cluster)} <= {"info", "warn", "error"}
    reload(cluster, level="debug", format="json", access_file="-", slow_s=1)
    cluster.hold("token-0")
    cluster.hold("token-1")
    stream = Stream(cluster, BODY)
    name = wait_until(lambda: [name for name in ("token-0", "token-1") if cluster.held(name)], "a token machine is held",
                      cluster=cluster)[0]
    wait_until(lambda: stream.events == 1, "the first token is there", cluster=cluster)
    begin = cluster.metric("vllm:e2e_request_latency_seconds_count")
    signal.sigtimedwait([], 1.1)  # It is held for more than log/slow_s.
    cluster.release()
    stream.end()
    wait_until(lambda: cluster.metric("vllm:e2e_request_latency_seconds_count") > begin, "it has ended", cluster=cluster)
    slow = wait_until(lambda: [line["text"] for line in log_lines(cluster) if " took " in line.get("text", "")],
                      "a slow request is logged", cluster=cluster)
    assert "its answer was generated" in slow[0] and f"prompt-0 and {name}" in slow[0], slow
    access = wait_until(lambda: [line["access"] for line in log_lines(cluster) if "access" in line], "an access line",
                        cluster=cluster)
    assert access[-1]["answer_tokens"] == BODY["max_tokens"] and f"request {access[-1]['request']} took" in slow[0], access


def check_levels():
    """A reload changes the level in all processes; SIGUSR2 from `kill` changes it in one."""
    with Cluster({**CONFIG, "pools": {"prompt": ["p0"], "token": ["t0"]}, "machines": {"t0": {"stages": 2}},
                  "log": {"format": "json"}}) as cluster:
        def told(level):
            return {line["process"] for line in log_lines(cluster) if line.get("text") == f"SIGUSR2: the log level is {level} now"}

        reload(cluster, level="debug")
        wait_until(lambda: told("debug") == {"p0", "t0", "t0/0", "t0/1"}, "all processes have the new level", cluster=cluster)
        reload(cluster, level="warn")
        wait_until(lambda: told("warn") == {"p0", "t0", "t0/0", "t0/1"}, "all processes have the level warn", cluster=cluster)
        debug = len([line for line in log_lines(cluster) if line.get("text", "").endswith("the log level is debug now")])
        os.kill(cluster.children()["p0"], signal.SIGUSR2)
        wait_until(lambda: len([line for line in log_lines(cluster)
                                if line.get("text", "").endswith("the log level is debug now")]) == debug + 1,
                   "one process has the level debug", cluster=cluster)
        os.kill(cluster.children()["p0"], signal.SIGUSR2)
        wait_until(lambda: told("info") == {"p0"}, "it has the level of its start", cluster=cluster)


def check_full_disk(cluster):
    reload(cluster, access_file="/dev/full", format="text")
    for _ in range(3):
        cluster.post("/v1/completions", BODY)
    wait_passes(lambda: check_dropped(cluster))
    cluster.post("/v1/completions", BODY)
    assert cluster.logged().count("log/access_file loses lines: No space left on device") == 1, cluster.logged()
    reload(cluster, access_file="text.log", format="text")
    cluster.post("/v1/completions", BODY)
    line = access_lines(cluster, 1, "text.log")[0]
    assert " 200 /v1/completions client=127.0.0.1:" in line and " finish=length " in line and " decode=" in line, line


def check_dropped(cluster):
    assert cluster.metric("cleave_access_lines_dropped_total") == 3


def run(*arguments, status=0):
    done = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
                          check=False)
    assert done.returncode == status, (arguments, done)
    return done.stdout + done.stderr


def check_life(cluster, where):
    """`cleave requests` without any log: the list, and the life of a request that lost its machine."""
    cluster.hold("token-0")
    cluster.hold("token-1")
    headers, cluster.headers = cluster.headers, {**cluster.headers, "x-request-id": "life-1"}
    stream = Stream(cluster, BODY)
    held = wait_until(lambda: [name for name in ("token-0", "token-1") if cluster.held(name)], "a token machine is held",
                      cluster=cluster)[0]
    cluster.headers = headers
    row = next(line for line in run("requests", *where).splitlines() if " life-1 " in line)
    assert held in row and " 1 " in row, row
    assert '"open": true' in run("requests", "life-1", "--json", *where)
    os.kill(cluster.children()[held], signal.SIGKILL)
    other = "token-1" if held == "token-0" else "token-0"
    cluster.release(other)
    stream.end()
    cluster.release()
    life = run("requests", "cmpl-life-1", *where)
    for part in ("request life-1, arrived at ", ": length\n", f"routed      prompt on prompt-0, answer on {held}",
                 "first_token ", "resuming    lost after ", f"routed      prompt on prompt-0, answer on {other}",
                 "  answer: cmpl-life-1", f"answer tokens: {BODY['max_tokens']}, resumed: "):
        assert part in life, (part, life)
    number = json.loads(run("requests", "life-1", "--json", *where))[0]["requests"][0]["machine_request"]
    assert "request life-1, " in run("requests", number, *where)
    assert "no gateway has the request never-seen" in run("requests", "never-seen", *where, status=1)
    decisions = json.loads(cluster.request("GET", "/admin/decisions")[2])
    assert {"machine": 0, "name": "prompt-0"} in decisions["machines"], decisions
    assert any(line.get("id") == "life-1" for line in decisions["events"]), decisions
    assert {"arrived", "ended", "machine_down"} <= {line.get("event") for line in decisions["events"]}, decisions


def check_dump(cluster):
    cluster.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: "SIGUSR1: that was all" in cluster.logged(), "the dump is whole", cluster=cluster)
    lines = cluster.logged().splitlines()
    dumped = [json.loads(line.split(": request: ", 1)[1]) for line in lines if ": request: " in line]
    assert any(line["request"] == "life-1" and line["resumed"] >= 1 and line["events"] for line in dumped), dumped
    assert any(': decision: {"t":' in line for line in lines), lines
    os.kill(cluster.children()["prompt-0"], signal.SIGUSR1)  # It ends no machine.
    cluster.post("/v1/completions", BODY)


def check_bundle(cluster, where):
    secret = "a prompt that stays private"
    cluster.post("/v1/completions", {**BODY, "prompt": secret})
    path = os.path.join(cluster.folder.name, "bundle.tar")
    with open(cluster.log_path, "a") as file:
        file.write("password, not a line of a log\n")
    assert "log of 1 gateway" in run("bundle", path, *where)
    assert os.stat(path).st_mode & 0o777 == 0o600
    with open(path, "rb") as file:
        data = file.read()
    for hidden in (KEY, secret, CLUSTER_KEY):
        assert hidden.encode() not in data, hidden
    with tarfile.open(path) as tar:
        files = {member.name.removeprefix("cleave-bundle/"): tar.extractfile(member).read().decode()
                 for member in tar.getmembers()}
    host = {name: files.pop(name) for name in list(files) if name.startswith("host/")}
    ours = [text for text in host.values() if "token-0" in text]  # Other clusters may run on this host.
    assert any(" prompt-0: " in text and " gateway: " in text for text in ours), host
    assert not any("not a line of a log" in text for text in host.values()), host
    assert set(files) == {"about.txt"} | {f"gateway-1/{name}" for name in ("state.json", "config.json", "metrics.txt",
                                                                          "requests.json", "decisions.json", "log.txt")}
    assert json.loads(files["gateway-1/state.json"])["ready"] and "cleave " in files["about.txt"]
    assert json.loads(files["gateway-1/config.json"])["server"]["api_keys_file"] == "keys.json"
    assert any(line["request"] == "life-1" and line["events"]
               for line in json.loads(files["gateway-1/requests.json"])["requests"])
    assert json.loads(files["gateway-1/decisions.json"])["events"] and "vllm:" in files["gateway-1/metrics.txt"]
    assert "gateway: " in files["gateway-1/log.txt"], files["gateway-1/log.txt"]
    assert "File exists" in run("bundle", path, *where, status=1)
    lost = os.path.join(cluster.folder.name, "lost.tar")
    assert "state.json" in run("bundle", lost, "--socket", "/nowhere", status=1)


KEY = "sk-operator-0123456789"
CLUSTER_KEY = "c0ffee" * 12
KEYS = {"keys": [{"name": "operator", "key": KEY, "admin": True}]}

need_model()
with Cluster({**CONFIG, "log": LOG}, gates=True) as cluster:
    check_one_id(cluster)
    check_killed(cluster)
    check_log(cluster)
    check_full_disk(cluster)
check_levels()
with Cluster({**CONFIG, "http": {"listen": "127.0.0.1:0", "admin_socket": "admin.sock"},
              "server": {"api_keys_file": "keys.json"}, "cluster": {"key_file": "cluster.key"}}, gates=True, ready=False,
             files={"keys.json": KEYS, "cluster.key": CLUSTER_KEY + "\n"}) as cluster:
    cluster.wait_ready(300)
    cluster.headers["Authorization"] = f"Bearer {KEY}"
    socket = ["--socket", os.path.join(cluster.folder.name, "admin.sock")]
    check_life(cluster, socket)
    check_dump(cluster)
    check_bundle(cluster, socket)
