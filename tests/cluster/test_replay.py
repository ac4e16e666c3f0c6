"""Goal: `cleave replay` against a real cluster ends without a failure and with exact token counts, for prompts as token
ids, text and messages, and afterwards every block is free. Requests with equal hash ids share the beginnings of their
prompts, so that the prefix cache finds them.

Method: five seconds of the Azure conversation trace, lengths scaled to a small machine; short synthetic traces; a
Mooncake trace of four requests, three of which begin alike.
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


with Cluster({"kv": {"memory": "192MiB"}}) as cluster, tempfile.TemporaryDirectory() as folder:
    check_prefixes(cluster, folder)
    check_azure(cluster, folder)
    check_prompts(cluster)
