#!/usr/bin/env python3
"""What ./dev demo shows of a running cluster.

demo-show.py stream URL PROMPT   streams one completion to the terminal
demo-show.py phases URL          where the time of all requests so far went, from /metrics
"""
import json
import re
import sys
import time
import urllib.request

# The phases of one request follow each other without a gap or an overlap (server/metrics/metrics.h).
PHASES = [
    ("queue", "cleave_request_queue_seconds"),
    ("reserve KV memory", "cleave_request_reserve_seconds"),
    ("prompt", "cleave_request_prompt_seconds"),
    ("exposed transfer", "cleave_request_exposed_transfer_seconds"),
    ("first decode", "cleave_request_first_decode_seconds"),
]
DECODE, TOTAL = "vllm:request_decode_time_seconds", "vllm:e2e_request_latency_seconds"
SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$", re.M)
BAR = 30


def get(url, body=None):
    request = urllib.request.Request(url, data=body and json.dumps(body).encode(),
                                     headers={"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return opener.open(request, timeout=60)


def stream(url, prompt):
    """Prints the text as it arrives, then its speed. Returns False if the stream did not end well."""
    body = {"prompt": prompt, "max_tokens": 48, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}}
    began, first, usage, done = time.monotonic(), None, None, False
    print(prompt, end="", flush=True)
    with get(url + "/v1/completions", body) as answer:
        for line in answer:
            if not line.startswith(b"data: "):
                continue
            if line.strip() == b"data: [DONE]":
                done = True
                break
            event = json.loads(line[6:])
            if event.get("error"):
                print(f"\n{event['error']['message']}", file=sys.stderr)
                return False
            for choice in event["choices"]:
                first = first or time.monotonic()
                print(choice["text"], end="", flush=True)
            usage = event.get("usage") or usage
    ended = time.monotonic()
    if not done or not first or not usage:
        print("\nthe stream ended early", file=sys.stderr)
        return False
    tokens = usage["completion_tokens"]
    print(f"\n\n{usage['prompt_tokens']} prompt tokens, first token after {(first - began) * 1000:.0f} ms, "
          f"then {(tokens - 1) / max(ended - first, 1e-9):.0f} tokens/s\n")
    return True


def read_metrics(url):
    with get(url + "/metrics") as answer:
        return [(name, labels or "", float(value)) for name, labels, value in SAMPLE.findall(answer.read().decode())]


def total(samples, name, label=""):
    return sum(value for found, labels, value in samples if found == name and label in labels)


def line(title, seconds, count, share):
    print(f"  {title:<20} {seconds / count * 1000:10.1f} ms  {share:6.1%}  {'#' * round(share * BAR)}")


def phases(url):
    samples = read_metrics(url)
    everything, count = total(samples, TOTAL + "_sum"), total(samples, TOTAL + "_count")
    if not count:
        print("no request has ended yet", file=sys.stderr)
        return False
    known = {title: total(samples, name + "_sum") for title, name in PHASES}
    known["further tokens"] = total(samples, DECODE + "_sum") - known["exposed transfer"] - known["first decode"]
    known["between machines"] = everything - sum(known.values())
    print(f"\n  {count:.0f} requests, mean of each")
    for title, seconds in known.items():
        line(title, max(seconds, 0.0), count, max(seconds, 0.0) / everything)
    line("end to end", everything, count, 1.0)

    layers = total(samples, "cleave_transfer_layers_total")
    hidden = total(samples, "cleave_transfer_hidden_ratio")
    print(f"\n  KV moved: {layers:.0f} layers, {total(samples, 'cleave_transfer_bytes_total') / 1e6:.1f} MB, "
          f"{hidden:.0%} of the time hidden behind compute")
    return blocks_come_back(url)


def blocks_come_back(url):
    """Returns whether no KV block is in use. Machines report their figures once per second, so this may take some
    tries."""
    for _ in range(20):
        samples = read_metrics(url)
        count = {state: total(samples, "cleave_kv_blocks", f'state="{state}"') for state in ("free", "cached")}
        blocks = total(samples, "cleave_kv_blocks")
        if sum(count.values()) == blocks:
            break
        time.sleep(0.25)
    print(f"  KV blocks: {sum(count.values()):.0f} of {blocks:.0f} free or cached\n")
    return blocks > 0 and sum(count.values()) == blocks


def main(arguments):
    if len(arguments) == 3 and arguments[0] == "stream":
        return stream(arguments[1], arguments[2])
    if len(arguments) == 2 and arguments[0] == "phases":
        return phases(arguments[1])
    print(__doc__, file=sys.stderr)
    return False


sys.exit(0 if main(sys.argv[1:]) else 1)
