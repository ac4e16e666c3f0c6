"""tiny_folder: writes the tiny random model of a family as a folder, as transformers would save it. Standard library only.

tests/data/families/NAME.json has what transformers knows of the family: config.json, the names and shapes of the tensors,
and the logits that transformers computes (reference.py writes the file). wide/NAME.json has the same of a model whose heads
GPUs can compute. The weights are not stored: each tensor is the output of SHAKE-256 for its name, mapped to 256 values. So
a folder is the same bytes on every computer."""

import base64
import hashlib
import itertools
import json
import math
import os
import struct

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "data", "families")
WIDE = "wide/"
TOKENS, VOCABULARY = 48, 128
# The logits that are stored: at these positions, of these tokens.
POSITIONS, ENTRIES = [0, 7, 18, 31, 40, 47], list(range(0, VOCABULARY, 2))
MATRIX_GAIN, VECTOR_DEVIATION, EMBEDDING_DEVIATION = 1.4, 0.2, 1.0


def names(folder=""):
    """Returns the names of all models, or of those in WIDE."""
    return sorted(folder + file[:-5] for file in os.listdir(os.path.join(DATA, folder)) if file.endswith(".json"))


def read(name):
    with open(os.path.join(DATA, name + ".json"), encoding="utf-8") as file:
        return json.load(file)


def token_ids(name):
    return [byte % VOCABULARY for byte in hashlib.shake_256(f"{name}: tokens".encode()).digest(TOKENS)]


def values():
    """Returns 256 numbers of mean 0 and standard deviation 1, of which few are large. Only operations that IEEE 754
    rounds correctly."""
    units = [(2 * i - 255) / 255 for i in range(256)]
    shaped = [u * (0.25 + u * u) for u in units]
    deviation = math.sqrt(sum(s * s for s in shaped) / 256)
    return [s / deviation for s in shaped]


VALUES = values()


def bf16(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return struct.pack("<H", (bits + 0x7fff + (bits >> 16 & 1)) >> 16)


def deviation(tensor, shape):
    if len(shape) == 1:
        return VECTOR_DEVIATION
    if "embed_tokens" in tensor:
        return EMBEDDING_DEVIATION
    return MATRIX_GAIN / math.sqrt(shape[-1] if len(shape) == 2 else math.sqrt(shape[-1] * shape[-2]))


def dtype_of(tensor, dtype):
    """Returns the type of the tensor in a folder whose weights have this type: MXFP4 is stored as bytes."""
    return "U8" if tensor.endswith(("_blocks", "_scales")) else dtype


def tensor_bytes(tensor, shape, base, dtype):
    """Returns the elements of the tensor in the form of a safetensors file: base + deviation * random. Of MXFP4, blocks
    are random bytes; scales are 2^-8 and 2^-7, and 2^-2 and 2^-1 for gate and up, which so reach their limit."""
    if dtype_of(tensor, dtype) == "U8":
        random = hashlib.shake_256(tensor.encode()).digest(math.prod(shape))
        least = 125 if "gate_up" in tensor else 119
        return random if tensor.endswith("_blocks") else bytes(least + (byte & 1) for byte in random)
    pack = bf16 if dtype == "BF16" else lambda value: struct.pack("<f", value)
    scale = deviation(tensor, shape)
    table = [pack(base + scale * value) for value in VALUES]
    random = hashlib.shake_256(tensor.encode()).digest(math.prod(shape))
    return b"".join(map(table.__getitem__, random))


def elements(reference, name, shape, base, dtype):
    """Returns the elements of the tensor: those that reference["values"] has as numbers, or random ones."""
    if name not in reference.get("values", {}):
        return tensor_bytes(name, shape, base, dtype)
    pack = bf16 if dtype == "BF16" else lambda value: struct.pack("<f", value)
    values_of = reference["values"][name]
    assert len(values_of) == math.prod(shape), name
    return b"".join(map(pack, values_of))


def tensors(reference):
    """Yields (name, shape, base) of all tensors. A stored name has a * for each number; its ranges follow."""
    for pattern, ranges, shape, base in reference["tensors"]:
        for numbers in itertools.product(*(range(first, last + 1) for first, last in ranges)):
            yield pattern.replace("*", "{}").format(*numbers), shape, base


def write_weights(reference, path):
    header, data, at = {"__metadata__": {"format": "pt"}}, [], 0
    dtype = reference.get("dtype", "BF16")
    for name, shape, base in tensors(reference):
        data.append(elements(reference, name, shape, base, dtype))
        header[name] = {"dtype": dtype_of(name, dtype), "shape": shape, "data_offsets": [at, at + len(data[-1])]}
        at += len(data[-1])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def tokenizer():
    """Returns a tokenizer.json of single characters; ids without a character have the name of a token of control."""
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2}
    vocabulary |= {chr(i) if 33 <= i < 127 else f"<{i}>": i for i in range(3, VOCABULARY)}
    special = [{"id": i, "content": content, "special": True} for content, i in vocabulary.items() if i < 3]
    return {"version": "1.0", "truncation": None, "added_tokens": special, "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
            "pre_tokenizer": None, "post_processor": None, "decoder": None,
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                      "vocab": vocabulary, "merges": []}}


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)


def write(reference, folder):
    os.makedirs(folder, exist_ok=True)
    write_json(os.path.join(folder, "config.json"), reference["config"])
    write_json(os.path.join(folder, "tokenizer.json"), tokenizer())
    write_weights(reference, os.path.join(folder, "model.safetensors"))


def write_expected(name, reference, path):
    """Writes what family.c reads: the numbers of tokens, positions and entries, these, and the logits."""
    ids = token_ids(name)
    numbers = [len(ids), len(POSITIONS), len(ENTRIES), *ids, *POSITIONS, *ENTRIES]
    with open(path, "wb") as file:
        file.write(struct.pack(f"<{len(numbers)}I", *numbers) + base64.b64decode(reference["logits"]))
