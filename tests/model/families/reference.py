#!/usr/bin/env python3
"""reference: computes what tests/data/families/NAME.json and, of a model that GPUs can compute, wide/NAME.json say of a
family, with transformers and torch.

usage: reference.py [NAME... | wide/NAME...]      default: all of them

To add a family, add a row to FAMILIES and run this program with the row's name. A row is the model_type of transformers
and the arguments of its configuration where SMALL does not suit; a name with a suffix is a variant of the family. Turn on
everything that the family can have (windows, scaling, biases), and make windows smaller than the 48 tokens."""

import base64
import json
import os
import re
import sys
import tempfile

import tiny_folder

SMALL = {"num_hidden_layers": 3, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": tiny_folder.VOCABULARY, "max_position_embeddings": 512,
         "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "tie_word_embeddings": False}

LONGROPE = {"short_factor": [1 + 0.25 * i for i in range(8)], "long_factor": [1 + i * i for i in range(8)]}


def rope(kind, **parameters):
    """Returns a row for a way to scale the frequencies of the rotary embedding."""
    return "llama", {"rope_parameters": {"rope_type": kind, "rope_theta": 1000.0, **parameters}}

GPT_OSS = {"num_hidden_layers": 4, "head_dim": 32, "num_local_experts": 8, "num_experts_per_tok": 3, "sliding_window": 20,
           "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "beta_fast": 4.0, "truncate": False,
                               "original_max_position_embeddings": 16}}


