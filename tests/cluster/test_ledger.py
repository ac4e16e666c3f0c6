"""Goal: the usage ledger has one line for each answer, with exactly the tokens that its client counted, also for answers
that a client left or that a kill of the gateway cut; it survives rotation and a full disk. Method: clients with two API
keys count the `usage` and the events that they receive; the gateway is killed while streams are held at a gate of their
token machine, and its successor completes the ledger."""

import json
import os
import resource
import signal
import tempfile
import threading

from cluster import Cluster, Stream, need_model, wait_until

KEYS = {"keys": [{"name": name, "key": f"sk-{name}-0123456789abc", "admin": name == "alpha"} for name in ("alpha", "beta")]}
BODIES = [
    ("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 9}),
    ("/v1/completions", {"prompt": ["One", "Two and three"], "max_tokens": 4, "n": 2, "seed": 7, "temperature": 1}),
    ("/v1/completions", {"prompt": "Count", "max_tokens": 0, "echo": True, "logprobs": 1}),
    ("/v1/completions", {"prompt": "a b c d e f g", "max_tokens": 12, "best_of": 3, "temperature": 1}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "What is gravity?"}], "max_tokens": 8}),
    ("/v1/completions", {"prompt": "The " * 40, "max_tokens": 6, "stream": True}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 7, "stream": True}),
]


def key_header(name):
    return {"Authorization": f"Bearer sk-{name}-0123456789abc"}


def ledger_lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file if line.endswith("\n")]  # The last line may be half written.


def tokens(line):
    return [line["prompt_tokens"], line["cached_tokens"], line["answer_tokens"]]


def counted(cluster, path, body, name):
    """Returns (id, tokens) of an answer, as its client counts them."""
    if body.get("stream"):
        body = {**body, "stream_options": {"include_usage": True}}
    status, _, data = cluster.request("POST", path, body, key_header(name))
    assert status == 200, (body, data)
    last = json.loads(data) if not body.get("stream") else \
        json.loads([line for line in data.decode().split("\n\n") if line.startswith("data: {")][-1][6:])
    usage = last["usage"]
    return last["id"], [usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], usage["completion_tokens"]]


