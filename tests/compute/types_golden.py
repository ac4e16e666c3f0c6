#!/usr/bin/env python3
"""Prints the hashes of test_types.c: those of the values that the Python package gguf computes from random blocks of each
type. It needs `pip install gguf`. The random bytes, the scales and the hash are the same as in check_hash()."""

import gguf
import numpy as np

BLOCKS = 512
# Position of the f16 scale, and of the minimum.
HALVES = {
    "Q2_K": (80, 82), "Q3_K": (108,), "IQ4_NL": (0,), "IQ4_XS": (0,), "MXFP4": (), "TQ1_0": (52,), "TQ2_0": (64,),
    "IQ3_S": (0,), "IQ3_XXS": (0,), "IQ2_S": (0,), "IQ2_XS": (0,), "IQ2_XXS": (0,), "IQ1_S": (0,), "IQ1_M": (),
}


def random_blocks(name, size):
    state, out = 1, bytearray()
    for _ in range(BLOCKS * size):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(state >> 56)
    for block in range(BLOCKS):
        for at in HALVES[name]:
            out[block * size + at + 1] = out[block * size + at + 1] & 0x83 | 0x2C
        if name == "IQ1_M":  # The scale must be finite.
            out[block * size + 55] &= 0xBF
    return np.frombuffer(bytes(out), dtype=np.uint8)


def value_hash(values):
    state = 0xCBF29CE484222325
    for bits in (values.astype(np.float32) + np.float32(0)).view(np.uint32):
        state = (state ^ int(bits)) * 0x100000001B3 % 2**64
    return state


for name in HALVES:
    kind = gguf.GGMLQuantizationType[name]
    size = gguf.GGML_QUANT_SIZES[kind][1]
    values = gguf.quants.dequantize(random_blocks(name, size), kind).reshape(-1)
    print(f"    {{COMPUTE_{name}, 0x{value_hash(values):016x}u}},")
