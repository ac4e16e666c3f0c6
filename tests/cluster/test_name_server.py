"""Goal: a name server that does not answer delays nothing else: a gateway that cannot look up one machine's host still
serves with the other machines, and sends its heartbeats.

Method: a network namespace with a name server that reads queries and answers none. A machine of the cluster has a host
name. Connections count as silent after one second; a look-up that blocked the gateway would take several.
"""

import os
import socket
import subprocess
import sys
import tempfile
import threading

from cluster import MODEL, Cluster, need_model, skip, wait_until
from namespaces import Namespaces

KEY = "a cluster key of more than 32 bytes\n"
CONFIG = {"model": MODEL, "pools": {"prompt": ["p0", "far"], "token": ["t0"]}, "threads": 1, "kv": {"memory": "32MiB"},
          "machines": {"far": {"address": "nowhere.example:7400", "local": False}},
          "cluster": {"key_file": "cluster.key"},
          "transport": {"heartbeat_ms": 200, "silence_ms": 1000, "connect_ms": 2000}}


def outside():
    need_model()
    with Namespaces(["A"], []) as spaces:
        sys.exit(spaces.run_inside("A", "inside"))


def name_server_use():
    """Makes 127.0.0.1 the name server of this mount namespace."""
    path = os.path.realpath("/etc/resolv.conf")
    if not os.path.exists(path):
        return  # 127.0.0.1 is asked anyway.
    with tempfile.NamedTemporaryFile("w", suffix=".conf", delete=False) as file:
        file.write("nameserver 127.0.0.1\n")
    os.chmod(file.name, 0o644)
    subprocess.run(["mount", "--bind", file.name, path], check=True)


def inside():
    name_server_use()
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    queries = []

    def read():
        while True:
            queries.append(server.recv(512))
    threading.Thread(target=read, daemon=True).start()
    with Cluster(CONFIG, files={"cluster.key": KEY}, ready=False) as cluster:
        cluster.wait_ready(300)
        wait_until(lambda: cluster.logged().count("machine far cannot be reached") >= 1, "far is reported", cluster=cluster)
        if not queries:
            skip("names are not looked up at 127.0.0.1 here")
        wait_until(lambda: cluster.metric("cleave_machine_up", machine="p0") == 1 and
                   cluster.metric("cleave_machine_up", machine="t0") == 1, "p0 and t0 are up", cluster=cluster)
        asked = len(queries)
        body = {"prompt": "Once", "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        answers = {cluster.post("/v1/completions", body)["choices"][0]["text"]}
        wait_until(lambda: len(queries) >= asked + 6, "more look-ups", cluster=cluster)
        answers.add(cluster.post("/v1/completions", body)["choices"][0]["text"])
        assert len(answers) == 1, answers
        said = cluster.logged()
        assert "silent for" not in said and "is down" not in said, said
    print(f"{len(queries)} queries without an answer, and no connection was lost")


if sys.argv[1:] == ["inside"]:
    inside()
else:
    outside()
