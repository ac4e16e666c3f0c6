"""draft_layers: tiny DeepSeek-V3 models with a draft layer (multi-token prediction), as folders and as GGUF files; made of
the random model of tests/model/families without one."""

import hashlib

from family_streams import tiny_folder, tiny_gguf, with_tokenizer

LAYERS, HIDDEN, VOCABULARY = 3, 64, tiny_folder.VOCABULARY
LAYER = f"model.layers.{LAYERS}."
# Name in a folder, name in a GGUF file, shape, type in a GGUF file, base.
TENSORS = [("eh_proj.weight", "nextn.eh_proj.weight", [HIDDEN, 2 * HIDDEN], "BF16", 0),
           ("enorm.weight", "nextn.enorm.weight", [HIDDEN], "F32", 1),
           ("hnorm.weight", "nextn.hnorm.weight", [HIDDEN], "F32", 1),
           ("shared_head.norm.weight", "nextn.shared_head_norm.weight", [HIDDEN], "F32", 1),
           ("embed_tokens.weight", "nextn.embed_tokens.weight", [VOCABULARY, HIDDEN], "BF16", 0),
           ("shared_head.head.weight", "nextn.shared_head_head.weight", [VOCABULARY, HIDDEN], "BF16", 0)]
SHARED = ("embed_tokens.weight", "shared_head.head.weight")  # A file may have them once, outside the draft layer.


def longer(entry):
    """Returns the entry of tensors with the draft layer, if the last layer has such tensors."""
    pattern, ranges, *rest = entry
    if ranges and ranges[0][1] == LAYERS - 1:
        ranges = [[ranges[0][0], LAYERS], *ranges[1:]]
    return [pattern, ranges, *rest]


def random_model(shares=False):
    """Returns the description (tiny_folder, tiny_gguf) of a random model with a draft layer."""
    reference = with_tokenizer(tiny_folder.read("deepseek3"))
    own = [each for each in TENSORS if not (shares and each[0] in SHARED)]
    keys = [[name, kind, LAYERS + 1 if name.endswith(".block_count") else value]
            for name, kind, value in reference["gguf"]["keys"]] + [["deepseek2.nextn_predict_layers", 4, 1]]
    tensors = [longer(entry) for entry in reference["tensors"]]
    tensors += [[LAYER + name, [], shape, base] for name, _, shape, _, base in own]
    of_gguf = [longer(entry) for entry in reference["gguf"]["tensors"]]
    of_gguf += [[f"blk.{LAYERS}.{name}", [], shape, kind, LAYER + source, "same"] for source, name, shape, kind, _ in own]
    return reference | {"tensors": tensors, "gguf": reference["gguf"] | {"keys": keys, "tensors": of_gguf}}


def shifted(row, by):
    return [row[(i - by) % HIDDEN] for i in range(HIDDEN)]


def unit_rows(by):
    """Returns the rows of the matrix that shifts a vector by this number."""
    return [[float(column == (row - by) % HIDDEN) for column in range(HIDDEN)] for row in range(HIDDEN)]


def right_model(reads):
    """Returns a model whose draft layer is right. All layers add nothing, so a token depends only on the token before it.
    Embeddings of tokens that follow each other are one vector, shifted by one more each time. The draft layer reads only
    the "token", whose follower it drafts; or only the "final" vector, from which it drafts the follower of the most
    probable token."""
    reference, values, none = random_model(), {}, [0.0] * HIDDEN
    for name, shape, base in tiny_folder.tensors(reference):
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            values[name] = [0.0] * (shape[0] * shape[1])
        elif base == 1:
            values[name] = [1.0] * shape[0]
    seeds = [[tiny_folder.VALUES[byte] for byte in hashlib.shake_256(bytes([seed])).digest(HIDDEN)]
             for seed in range(VOCABULARY // HIDDEN)]
    embeddings = [shifted(seed, by) for seed in seeds for by in range(HIDDEN)]
    before = [embeddings[token // HIDDEN * HIDDEN + (token - 1) % HIDDEN] for token in range(VOCABULARY)]
    projection = [row + none for row in unit_rows(0)] if reads == "token" else [none + row for row in unit_rows(1)]
    for name, rows, factor in (("model.embed_tokens.weight", embeddings, 1), (LAYER + "embed_tokens.weight", embeddings, 1),
                               ("lm_head.weight", before, 0.11), (LAYER + "shared_head.head.weight", before, 0.11),
                               (LAYER + "eh_proj.weight", projection, 1)):
        values[name] = [factor * value for row in rows for value in row]
    return reference | {"values": values}


def write(reference, path):
    """Writes a GGUF file if the path ends in .gguf, else a folder. Returns the path."""
    (tiny_gguf if path.endswith(".gguf") else tiny_folder).write(reference, path)
    return path
