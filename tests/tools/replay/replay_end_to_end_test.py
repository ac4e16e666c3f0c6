#!/usr/bin/env python3
"""Goal: `cleave replay` sends open loop, exactly what the trace asks for, and reports correctly every way in which a
server can answer; bench-streams keeps its streams open, and reports correctly too.

Method: HTTP servers inside this process (of the standard library, with one thread per connection). Each test has its
own server; some tests run at the same time, because they mostly wait. The first part of the URL's path selects the
server's behaviour. Each case runs the binary against a server and reads the JSON that the binary wrote; what the server
received (bodies, arrival times) is compared with the trace. Times have wide upper bounds, because the computer may be
busy; lower bounds are exact. Single gaps between tokens are not checked: a client that waits for a core sees several
tokens at once.

Usage: replay_end_to_end_test.py CLEAVE BENCH_STREAMS

"""
import concurrent.futures
import http.server
import json
import re
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

CLEAVE, STREAMS = sys.argv[1:]
FIRST_S, GAP_S = 0.05, 0.01
LONG_KEY = "key" * 1000


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def setup(self):
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def answer(self, status, value, headers=()):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, text in headers:
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        mode, path = self.path[1:].split("/", 1)
        if path != "v1/models":
            return self.answer(404, {})
        if mode == "keyed" and self.headers["Authorization"] != f"Bearer {LONG_KEY}":
            return self.answer(401, {"error": {"message": "not the key"}})
        if mode == "empty":
            self.send_response(200)
            self.send_header("Content-Length", "0")
            return self.end_headers()
        self.answer(200, {"data": [] if mode == "no-model" else [{"id": "fake", "max_model_len": 1000}]})

    def do_POST(self):
        arrived = time.monotonic()
        mode, path = self.path[1:].split("/", 1)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if path == "tokenize":
            if mode == "uncounted":
                return self.answer(404, {})
            return self.answer(200, {"count": self.count(mode, body)})
        if not body.get("stream"):  # A question that the client asks before the replay.
            if mode == "no-ids" and isinstance(body.get("prompt"), list):
                return self.answer(400, {"error": {"message": "text, please"}})
            return self.answer(200, {"choices": [{}], "usage": {"prompt_tokens": self.count(mode, body)}})
        self.server.paths.add(path)
        with self.server.lock:
            self.server.seen.append((arrived, body))
            number = len(self.server.seen)
        self.stream(mode, body, number)

    @staticmethod
    def count(mode, body):
        """A message costs ten tokens more than its words, and a text one more. With "split", every word is two tokens.
        """
        if "messages" in body:
            return len(body["messages"][0]["content"].split()) + 10
        prompt = body["prompt"]
        return len(prompt) if isinstance(prompt, list) else len(prompt.split()) * (2 if mode == "split" else 1) + 1

    def chunk(self, data):
        for piece in ([data] if self.mode != "byte-by-byte" else [data[i:i + 1] for i in range(len(data))]):
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            self.wfile.flush()

    def event(self, value):
        text = value if isinstance(value, str) else json.dumps(value)
        self.chunk(f": ping\r\ndata: {text}\r\n\r\n".encode() if self.mode == "byte-by-byte"
                   else f"data: {text}\n\n".encode())

    def token(self, text, finish=None):
        if self.chat:
            return self.event({"object": "chat.completion.chunk",
                               "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]})
        self.event({"object": "text_completion", "choices": [{"index": 0, "text": text, "finish_reason": finish}]})

    def hang_up(self):
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def stream(self, mode, body, number):
        self.mode, self.chat = mode, "messages" in body
        if mode == "full" and number % 2 == 0:
            return self.answer(429, {"error": {"message": "the queue is full", "code": 429}}, [("Retry-After", "1")])
        if mode == "drop":
            return self.hang_up()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if self.chat:  # The first event has only the role, and no token.
            self.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        time.sleep(30 if mode == "slow" else 1.5 if mode == "late" else FIRST_S)
        asked = body["max_tokens"]
        if mode == "no-tokens":
            asked = 0
        for i in range(asked):
            if i > 0:
                time.sleep(GAP_S)
            if mode == "cut" and i == 3:
                return self.hang_up()
            if mode == "error" and i == 3:
                self.event({"error": {"message": "machine token-0 died\n", "type": "server_error"}})
                break
            if mode == "not-json" and i == 3:
                self.event('{"choices": [')
                break
            self.token("x")
        if mode == "finish":  # The finish reason comes in its own event, without a token.
            time.sleep(0.2)
            self.token("", "length")
        count = self.count(mode, body)
        if mode != "no-usage":
            self.event({"choices": [], "usage": {"prompt_tokens": count + (mode == "miscount"), "completion_tokens": asked}})
        if mode != "not-done":
            self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, *arguments):  # Some cases have clients that disconnect.
        pass


def start_server():
    server = Server(("127.0.0.1", 0), Handler)
    server.lock, server.seen, server.paths = threading.Lock(), [], set()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def write_trace(path, rows):
    with open(path, "w", encoding="utf-8") as trace:
        trace.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
        for at, context, generated in rows:
            trace.write(f"2023-11-16 18:{15 + int(at // 60):02}:{at % 60:010.7f},{context},{generated}\n")


class Case:
    """Runs one replay. The results are .code, .out, .err, .json and .seen."""

    def __init__(self, server, mode, rows, *options, stop_after=None, trace_text=None):
        server.seen, server.paths = [], set()
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "trace.csv")
            if trace_text is None:
                write_trace(trace, rows)
            else:
                with open(trace, "w", encoding="utf-8") as file:
                    file.write(trace_text)
            url = f"http://127.0.0.1:{server.server_port}/{mode}"
            process = subprocess.Popen([CLEAVE, "replay", trace, "--url", url, "--json", *options],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            if stop_after is not None:
                while len(server.seen) < stop_after and process.poll() is None:
                    time.sleep(0.01)
                with open(f"/proc/{process.pid}/cmdline") as file:
                    self.command_line = file.read()
                process.send_signal(signal.SIGINT)
            self.out, self.err = process.communicate(timeout=60)
            self.paths = server.paths
            self.code, self.seen = process.returncode, sorted(server.seen, key=lambda s: s[0])
            self.json = json.loads(self.out) if self.out else None
            self.summary = self.json["summary"] if self.json else {}

    def check(self, condition, what):
        if not condition:
            print(f"{what}\nexit {self.code}\n{self.out}{self.err}{json.dumps(self.summary, indent=1)}")
            sys.exit(1)


ROWS = [(0.0, 30, 8), (0.1, 17, 5), (0.1, 200, 6), (0.25, 1, 1), (0.4, 64, 10)]


def check_good(server, mode, *options, prompt_tokens=312):
    case = Case(server, mode, ROWS, *options)
    case.check(case.code == 0, f"{mode}: want exit 0")
    case.check(case.summary["done"] == 5 and case.summary["failed"] == 0, f"{mode}: want 5 done")
    case.check(case.summary["prompt_tokens"] == prompt_tokens and case.summary["completion_tokens"] == 30, f"{mode}: token sums")
    case.check(case.summary["tbt_ms"]["count"] == 25, f"{mode}: want 25 gaps")
    ttft, tbt = case.summary["ttft_ms"], case.summary["tbt_ms"]
    case.check(FIRST_S * 1000 <= ttft["p50"] < 10000 and tbt["p50"] < 5000, f"{mode}: TTFT, TBT")
    case.check(5 * ttft["mean"] + 25 * tbt["mean"] >= 1000 * (5 * FIRST_S + 25 * GAP_S), f"{mode}: last tokens")
    rows = {row["line"]: row for row in case.json["requests"]}
    case.check(sorted(rows) == [2, 3, 4, 5, 6] and rows[6]["e2e_ms"] >= 140, f"{mode}: rows")
    return case


def test_good(server):
    case = check_good(server, "good")
    lengths = sorted((len(body["prompt"]), body["max_tokens"]) for _, body in case.seen)
    case.check(lengths == sorted((context, generated) for _, context, generated in ROWS), "what was sent")
    case.check(all(body["model"] == "fake" and body["ignore_eos"] for _, body in case.seen), "model, ignore_eos")
    case.check(all(1000 <= i <= 30000 for _, body in case.seen for i in body["prompt"]), "ids")
    again = Case(server, "good", ROWS)
    ids = [sorted(str(body["prompt"]) for _, body in c.seen) for c in (case, again)]
    case.check(ids[0] == ids[1], "the same seed must send the same prompts")
    check_good(server, "byte-by-byte")
    check_good(server, "finish")
    # The server adds a token to a text, so the shortest prompt has two tokens.
    check_good(server, "good", "--prompt", "text", prompt_tokens=313)


def test_open_loop(server):
    """Answers take 1.5 s. Requests are due every 0.1 s (every 0.05 s at double rate), and must not wait for answers."""
    rows = [(i * 0.1, 5, 1) for i in range(10)]
    for scale in (1, 2):
        case = Case(server, "late", rows, "--rate-scale", str(scale))
        case.check(case.code == 0 and len(case.seen) == 10, "open loop: all done")
        times = [arrived - case.seen[0][0] for arrived, _ in case.seen]
        for i, at in enumerate(times):
            case.check(abs(at - i * 0.1 / scale) < 1.4, f"open loop x{scale}: request {i} arrived at {at:.3f} s")
        case.check(case.summary["ttft_ms"]["p50"] >= 1500, "open loop: TTFT")
        case.check(case.summary["wall_s"] < 12, "open loop: wall")


def test_window(server):
    rows = [(float(i), 100 * (i + 1), 100) for i in range(20)]
    case = Case(server, "good", rows, "--start", "5", "--duration", "10", "--rate-scale", "20", "--length-scale", "0.1")
    case.check(sorted(len(b["prompt"]) for _, b in case.seen) == [10 * (i + 1) for i in range(5, 15)], "window")
    case = Case(server, "good", rows, "--start", "5", "--requests", "2", "--rate-scale", "20", "--max-context", "60")
    case.check(sorted(len(b["prompt"]) + b["max_tokens"] for _, b in case.seen) == [60, 60], "--max-context")
    case = Case(server, "good", [(0.0, 5000, 20)])
    case.check(len(case.seen[0][1]["prompt"]) + case.seen[0][1]["max_tokens"] == 1000, "the server's max_model_len")
    case = Case(server, "good", rows, "--start", "100")
    case.check(case.code == 1 and "no request" in case.err, "an empty window")


def test_failures(server):
    wanted = {  # mode: (name of the failure, how many of the five requests fail, text in the report)
        "full": ("http status", 2, "429 the queue is full"),
        "drop": ("no connection", 5, "no connection"),
        "cut": ("cut short", 4, "cut short"),
        "error": ("error event", 4, "machine token-0 died?"),
        "not-json": ("bad event", 4, "{\"choices\": ["),
        "not-done": ("cut short", 5, "without [DONE]"),
        "no-tokens": ("no tokens", 5, "no token"),
    }
    for mode, (name, count, text) in wanted.items():
        case = Case(server, mode, ROWS)
        case.check(case.code == 1, f"{mode}: want exit 1")
        case.check({k: v["count"] for k, v in case.summary["failures"].items()} == {name: count}, f"{mode}: failures")
        case.check(case.summary["done"] == 5 - count and text in case.err, f"{mode}: report")
    case = Case(server, "slow", ROWS, "--timeout", "0.5")
    case.check(case.code == 1 and case.summary["failures"]["timed out"]["count"] == 5, "time-out")
    case = Case(server, "miscount", ROWS)
    case.check(case.code == 1 and case.summary["wrong_counts"] == 5 and case.summary["failed"] == 0, "miscount")
    case = Case(server, "no-usage", ROWS)
    case.check(case.code == 0 and case.summary["without_usage"] == 5, "no usage")


def test_key(server):
    check_good(server, "keyed", "--api-key", LONG_KEY)
    case = Case(server, "keyed", ROWS, "--api-key", LONG_KEY[:-1])
    case.check(case.code == 1 and "/v1/models: HTTP 401, want 200" in case.err, "another key")
    late = [(i * 0.1, 5, 1) for i in range(100)]
    case = Case(server, "late", late, "--api-key", LONG_KEY, stop_after=1)
    case.check("--api-key" in case.command_line and LONG_KEY not in case.command_line,
               f"the list of processes shows the key: {case.command_line}")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "key")
        with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write(LONG_KEY + "\n")
        check_good(server, "keyed", "--api-key-file", path)
        os.chmod(path, 0o644)
        case = Case(server, "keyed", ROWS, "--api-key-file", path)
        case.check(case.code != 0 and path in case.err, "a key file that others may read")


