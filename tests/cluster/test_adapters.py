"""Goal: requests that choose a low-rank adapter (LoRA) by its name get the answers of a model with merged weights, to the
bit the same alone and beside requests with other adapters, on both sides of the split and with stages; a prefix that was
computed with one adapter is not used for another; wrong adapters are clear errors.

Method: a tiny random model as a folder, two adapters of it as the library PEFT writes them, and folders in which each
adapter is added to the weights (fp32).
"""

import concurrent.futures
import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "model", "families"))

import tiny_folder  # noqa: E402
from cluster import BINARY, Cluster, Failure  # noqa: E402

MODULES = {"q_proj": "self_attn", "k_proj": "self_attn", "v_proj": "self_attn", "o_proj": "self_attn", "gate_proj": "mlp",
           "up_proj": "mlp", "down_proj": "mlp"}
CONFIG = {"kv": {"memory": "16MiB", "block_tokens": 8}, "threads": 2, "transport": {"silence_ms": 120000}}
PROMPTS = ["abcdefghijklmnopqrstuvwxyz", "The(quick)brown", "!"]


def numbers(name, count, scale):
    return [scale * (byte - 127.5) / 73.9 for byte in hashlib.shake_256(name.encode()).digest(count)]


def write_tensors(path, tensors):
    """tensors: {name: (shape, numbers)}, as fp32."""
    header, data, at = {}, [], 0
    for name, (shape, values) in tensors.items():
        data.append(struct.pack(f"<{len(values)}f", *values))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(data[-1])]}
        at += len(data[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def read_tensors(path):
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        words = struct.unpack(f"<{(end - begin) // 2}H", data[begin:end])
        tensors[name] = (entry["shape"], list(struct.unpack(f"<{len(words)}f", struct.pack(
            f"<{len(words)}I", *(word << 16 for word in words)))))
    return tensors


def write_adapter(path, name, shapes, modules, rank, root):
    """Writes an adapter of a model whose matrices have these shapes, and returns {tensor: (scale, B, A)}."""
    os.makedirs(path)
    alpha, tensors, added = 8, {}, {}
    for tensor, shape in shapes.items():
        module = tensor.split(".")[-2]
        if module not in modules:
            continue
        rows, cols = shape
        down = numbers(f"{name} A {tensor}", rank * cols, 1 / cols ** 0.5)
        up = numbers(f"{name} B {tensor}", rows * rank, 0.3)
        stem = "base_model.model." + tensor[:-len("weight")]
        tensors[stem + "lora_A.weight"] = ([rank, cols], down)
        tensors[stem + "lora_B.weight"] = ([rows, rank], up)
        added[tensor] = alpha / (rank ** 0.5 if root else rank), up, down
    write_tensors(os.path.join(path, "adapter_model.safetensors"), tensors)
    with open(os.path.join(path, "adapter_config.json"), "w", encoding="utf-8") as file:
        json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "use_rslora": root, "bias": "none",
                   "target_modules": sorted(modules), "modules_to_save": None, "rank_pattern": {}}, file)
    return added


def merged(shape, values, scale, up, down):
    """Returns the matrix plus the adapter's scaled product."""
    rows, cols = shape
    rank = len(down) // cols
    products = (sum(up[i * rank + r] * down[r * cols + j] for r in range(rank)) for i in range(rows) for j in range(cols))
    return [value + scale * product for value, product in zip(values, products)]


def write_models(place):
    reference = tiny_folder.read("llama")
    folder = os.path.join(place, "base")
    tiny_folder.write(reference, folder)
    base = read_tensors(os.path.join(folder, "model.safetensors"))
    shapes = {tensor: shape for tensor, (shape, _) in base.items()}
    adapters = {"all": write_adapter(os.path.join(place, "all"), "all", shapes, set(MODULES), 4, False),
                "some": write_adapter(os.path.join(place, "some"), "some", shapes, {"q_proj", "v_proj"}, 3, True)}
    for name, added in adapters.items():
        path = os.path.join(place, "merged-" + name)
        tiny_folder.write(reference, path)
        write_tensors(os.path.join(path, "model.safetensors"), {
            tensor: (shape, merged(shape, values, *added[tensor]) if tensor in added else values)
            for tensor, (shape, values) in base.items()})
    return folder