FAMILIES = {
    "llama": ("llama", {"rms_norm_eps": 1e-5}),
    "llama-biases": ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "llama-gelu": ("llama", {"hidden_act": "gelu_pytorch_tanh"}),
    "mistral": ("mistral", {"head_dim": 32, "sliding_window": None}),
    "mixtral": ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}),
    "qwen2": ("qwen2", {}),
    "qwen2_moe": ("qwen2_moe", {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32,
                                "shared_expert_intermediate_size": 64, "mlp_only_layers": [1]}),
    "qwen3": ("qwen3", {"head_dim": 32}),
    "qwen3_moe": ("qwen3_moe", {"head_dim": 32, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32,
                                "norm_topk_prob": True}),
    "olmoe": ("olmoe", {"num_experts": 8, "num_experts_per_tok": 3, "intermediate_size": 32}),
    "granitemoe": ("granitemoe", {"num_local_experts": 8, "num_experts_per_tok": 3, "intermediate_size": 32,
                                  "embedding_multiplier": 2.5, "attention_multiplier": 0.3, "residual_multiplier": 0.6,
                                  "logits_scaling": 0.5}),
    "gpt_oss": ("gpt_oss", {**GPT_OSS}),
    "gpt_oss-limit": ("gpt_oss", {**GPT_OSS, "swiglu_limit": 0.75, "swiglu_alpha": 1.25}),
    "gpt_oss-mxfp4": ("gpt_oss", {**GPT_OSS, "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}}),
    "rope-linear": rope("linear", factor=4.0),
    "rope-llama3": rope("llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                        original_max_position_embeddings=16),
    "rope-yarn": rope("yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=4.0),
    "rope-yarn-mscale": rope("yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=4.0, truncate=False,
                             mscale=1.0, mscale_all_dim=0.5),
    "rope-longrope": rope("longrope", **LONGROPE, original_max_position_embeddings=16),
    "rope-longrope-short": rope("longrope", **LONGROPE, original_max_position_embeddings=512, factor=2.0),
    "rope-dynamic": rope("dynamic", factor=4.0),
    "rope-proportional": rope("proportional", partial_rotary_factor=0.5),
    "gemma2": ("gemma2", {"num_hidden_layers": 4, "head_dim": 32, "sliding_window": 20, "query_pre_attn_scalar": 32,
                          "attn_logit_softcapping": 4.0, "final_logit_softcapping": 20.0, "tie_word_embeddings": True}),
    "gemma3": ("gemma3_text", {"num_hidden_layers": 7, "head_dim": 32, "sliding_window": 20, "query_pre_attn_scalar": 32,
                               "tie_word_embeddings": True}),
    "gemma3-layers": ("gemma3_text", {"num_hidden_layers": 4, "sliding_window": 20, "query_pre_attn_scalar": 40,
                                      "tie_word_embeddings": True, "layer_types":
                                      ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]}),
    "mistral-window": ("mistral", {"head_dim": 16, "sliding_window": 20}),
    "deepseek2": ("deepseek_v2", {"num_key_value_heads": 4, "q_lora_rank": None, "kv_lora_rank": 32,
                                  "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 32, "head_dim": 8,
                                  "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1,
                                  "moe_intermediate_size": 32, "first_k_dense_replace": 1, "topk_method": "greedy"}),
    "deepseek2-groups": ("deepseek_v2", {"num_key_value_heads": 4, "q_lora_rank": 48, "kv_lora_rank": 32,
                                         "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0,
                                                             "original_max_position_embeddings": 64, "mscale": 0.707,
                                                             "mscale_all_dim": 0.707},
                                         "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 32, "head_dim": 8,
                                         "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 2,
                                         "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.0,
                                         "moe_intermediate_size": 32, "first_k_dense_replace": 1,
                                         "topk_method": "group_limited_greedy"}),
    "deepseek3": ("deepseek_v3", {"num_key_value_heads": 4, "q_lora_rank": 48, "kv_lora_rank": 64,
                                  "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 32, "head_dim": 8,
                                  "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 1,
                                  "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5,
                                  "scoring_func": "sigmoid", "topk_method": "noaux_tc",
                                  "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0,
                                                      "original_max_position_embeddings": 64, "mscale": 1.0,
                                                      "mscale_all_dim": 1.0},
                                  "moe_intermediate_size": 32, "first_k_dense_replace": 1}),
    "phi3": ("phi3", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.75}}),
    "granite": ("granite", {"embedding_multiplier": 2.5, "attention_multiplier": 0.3, "residual_multiplier": 0.6,
                            "logits_scaling": 3.0, "attention_bias": True, "mlp_bias": True}),
    "olmo2": ("olmo2", {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
    "olmo3": ("olmo3", {"num_hidden_layers": 5, "sliding_window": 20, "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
        "full_attention": {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "beta_fast": 4.0,
                           "original_max_position_embeddings": 16}}}),
    "cohere2": ("cohere2", {"num_hidden_layers": 5, "sliding_window": 20, "tie_word_embeddings": True, "rotary_pct": 1.0}),
    "cohere": ("cohere", {"tie_word_embeddings": True, "logit_scale": 0.25, "attention_bias": True}),
    "glm": ("glm", {"head_dim": 16, "attention_bias": True}),
    "glm4": ("glm4", {"head_dim": 32, "attention_bias": True}),
    "smollm3": ("smollm3", {"num_hidden_layers": 5, "tie_word_embeddings": True, "attention_bias": True}),
    "stablelm": ("stablelm", {"use_qkv_bias": True, "partial_rotary_factor": 0.5}),
    "stablelm-parallel": ("stablelm", {"use_parallel_residual": True}),
    "starcoder2": ("starcoder2", {"tie_word_embeddings": True}),
    "starcoder2-window": ("starcoder2", {"sliding_window": 20, "hidden_act": "gelu", "use_bias": False}),
    "phi": ("phi", {"num_key_value_heads": 4, "intermediate_size": 256}),
    "phi-gelu": ("phi", {"hidden_act": "gelu"}),
    "llama-gelu-erf": ("llama", {"hidden_act": "gelu"}),
    "smollm3-layers": ("smollm3", {"no_rope_layers": [0, 1, 0], "tie_word_embeddings": True}),
}


# GPUs compute heads of 64, 128 or 256 dimensions.
WIDE_HEAD = 64


