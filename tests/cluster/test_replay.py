"""Goal: `cleave replay` against a real cluster ends without a failure and with exact token counts, for prompts as token
ids, text and messages, and afterwards every block is free. Requests with equal hash ids share the beginnings of their
prompts, so that the prefix cache finds them.

Method: five seconds of the Azure conversation trace, lengths scaled to a small machine; short synthetic traces; a
Mooncake trace of four requests, three of which begin alike. The event log of a replay is made into a trace again, and
compared with the trace that was replayed.
"""

import csv
import json
import os
import subprocess
import tempfile

from cluster import BINARY, Cluster, DATA, need_model, wait_until

need_model()
trace = os.path.join(DATA, "traces", "azure_conv_10s.csv")
LAW = "poisson:rate=20,requests=8,prompt=uniform:60:200,output=fixed:4"


def replay(cluster, trace, *options):
    """Runs one replay, and returns its JSON."""
    done = subprocess.run([BINARY, "replay", trace, "--url", f"http://{cluster.host}:{cluster.port}", "--json",
                           *options], capture_output=True, text=True, timeout=800)
    print(done.stderr[-3000:])
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:], done.stdout[-2000:])
    return json.loads(done.stdout)


def check_azure(cluster, folder):
    rows = os.path.join(folder, "rows.csv")
    report = replay(cluster, trace, "--duration", "5", "--rate-scale", "2",
                    "--length-scale", "0.1", "--max-context", "2048", "--out", rows)
    with open(rows) as file:
        table = list(csv.DictReader(file))
    assert len(table) == report["summary"]["done"] > 0, report["summary"]
    assert {row["outcome"] for row in table} == {"done"}
    assert all(0 < float(row["ttft_s"]) <= float(row["e2e_s"]) for row in table), table
    cluster.wait_all_free()


def check_prompts(cluster):
    """The counts in the server's usage are those of the trace. Otherwise replay exits with 1."""
    for options, prompts in ((("--prompt", "text"), "text of one-token words, counted"),
                          (("--api", "chat"), "messages of one-token words, counted"), ((), "token ids")):
        report = replay(cluster, LAW, *options)
        assert report["summary"]["done"] == 8 and report["summary"]["without_usage"] == 0, report["summary"]
        assert report["options"]["prompts"].startswith(prompts), report["options"]


def check_prefixes(cluster, folder):
    """Rows 2 and 3 begin with two blocks and one block of the first row (128 tokens each at this scale), row 4 with
    none. The first row is sent alone, so that its KV is cached for the others. These must be the cluster's first
    requests."""
    path = os.path.join(folder, "mooncake.jsonl")
    with open(path, "w") as file:
        for i, ids in enumerate(([1, 2, 3], [1, 2, 4], [1, 5, 6], [7, 8, 9])):
            print(json.dumps({"timestamp": 2000 if i > 0 else 0, "input_length": 1536, "output_length": 8, "hash_ids": ids}),
                  file=file)
    first = replay(cluster, path, "--length-scale", "0.25", "--requests", "1")
    rest = replay(cluster, path, "--length-scale", "0.25", "--start", "1", "--rate-scale", "10")
    assert first["summary"]["done"] == 1 and rest["summary"]["done"] == 3, (first["summary"], rest["summary"])

    def hits():
        return cluster.metric("cleave_prefix_cache_hits_tokens_total")
    least = 3 * 128 - 3 * 32  # Only whole blocks of the KV-cache are found.
    wait_until(lambda: hits() >= least, f"{least} tokens are found in the prefix cache", cluster=cluster)
    assert hits() <= 3 * 128, hits()


def check_served(cluster, folder):
    """The event log of a replay gives the replayed trace back: tokens, order, and which requests share which blocks.
    Each request arrives after it was sent and before its first token; the largest difference is printed."""
    ids = [[1, 2, 3], [4], [1, 2, 5], [1, 6, 7], [], [4, 8]]
    first = [{"timestamp": 40 * i, "input_length": 128 * len(blocks) + 17 + i, "output_length": 2 + i % 5, "hash_ids": blocks,
              "block_tokens": 128} for i, blocks in enumerate(2 * ids)]
    paths = [os.path.join(folder, name) for name in ("first.jsonl", "served.jsonl", "rows.csv")]
    with open(paths[0], "w") as file:
        file.write("".join(json.dumps(row) + "\n" for row in first))
    log = os.path.join(cluster.folder.name, "events.jsonl")
    os.rename(log, log + ".1")  # Only the requests of this replay are wanted.
    status, _, reply = cluster.request("POST", "/admin/reload")
    assert status == 200, reply
    before = cluster.metric("cleave_model_requests_total")
    report = replay(cluster, paths[0], "--out", paths[2])
    assert report["summary"]["done"] == len(first), report["summary"]
    cluster.wait_all_free()
    began = cluster.metric("cleave_model_requests_total") - before  # With the one that asks for token ids, if any.
    wait_until(lambda: open(log).read().count('"event":"ended"') == began, "all ends are in the log", cluster=cluster)
    done = subprocess.run([BINARY, "trace", "--from-events", log, "--write", paths[1]], capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout, done.stderr)
    served = [json.loads(line) for line in open(paths[1])]
    probes = len(served) - len(first)  # The replay first asks whether the server takes token ids.
    assert 0 <= probes <= 1 and f"{len(served)} requests in" in done.stdout, (served, done.stdout)
    served = served[probes:]
    assert [row["request_id"] for row in served] == list(range(probes, probes + len(first))), served
    for name in ("input_length", "output_length"):
        assert [row[name] for row in served] == [row[name] for row in first], (name, served)
    assert [len(row.get("hash_ids", [])) for row in served] == [len(row["hash_ids"]) for row in first], served
    for row, other in ((a, b) for a in range(len(first)) for b in range(a)):
        same = [sum(x == y for x, y in zip(rows[row].get("hash_ids", []), rows[other].get("hash_ids", [])))
                for rows in (first, served)]
        assert same[0] == same[1], (row, other, same)
    with open(paths[2]) as file:
        rows = list(csv.DictReader(file))
    late = [(row["timestamp"] - served[0]["timestamp"] - wanted["timestamp"]) / 1000 for row, wanted in zip(served, first)]
    print(f"arrivals differ by up to {1000 * max(abs(s) for s in late):.3f} ms")
    slowest = max(float(row["ttft_s"]) for row in rows)  # From the due time, so it includes a late sender.
    assert all(abs(s) <= slowest for s in late), (late, slowest)
    again = subprocess.run([BINARY, "trace", paths[1]], capture_output=True, text=True)
    assert again.returncode == 0 and "mooncake" in again.stdout, (again.stdout, again.stderr)


with Cluster({"kv": {"memory": "192MiB"}, "scheduler": {"policy": "prefix"},
              "log": {"events_file": "events.jsonl"}}) as cluster, tempfile.TemporaryDirectory() as folder:
    check_prefixes(cluster, folder)
    check_azure(cluster, folder)
    check_prompts(cluster)
    check_served(cluster, folder)
