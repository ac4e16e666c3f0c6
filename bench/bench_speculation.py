#!/usr/bin/env python3
"""bench_speculation: what drafts (scheduler/speculative_tokens) give, for text that repeats and for prose.

Two clusters of one mixed machine serve the same requests in turn, one with drafts and one without. With --draft-model,
two more do so, one with a draft model; the column of drafted tokens is then the draft model's. With --llama, a
llama-server does the same, without and with its look-up decoding (--spec-type ngram-simple). In the first round each
server answers everything once, so that the KV of the prompts is cached; this round does not count. Prints tokens per
second (whole requests: all tokens by the time of the slowest), and the ratio to the same server without drafts in the
same round; first each measurement as it is made, then the medians. Standard library only."""

import argparse
import http.client
import json
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from statistics import median

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("CLEAVE_BINARY", os.path.join(ROOT, "build", "cleave"))
from bench_cluster import cluster  # noqa: E402 (reads CLEAVE_BINARY)
from bench_table import number, spread, table  # noqa: E402

CODE = '''def read_orders(path):
    """Returns the orders of the file, one for each line."""
    orders = []
    with open(path) as file:
        for line in file:
            name, amount, price = line.strip().split(",")
            orders.append({"name": name, "amount": int(amount), "price": float(price)})
    return orders


def total_of(orders):
    """Returns the sum of all prices."""
    total = 0
    for order in orders:
        total += order["amount"] * order["price"]
    return total


def print_report(orders):
    """Prints a line for each order, and the total."""
    for order in orders:
        print(order["name"], order["amount"], order["price"])
    print("total", total_of(orders))
'''
ARTICLE = """The lighthouse on the northern cape was built in 1874 by a company of forty masons. Its tower has a height of
thirty-one metres, and the lamp can be seen from a distance of twenty miles. For ninety years a keeper lived there with
his family; the last keeper left in 1964, when the lamp became automatic. In winter the road to the cape is closed by
snow, and supplies had to be brought by boat. The harbour pilot, who came once a week, also carried the letters. Today
the house of the keeper is a museum, which shows the old lens, the logbooks and the tools of the masons.
"""
RECORDS = "".join(json.dumps({"id": 100 + i, "name": name, "city": city, "active": i % 2 == 0, "visits": 7 * i + 3}) + ",\n"
                  for i, (name, city) in enumerate([("Anna Berg", "Oslo"), ("Tom Reed", "Leeds"), ("Li Wei", "Xiamen"),
                                                    ("Sara Costa", "Porto"), ("Jan Novak", "Brno"), ("Mia Lang", "Graz")]))
PEOPLE = {"type": "array", "minItems": 100, "items": {
    "type": "object", "required": ["identifier", "full_name", "country", "subscribed"], "additionalProperties": False,
    "properties": {"identifier": {"type": "integer", "maximum": 9999}, "full_name": {"type": "string", "maxLength": 20},
                   "country": {"enum": ["Norway", "Portugal", "China"]}, "subscribed": {"type": "boolean"}}}}
DRAWN = {"temperature": 0.8}


def copies_of(first, words, second, words_again, lines):
    """A prompt that asks for a third copy. The model is small: it copies a text whole if it has seen it copied once."""
    return f"{first}\n{words}\n\n{second}\n{words_again}\n\n" + "".join(second.splitlines(True)[:lines])


# Name: (prompt, fields of the request).
REPEATS = {
    "edit code": copies_of(CODE, "# The same file, with `total_of` renamed to `sum_of`:", CODE.replace("total_of", "sum_of"),
                           "# The same file, with `sum_of` renamed to `whole_of`:", 3),
    "quote a document": copies_of(ARTICLE, "The whole text is quoted here:", ARTICLE,
                                  "The whole text is quoted here once more:", 1),
    "repeat JSON": copies_of(RECORDS, "The same records again:", RECORDS, "The same records once more:", 1),
}
PROSE = "Write a story about a girl who finds a strange key in the garden of her grandmother.\n\nThe story:\n"
LIST = "A list of people as JSON:\n"
SCHEMA = {"response_format": {"type": "json_schema", "json_schema": {"name": "people", "schema": PEOPLE}}}
CASES = {
    **{f"{name}, greedy": (prompt, {"temperature": 0}) for name, prompt in REPEATS.items()},
    **{f"{name}, drawn": (prompt, DRAWN) for name, prompt in REPEATS.items()},
    "JSON schema, greedy": (LIST, {"temperature": 0, **SCHEMA}),
    "JSON schema, drawn": (LIST, {**DRAWN, **SCHEMA}),
    "prose, greedy": (PROSE, {"temperature": 0}),
    "prose, drawn": (PROSE, {"temperature": 1.0}),
}


class Cleave:
    def __init__(self, draft_tokens, draft_model=""):
        self.counters = "cleave_draft_model_{}tokens_total" if draft_model else "cleave_spec_decode_num_{}tokens_total"
        self.first = "" if draft_model else "draft_"
        self.one = cluster.Cluster({"model": cluster.MODEL, "pools": {"mixed": 1}, "scheduler": {
            "speculative_tokens": draft_tokens, "draft_model": os.path.abspath(draft_model) if draft_model else ""}})

    def __enter__(self):
        self.one.__enter__()
        return self

    def __exit__(self, *why):
        self.one.__exit__(*why)

    def answer(self, prompt, fields, tokens, seed):
        body = {"prompt": prompt, "max_tokens": tokens, "seed": seed, "ignore_eos": "response_format" not in fields, **fields}
        return self.one.post("/v1/completions", body)["usage"]["completion_tokens"]

    def drafts(self):
        time.sleep(0.3)  # A machine sends its counters at most every 100 ms.
        return [self.one.metric(self.counters.format(name)) for name in (self.first, "accepted_")]