def row_of(name):
    """Returns (model_type, arguments) of a row; of wide/NAME, those of NAME with heads that GPUs can compute."""
    kind, changes = FAMILIES[name.removeprefix(tiny_folder.WIDE)]
    if not name.startswith(tiny_folder.WIDE):
        return kind, changes
    changes = {**changes, "hidden_size": 4 * WIDE_HEAD, "head_dim": WIDE_HEAD}
    if "query_pre_attn_scalar" in changes:  # Larger than a head: without a cap, scores of random heads choose one token.
        changes["query_pre_attn_scalar"] = 2 * WIDE_HEAD
    if changes.get("rope_parameters", {}).get("rope_type") == "longrope":
        halves = range(WIDE_HEAD // 2)
        changes["rope_parameters"] = {**changes["rope_parameters"], "short_factor": [1 + 0.0625 * i for i in halves],
                                      "long_factor": [1 + i * i / 16 for i in halves]}
    return kind, changes


def pattern_of(name):
    return re.sub(r"(?<=\.)\d+(?=\.)", "*", name)


def numbers_of(name):
    return tuple(int(number) for number in re.findall(r"(?<=\.)\d+(?=\.)", name))


def compressed(shapes):
    """Returns the entries of "tensors" (tiny_folder.tensors reads them) of {name: (shape, base)}."""
    groups = {}
    for name, described in shapes.items():
        groups.setdefault((pattern_of(name), described), []).append(numbers_of(name))
    entries = []
    for (pattern, (shape, base)), found in groups.items():
        ranges = [[min(column), max(column)] for column in zip(*found)]
        whole = 1
        for first, last in ranges:
            whole *= last - first + 1
        for each in [ranges] if whole == len(found) else [[[number, number] for number in numbers] for numbers in found]:
            entries.append([pattern, each, list(shape), base])
    return sorted(entries)


def saved_shapes(folder):
    """Returns {name: (shape, base)} of the weights that transformers has saved; base is 1 for norms that begin with ones."""
    from safetensors import safe_open
    shapes = {}
    for file in sorted(os.listdir(folder)):
        if not file.endswith(".safetensors"):
            continue
        with safe_open(os.path.join(folder, file), "pt") as weights:
            for name in weights.keys():
                tensor = weights.get_tensor(name)
                shapes[name] = (tuple(tensor.shape), int(tensor.dim() == 1 and bool((tensor == 1).all())))
    return shapes


def packed(shapes):
    """Returns the shapes of a folder whose stacks of experts are MXFP4: blocks of 32 elements of a row, and their scales."""
    result = {}
    for name, (shape, base) in shapes.items():
        if len(shape) != 3:
            result[name] = shape, base
            continue
        experts, cols, rows = shape
        result[name + "_blocks"] = (experts, rows, cols // 32, 16), 0
        result[name + "_scales"] = (experts, rows, cols // 32), 0
    return result


def described(name):
    """Returns config, tensors and weights' type of the row as transformers saves a model of it."""
    import torch
    import transformers
    kind, changes = row_of(name)
    changes = dict(changes)
    quantization = changes.pop("quantization_config", None)
    torch.manual_seed(1)
    config = transformers.CONFIG_MAPPING[kind](**{**SMALL, **changes})
    model = transformers.AutoModelForCausalLM.from_config(config)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            saved = json.load(file)
        saved = {key: value for key, value in saved.items() if key != "transformers_version"} | {"dtype": "bfloat16"}
        shapes = saved_shapes(folder)
        if quantization is not None:
            saved, shapes = saved | {"quantization_config": quantization}, packed(shapes)
        return {"config": saved, "tensors": compressed(shapes)}


def logits(name, reference):
    import torch
    import transformers
    packed_too = {}
    if "quantization_config" in reference["config"]:
        packed_too = {"quantization_config": transformers.Mxfp4Config(dequantize=True)}
    with tempfile.TemporaryDirectory() as folder:
        tiny_folder.write(reference, folder)
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True, **packed_too)
        for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            if info[problem]:
                sys.exit(f"{name}: {problem}: {info[problem]}")
        model.eval()
        with torch.no_grad():
            found = model(torch.tensor([tiny_folder.token_ids(name)])).logits[0]
        return found[tiny_folder.POSITIONS][:, tiny_folder.ENTRIES].contiguous().numpy()


def store(name, reference):
    path = os.path.join(tiny_folder.DATA, name + ".json")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        rows = (f"{json.dumps(key)}: {text(key, value)}" for key, value in reference.items())
        file.write("{" + ",\n".join(rows) + "}\n")


def write(name):
    reference = described(name)
    found = logits(name, reference)
    reference["logits"] = base64.b64encode(found.tobytes()).decode()
    store(name, reference)
    print(f"{name}: spread {found.std():.3f}, largest {abs(found).max():.3f}")


def text(key, value):
    if key == "gguf":
        return "{" + ",\n".join(f"{json.dumps(name)}: {text(name, part)}" for name, part in value.items()) + "}"
    if key not in ("tensors", "keys"):
        return json.dumps(value)
    return "[" + ",\n ".join(json.dumps(entry, separators=(",", ":")) for entry in value) + "]"


if __name__ == "__main__":
    # GPUs compute latent attention of any size.
    both = [*FAMILIES, *(tiny_folder.WIDE + name for name in FAMILIES if not name.startswith("deepseek"))]
    for chosen in sys.argv[1:] or both:
        write(chosen)
