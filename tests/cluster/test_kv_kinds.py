"""Goal: figures of KV by the kind of layers are those of the formula: bytes that a token machine holds, bytes that were
sent to it, and blocks that were freed before a window. /metrics, /admin/state and `cleave status` show a line for each
kind that the model has, and no other.

Method: tiny random models (tests/model/families): Gemma 3 with 14 layers (full and window), Mistral with windows only,
DeepSeek-V3 with its latent vector of 512 + 64 values (latent), Llama (full). The token machine is held when the KV has
arrived. A folder that asks for an FP8 KV-cache must hold the bytes of kv/dtype, give the answers of the folder without,
and log that.
"""

import json
import math
import os
import subprocess
import sys
import tempfile

from cluster import BINARY, Cluster, Stream, wait_until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "model", "families"))
import tiny_folder  # noqa: E402

BLOCK, CHUNK, WINDOW = 8, 16, 20
PROMPT, ANSWER = 90, 24
KINDS = ("full", "window", "latent")


def spans(tokens):
    return -(-tokens // BLOCK)


def keep(chunk):
    """Returns the spans that a layer with a window keeps: the most that WINDOW + chunk - 1 tokens in a row can touch."""
    return (WINDOW + chunk - 3) // BLOCK + 2


def longer(reference, layers):
    """Gives Gemma 3 more layers."""
    config = reference["config"]
    config["num_hidden_layers"] = layers
    config["layer_types"] = ["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(layers)]
    for entry in reference["tensors"]:
        if entry[1]:
            entry[1][0] = [0, layers - 1]
    return reference


def published(reference):
    """Gives DeepSeek-V3 the latent vector of the published models."""
    config = reference["config"]
    nope, value, heads = config["qk_nope_head_dim"], config["v_head_dim"], config["num_attention_heads"]
    config |= {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "head_dim": 64, "qk_head_dim": nope + 64}
    shapes = {"kv_a_proj_with_mqa.weight": [576, config["hidden_size"]], "kv_a_layernorm.weight": [512],
              "kv_b_proj.weight": [heads * (nope + value), 512],
              "q_b_proj.weight": [heads * (nope + 64), config["q_lora_rank"]]}
    for entry in reference["tensors"]:
        entry[2] = shapes.get(entry[0].split("self_attn.")[-1], entry[2])
    return reference


def token_bytes(config):
    """Returns the bytes of a token in one layer, as 14-bit integers in 16 bits: a scale for K and V of each head, and two
    for a latent vector."""
    if "kv_lora_rank" in config:
        return 2 * (config["kv_lora_rank"] + config["qk_rope_head_dim"]) + 4
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return config["num_key_value_heads"] * 2 * (2 * head_dim + 2)


def formula(config, groups):
    """Returns, for each kind: bytes held on the token machine, bytes sent; and the blocks freed on both machines."""
    layers, block = config["num_hidden_layers"], BLOCK * token_bytes(config)
    memory = math.ceil(layers / len(groups)) * block  # A block has room for a layer of each period that has begun.
    first = (PROMPT // BLOCK * BLOCK - WINDOW + 1) // BLOCK
    sent_spans = {"full": spans(PROMPT), "latent": spans(PROMPT), "window": spans(PROMPT) - first}
    held_spans = {"full": spans(PROMPT + 1), "latent": spans(PROMPT + 1), "window": min(spans(PROMPT + 1), keep(1))}
    held = {kind: groups.count(kind) * memory * held_spans[kind] for kind in set(groups)}
    layers_of = {kind: sum(groups[i % len(groups)] == kind for i in range(layers)) for kind in set(groups)}
    sent = {kind: count * block * sent_spans[kind] for kind, count in layers_of.items()}
    freed = {"p0": groups.count("window") * (spans(PROMPT) - keep(CHUNK)),
             "t0": groups.count("window") * (spans(PROMPT + ANSWER) - keep(1))}
    return held, sent, freed


def by_kind(cluster, name, machine):
    """Returns {kind: value}, without kinds that have no line."""
    return {dict(labels)["kind"]: value for (each, labels), value in cluster.metrics().items()
            if each == name and dict(labels)["machine"] == machine}


def shown(cluster):
    """Returns the machines of /admin/state, and the line of `cleave status`."""
    state = json.loads(cluster.request("GET", "/admin/state")[2])
    command = [BINARY, "status", "--url", f"http://127.0.0.1:{cluster.port}"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout
    return {machine["name"]: machine for machine in state["machines"]}, \
        [line for line in told.splitlines() if line.startswith("kv ")]


def with_f8_cache(reference):
    """Makes the folder ask for an FP8 KV-cache, as llm-compressor writes it: the weights are not quantised."""
    scheme = {"dynamic": False, "num_bits": 8, "strategy": "tensor", "symmetric": True, "type": "float"}
    reference["config"]["quantization_config"] = {
        "config_groups": {}, "format": "dense", "kv_cache_scheme": scheme, "quant_method": "compressed-tensors",
        "quantization_status": "frozen"}
    layers = reference["config"]["num_hidden_layers"]
    for name in ("k_scale", "v_scale"):
        reference["tensors"].append([f"model.layers.*.self_attn.{name}", [[0, layers - 1]], [1], 0.5])
    return reference


def check(name, reference, groups, place):
    """Returns the answer, and what was logged about a quantised KV-cache."""
    folder = os.path.join(place, name)
    tiny_folder.write(reference, folder)
    held, sent, freed = formula(reference["config"], groups)
    kinds = set(groups)
    config = {"model": folder, "threads": 1, "pools": {"prompt": ["p0"], "token": ["t0"]},
              "kv": {"memory": "16MiB", "dtype": "i16", "block_tokens": BLOCK, "prefix_cache": False},
              "scheduler": {"growth_tokens": 1, "prompt_batch_tokens": CHUNK, "prompt_fill_tokens": CHUNK,
                            "placement": "split", "adaptive_pools": False}}
    body = {"prompt": [k * 31 % (tiny_folder.VOCABULARY - 3) + 3 for k in range(PROMPT)], "max_tokens": ANSWER,
            "ignore_eos": True, "temperature": 0}
    with Cluster(config, gates=True) as cluster:
        cluster.hold("t0")
        stream = Stream(cluster, body)
        cluster.wait_held("t0")
        wait_until(lambda: by_kind(cluster, "cleave_kv_bytes", "t0") == held,
                   f"t0 holds {held} bytes, not {by_kind(cluster, 'cleave_kv_bytes', 't0')}", cluster=cluster)
        wait_until(lambda: by_kind(cluster, "cleave_transfer_bytes_total", "p0") == sent,
                   f"p0 sent {sent} bytes, not {by_kind(cluster, 'cleave_transfer_bytes_total', 'p0')}", cluster=cluster)
        machines, lines = shown(cluster)
        assert {kind: each["bytes"] for kind, each in machines["t0"]["kv_kinds"].items()} == held, machines
        assert {kind: each["sent_bytes"] for kind, each in machines["p0"]["kv_kinds"].items()} == sent, machines
        assert len(lines) == 1 and all((f" {kind}" in lines[0]) == (kind in kinds) for kind in KINDS), lines
        cluster.release()
        stream.end()
        assert stream.error is None, (stream.error, cluster.logged())
        cluster.wait_all_free()
        for machine in ("p0", "t0"):
            family = "cleave_kv_window_freed_blocks_total"
            wait_until(lambda: cluster.metric(family, machine=machine) == freed[machine],
                       f"{machine} freed {freed[machine]} blocks, not {cluster.metric(family, machine=machine)}",
                       cluster=cluster)
            wait_until(lambda: by_kind(cluster, "cleave_kv_bytes", machine) == dict.fromkeys(kinds, 0),
                       f"{machine} holds nothing", cluster=cluster)
        machines, lines = shown(cluster)
        assert machines["t0"]["kv_kinds"].get("window", {}).get("freed_blocks", 0) == freed["t0"], machines
        assert ("freed before windows" in lines[0]) == ("window" in kinds), lines
        logged = [line for line in cluster.logged().splitlines() if "quantised KV-cache" in line]
    print(f"{name}: {token_bytes(reference['config'])} bytes a token and layer; held {held}, sent {sent}, freed {freed}\n"
          f"  {lines[0]}", flush=True)
    return stream.text, logged


with tempfile.TemporaryDirectory(prefix="cleave-test-") as scratch:
    plain, none = check("llama", tiny_folder.read("llama"), ["full"], scratch)
    scaled, logged = check("llama, FP8 KV-cache", with_f8_cache(tiny_folder.read("llama")), ["full"], scratch)
    assert scaled == plain and none == [], (scaled, plain, none)
    assert len(logged) == 2 and all("kept as i16" in line for line in logged), logged
    check("gemma3", longer(tiny_folder.read("gemma3"), 14), ["window"] * 5 + ["full"], scratch)
    check("mistral", tiny_folder.read("mistral-window"), ["window"], scratch)
    deepseek = published(tiny_folder.read("deepseek3"))
    assert token_bytes(deepseek["config"]) == 2 * 576 + 4
    check("deepseek3", deepseek, ["latent"], scratch)
