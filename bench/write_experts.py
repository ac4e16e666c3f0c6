#!/usr/bin/env python3
"""Writes a GGUF model with experts and random weights, to measure its speed. Standard library only.

The shape is that of Qwen3-30B-A3B (hidden 2048, 32 heads over 4 of 128, 128 experts of 768, of which a token uses 8), with
fewer layers, and with a vocabulary smaller in the same proportion (151,936 for 48 layers), so that the shares of experts,
attention and vocabulary in the work stay. Matrices are Q4_0 or Q8_0, routers and norms F32.

usage: write_experts.py OUT.gguf [--layers 8] [--type q4_0]"""

import argparse
import array
import math
import random
import struct

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, EXPERTS, USED, FFN = 2048, 32, 4, 128, 128, 8, 768
MODEL_LAYERS, MODEL_VOCABULARY = 48, 151936
U32, F32, STRING, ARRAY = 4, 6, 8, 9
TYPES = {"q4_0": (2, 18, 4.1), "q8_0": (8, 34, 74.0)}  # number in the file, bytes of 32 weights, deviation of the quants
# Random bytes become two numbers from -7 to 7, plus 8, so that their mean is 0. With the numbers from -8 to 7, all states
# would have a part in common, and most tokens would choose the same experts.
CENTRED = bytes((i // 15 + 1) << 4 | (i % 15 + 1) if i < 225 else 0x88 for i in range(256))
PIECE_BLOCKS = 65536
ALIGNMENT = 32


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def key(name, kind, value):
    return text(name) + struct.pack("<I", kind) + value


def number(name, value):
    return key("qwen3moe." + name, U32, struct.pack("<I", value))


def real(name, value):
    return key("qwen3moe." + name, F32, struct.pack("<f", value))


def strings(name, values):
    return key(name, ARRAY, struct.pack("<IQ", STRING, len(values)) + b"".join(map(text, values)))


def tokens(count):
    return ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *(f"word{i}" for i in range(count - 259))]


def keys(layers, vocabulary):
    words = tokens(vocabulary)
    kinds = [2, 3, 3] + [6] * 256 + [1] * (vocabulary - 259)
    return [key("general.architecture", STRING, text("qwen3moe")), key("general.name", STRING, text("experts")),
            number("block_count", layers), number("context_length", 32768), number("embedding_length", HIDDEN),
            number("feed_forward_length", 6144), number("attention.head_count", HEADS),
            number("attention.head_count_kv", KV_HEADS), number("attention.key_length", HEAD_DIM),
            number("attention.value_length", HEAD_DIM), number("expert_count", EXPERTS), number("expert_used_count", USED),
            number("expert_feed_forward_length", FFN), real("attention.layer_norm_rms_epsilon", 1e-6),
            real("rope.freq_base", 1e6), key("tokenizer.ggml.model", STRING, text("llama")),
            strings("tokenizer.ggml.tokens", words),
            key("tokenizer.ggml.scores", ARRAY, struct.pack("<IQ", F32, vocabulary) + array.array("f", [0.0] * vocabulary).tobytes()),
            key("tokenizer.ggml.token_type", ARRAY, struct.pack("<IQ", 5, vocabulary) + array.array("i", kinds).tobytes()),
            key("tokenizer.ggml.bos_token_id", U32, struct.pack("<I", 1)),
            key("tokenizer.ggml.eos_token_id", U32, struct.pack("<I", 2))]


def tensors(layers, vocabulary):
    """Yields the name, the dimensions and whether the tensor is quantised."""
    yield "token_embd.weight", (HIDDEN, vocabulary), True
    yield "output_norm.weight", (HIDDEN,), False
    yield "output.weight", (HIDDEN, vocabulary), True
    for i in range(layers):
        layer = [("attn_norm", (HIDDEN,), False), ("attn_q", (HIDDEN, HEADS * HEAD_DIM), True),
                 ("attn_k", (HIDDEN, KV_HEADS * HEAD_DIM), True), ("attn_v", (HIDDEN, KV_HEADS * HEAD_DIM), True),
                 ("attn_q_norm", (HEAD_DIM,), False), ("attn_k_norm", (HEAD_DIM,), False),
                 ("attn_output", (HEADS * HEAD_DIM, HIDDEN), True), ("ffn_norm", (HIDDEN,), False),
                 ("ffn_gate_inp", (HIDDEN, EXPERTS), False), ("ffn_gate_exps", (HIDDEN, FFN, EXPERTS), True),
                 ("ffn_up_exps", (HIDDEN, FFN, EXPERTS), True), ("ffn_down_exps", (FFN, HIDDEN, EXPERTS), True)]
        yield from ((f"blk.{i}.{name}.weight", dims, quantised) for name, dims, quantised in layer)


def blocks(kind, generator):
    """Returns random blocks of weights whose deviation is about 1 / sqrt(HIDDEN)."""
    _, size, deviation = TYPES[kind]
    data = bytearray(generator.randbytes(PIECE_BLOCKS * size))
    if kind == "q4_0":
        data = data.translate(CENTRED)
    for i in range(PIECE_BLOCKS):
        scale = (0.5 + generator.random()) / deviation / math.sqrt(HIDDEN)
        data[i * size:i * size + 2] = struct.pack("<e", scale)
    return bytes(data)


def write_repeated(file, piece, size):
    for _ in range(size // len(piece)):
        file.write(piece)
    file.write(piece[:size % len(piece)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("out")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--type", choices=TYPES, default="q4_0")
    options = parser.parse_args()
    vocabulary = MODEL_VOCABULARY * options.layers // MODEL_LAYERS // 32 * 32
    file_type, block_bytes, _ = TYPES[options.type]
    generator = random.Random(1)
    quantised_piece = blocks(options.type, generator)
    router_piece = array.array("f", [generator.gauss(0, 1 / math.sqrt(HIDDEN)) for _ in range(EXPERTS * HIDDEN)]).tobytes()
    ones = array.array("f", [1.0] * HIDDEN).tobytes()
    head, data, at = [], [], 0
    for name, dims, quantised in tensors(options.layers, vocabulary):
        elements = math.prod(dims)
        size = elements // 32 * block_bytes if quantised else elements * 4
        head.append(text(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims) +
                    struct.pack("<IQ", file_type if quantised else 0, at))
        data.append((quantised_piece if quantised else router_piece if len(dims) > 1 else ones, size))
        at += -(-size // ALIGNMENT) * ALIGNMENT
    entries = keys(options.layers, vocabulary)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(head), len(entries)) + b"".join(entries) + b"".join(head)
    with open(options.out, "wb") as file:
        file.write(header + bytes(-len(header) % ALIGNMENT))
        for piece, size in data:
            write_repeated(file, piece, size)
            file.write(bytes(-size % ALIGNMENT))
    print(f"{options.out}: {at / 1e9:.2f} GB, {options.layers} layers, {vocabulary} tokens")


if __name__ == "__main__":
    main()
