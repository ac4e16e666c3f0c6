#!/usr/bin/env python3
"""Goal: every family of models is computed as transformers computes it, from folders and from GGUF files, and with the
same bits in every batch.

Method: writes the tiny random model of each family, as transformers (tiny_folder.py) and as llama.cpp's converter
(tiny_gguf.py) would; `family` compares the logits with those that transformers gave, `test_forward_identity` compares every
way of computing with every other, bit for bit. Errors are in units of the logits' spread (standard deviation).

usage: test_families.py FAMILY IDENTITY [NAME...]      FAMILY, IDENTITY: the programs; default: all families"""

import os
import subprocess
import sys
import tempfile

import tiny_folder
import tiny_gguf

# Largest errors allowed. Exact: products and attention in fp32, as transformers. Shipped: rounded activations and KV.
EXACT, SHIPPED = 1e-4, 0.1
# Families whose error as shipped may be larger, with the reason.
SHIPPED_OF = {"gpt_oss-mxfp4": 0.2}  # Activations of 8 bits beside weights of 4 bits.
# Families whose GGUF files are refused, with a part of the error.
GGUF_REFUSED = {}


def ran(name, *command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(f"{name}: {done.stdout.strip()}", flush=True)
    return done


def check_gguf(name, reference, program, expected, bounds, scratch):
    path = os.path.join(scratch, name + ".gguf")
    tiny_gguf.write(reference, path)
    done = ran(f"{name}, GGUF", program, path, expected, *bounds)
    if name in GGUF_REFUSED:
        return done.returncode != 0 and GGUF_REFUSED[name] in done.stdout
    return done.returncode == 0


def check(name, program, identity, scratch):
    reference = tiny_folder.read(name)
    folder, expected = os.path.join(scratch, name), os.path.join(scratch, name + ".expected")
    tiny_folder.write(reference, folder)
    tiny_folder.write_expected(name, reference, expected)
    bounds = [str(EXACT), str(SHIPPED_OF.get(name, SHIPPED))]
    good = ran(name, program, folder, expected, *bounds).returncode == 0
    good = ran(name, identity, "file", folder).returncode == 0 and good
    return ("gguf" not in reference or check_gguf(name, reference, program, expected, bounds, scratch)) and good


def main():
    program, identity, *chosen = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        failed = [name for name in chosen or tiny_folder.names() if not check(name, program, identity, scratch)]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
