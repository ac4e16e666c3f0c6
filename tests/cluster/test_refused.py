"""Goal: what docs/models.md says is refused, is refused, with the error that the page gives; and the page says all that this
test knows.

Method: models of tests/model/families with one change each; `cleave serve --check`, or a machine that starts, must end with
the error. The lines of the page are those of this test, in its order.

usage: test_refused.py [print]      print: the lines for the page
"""

import json
import os
import re
import subprocess
import sys
import tempfile

from cluster import BINARY, Cluster
from family_streams import tiny_folder, tiny_gguf, with_tokenizer

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "models.md")
HEADING, FENCE = "## What is refused", "```"


def config(name, **changes):
    """A model whose config.json has these changes."""
    def make(folder):
        reference = tiny_folder.read(name)
        reference["config"] |= changes
        tiny_folder.write(reference, folder)
        return checked(folder)
    return make


def file(architecture):
    """A GGUF file of this architecture."""
    def make(path):
        reference = with_tokenizer(tiny_folder.read("llama"))
        reference["gguf"]["keys"] = [[name, kind, architecture if name == "general.architecture" else value]
                                     for name, kind, value in reference["gguf"]["keys"]]
        tiny_gguf.write(reference, path)
        return checked(path)
    return make


def tokenizer(name="llama", settings=None, **changes):
    """A model whose tokenizer.json has these changes, and whose tokenizer_config.json has these settings."""
    def make(folder):
        tiny_folder.write(tiny_folder.read(name), folder)
        with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as file:
            content = json.load(file)
        tiny_folder.write_json(os.path.join(folder, "tokenizer.json"), content | changes)
        if settings is not None:
            tiny_folder.write_json(os.path.join(folder, "tokenizer_config.json"), settings)
        return started(folder, {})
    return make


def tensor(name, added, **changes):
    """A model that has another tensor in its first layer, and these changes in config.json."""
    def make(folder):
        reference = tiny_folder.read(name)
        reference["config"] |= changes
        reference["tensors"].append(["model.layers.0.self_attn." + added, [], [16], 0])
        tiny_folder.write(reference, folder)
        return started(folder, {})
    return make


def ranks(name, count):
    def make(folder):
        tiny_folder.write(tiny_folder.read(name), folder)
        return started(folder, {"tensor_parallel": count})
    return make


def checked(folder):
    """Returns the last line of `cleave serve --check`, which must fail."""
    done = subprocess.run([BINARY, "serve", "--model", folder, "--check"], capture_output=True, text=True, timeout=120,
                          check=False)
    assert done.returncode != 0, done
    return (done.stdout + done.stderr).strip().splitlines()[-1]


def started(folder, machine):
    """Returns why the machine of a cluster does not start."""
    try:
        with Cluster({"model": folder, "threads": 1, "pools": {"mixed": ["m0"]}, "machines": {"m0": machine},
                      "kv": {"memory": "16MiB"}}) as cluster:
            return f"it starts: {cluster.logged()}"
    except RuntimeError as error:
        return str(error)


