"""tiny_gguf: writes the tiny random model of a family as llama.cpp's converter would write it (convert.py found out how).
Standard library only."""

import array
import base64
import itertools
import math
import struct

import tiny_folder

PACK = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY, ALIGNMENT = 8, 9, 32
KINDS = {"F32": (0, 4), "F16": (1, 2), "BF16": (30, 2), "MXFP4": (39, 17 / 32)}


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def scalar(kind, value):
    return text(value) if kind == STRING else struct.pack(PACK[kind], value)


def key(name, kind, value):
    if not isinstance(kind, list):
        return text(name) + struct.pack("<I", kind) + scalar(kind, value)
    items = b"".join(scalar(kind[1], item) for item in value)
    return text(name) + struct.pack("<IIQ", ARRAY, kind[1], len(value)) + items


def widened(data):
    """Returns BF16 elements as F32."""
    return b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))


def paired(data, heads, rows):
    """Puts the rows of each head's two halves alternately (convert.paired)."""
    size, half = len(data) // rows, rows // heads // 2
    order = (head * 2 * half + part * half + i for head in range(heads) for i in range(half) for part in range(2))
    return b"".join(data[row * size:(row + 1) * size] for row in order)


def cut(data, shape, source_shape, begin):
    """Returns rows [begin, begin + shape[-2]) of each matrix of the source."""
    size, rows = len(data) // math.prod(source_shape) * shape[-1], source_shape[-2]
    return b"".join(data[(i * rows + begin) * size:(i * rows + begin + shape[-2]) * size] for i in range(math.prod(shape[:-2])))


def order(verb, shape, source_shape, first, step):
    """Yields the index in the source of each element of a tensor that convert.how_made describes by this verb."""
    if verb == "every":
        for i in range(math.prod(shape[:-1])):
            yield from range(i * source_shape[-1] + first, (i + 1) * source_shape[-1], step)
    elif verb == "turned":
        experts, cols, each = source_shape
        yield from ((expert * cols + col) * each + first + step * row
                    for expert in range(experts) for row in range(shape[1]) for col in range(cols))
    else:
        heads, rank = shape[0], source_shape[1]
        each = source_shape[0] // heads
        plain = shape[2] if verb == "head_keys" else each - shape[1]
        for head in range(heads):
            if verb == "head_keys":
                yield from ((head * each + i) * rank + j for j in range(rank) for i in range(plain))
            else:
                yield from range((head * each + plain) * rank, (head + 1) * each * rank)


def mxfp4(blocks, scales, shape, first, step):
    """Returns blocks of a GGUF file: the scale, then the first 16 elements in the low halves of bytes."""
    experts, rows, groups = shape[0], shape[1], shape[2] // 32
    made_of = bytearray()
    for at in (((expert * rows * step) + first + step * row) * groups + group
               for expert in range(experts) for row in range(rows) for group in range(groups)):
        halves = [byte >> shift & 15 for byte in blocks[16 * at:16 * at + 16] for shift in (0, 4)]
        made_of.append(scales[at])
        made_of += bytes(low | high << 4 for low, high in zip(halves[:16], halves[16:]))
    return bytes(made_of)


def made(sources, shape, source, how):
    """Returns the elements of a tensor, in BF16 or, if they are changed, in F32."""
    verb, _, number = how.partition(" ")
    if verb == "stack":
        return b"".join(sources[source.replace("#", str(i))][0] for i in range(int(number)))
    data, source_shape = sources[source]
    numbers = [int(each) for each in number.split()]
    if verb == "mxfp4":
        return mxfp4(data, sources[source.replace("_blocks", "_scales")][0], shape, *numbers)
    if verb in ("every", "turned", "head_keys", "head_values"):
        words = memoryview(data).cast("H")
        return array.array("H", (words[i] for i in order(verb, shape, source_shape, *(numbers or (0, 1))))).tobytes()
    if verb == "pairs":
        return paired(data, int(number), source_shape[0])
    if verb == "rows":
        return cut(data, shape, source_shape, int(number))
    if verb == "plus":
        values = struct.unpack(f"<{len(data) // 2}f", widened(data))
        return struct.pack(f"<{len(values)}f", *(value + 1 for value in values))
    return data