class Llama:
    def __init__(self, options, arguments):
        self.port = cluster.free_ports(1)[0]
        self.process = subprocess.Popen(
            [options.llama, "-m", cluster.MODEL, "--port", str(self.port), "-np", str(max(options.streams)), "-c",
             str(1024 * max(options.streams)), *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                if self.request("GET", "/health", None)[0] == 200:
                    return self
            except OSError:
                pass
            time.sleep(0.2)
        raise SystemExit("llama-server did not start in 120 s")

    def __exit__(self, *why):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)

    def request(self, method, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        text = reply.read()
        connection.close()
        return reply.status, text

    def answer(self, prompt, fields, tokens, seed):
        body = {"prompt": prompt, "n_predict": tokens, "seed": seed, "ignore_eos": "response_format" not in fields,
                "cache_prompt": True, "temperature": fields["temperature"], "top_k": 0, "top_p": 1, "min_p": 0}
        if "response_format" in fields:
            body["json_schema"] = PEOPLE
        status, text = self.request("POST", "/completion", body)
        assert status == 200, text
        return json.loads(text)["tokens_predicted"]


def rate(server, case, streams, tokens, seed):
    prompt, fields = CASES[case]
    begin = time.monotonic()
    with ThreadPoolExecutor(streams) as threads:
        got = sum(threads.map(lambda i: server.answer(f"No. {i}\n{prompt}", fields, tokens, 1000 * seed + i), range(streams)))
    return got / (time.monotonic() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--tokens", type=int, default=128, help="of each answer (%(default)s)")
    parser.add_argument("--draft-tokens", type=int, default=8, help="scheduler/speculative_tokens (%(default)s)")
    parser.add_argument("--streams", type=lambda text: [int(part) for part in text.split(",")], default=[1, 8, 32],
                        help="numbers of simultaneous requests (1,8,32)")
    parser.add_argument("--cases", default="", help="only cases whose name contains this text")
    parser.add_argument("--draft-model", metavar="PATH", help="also measure a draft model (tests/cluster/first_layers.py "
                        "writes one of the model's first layers)")
    parser.add_argument("--llama", metavar="PATH", help="also measure this llama-server")
    options = parser.parse_args()
    pairs = [("cleave", lambda: Cleave(0), lambda: Cleave(options.draft_tokens))]
    if options.draft_model:
        pairs.append(("cleave, draft model", lambda: Cleave(0), lambda: Cleave(options.draft_tokens, options.draft_model)))
    if options.llama:
        ngram = ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3", "--spec-ngram-simple-size-m",
                 str(options.draft_tokens), "--spec-draft-n-max", str(options.draft_tokens)]
        pairs.append(("llama.cpp", lambda: Llama(options, []), lambda: Llama(options, ngram)))
    cases = [case for case in CASES if options.cases in case]
    rates = {}
    with ExitStack() as stack:
        servers = [(name, stack.enter_context(without()), stack.enter_context(having())) for name, without, having in pairs]
        drafted = {}
        for round_index in range(options.rounds + 1):
            for streams in options.streams:
                for case in cases:
                    for name, without, having in servers:
                        order = [(0, without), (1, having)]
                        for way, server in order if round_index % 2 == 0 else reversed(order):
                            counts = server.drafts() if way == 1 and isinstance(server, Cleave) else None
                            got = rate(server, case, streams, options.tokens, round_index)
                            if round_index == 0:
                                continue
                            rates.setdefault((streams, case, name), ([], []))[way].append(got)
                            print(f"round {round_index}, {streams} streams, {case}, {name}, {'with' if way else 'without'}: "
                                  f"{got:.1f} tokens/s", flush=True)
                            if counts is not None:
                                now = [a - b for a, b in zip(server.drafts(), counts)]
                                old = drafted.setdefault((streams, case, name), [0, 0])
                                drafted[streams, case, name] = [a + b for a, b in zip(old, now)]
    rows = []
    for (streams, case, name), (without, having) in rates.items():
        ratios = [b / a for a, b in zip(without, having)]
        drafts, accepted = drafted.get((streams, case, name), [0, 0])
        rows.append([case, streams, name, number(median(without)), spread(without), number(median(having)), spread(having),
                     f"{median(ratios):.2f}", f"{min(ratios):.2f}-{max(ratios):.2f}",
                     f"{accepted / drafts:.2f} of {drafts:.0f}" if drafts > 0 else "-"])
    print(f"{options.rounds} rounds, {options.tokens} tokens an answer, at most {options.draft_tokens} drafted tokens a step; load average "
          f"{os.getloadavg()[0]:.1f}\n")
    print(table(["text", "streams", "server", "tokens/s", "range", "with drafts", "range", "ratio", "range", "drafted tokens right"],
                rows))


if __name__ == "__main__":
    main()