# What is refused; the error, or its part behind the names of files and machines.
REFUSED = [
    (config("llama", model_type="qwen3_next"), 'key config.json/model_type is "qwen3_next"'),
    (config("llama", hidden_act="relu"),
     'key config.json/hidden_act is "relu", supported are "silu", "gelu_pytorch_tanh", "gelu_new" and "gelu"'),
    (config("qwen2", layer_types=["linear_attention"] * 3),
     'key config.json/layer_types: layer 0 is "linear_attention", supported are "full_attention" and "sliding_attention"'),
    (config("llama", rope_scaling={"rope_type": "mrope", "mrope_section": [2, 3, 3]}),
     'key config.json/rope_scaling/rope_type is "mrope"'),
    (config("deepseek2", kv_lora_rank=40), "key config.json/kv_lora_rank is 40, supported are multiples of 32"),
    (config("llama", quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True}),
     'key config.json/quantization_config/quant_method is "bitsandbytes"'),
    (config("llama", quantization_config={"quant_method": "gptq", "bits": 3, "group_size": 32, "sym": True}),
     "key config.json/quantization_config/bits is 3, supported are 4 and 8"),
    (tensor("cohere", "q_norm.weight", use_qk_norm=True),
     "tensor model.layers.0.self_attn.q_norm.weight is not one that a command-r model"),
    (tensor("phi", "q_layernorm.weight", qk_layernorm=True),
     "tensor model.layers.0.self_attn.q_layernorm.weight is not one that a phi2 model"),
    (ranks("llama", 3), "tensor parallelism of 3 ranks: the model has 2 KV heads, want up to as many ranks"),
    (tokenizer(pre_tokenizer={"type": "Whitespace"}),
     "tokenizer.json: pre_tokenizer Whitespace is not supported: want ByteLevel, Metaspace, or a normalizer that replaces "
     "blanks"),
    (tokenizer(normalizer={"type": "Precompiled", "precompiled_charsmap": ""}),
     "tokenizer.json: normalizer Precompiled is not supported"),
    (tokenizer(normalizer={"type": "Replace", "pattern": {"Regex": " +"}, "content": " "}),
     "tokenizer.json: normalizer Replace is not supported: want NFC"),
    (tokenizer(model={"type": "WordPiece", "vocab": {}}),
     "tokenizer.json: model/type is WordPiece: supported are BPE, and Unigram without ByteLevel"),
    (tokenizer(settings={"add_eos_token": True}),
     "tokenizer_config.json: add_eos_token is true: supported is false"),
]


# Families that are refused by their names: model_type, and general.architecture (None = files have another one).
FAMILIES = {"qwen3_next": "qwen3next", "qwen3_5": "qwen35", "llama4_text": "llama4", "gemma3": None, "gemma3n_text": "gemma3n",
            "qwen2_5_vl": "qwen2vl", "glm4_moe": "glm4moe", "phimoe": "phimoe", "minimax_m2": "minimax-m2", "mamba2": "mamba2",
            "falcon_h1": "falcon-h1", "jamba": "jamba", "nemotron_h": "nemotron_h", "bert": "bert", "t5": "t5"}


def families():
    """Returns what REFUSED has, for FAMILIES."""
    for kind, architecture in FAMILIES.items():
        yield config("llama", model_type=kind), f'key config.json/model_type is "{kind}", supported are "llama", '
        if architecture is not None:
            yield file(architecture), f'key general.architecture is "{architecture}", supported are "llama", '


def section_of_page():
    with open(PAGE, encoding="utf-8") as page:
        return page.read().split(HEADING + "\n", 1)[1].split("\n## ", 1)[0]


def families_of_page(section):
    """Returns the families of the paragraph that begins with "Other families"."""
    return re.findall(r"`([^`]*)`", section.split("Other families", 1)[1].split("\n\n", 1)[0])


def main():
    failed = []
    with tempfile.TemporaryDirectory(prefix="cleave-refused-") as place:
        for number, (make, want) in enumerate([*REFUSED, *families()]):
            found = make(os.path.join(place, str(number)))
            print(f"{number}: {found}", flush=True)
            if want not in found:
                failed.append(f"{number}: want {want}")
    section, wanted = section_of_page(), [want for _, want in REFUSED]
    page = section.split(FENCE)[1].strip().splitlines()
    if families_of_page(section) != list(FAMILIES):
        failed.append(f"docs/models.md names the families {families_of_page(section)}, want {list(FAMILIES)}")
    if sys.argv[1:] == ["print"]:
        print("\n".join(wanted))
    elif page != wanted:
        failed.append(f"docs/models.md differs: {[line for line in page + wanted if (line in page) != (line in wanted)]}")
    sys.exit("\n".join(failed) or 0)


if __name__ == "__main__":
    main()
