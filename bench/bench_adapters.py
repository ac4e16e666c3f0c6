#!/usr/bin/env python3
"""bench_adapters: what low-rank adapters (LoRA) cost a token.

Two mixed machines serve the default model: the first without adapters, the second with two adapters of the same rank on
all products of all layers. Eight requests at a time have the same number of tokens; in each round every way of choosing
adapters is measured once, in turn. The time of requests with one token is subtracted. Prints tokens per second, and each
way's ratio to the machine without adapters in the same round. Standard library only.
"""

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import quantiles

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("CLEAVE_BINARY", os.path.join(ROOT, "build", "cleave"))
from bench_cluster import cluster  # noqa: E402 (reads CLEAVE_BINARY)
from bench_table import number, table  # noqa: E402
import test_adapters  # noqa: E402 (beside cluster.py)

STREAMS = 8
# SmolLM2 135M.
LAYERS, HIDDEN, KV, FFN = 30, 576, 192, 1536
SHAPES = {"q_proj": (HIDDEN, HIDDEN), "k_proj": (KV, HIDDEN), "v_proj": (KV, HIDDEN), "o_proj": (HIDDEN, HIDDEN),
          "gate_proj": (FFN, HIDDEN), "up_proj": (FFN, HIDDEN), "down_proj": (HIDDEN, FFN)}
# The adapters of the streams in turn; None = none.
WAYS = {"no adapters on the machine": None, "no stream has one": [None], "all streams have the same one": ["first"],
        "half and half": ["first", "second"]}


def write_adapters(place, rank):
    shapes = {f"model.layers.{layer}.{test_adapters.MODULES[module]}.{module}.weight": shape
              for layer in range(LAYERS) for module, shape in SHAPES.items()}
    for name in ("first", "second"):
        test_adapters.write_adapter(os.path.join(place, name), name, shapes, set(SHAPES), rank, False)
    return f"first={place}/first, second={place}/second"


def seconds(one, adapters, tokens, round_index):
    def ask(index):
        body = {"prompt": f"Tell story {index} of round {round_index}:", "max_tokens": tokens, "ignore_eos": True,
                "temperature": 0}
        model = adapters[index % len(adapters)]
        return one.post("/v1/completions", body | ({"model": model} if model else {}))["usage"]["completion_tokens"]
    begin = time.monotonic()
    with ThreadPoolExecutor(STREAMS) as threads:
        got = list(threads.map(ask, range(STREAMS)))
    assert got == [tokens] * STREAMS, got
    return time.monotonic() - begin


def quartiles(values):
    return quantiles(values, n=4, method="inclusive")


def row(way, rates, plain):
    low, middle, high = quartiles(rates)
    ratio_low, ratio, ratio_high = quartiles([rate / other for rate, other in zip(rates, plain)])
    return [way, number(middle), f"{number(low)}-{number(high)}", f"{ratio:.3f}", f"{ratio_low:.3f}-{ratio_high:.3f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="at least 2 (%(default)s)")
    parser.add_argument("--tokens", type=int, default=192, help="of each stream (%(default)s)")
    parser.add_argument("--rank", type=int, default=16, help="(%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of each machine (%(default)s)")
    options = parser.parse_args()
    rates = {way: [] for way in WAYS}
    config = {"model": cluster.MODEL, "pools": {"mixed": 1}, "threads": options.threads, "kv": {"memory": "128MiB"}}
    with tempfile.TemporaryDirectory(prefix="cleave-bench-") as place:
        adapters = write_adapters(place, options.rank)
        with cluster.Cluster(config) as plain, cluster.Cluster({**config, "adapters": adapters}) as adapted:
            for round_index in range(options.rounds + 1):  # The first round only warms up.
                for way, chosen in WAYS.items():
                    one = plain if chosen is None else adapted
                    first = seconds(one, chosen or [None], 1, round_index)
                    took = seconds(one, chosen or [None], options.tokens, round_index) - first
                    if round_index > 0:
                        rates[way].append(STREAMS * (options.tokens - 1) / took)
    none = rates[next(iter(WAYS))]
    print(f"{options.rounds} rounds, {STREAMS} streams of {options.tokens} tokens, rank {options.rank}, {options.threads} "
          f"thread(s), load average {os.getloadavg()[0]:.1f}\n")
    print(table(["streams", "tokens/s", "quartiles", "to none", "quartiles"], [row(way, each, none)
                                                                               for way, each in rates.items()]))


if __name__ == "__main__":
    sys.exit(main())
