#!/usr/bin/env python3
"""bench_sampling: what penalties, biases and constraints cost a token.

A mixed machine with the default model answers requests with 1, 8 and 32 choices (`n`, at most 16 a request), which are
decoded as one batch. Each way of sampling answers the same prompt with the same number of tokens, in turn; the constraints cannot end before.
The time of a request with one token is subtracted. Prints tokens per second, and each way's ratio to free sampling in
the same round. Standard library only.
"""

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("CLEAVE_BINARY", os.path.join(ROOT, "build", "cleave"))
from bench_cluster import cluster  # noqa: E402 (reads CLEAVE_BINARY)
from bench_table import number, spread, table  # noqa: E402

N_MAX = 16  # Choices of one request.
PROMPT = "List people with their names, ages and hobbies."
PERSON = {"type": "object", "required": ["name", "age", "hobbies"], "additionalProperties": False,
          "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
                         "hobbies": {"type": "array", "items": {"enum": ["chess", "running", "music"]}}}}
FREE = {"ignore_eos": True}
WAYS = {
    "free": FREE,
    "presence, frequency and repetition penalty": {**FREE, "presence_penalty": 0.3, "frequency_penalty": 0.3,
                                                   "repetition_penalty": 1.1},
    "logit_bias of 100 tokens": {**FREE, "logit_bias": {str(1000 + 7 * i): -5 for i in range(100)}},
    "json_schema: at least 1,000 people": {"response_format": {"type": "json_schema", "json_schema": {
        "name": "people", "schema": {"type": "array", "items": PERSON, "minItems": 1000}}}},
    "regex ([a-z]{1,12} ){1000}": {"guided_regex": "([a-z]{1,12} ){1000}"},
}


def seconds(one, count, tokens, way, seed):
    def ask(number):
        body = {"prompt": PROMPT, "max_tokens": tokens, "n": min(count, N_MAX), "temperature": 1.0, "seed": seed + number,
                **WAYS[way]}
        return one.post("/v1/completions", body)["usage"]["completion_tokens"]
    begin = time.monotonic()
    with ThreadPoolExecutor() as threads:
        got = sum(threads.map(ask, range((count + N_MAX - 1) // N_MAX)))
    took = time.monotonic() - begin
    assert got == count * tokens, (way, got)
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--tokens", type=int, default=96, help="of each choice (%(default)s)")
    options = parser.parse_args()
    rates = {(count, way): [] for count in (1, 8, 32) for way in WAYS}
    config = {"model": cluster.MODEL, "pools": {"mixed": 1}}
    with cluster.Cluster(config) as one:
        for round_index in range(options.rounds + 1):  # The first round only warms up.
            for count, way in rates:
                first = seconds(one, count, 1, way, round_index)
                took = seconds(one, count, options.tokens, way, round_index) - first
                if round_index > 0:
                    rates[count, way].append(count * (options.tokens - 1) / took)
    rows = []
    for (count, way), values in rates.items():
        ratios = [value / free for value, free in zip(values, rates[count, "free"])]
        rows.append([way, count, number(median(values)), spread(values), f"{median(ratios):.3f}", spread(ratios)])
    print(f"{options.rounds} rounds, {options.tokens} tokens a choice, load average {os.getloadavg()[0]:.1f}\n")
    print(table(["sampling", "choices", "tokens/s", "range", "to free", "range"], rows))


if __name__ == "__main__":
    main()