def multiplied(data, factor):
    """Returns F32 elements times the factor."""
    return struct.pack(f"<{len(data) // 4}f", *(value[0] * factor for value in struct.iter_unpack("<f", data)))


def tensors(reference):
    """Yields (name, shape, kind, elements). A tensor that has a factor becomes F32."""
    factors = reference["gguf"].get("factors", {})
    sources = {name: (tiny_folder.elements(reference, name, shape, base, "BF16"), shape)
               for name, shape, base in tiny_folder.tensors(reference)}
    for pattern, ranges, shape, kind, source, how in reference["gguf"]["tensors"]:
        for numbers in itertools.product(*(range(first, last + 1) for first, last in ranges)):
            name = pattern.replace("*", "{}").format(*numbers)
            data = base64.b64decode(how[7:]) if how.startswith("values ") else \
                made(sources, shape, source.replace("*", "{}").format(*numbers), how)
            if pattern in factors:
                kind = "F32"
            if kind == "F32" and len(data) == 2 * math.prod(shape):
                data = widened(data)
            if pattern in factors:
                data = multiplied(data, factors[pattern])
            assert len(data) == KINDS[kind][1] * math.prod(shape), name
            yield name, shape, kind, data


# Models with heads for GPUs that a GGUF file cannot describe, with the reason.
UNLIKE_WIDE = {"rope-llama3": "the table of factors belongs to smaller heads"}


def score_factors(config, head, patterns):
    """Returns {pattern: factor} of the tensors that bring the factor of scores into a file: Gemma's files have no key for
    it, and readers take 1 / sqrt(head). So queries, or the weights of their norm, are multiplied."""
    scalar = config.get("query_pre_attn_scalar", head)
    if scalar == head:
        return {}
    norms = [pattern for pattern in patterns if "attn_q_norm" in pattern]
    return {pattern: math.sqrt(head / scalar) for pattern in norms or [each for each in patterns if "attn_q." in each]}


def wide_shape(shape, source_shape, how):
    """Returns the shape of a tensor that is made in this way from a larger source."""
    verb, _, number = how.partition(" ")
    step = int(number.split()[1]) if verb in ("turned", "mxfp4") and number else 1
    if verb == "stack":
        return [int(number), *source_shape]
    if verb == "rows":
        return [*shape[:-1], source_shape[-1]]
    if verb == "turned":
        return [source_shape[0], source_shape[2] // step, source_shape[1]]
    if verb == "mxfp4":
        return [source_shape[0], source_shape[1] // step, source_shape[2] * 32]
    return shape if verb == "every" else source_shape


def wide(reference, larger):
    """Returns `larger`, which is the model with heads for GPUs, with the description of its GGUF file."""
    config, sources = larger["config"], {name: shape for name, shape, _ in tiny_folder.tensors(larger)}
    heads = reference["config"]["num_attention_heads"]
    head, new_head = (each.get("head_dim") or each["hidden_size"] // heads for each in (reference["config"], config))
    sizes = {"embedding_length": config["hidden_size"], "attention.key_length": new_head, "attention.value_length": new_head}
    keys, tensors_of = [], []
    for name, kind, value in reference["gguf"]["keys"]:
        short = name.partition(".")[2]
        value = value * new_head // head if short == "rope.dimension_count" else sizes.get(short, value)
        keys.append([name, kind, value])
    for pattern, ranges, shape, kind, source, how in reference["gguf"]["tensors"]:
        first = source.replace("#", "0").replace("*", "{}").format(*(each[0] for each in ranges))
        tensors_of.append([pattern, ranges, wide_shape(shape, sources[first], how), kind, source, how])
    factors = score_factors(config, new_head, [pattern for pattern, *_ in tensors_of])
    return larger | {"gguf": {"keys": keys, "tensors": tensors_of, "factors": factors}}


def write(reference, path):
    keys, infos, body = reference["gguf"]["keys"], [], b""
    for name, shape, kind, data in tensors(reference):
        dims = b"".join(struct.pack("<Q", size) for size in reversed(shape))
        infos.append(text(name) + struct.pack("<I", len(shape)) + dims + struct.pack("<IQ", KINDS[kind][0], len(body)))
        body += data + b"\0" * (-len(data) % ALIGNMENT)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(keys)) + b"".join(key(*each) for each in keys) + b"".join(infos)
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % ALIGNMENT) + body)