def check_answers(cluster, path):
    """Several clients at a time; every answer is in the ledger once, with its key."""
    want, lock = {}, threading.Lock()

    def client(name, turn):
        for i in range(2 * len(BODIES)):
            answer, used = counted(cluster, *BODIES[(i + turn) % len(BODIES)], name)
            with lock:
                want[answer] = (name, used)

    threads = [threading.Thread(target=client, args=(name, turn)) for turn in (0, 3) for name in ("alpha", "beta")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(want) == 8 * len(BODIES), len(want)
    lines = wait_until(lambda: len(found := ledger_lines(path)) >= len(want) and found, "all lines are written",
                       cluster=cluster)
    assert len(lines) == len(want), (len(lines), len(want))
    for line in lines:
        assert (line["key"], tokens(line)) == want[line["answer"]], (line, want[line["answer"]])
        assert line["status"] == 200 and line["finish"] in ("stop", "length") and line["began"] <= line["ended"], line
        assert line["answer"].endswith(line["request"]), line
    numbers = [line["number"] for line in lines]
    assert len(set(numbers)) == len(numbers), numbers
    # A refused request is no answer.
    assert cluster.request("POST", "/v1/completions", {"prompt": "x", "max_tokens": -3})[0] == 400
    return len(lines)


def held(cluster, count):
    """Returns streams that have received all tokens that there are, while their token machine is held."""
    before = cluster.metric("vllm:generation_tokens_total")
    streams = cluster.held_streams("token-0", [{"prompt": f"Story {i} of", "ignore_eos": True, "max_tokens": 60}
                                               for i in range(count)])
    wait_until(lambda: sum(stream.events for stream in streams) == cluster.metric("vllm:generation_tokens_total") - before,
               "the clients have all tokens", cluster=cluster)
    return streams


def check_left(cluster, path, lines):
    """A client that leaves pays what it has received."""
    connection = cluster.connect()
    connection.request("POST", "/v1/completions", json.dumps({"prompt": "I leave", "ignore_eos": True, "max_tokens": 60,
                                                              "stream": True}), cluster.headers)
    cluster.hold("token-0")
    reply = connection.getresponse()
    assert reply.status == 200
    assert reply.readline().startswith(b"data: ")
    cluster.wait_held("token-0")
    had = cluster.metric("vllm:generation_tokens_total")
    connection.close()
    reply.close()
    found = wait_until(lambda: len(found := ledger_lines(path)) > lines and found, "the line of the client that left",
                       cluster=cluster)
    assert found[-1]["finish"] == "left" and 1 <= found[-1]["answer_tokens"] <= had and found[-1]["prompt_tokens"] > 0, found
    cluster.release()
    return len(found)


def check_resumed(cluster, path):
    """Answers that resume after the death of their token machine pay each token once."""
    bodies = [{"prompt": f"Chapter {i}:", "ignore_eos": True, "max_tokens": 30, "stream_options": {"include_usage": True}}
              for i in range(4)]
    streams = cluster.held_streams("token-0", bodies)
    os.kill(cluster.children()["token-0"], signal.SIGKILL)
    cluster.release()
    for stream in streams:
        assert stream.end().error is None, stream.error
    found = wait_until(lambda: len(found := ledger_lines(path)) >= 4 and found, "the lines of the resumed answers", cluster=cluster)
    assert len(found) == 4 and all(line["answer_tokens"] == 30 and line["finish"] == "length" for line in found), found
    assert cluster.metric("cleave_requests_resumed_total") >= 4


def check_killed(cluster, path, lines, config):
    streams = held(cluster, 3)
    cluster.process.send_signal(signal.SIGKILL)
    cluster.process.wait()
    for stream in streams:
        stream.end()
        assert stream.error is not None
    with open(path, "a") as file:
        file.write('{"number":999999,"torn')  # As if the host had crashed, too.
    with Cluster(config, files={"keys.json": KEYS}) as after:
        after.headers.update(key_header("alpha"))
        text = wait_until(lambda: (read := open(path).read()).count('"killed"') == 3 and read, "the lines of the killed answers",
                          cluster=after)
        assert "3 answers of a process that was killed" in after.logged() and "was torn (22 bytes)" in after.logged()
        rows = text.splitlines()
        assert rows[lines] == '{"number":999999,"torn' and json.loads(rows[lines + 1]) == {"torn": 22}, rows
        killed = [json.loads(row) for row in rows[lines + 2:]]
        assert sorted(line["answer_tokens"] for line in killed) == sorted(stream.events for stream in streams), killed
        assert all(line["finish"] == "killed" and line["key"] == "alpha" and line["prompt_tokens"] > 0 and
                   "ended" not in line for line in killed), killed
        answer, used = counted(after, *BODIES[0], "beta")
        line = wait_until(lambda: [line for line in map(json.loads, open(path).read().splitlines()[lines + 2:])
                                   if line["answer"] == answer], "a new line", cluster=after)[0]
        assert tokens(line) == used and line["number"] > max(other["number"] for other in killed), line
        check_rotation(after, path)


def check_rotation(cluster, path):
    os.rename(path, path + ".1")
    assert cluster.request("POST", "/admin/reload/dry-run")[0] == 200  # Changes nothing: lines are written to the old file.
    answer, _ = counted(cluster, *BODIES[0], "beta")
    wait_until(lambda: answer in open(path + ".1").read(), "a line of the old file", cluster=cluster)
    assert cluster.request("POST", "/admin/reload")[0] == 200
    answer, used = counted(cluster, *BODIES[0], "beta")
    line = wait_until(lambda: os.path.exists(path) and ledger_lines(path), "a line of the new file", cluster=cluster)[0]
    assert line["answer"] == answer and tokens(line) == used, line
    # A full disk: answers go on, their lines wait, and the log says so once.
    os.unlink(path)
    os.symlink("/dev/full", path)
    assert cluster.request("POST", "/admin/reload")[0] == 200
    want = [counted(cluster, *BODIES[0], "beta") for _ in range(3)]
    wait_until(lambda: cluster.metric("cleave_ledger_lines_waiting") == 3, "the lines wait", cluster=cluster)
    wait_until(lambda: "log/ledger_file takes no lines: No space left" in cluster.logged(), "the log says so", cluster=cluster)
    os.unlink(path)
    assert cluster.request("POST", "/admin/reload")[0] == 200
    lines = wait_until(lambda: os.path.exists(path) and len(found := ledger_lines(path)) == 3 and found, "the lines follow",
                       cluster=cluster)
    assert [(line["answer"], tokens(line)) for line in lines] == want, (lines, want)
    assert cluster.logged().count("takes no lines") == 1 and cluster.metric("cleave_ledger_answers_lost_total") == 0
    # The same for a file at the limit of sizes (ulimit -f).
    limit = resource.prlimit(cluster.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(cluster.process.pid, resource.RLIMIT_FSIZE, (os.path.getsize(path), limit[1]))
    want.append(counted(cluster, *BODIES[0], "beta"))
    wait_until(lambda: cluster.metric("cleave_ledger_lines_waiting") == 1, "the line waits", cluster=cluster)
    resource.prlimit(cluster.process.pid, resource.RLIMIT_FSIZE, limit)
    wait_until(lambda: [(line["answer"], tokens(line)) for line in ledger_lines(path)] == want, "the line follows", cluster=cluster)


need_model()
with tempfile.TemporaryDirectory(prefix="cleave-test-") as folder:
    ledger = os.path.join(folder, "ledger.jsonl")
    CONFIG = {"pools": {"prompt": 1, "token": 1}, "kv": {"memory": "32MiB"}, "threads": 1,
              "transport": {"silence_ms": 60000}, "server": {"api_keys_file": "keys.json"}, "log": {"ledger_file": ledger}}
    with Cluster(CONFIG, gates=True, files={"keys.json": KEYS}) as cluster:
        cluster.headers.update(key_header("alpha"))
        count = check_answers(cluster, ledger)
        count = check_left(cluster, ledger, count)
        check_killed(cluster, ledger, count, CONFIG)
    # A cluster of its own: after the death, prompt-0 may help the token pool for a while.
    CONFIG["log"]["ledger_file"] = os.path.join(folder, "resumed.jsonl")
    with Cluster(CONFIG, gates=True, files={"keys.json": KEYS}) as cluster:
        cluster.headers.update(key_header("alpha"))
        check_resumed(cluster, CONFIG["log"]["ledger_file"])