def test_interrupt(server):
    case = Case(server, "late", [(i * 0.1, 5, 1) for i in range(100)], stop_after=8)
    case.check(case.code == 130, "Ctrl-C: want exit 130")
    case.check(case.summary["interrupted"] > 0 and case.summary["failed"] == 0, "Ctrl-C: interrupted")
    case.check("interrupted" in case.err and 8 <= len(case.seen) < 100, "Ctrl-C: report")
    case = Case(server, "late", [(0, 5, 1), (0.1, 1, 1), (0.05, 5, 1)], stop_after=2)
    case.check(case.code == 130 and ":4: TIMESTAMP" in case.err, "Ctrl-C after a broken row: want exit 130")


def test_refusals(server):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        run = subprocess.run([CLEAVE, "replay", __file__, "--url", f"http://127.0.0.1:{port}"],
                             capture_output=True, text=True, timeout=30, check=False)
        assert run.returncode == 1 and ":1: header" in run.stderr, run.stderr
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as trace:
            write_trace(trace.name, ROWS)
            run = subprocess.run([CLEAVE, "replay", trace.name, "--url", f"http://127.0.0.1:{port}"],
                                 capture_output=True, text=True, timeout=30, check=False)
    assert run.returncode == 1 and len(run.stderr.splitlines()) == 1, run.stderr
    # libcurl 7 says "Couldn't connect", libcurl 8 "Could not connect".
    assert re.search(rf"127\.0\.0\.1:{port}/v1/models: Could(n't| not) connect", run.stderr), run.stderr
    case = Case(server, "no-model", ROWS)
    case.check(case.code == 1 and "give --model" in case.err, "no model")
    for options in (), ("--prompt", "ids"), ("--prompt", "text"), ("--api", "chat"):
        case = Case(server, "good", ROWS, "--model", "\udcff", *options)  # The byte 0xff.
        case.check(case.code == 1 and "--model: not UTF-8" in case.err, f"a wrong name, {options}")
    case = Case(server, "empty", ROWS)
    case.check(case.code == 1 and "/v1/models: the answer is empty" in case.err, "empty answer")
    case = Case(server, "m" * 1024, ROWS)
    case.check(case.code == 1 and "the URL is too long" in case.err, "long URL")


