"""Goal: each panel of deploy/grafana/ shows data of a possible size while a cluster serves. Method: a real Prometheus reads
/metrics of a cluster with several pools, stages, TLS and two API keys under load. The queries of all panels are asked by
Prometheus' HTTP API until each has data. Without Prometheus (Debian: prometheus) the test is skipped."""

import glob
import json
import math
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from cluster import Cluster, free_ports, need_model, skip, wait_until

SOURCE = os.environ.get("CLEAVE_SOURCE", os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
KEYS = {"keys": [{"name": "team-a", "key": "sk-team-a-0123456789abcdef"}, {"name": "team-b", "key": "sk-team-b-0123456789abcdef"},
                 {"name": "operator", "key": "sk-operator-0123456789", "admin": True, "metrics": True}]}
# A cluster in which nothing is wrong has no data here.
EMPTY = {"Links down"}
# The greatest possible value of panels with these units.
MOST = {"percentunit": 1.5, "s": 1e9, "bytes": 1e13, "Bps": 1e12, "reqps": 1e5, "ops": 1e6, "short": 1e9, "none": 1e3}


def panels():
    """Yields (dashboard, panel's title, unit, query), with variables that select everything."""
    for path in sorted(glob.glob(os.path.join(SOURCE, "deploy/grafana/*.json"))):
        with open(path, encoding="utf-8") as file:
            dashboard = json.load(file)
        names = [variable["name"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                query = target["expr"].replace("$__rate_interval", "10s")
                for name in names:
                    query = query.replace(f"${name}", ".*")
                assert "$" not in query, query
                yield os.path.basename(path), panel["title"], panel["fieldConfig"]["defaults"]["unit"], query


class Prometheus:
    """A Prometheus that reads the gateway's metrics each second."""

    def __init__(self, cluster, folder):
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        config = {"global": {"scrape_interval": "1s"},
                  "scrape_configs": [{"job_name": "cleave", "scheme": "https", "tls_config": {"insecure_skip_verify": True},
                                      "authorization": {"credentials": KEYS["keys"][2]["key"]},
                                      "static_configs": [{"targets": [f"{cluster.host}:{cluster.port}"]}]}]}
        path = os.path.join(folder, "prometheus.json")  # YAML contains JSON.
        with open(path, "w") as file:
            json.dump(config, file)
        self.log = open(os.path.join(folder, "prometheus.log"), "w+")
        self.process = subprocess.Popen(["prometheus", f"--config.file={path}", f"--storage.tsdb.path={folder}/data",
                                         f"--web.listen-address={self.address}"], stdout=self.log, stderr=self.log)

    def ask(self, query):
        """Returns the values of the query's series now; None = Prometheus is not ready."""
        url = f"http://{self.address}/api/v1/query?" + urllib.parse.urlencode({"query": query})
        try:
            with urllib.request.urlopen(url, timeout=30) as reply:
                answer = json.load(reply)
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return None
            raise AssertionError(f"{query}: {error.read().decode()}") from error
        except OSError:
            assert self.process.poll() is None, open(self.log.name).read()[-2000:]
            return None
        return [float(series["value"][1]) for series in answer["data"]["result"]]

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self.log.close()


class Load(threading.Thread):
    """Sends requests of one API key, one after another, until it is stopped."""

    def __init__(self, cluster, number):
        super().__init__(daemon=True)
        self.cluster, self.number, self.done, self.error = cluster, number, False, None
        self.start()

    def run(self):
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEYS['keys'][self.number % 2]['key']}"}
        try:
            for index in range(10**9):
                if self.done:
                    return
                body = {"prompt": [index % 7 * 100 + k for k in range(40 + self.number * 30)], "max_tokens": 12,
                        "ignore_eos": True}
                assert self.cluster.request("POST", "/v1/completions", body, headers=headers)[0] == 200
                time.sleep(0.05)
        except Exception as error:  # pylint: disable=broad-except
            self.error = error


def check(prometheus, cluster, loads, seconds=200):
    """Asks the queries again until all have data. A value that is not a number (0 / 0) is no data."""
    open_queries, seen = list(panels()), {}
    assert len(open_queries) > 70, len(open_queries)

    def ask():
        for load in loads:
            assert load.error is None, load.error
        cluster.request("GET", "/no-such-page")  # For the panel of HTTP errors.
        for entry in list(open_queries):
            values = [value for value in prometheus.ask(entry[3]) or [] if math.isfinite(value)]
            if values:
                seen[entry] = values
                open_queries.remove(entry)
        return all(entry[1] in EMPTY for entry in open_queries)
    try:
        wait_until(ask, "each panel has data", seconds, cluster)
    finally:
        for entry in open_queries:
            print("no data:", *entry)
    for (dashboard, title, unit, query), values in seen.items():
        assert title not in EMPTY, (dashboard, title, values)
        assert all(0 <= value <= MOST[unit] for value in values), (dashboard, title, unit, values, query)
    print(f"{len(seen)} queries have data")


def main():
    if shutil.which("prometheus") is None:
        skip("there is no Prometheus (Debian: prometheus)")
    need_model()
    with tempfile.TemporaryDirectory(prefix="cleave-dashboards-") as folder:
        certificate, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "30", "-subj", "/CN=localhost",
                        "-keyout", key, "-out", certificate], check=True, capture_output=True)
        config = {"kv": {"memory": "32MiB", "tiers": {"memory": {"size": "64MiB"}}}, "threads": 1, "pools": {"prompt": 2, "token": 2},
                  "machines": {"token-1": {"stages": 2}},
                  "server": {"api_keys_file": "keys.json", "tls_certificate_file": certificate, "tls_key_file": key}}
        with Cluster(config, ready=False, files={"keys.json": KEYS}) as cluster:
            cluster.tls = ssl.create_default_context()
            cluster.tls.check_hostname, cluster.tls.verify_mode = False, ssl.CERT_NONE
            cluster.headers["Authorization"] = f"Bearer {KEYS['keys'][2]['key']}"
            cluster.wait_ready(300)
            prometheus = Prometheus(cluster, folder)
            loads = [Load(cluster, number) for number in range(4)]
            try:
                check(prometheus, cluster, loads)
                if len(sys.argv) > 1:  # For a look at the panels: leave the cluster running for this number of seconds.
                    print(f"http://{prometheus.address}", flush=True)
                    time.sleep(float(sys.argv[1]))
            finally:
                for load in loads:
                    load.done = True
                for load in loads:
                    load.join(60)
                prometheus.close()


main()