def ask(cluster, prompt, model=None, tokens=6):
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "logprobs": 3} | ({"model": model} if model else {})
    answer = cluster.post("/v1/completions", body)
    assert model is None or answer["model"] == model, answer
    choice = answer["choices"][0]
    return choice["text"], choice["logprobs"]["token_logprobs"]


def all_answers(cluster, models):
    return {(prompt, model): ask(cluster, prompt, model) for prompt in PROMPTS for model in models}


def check_merged(place, answers):
    """The first token's log-probability differs only by the rounding of weights and activations."""
    for name in ("all", "some"):
        with Cluster({**CONFIG, "model": os.path.join(place, "merged-" + name)}) as cluster:
            for prompt in PROMPTS:
                merged, own = ask(cluster, prompt)[1][0], answers[prompt, name][1][0]
                plain = answers[prompt, "base"][1][0]
                print(f"{name}: {prompt!r}: {own:.4f}, merged {merged:.4f}, without the adapter {plain:.4f}")
                assert abs(own - merged) < 0.1, (name, prompt, own, merged)


def serve_fails(config, *parts):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(config, file)
        file.flush()
        done = subprocess.run([BINARY, "serve", file.name], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, (done.returncode, done.stderr)
    for part in parts:
        assert part in done.stderr, f"no '{part}' in: {done.stderr}"


def check_refused(place, config):
    config = {**config, "http": {"listen": "127.0.0.1:0"}}
    serve_fails({**config, "adapters": "all"}, "adapters", "NAME=PATH")
    serve_fails({**config, "adapters": "a=all, a=some"}, "name 'a' twice")
    serve_fails({**config, "adapters": f"a={place}/nowhere"}, "nowhere/adapter_config.json")
    path = os.path.join(place, "dora")
    os.makedirs(path)
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        with open(os.path.join(place, "all", file), "rb") as source, open(os.path.join(path, file), "wb") as copy:
            copy.write(source.read().replace(b'"bias"', b'"use_dora": true, "bias"'))
    serve_fails({**config, "adapters": f"dora={path}"}, "adapter dora", "use_dora is true")


def main():
    with tempfile.TemporaryDirectory(prefix="cleave-adapters-") as place:
        folder = write_models(place)
        config = {**CONFIG, "model": folder, "adapters": f"all={place}/all, some={place}/some"}
        models = ["base", "all", "some"]
        with Cluster({**config, "pools": {"prompt": 1, "token": 1}, "scheduler": {"placement": "split"}}) as cluster:
            listed = json.loads(cluster.request("GET", "/v1/models")[2])["data"]
            assert [each["id"] for each in listed] == models and listed[1]["parent"] == "base", listed
            assert json.loads(cluster.request("GET", "/v1/models/some")[2])["id"] == "some"
            answers = all_answers(cluster, models)
            for prompt in PROMPTS[:2]:
                assert len({answers[prompt, model][1][0] for model in models}) == 3, answers
            assert all_answers(cluster, models) == answers, "with cached prefixes"
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                asked = [(prompt, model) for _ in range(4) for prompt in PROMPTS for model in models]
                for key, answer in zip(asked, pool.map(lambda key: ask(cluster, *key), asked)):
                    assert answer == answers[key], (key, answer, answers[key])
            try:
                ask(cluster, "a", "none")
                raise AssertionError("an unknown adapter was taken")
            except Failure as failure:
                assert failure.status == 404, failure
        stages = {"machines": {"prompt-0": {"stages": 2}}, "pools": {"prompt": 1, "token": 1}}
        with Cluster({**config, **stages, "scheduler": {"placement": "split"}}) as cluster:
            assert all_answers(cluster, models) == answers, "with stages"
        ranks = {"machines": {"token-0": {"tensor_parallel": 2}}, "pools": {"prompt": 1, "token": 1}}
        with Cluster({**config, **ranks}) as cluster:
            for key, (_, logprobs) in all_answers(cluster, models).items():
                assert abs(logprobs[0] - answers[key][1][0]) < 0.05, ("with ranks", key, logprobs, answers[key])
        check_merged(place, answers)
        check_refused(place, config)


if __name__ == "__main__":
    main()