def test_broken_trace(server):
    """Requests before the bad row still end well and are reported. The exit status shows the bad row."""
    case = Case(server, "good", ROWS + [(0.3, 1, 1)])
    case.check(case.code == 1 and ":7: TIMESTAMP" in case.err and case.summary["done"] == 5, "broken row")


def test_bad_rows(server):
    bad = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00,5,0\n2023-11-16 18:00:01,5,1\n2023-11-16 18:00:00,5,1\n"
    case = Case(server, "good", [], trace_text=bad)
    case.check(case.code == 1 and ":2: GeneratedTokens = \"0\"" in case.err, "a bad row ends it")
    case = Case(server, "good", [], "--on-bad-row", "skip", trace_text=bad)
    case.check(case.code == 0 and case.summary["done"] == 1 and case.summary["skipped_rows"] == 2, "bad rows left out")
    case.check("2 rows of the trace left out, the first: " in case.err and ":2: Gen" in case.err, "told")


def test_formats(server):
    """Requests with the same hash ids have the same tokens in those blocks, also when lengths are scaled."""
    lines = [{"timestamp": at, "input_length": 1100, "output_length": output, "hash_ids": ids}
             for at, output, ids in ((3000, 2, [1, 2, 3]), (3050, 4, [1, 2, 4]), (3100, 6, [5, 2, 3]))]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    case = Case(server, "good", [], "--length-scale", "0.5", "--requests", "3", trace_text=text)
    first, second, third = (body["prompt"] for body in sorted((b for _, b in case.seen), key=lambda b: b["max_tokens"]))
    case.check(case.code == 0 and len(first) == 550 and first[:512] == second[:512], "two blocks of 256 shared")
    case.check(first[512:] != second[512:] and first[:256] != third[:256] and first[256:] == third[256:], "blocks by id")
    burst = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n1005.5,GPT-4,30,4,34,API log\n1005.6,GPT-4,9,1,10,x\n"
    case = Case(server, "good", [], trace_text=burst)
    case.check(case.code == 0 and sorted(len(b["prompt"]) for _, b in case.seen) == [9, 30], "BurstGPT")
    run = subprocess.run([CLEAVE, "replay", "gamma:rate=50,cv=2,requests=20,prompt=uniform:5:50,output=fixed:2", "--url",
                          f"http://127.0.0.1:{server.server_port}/good"], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0 and "20 sent, 20 done" in run.stdout, run


def test_prompts(server):
    """Prompts are ids if the server accepts ids, otherwise words that the server counts. The report says which."""
    case = check_good(server, "no-ids", prompt_tokens=313)
    case.check(all(isinstance(body["prompt"], str) for _, body in case.seen), "text")
    case.check("prompts are text: two token ids, 1000 and 30000: " in case.err and "HTTP 400" in case.err, "why text")
    case.check("text of one-token words, counted by the server (it adds 1 tokens to each)" in case.err, "told")
    case = check_good(server, "good", "--prompt", "ids")
    case.check("prompts    token ids\n" in case.err, "ids told")
    # The usage of a test request gives the count.
    check_good(server, "uncounted", "--prompt", "text", prompt_tokens=313)
    rows = [(at, context + 20, generated) for at, context, generated in ROWS]
    case = Case(server, "uncounted", rows, "--api", "chat")
    case.check(case.code == 0 and case.paths == {"v1/chat/completions"}, "chat")
    case.check(case.summary["prompt_tokens"] == 412 and case.summary["tbt_ms"]["count"] == 25, "chat: counts")
    case.check(case.summary["ttft_ms"]["p50"] >= FIRST_S * 1000, "chat: who speaks is no token")
    case = Case(server, "split", ROWS, "--prompt", "text")
    case.check(case.code == 1 and "200 one-token words are 401 tokens" in case.err, "words of two tokens")


def test_compare(server):
    """Compares a run with its own rows, joined by id, with another run's rows (which differ), with the slowdowns, and
    with the summary."""
    with tempfile.TemporaryDirectory() as folder:
        rows, other = os.path.join(folder, "rows.csv"), os.path.join(folder, "other.json")
        case = check_good(server, "good", "--out", rows)
        with open(rows, encoding="utf-8") as file:
            table = [line.strip().split(",") for line in file]
        case.check(table[0][:4] == ["request_id", "ttft_s", "tbt_s", "e2e_s"] and len(table) == 6, "rows")
        case.check(sorted(row[0] for row in table[1:]) == list("01234"), "ids")
        with open(rows, "a", encoding="utf-8") as file:
            file.write("77,1,1,1,0,5,5,done,0\n78,,,,0,5,5,failed,0\n")
        with open(other, "w", encoding="utf-8") as file:
            json.dump(case.json, file)
        case = Case(server, "good", ROWS, "--compare", rows, "--slo-reference", rows, "--requests", "4")
        compared, slow = case.summary["compare"], case.summary["slowdown"]
        case.check(case.code == 0 and compared["joined"] == 4 and compared["not_in_it"] == 0, "joined")
        case.check(set(compared["tbt"]) == {"P50", "P90", "P99"} and compared["e2e"]["P50"]["predicted_ms"] >= 50, "errors")
        case.check(0 < slow["ttft"]["P50"]["slowdown"] and slow["e2e"]["P99"]["limit"] == 5, "slowdowns")
        case.check("TTFT P50" in case.err and "the SLO is " in case.err, "tables")
        case = Case(server, "good", ROWS, "--compare", other)
        case.check(case.code == 0 and case.summary["compare"]["ttft"]["P50"]["predicted_ms"] >= 50, "a summary")
        case = Case(server, "good", ROWS, "--slo-reference", other)
        case.check(case.code == 1 and "want a CSV row per request" in case.err, "nothing to join")


def run_streams(server, mode, *options):
    server.seen = []
    url = f"http://127.0.0.1:{server.server_port}/{mode}"
    return subprocess.run([STREAMS, url, "--streams", "3", "--prompt", "20", "--answer", "5", "--warm", "0.3",
                           "--seconds", "1", *options], capture_output=True, text=True, timeout=60, check=False)


def test_streams(server):
    run = run_streams(server, "good")
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    prompts = {tuple(body["prompt"]) for _, body in server.seen}
    assert len(prompts) == len(server.seen) >= told["requests"] + 3, (len(prompts), len(server.seen), told)
    assert all(len(body["prompt"]) == 20 and body["max_tokens"] == 5 for _, body in server.seen)
    # No answer can be faster, so three streams end at most this many answers per second.
    answer_s = FIRST_S + 4 * GAP_S
    assert 0 < told["requests_a_second"] == told["requests"] <= 3 * (1 / answer_s + 2), told
    assert FIRST_S * 1000 <= told["ttft_p50_ms"] <= told["ttft_p99_ms"], told
    assert told["tbt_p50_ms"] <= told["tbt_p99_ms"] <= told["gap_max_ms"] and told["gap_max_ms"] >= GAP_S * 1000 - 2, told
    run = run_streams(server, "cut")
    assert run.returncode == 1 and "cut short" in run.stderr, run
    run = run_streams(server, "miscount")
    assert run.returncode == 1 and "other token counts" in run.stderr, run


def run_test(test):
    server, started = start_server(), time.monotonic()
    test(server)
    print(f"{test.__name__} {time.monotonic() - started:.1f} s")
    server.shutdown()


def main():
    tests = (test_failures, test_prompts, test_good, test_open_loop, test_interrupt, test_compare, test_streams, test_window,
             test_formats, test_key, test_bad_rows, test_broken_trace, test_refusals)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(run_test, test) for test in tests]:
            done.result()


main()
