"""hf_tokenizer: writes the tokenizer of a GGUF file (byte-level BPE, as the default model has) as a folder that Hugging
Face's libraries load, because benchmark clients count tokens with it. Standard library only."""

import json
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cluster"))
from tiny_model import ARRAY, STRING, value_end  # noqa: E402

CONTROL = 3  # Type of a control token.


def value_at(data, at, kind):
    if kind == STRING:
        return bytes(data[at + 8:value_end(data, at, kind)]).decode()
    if kind == ARRAY:
        item, count = struct.unpack_from("<IQ", data, at)
        at += 12
        if item == 5:
            return list(struct.unpack_from(f"<{count}i", data, at))
        found = []
        for _ in range(count):
            found.append(value_at(data, at, item))
            at = value_end(data, at, item)
        return found
    return struct.unpack_from({4: "<I", 5: "<i", 7: "<?"}[kind], data, at)[0] if kind in (4, 5, 7) else None


def keys_of(path):
    """Returns {key: value} of the tokenizer's metadata."""
    with open(path, "rb") as file:
        data = memoryview(file.read(64 << 20))
    at, found = 24, {}
    for _ in range(struct.unpack_from("<Q", data, 16)[0]):
        length = struct.unpack_from("<Q", data, at)[0]
        key = bytes(data[at + 8:at + 8 + length]).decode()
        kind = struct.unpack_from("<I", data, at + 8 + length)[0]
        at += 12 + length
        if key.startswith("tokenizer."):
            found[key.removeprefix("tokenizer.").removeprefix("ggml.")] = value_at(data, at, kind)
        at = value_end(data, at, kind)
    return found


def write(model_path, folder):
    """Writes tokenizer.json and tokenizer_config.json. Returns the folder."""
    keys = keys_of(model_path)
    tokens = keys["tokens"]
    added = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, token in enumerate(tokens) if keys["token_type"][i] == CONTROL]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {token: i for i, token in enumerate(tokens)}, "merges": keys["merges"]},
    }
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 8192,
              "bos_token": tokens[keys["bos_token_id"]], "eos_token": tokens[keys["eos_token_id"]],
              "chat_template": keys.get("chat_template")}
    for name, content in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        with open(os.path.join(folder, name), "w") as file:
            json.dump(content, file)
    return folder
