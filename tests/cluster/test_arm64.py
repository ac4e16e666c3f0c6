"""Goal: on 64-bit ARM a cluster gives the same tokens and log-probabilities as on x86-64, bit for bit.

Method: cases of tests/data/model through the HTTP API of a cluster of each program: a prompt and a token machine over
shared memory, the same over TCP, and one mixed machine. `./dev test --arm64` runs it (the ARM program in QEMU).

usage: test_arm64.py   (CLEAVE_BINARY, and CLEAVE_BINARY_ARM64: the same for ARM)
"""

import json
import os

from cluster import BINARY, DATA, DEFAULT_MODEL, MODEL, Cluster, need_model
from test_reference import CONFIGS, answers

PATHS = (("shm", MODEL, 8), ("tcp", MODEL, 4), ("mixed", MODEL, 4), ("shm", DEFAULT_MODEL, 2))


def main():
    need_model()
    with open(os.path.join(DATA, "model", "greedy.json")) as file:
        cases = json.load(file)["cases"]
    for path, model, count in PATHS:
        config = {**CONFIGS[path], "model": model, "kv": {"memory": "128MiB"}}
        found = []
        for binary in (BINARY, os.environ["CLEAVE_BINARY_ARM64"]):
            with Cluster(config, binary=binary) as cluster:
                found.append(answers(cluster, cases[:count], 4, "auto"))
        tokens = sum(len(ids) for _, ids, _ in found[0])
        assert found[0] == found[1], (path, model, found)
        print(f"{path}, {os.path.basename(model)}: {count} answers of {tokens} tokens are equal", flush=True)


if __name__ == "__main__":
    main()
