"""tiny_model: writes a model that computes about ten times faster than the default model, for cluster tests that do not
depend on the answers' contents. The file has the default model's tokenizer, number of layers and KV shape, so that
blocks, bytes of KV and splits over stages and ranks are those of the default model; everything else is small and
random. Standard library only."""

import os
import random
import struct
import sys

HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, LAYERS = 64, 96, 3, 3, 64, 30
FORMAT = 1  # Add one with each change of this file that changes the model.
F32, Q8_0 = 0, 8
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9
SHAPE = {b"llama.block_count": LAYERS, b"llama.embedding_length": HIDDEN, b"llama.feed_forward_length": FFN,
         b"llama.attention.head_count": HEADS, b"llama.attention.head_count_kv": KV_HEADS,
         b"llama.rope.dimension_count": HEAD_DIM, b"llama.attention.key_length": HEAD_DIM,
         b"llama.attention.value_length": HEAD_DIM}


def value_end(data, at, kind):
    """Returns the offset behind a metadata value of this type that begins at `at`."""
    if kind == STRING:
        return at + 8 + struct.unpack_from("<Q", data, at)[0]
    if kind == ARRAY:
        item, count = struct.unpack_from("<IQ", data, at)
        at += 12
        if item in SIZES:
            return at + count * SIZES[item]
        for _ in range(count):
            at = value_end(data, at, item)
        return at
    return at + SIZES[kind]


def metadata(data, layers, experts, window, context):
    """Returns the source file's keys with the shape of the tiny model, this number of layers and of experts: (number of
    keys, their bytes, size of the vocabulary). With a window, they are keys of Gemma 3."""
    count = struct.unpack_from("<Q", data, 16)[0]
    at, keys, vocabulary = 24, [], 0
    missing = {**SHAPE, b"llama.block_count": layers}
    if experts > 0:
        missing |= {b"llama.expert_count": experts, b"llama.expert_used_count": 2, b"llama.expert_feed_forward_length": FFN}
    if window > 0:
        missing |= {b"llama.attention.sliding_window": window, b"llama.context_length": context}
    for _ in range(count):
        begin = at
        length = struct.unpack_from("<Q", data, at)[0]
        key = bytes(data[at + 8:at + 8 + length])
        at += 8 + length
        kind = struct.unpack_from("<I", data, at)[0]
        end = value_end(data, at + 4, kind)
        if key == b"tokenizer.ggml.tokens":
            vocabulary = struct.unpack_from("<IQ", data, at + 4)[1]
        if key in missing:
            keys.append(data[begin:at] + struct.pack("<II", 4, missing.pop(key)))
        else:
            keys.append(data[begin:end])
        at = end
    for key, value in missing.items():
        keys.append(struct.pack("<Q", len(key)) + key + struct.pack("<II", 4, value))
    if window > 0:
        keys = [renamed(key) for key in keys]
    return len(keys), b"".join(keys), vocabulary


def renamed(key):
    """Returns a key of Llama, with its value, as the key of Gemma 3."""
    length = struct.unpack_from("<Q", key)[0]
    name, value = key[8:8 + length], key[8 + length:]
    if name == b"general.architecture":
        value = struct.pack("<IQ", STRING, 6) + b"gemma3"
    name = name.replace(b"llama.", b"gemma3.")
    return struct.pack("<Q", len(name)) + name + value


def tensor(draw, kind, cols, rows, deviation):
    """Returns random elements with about this standard deviation. Vectors are near 1."""
    if kind == F32 and rows == 0:
        return struct.pack(f"<{cols}f", *(1 + draw.gauss(0, 0.2) for _ in range(cols)))
    if kind == F32:
        return struct.pack(f"<{cols * rows}f", *(draw.gauss(0, deviation) for _ in range(cols * rows)))
    scale = struct.pack("<e", deviation / 74)  # Uniform signed bytes have a standard deviation of 74.
    noise = draw.randbytes(cols * rows)
    return b"".join(scale + noise[at:at + 32] for at in range(0, len(noise), 32))


def feed_forward(experts):
    """Returns the tensors of a layer's feed-forward: (name, type, columns, rows, deviation). With experts, the rows of the
    matrices of all experts follow each other."""
    unit, down = HIDDEN ** -0.5, FFN ** -0.5
    if experts == 0:
        return [("ffn_gate", Q8_0, HIDDEN, FFN, unit), ("ffn_up", Q8_0, HIDDEN, FFN, unit), ("ffn_down", Q8_0, FFN, HIDDEN, down)]
    return [("ffn_gate_inp", F32, HIDDEN, experts, 2 * unit), ("ffn_gate_exps", Q8_0, HIDDEN, experts * FFN, unit),
            ("ffn_up_exps", Q8_0, HIDDEN, experts * FFN, unit), ("ffn_down_exps", Q8_0, FFN, experts * HIDDEN, down)]


