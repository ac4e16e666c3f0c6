"""Goal: quotas of a day hold over a kill of the gateway and over reloads, with OpenAI's error; a key that has expired gets
a 401 of its own, after a warning; a secret is rotated without a refused request; a key file with 10,000 keys is replaced
while requests run. Method: a cluster of real processes, whose key file the test replaces, and whose gateway it kills."""

import datetime
import json
import os
import signal
import tempfile
import threading

from cluster import Cluster, need_model, wait_until

TEAM, NEXT, ADMIN = "sk-team-0123456789abc", "sk-next-0123456789abc", "sk-admin-0123456789abc"
BODY = {"prompt": "Once upon a time", "max_tokens": 4, "ignore_eos": True}


def date(seconds):
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def keys(*others, **team):
    return {"keys": [{"name": "admin", "key": ADMIN, "admin": True}, {"name": "team", **({"key": TEAM} | team)}, *others]}


def ask(cluster, key=TEAM, body=BODY):
    status, headers, data = cluster.request("POST", "/v1/completions", body, {"Authorization": f"Bearer {key}"})
    return status, headers, json.loads(data)


def admin(cluster, path="/admin/reload", method="POST"):
    return cluster.request(method, path, None, {"Authorization": f"Bearer {ADMIN}"})


def replace(cluster, *others, **team):
    cluster.write("keys.json", keys(*others, **team))
    status, _, data = admin(cluster)
    assert status == 200, data


def metric(cluster, name):
    page = admin(cluster, "/metrics", "GET")[2].decode()
    return [line for line in page.splitlines() if line.startswith(name + "{") and 'key="team"' in line]


def check_quota(folder):
    config = {"server": {"api_keys_file": "keys.json"}, "log": {"ledger_file": os.path.join(folder, "usage.jsonl")}}
    with Cluster(config, files={"keys.json": keys(requests_per_day=3)}) as cluster:
        for _ in range(2):
            status, _, said = ask(cluster)
            assert status == 200, said
        used = 2 * (said["usage"]["prompt_tokens"] + said["usage"]["completion_tokens"])
        wait_until(lambda: len(open(config["log"]["ledger_file"]).readlines()) == 2, "the ledger has both lines")
        cluster.process.send_signal(signal.SIGKILL)
        cluster.process.wait()
    with Cluster(config, files={"keys.json": keys(requests_per_day=3)}) as cluster:
        assert metric(cluster, "cleave_key_day_requests")[0].endswith(" 2"), metric(cluster, "cleave_key_day_requests")
        assert metric(cluster, "cleave_key_day_tokens")[0].endswith(f" {used}"), used
        assert ask(cluster)[0] == 200
        for _ in range(2):  # Reading the file again gives no new quota.
            status, headers, said = ask(cluster)
            error = said["error"]
            assert status == 429 and error["type"] == error["code"] == "insufficient_quota", said
            assert 0 < int(headers["Retry-After"]) <= 86400 and "3 requests a day" in error["message"], (headers, said)
            replace(cluster, requests_per_day=3)
        replace(cluster, requests_per_day=0, tokens_per_day=used)
        assert "tokens a day" in ask(cluster)[2]["error"]["message"]
        replace(cluster, requests_per_minute=2)
        for left in ("1", "0"):
            status, headers, _ = ask(cluster)
            assert status == 200 and headers["x-ratelimit-limit-requests"] == "2", headers
            assert headers["x-ratelimit-remaining-requests"] == left, headers
        status, headers, said = ask(cluster)
        assert status == 429 and said["error"]["code"] == "rate_limit_exceeded", said
        assert 1 <= int(headers["Retry-After"]) <= 31, headers


def check_expiry(cluster):
    replace(cluster, expires=date(3 * 86400))
    assert ask(cluster)[0] == 200 and "API key team expires within 7 days: " in cluster.logged()
    assert len(metric(cluster, "cleave_key_expiry_timestamp_seconds")) == 1
    wait_until(lambda: [p for p in json.loads(admin(cluster, "/admin/state", "GET")[2])["problems"]
                        if p["name"] == "CleaveKeyExpires" and p["what"] == "API key team expires in 3.0 days"],
               "the gateway lists the problem", cluster=cluster)
    replace(cluster, expires=date(-5))
    status, _, said = ask(cluster)
    assert status == 401 and said["error"]["code"] == "api_key_expired", said
    assert "API key team has expired" in cluster.logged() and "the API key team expired at 20" in said["error"]["message"]
    cluster.write("keys.json", keys(expires="next year"))
    status, _, data = admin(cluster)
    assert status == 400 and b"/keys/1/expires: want a date and time" in data, data
    replace(cluster)
    assert ask(cluster)[0] == 200 and not metric(cluster, "cleave_key_expiry_timestamp_seconds")


def check_rotation(cluster):
    """Clients change from the old to the new secret at any time between the two reloads."""
    failed, stop, secret = [], threading.Event(), [TEAM]

    def client():
        while not stop.is_set():
            status, _, said = ask(cluster, secret[0])
            if status != 200:
                failed.append(said)

    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    others = [{"name": f"other-{i}", "key": f"sk-other-{i:08}-0123456789"} for i in range(9998)]
    replace(cluster, *others, key=[TEAM, NEXT])
    secret[0] = NEXT
    for _ in range(8):  # All clients have used the new secret.
        assert ask(cluster, NEXT)[0] == 200 and ask(cluster, TEAM)[0] == 200
    assert ask(cluster, "sk-other-00009997-0123456789")[0] == 200
    stop.set()
    for thread in threads:
        thread.join(300)
    replace(cluster, key=NEXT)
    assert not failed, failed[0]
    assert ask(cluster, NEXT)[0] == 200
    status, _, said = ask(cluster, TEAM)
    assert status == 401 and said["error"]["code"] == "invalid_api_key", said
    assert ask(cluster, "sk-other-00009997-0123456789")[0] == 401


need_model()
with tempfile.TemporaryDirectory(prefix="cleave-test-") as scratch:
    check_quota(scratch)
with Cluster({"server": {"api_keys_file": "keys.json"}}, files={"keys.json": keys()}) as shared:
    check_expiry(shared)
    check_rotation(shared)
