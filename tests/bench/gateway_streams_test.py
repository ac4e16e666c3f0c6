#!/usr/bin/env python3
"""Goal: a gateway holds 2,000 open streams at once, and each client gets all its tokens, in order and once.

Method: bench-gateway --check: a real `cleave serve` with machines that compute nothing, and clients that compare every
token id. It fails unless all streams are open at the same time and all of them end well. Fewer streams under a sanitizer
(argument `few`). Skipped if the default model (for its tokenizer) does not exist, or if the limit of open files is too
low.

Usage: gateway_streams_test.py CLEAVE BENCH_GATEWAY [few]
"""
import os
import resource
import subprocess
import sys

CLEAVE, BENCH, *FEW = sys.argv[1:]
STREAMS = 200 if FEW else 2000
MODEL = os.environ.get("CLEAVE_MODEL") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
    "cleave", "SmolLM2-135M-Instruct.Q4_1.gguf")


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)


if not os.path.exists(MODEL):
    skip("the default model's file is not there (./dev test fetches it)")
if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < STREAMS + 200:
    skip(f"{STREAMS} streams want more open files than may be (ulimit -Hn)")
done = subprocess.run([BENCH, CLEAVE, MODEL, "--streams", str(STREAMS), "--tokens", "24", "--step", "200", "--check"],
                      timeout=150)
assert done.returncode == 0, done
print(f"{STREAMS} streams at once, each with its own tokens")