def tensors(draw, vocabulary, layers, experts, gemma):
    """Returns [(name, type, columns, rows, bytes)]; rows 0 = a vector."""
    q, kv, unit = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, HIDDEN ** -0.5
    shapes = [("token_embd.weight", Q8_0, HIDDEN, vocabulary, 0.1 if gemma else 0.7),
              ("output_norm.weight", F32, HIDDEN, 0, 0)]
    if gemma:  # Embeddings are scaled there: with them as the output, an answer would repeat one token.
        shapes.append(("output.weight", Q8_0, HIDDEN, vocabulary, 0.5))
    for layer in range(layers):
        shapes += [(f"blk.{layer}.{name}.weight", kind, cols, rows, deviation) for name, kind, cols, rows, deviation in (
            ("attn_norm", F32, HIDDEN, 0, 0), ("attn_q", Q8_0, HIDDEN, q, 1.5 * unit),
            ("attn_k", Q8_0, HIDDEN, kv, 1.5 * unit), ("attn_v", Q8_0, HIDDEN, kv, unit),
            ("attn_output", Q8_0, q, HIDDEN, q ** -0.5), ("ffn_norm", F32, HIDDEN, 0, 0), *feed_forward(experts))]
        if gemma:
            shapes += [(f"blk.{layer}.{name}.weight", F32, cols, 0, 0) for name, cols in (
                ("attn_q_norm", HEAD_DIM), ("attn_k_norm", HEAD_DIM), ("post_attention_norm", HIDDEN),
                ("post_ffw_norm", HIDDEN))]
    return [(name, kind, cols, rows, tensor(draw, kind, cols, rows, deviation))
            for name, kind, cols, rows, deviation in shapes]


def dims_of(name, cols, rows, experts):
    if rows == 0:
        return struct.pack("<IQ", 1, cols)
    if "_exps" in name:
        return struct.pack("<IQQQ", 3, cols, rows // experts, experts)
    return struct.pack("<IQQ", 2, cols, rows)


def file_write(path, key_count, keys, found, experts):
    """Writes a GGUF file with these keys and tensors."""
    infos, offset = [], 0
    for name, kind, cols, rows, content in found:
        dims = dims_of(name, cols, rows, experts)
        infos.append(struct.pack("<Q", len(name)) + name.encode() + dims + struct.pack("<IQ", kind, offset))
        offset += len(content) + -len(content) % 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(found), key_count) + keys + b"".join(infos)
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32))
        for *_, content in found:
            file.write(content + bytes(-len(content) % 32))


def parts_write(stem, count, key_count, keys, found, experts):
    """Writes the model to `count` files. The first has its keys. Returns the path of the first."""
    paths = [f"{stem}-{part + 1:05}-of-{count:05}.gguf" for part in range(count)]
    for part, path in enumerate(paths):
        split = b"".join(struct.pack("<Q", len(key)) + key + struct.pack("<I" + form, kind, value) for key, kind, form, value in (
            (b"split.no", 2, "H", part), (b"split.count", 2, "H", count), (b"split.tensors.count", 5, "i", len(found))))
        file_write(path, 3 + (key_count if part == 0 else 0), split + (keys if part == 0 else b""), found[part::count], experts)
    return paths[0]


def write(source, path, layers=LAYERS, experts=0, parts=1, window=0, context=0):
    """Writes the tiny model to `path`, with the tokenizer of the GGUF file `source`; with fewer layers it is even faster.
    With experts, a row uses two of them in each layer. With a window, it is a Gemma 3 of this context: each sixth layer
    reads all tokens, the others have the window. With several parts, `path` is what their names begin with. Returns
    the path of the file, or of the first one."""
    with open(source, "rb") as file:
        data = file.read(8 << 20)  # Only the keys are needed, not the tensors behind them.
    assert data[:4] == b"GGUF", f"{source} is no GGUF file"
    key_count, keys, vocabulary = metadata(data, layers, experts, window, context)
    found = tensors(random.Random(1), vocabulary, layers, experts, window > 0)
    if parts > 1:
        return parts_write(path, parts, key_count, keys, found, experts)
    file_write(path, key_count, keys, found, experts)
    return path


def tiny_model(source):
    """Returns the path of the tiny model, which is written beside `source` if it does not exist."""
    path = os.path.join(os.path.dirname(source), f"cleave-tests-tiny-{FORMAT}.gguf")
    if not os.path.exists(path):
        new = f"{path}.{os.getpid()}"
        write(source, new)
        os.replace(new, path)
    return path


def renamed_token(path, source):
    """Writes `source` with another text of token 300, of the same length."""
    with open(source, "rb") as file:
        data = bytearray(file.read())
    at = data.index(b"tokenizer.ggml.tokens") + len(b"tokenizer.ggml.tokens") + 4 + 4 + 8
    for _ in range(300):
        at += 8 + struct.unpack_from("<Q", data, at)[0]
    data[at + 8] = data[at + 8] ^ 1
    with open(path, "wb") as file:
        file.write(data)
    return path


if __name__ == "__main__":
    print(tiny_model(sys.argv[1]))
