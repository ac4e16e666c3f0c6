"""Goal: a collector of OpenTelemetry gets the spans of each request: one of the request, in the trace of its client, and one
of each phase inside it, with its machine; a collector that is gone or refuses harms nothing. Method: real processes, and an
HTTP server of this test as the collector."""

import http.server
import json
import threading

from cluster import Cluster, need_model, wait_until

BODY = {"prompt": "Once upon a time", "temperature": 0, "ignore_eos": True, "max_tokens": 9}
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector(http.server.BaseHTTPRequestHandler):
    spans, status = [], 200

    def do_POST(self):
        assert self.headers["Content-Type"] == "application/json" and self.path == "/v1/traces"
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if Collector.status == 200:
            assert {"key": "service.name", "value": {"stringValue": "cleave"}} in body["resourceSpans"][0]["resource"]["attributes"]
            Collector.spans += body["resourceSpans"][0]["scopeSpans"][0]["spans"]
        self.send_response(Collector.status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *arguments):
        pass


def attributes(span):
    return {entry["key"]: entry["value"].get("stringValue") or int(entry["value"]["intValue"]) for entry in span["attributes"]}


def spans_of(cluster, request):
    """Waits for the spans of the request with this id. Returns the request's span and those of its phases."""
    root = wait_until(lambda: [span for span in Collector.spans if attributes(span).get("cleave.request") == request],
                      f"spans of {request}", cluster=cluster)[0]
    return root, [span for span in Collector.spans if span.get("parentSpanId") == root["spanId"]]


def check_spans(cluster):
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "traced"}
    status, _, body = cluster.request("POST", "/v1/completions", BODY, headers)
    usage = json.loads(body)["usage"]
    root, phases = spans_of(cluster, "traced")
    assert root["traceId"] == TRACE and root["parentSpanId"] == PARENT and root["kind"] == 2, root
    assert root["name"] == "/v1/completions" and root["status"]["code"] == 0, root
    said = attributes(root)
    assert said["http.response.status_code"] == status == 200 and said["gen_ai.response.id"] == "cmpl-traced", said
    assert [said["gen_ai.usage.input_tokens"], said["gen_ai.usage.output_tokens"]] == \
        [usage["prompt_tokens"], usage["completion_tokens"]], said
    ids = [span["spanId"] for span in [root, *phases]]
    assert len(set(ids)) == len(ids) and all(len(each) == 16 and int(each, 16) > 0 for each in ids), ids
    names = [span["name"] for span in phases]
    assert names == [name for name in ("read", "text", "queue", "reserve", "prompt", "transfer", "decode", "send")
                     if name in names] and {"queue", "prompt", "decode"} <= set(names), names
    at = int(root["startTimeUnixNano"])
    for span in phases:  # One after the other, from the request's start to its end.
        assert span["traceId"] == TRACE and int(span["startTimeUnixNano"]) == at <= int(span["endTimeUnixNano"]), span
        at = int(span["endTimeUnixNano"])
    assert at == int(root["endTimeUnixNano"]), (root, phases)
    machines = {span["name"]: attributes(span).get("cleave.machine") for span in phases}
    assert machines["prompt"] == "prompt-0" and machines["decode"] == "token-0" and machines["queue"] is None, machines


def check_which(cluster):
    """Without a traceparent a request has a trace of its own; a trace that is not recorded has no spans."""
    cluster.request("POST", "/v1/completions", BODY,
                    {"traceparent": f"00-{TRACE}-{PARENT}-00", "x-request-id": "unwanted"})
    cluster.request("POST", "/v1/completions", {"prompt": "x", "max_tokens": -5}, {"x-request-id": "refused"})
    cluster.request("POST", "/v1/completions", BODY, {"x-request-id": "own"})
    root, phases = spans_of(cluster, "own")
    assert len(root["traceId"]) == 32 and root["traceId"] != TRACE and "parentSpanId" not in root and phases, root
    refused, _ = spans_of(cluster, "refused")
    assert attributes(refused)["http.response.status_code"] == 400 and refused["traceId"] != root["traceId"], refused
    assert not any(attributes(span).get("cleave.request") == "unwanted" for span in Collector.spans), Collector.spans


def check_lost(cluster, server):
    Collector.status = 503
    cluster.post("/v1/completions", BODY)
    wait_until(lambda: cluster.metric("cleave_spans_dropped_total") > 0, "lost spans are counted", cluster=cluster)
    server.shutdown()
    server.server_close()
    lost = cluster.metric("cleave_spans_dropped_total")
    cluster.post("/v1/completions", BODY)
    wait_until(lambda: cluster.metric("cleave_spans_dropped_total") > lost, "further lost spans are counted", cluster=cluster)
    assert cluster.logged().count("log/otlp_endpoint loses spans: HTTP 503") == 1, cluster.logged()


need_model()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
threading.Thread(target=server.serve_forever, daemon=True).start()
with Cluster({"threads": 1, "kv": {"memory": "32MiB"},
              "log": {"otlp_endpoint": f"http://127.0.0.1:{server.server_port}/v1/traces"}}) as cluster:
    check_spans(cluster)
    check_which(cluster)
    check_lost(cluster, server)
    assert cluster.stop() == 0
