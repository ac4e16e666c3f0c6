"""first_layers: writes a GGUF model that has only the first layers of another one, as a draft model for tests and for
bench_speculation: the vocabulary is the same, and some of its drafts are right. Standard library only.

usage: first_layers.py SOURCE TARGET LAYERS"""

import re
import struct
import sys

from tiny_model import value_end

ALIGNMENT = 32


def keys_read(data, layers):
    """Returns the metadata with this number of layers, and the offset behind it."""
    count = struct.unpack_from("<Q", data, 16)[0]
    at, keys = 24, []
    for _ in range(count):
        length = struct.unpack_from("<Q", data, at)[0]
        name = bytes(data[at + 8:at + 8 + length])
        kind = struct.unpack_from("<I", data, at + 8 + length)[0]
        end = value_end(data, at + 12 + length, kind)
        keys.append(data[at:at + 8 + length] + struct.pack("<II", 4, layers) if name.endswith(b".block_count") else data[at:end])
        at = end
    return count, b"".join(keys), at


def tensors_read(data, at):
    """Returns [(name, description without its offset, offset)], and where the tensors begin."""
    found = []
    for _ in range(struct.unpack_from("<Q", data, 8)[0]):
        begin = at
        length = struct.unpack_from("<Q", data, at)[0]
        name = bytes(data[at + 8:at + 8 + length]).decode()
        dims = struct.unpack_from("<I", data, at + 8 + length)[0]
        at += 8 + length + 4 + 8 * dims + 4
        found.append((name, data[begin:at], struct.unpack_from("<Q", data, at)[0]))
        at += 8
    return found, at + -at % ALIGNMENT


def write(source, path, layers):
    """Writes the first `layers` layers of the GGUF file `source` to `path`. Returns `path`."""
    with open(source, "rb") as file:
        data = file.read()
    assert data[:4] == b"GGUF", f"{source} is no GGUF file"
    key_count, keys, at = keys_read(data, layers)
    found, begin = tensors_read(data, at)
    offsets = sorted(offset for *_, offset in found) + [len(data) - begin]
    infos, parts, offset = [], [], 0
    for name, description, old in found:
        layer = re.match(r"blk\.(\d+)\.", name)
        if layer and int(layer.group(1)) >= layers:
            continue
        content = data[begin + old:begin + offsets[offsets.index(old) + 1]]
        infos.append(description + struct.pack("<Q", offset))
        parts.append(content + bytes(-len(content) % ALIGNMENT))
        offset += len(parts[-1])
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), key_count) + keys + b"".join(infos)
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        for part in parts:
            file.write(part)
    return path


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], int(sys.argv[3]))
