"""Goal: models of every family work on GPUs: their logits are those of transformers, and a request gets the same answer on
one machine, on a prompt and a token machine, in two stages each, with two ranks each, and after the token machine was
killed. For latent attention and for low-rank adapters, the KV that a CPU has written continues on a GPU in a cluster, and
the reverse.

Method: the tiny random models of tests/data/families, with heads of 64, as folders and, with what GGUF can say, as GGUF
files. Clusters of each kind, all machines on GPUs, answer the same requests, sampled with a seed: log-probabilities and
tokens must be equal, or differ by DIFFERENT up to a position where two tokens were about equally likely. Clusters of one
prompt and one token machine, one of them on a CPU, answer the same greedy requests.

    families.py FAMILY few | logits [NAME...] | ways [NAME...] | mixed

FAMILY: the program of tests/model/families. ways: the clusters with all machines on GPUs; without NAME, prints the table
of docs/models.md at the end, whose rows the page must have. mixed: the clusters in which one machine is on a CPU. few: the
logits of some families, and a part of mixed.
CLEAVE_BINARY is the program, CLEAVE_CUDA_PLUGIN the plugin.
"""

import base64
import concurrent.futures
import math
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(TESTS, "cluster"), os.path.join(TESTS, "model", "families")]

import family_streams  # noqa: E402
import test_adapters  # noqa: E402
import tiny_folder  # noqa: E402
import tiny_gguf  # noqa: E402
from cluster import Cluster, wait_until  # noqa: E402
from test_stages import up  # noqa: E402

# Errors in units of the logits' spread. As shipped, a row of a model with experts may get other experts because of rounding,
# with some types of KV on a CPU too: such models are compared in exact mode only.
EXACT, SHIPPED = 3e-5, 0.2
EXACT_OF = {"wide/glm, GGUF": 1e-4}  # llama.cpp's converter writes another epsilon of the norms.
FEW_NAMES = ["deepseek3", "wide/gemma3", "wide/olmo2"]
CPU, GPU = {"device": "cpu", "threads": 1}, {"device": "cuda:0", "fallback": False}
MIXES = {"GPU to CPU": (GPU, CPU), "CPU to GPU": (CPU, GPU), "GPU to GPU": (GPU, GPU)}
FEW = sys.argv[2:] == ["few"]
# Models of the rows of the table in docs/models.md, with their names there; and the largest difference of a
# log-probability, in units of the spread of the logits.
WAYS = {"wide/llama": "Llama", "wide/qwen3": "Qwen3", "wide/qwen3_moe": "Qwen3-MoE", "wide/gemma2": "Gemma 2",
        "wide/gemma3": "Gemma 3", "wide/phi3": "Phi-3", "wide/granite": "Granite", "wide/olmo3": "OLMo 3",
        "wide/cohere2": "Command R7B (`cohere2`)", "wide/glm4": "GLM-4", "wide/stablelm": "StableLM",
        "wide/smollm3": "SmolLM3", "deepseek3": "DeepSeek-V3", "wide/gpt_oss": "gpt-oss"}
COLUMNS = ["split", "2 stages, split", "2 ranks, split", "2 ranks, one machine", "resumed"]
DIFFERENT = 0.2
PAGE = os.path.join(TESTS, "..", "docs", "models.md")
# Small batches and little KV: the emulator changes the protection of all device memory around each kernel.
CONFIG = {"pools": {"prompt": ["p0"], "token": ["t0"]}, "kv": {"memory": "4MiB", "block_tokens": 16, "dtype": "i16"},
          "scheduler": {"placement": "split", "adaptive_pools": False, "prompt_batch_tokens": 64, "prompt_fill_tokens": 64,
                        "batch_sequences_max": 8}, "transport": {"silence_ms": 120000}}
PROMPTS = ["abcdefghijklmnopqrstuvwxyz", "The(quick)brown", "!"]


def names():
    """Returns all models: those of latent attention have no heads of 64."""
    return [name for name in tiny_folder.names() if name.startswith("deepseek")] + tiny_folder.names(tiny_folder.WIDE)


def read(name):
    """Returns the model, with the description of its GGUF file if there is one."""
    reference, plain = tiny_folder.read(name), name.removeprefix(tiny_folder.WIDE)
    if plain == name or plain in tiny_gguf.UNLIKE_WIDE or "gguf" not in tiny_folder.read(plain):
        return reference
    return tiny_gguf.wide(tiny_folder.read(plain), reference)


def check_logits(program, name, folder):
    family_streams.expect_progress()
    reference, expected = read(name), folder + ".expected"
    tiny_folder.write(reference, folder)
    tiny_folder.write_expected(name, reference, expected)
    files = {name: folder}
    if "gguf" in reference and not FEW:
        files[name + ", GGUF"] = folder + ".gguf"
        tiny_gguf.write(reference, folder + ".gguf")
    experts = any("experts" in key for key in reference["config"])
    good = True
    for what, file in files.items():
        print(what, end=": ", flush=True)
        command = [program, file, expected, str(EXACT_OF.get(what, EXACT)), str(math.inf if experts else SHIPPED), "cuda:0"]
        good = subprocess.run(command, check=False).returncode == 0 and good
    return good


def wide(reference, head_dim):
    """Gives a model of the family llama heads of another size: those that GPUs compute."""
    heads = {"q_proj": reference["config"]["num_attention_heads"], "k_proj": reference["config"]["num_key_value_heads"]}
    heads |= {"v_proj": heads["k_proj"], "o_proj": heads["q_proj"]}
    reference["config"]["head_dim"] = head_dim
    for entry in reference["tensors"]:
        module = entry[0].split(".")[-2]
        if module in heads:
            entry[2][1 if module == "o_proj" else 0] = heads[module] * head_dim
    return reference


def ask(cluster, prompt, model=None):
    body = {"prompt": prompt, "max_tokens": 6, "ignore_eos": True, "temperature": 0, "logprobs": 1}
    choice = cluster.post("/v1/completions", body | ({"model": model} if model else {}))["choices"][0]
    return choice["logprobs"]["tokens"], choice["logprobs"]["token_logprobs"]


def near(ours, theirs, limit):
    """Counts equal tokens up to a position where two tokens were about equally likely."""
    for i, (mine, other) in enumerate(zip(ours[0], theirs[0])):
        assert abs(ours[1][i] - theirs[1][i]) < limit, (i, mine, other, ours[1][i], theirs[1][i])
        if mine != other:
            return i
    return len(ours[0])


def answers(config, pair, asked):
    """Returns the answers to all requests, which are sent at once."""
    family_streams.expect_progress()
    machines = dict(zip(("p0", "t0"), pair))
    with Cluster({**CONFIG, **config, "machines": machines}) as cluster:
        wait_until(lambda: up(cluster), "all machines are up", cluster=cluster)
        with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
            found = list(pool.map(lambda each: ask(cluster, *each), asked))
        wait_until(lambda: cluster.metric("cleave_transfer_bytes_total") > 0, "KV is sent", cluster=cluster)
        cluster.wait_all_free()
        return found


def check_clusters(what, config, asked, limit):
    want = answers(config, (CPU, CPU), asked)
    for name, pair in MIXES.items():
        if FEW and pair == (GPU, GPU):
            continue
        found = answers(config, pair, asked)
        equal = [near(*each, limit) for each in zip(found, want)]
        print(f"{what}, {name}: {sum(equal)} of {sum(len(each[0]) for each in want)} tokens before a tie", flush=True)
        assert sum(equal) >= len(equal), (found, want)


def spread(reference):
    """Returns the standard deviation of the logits of transformers."""
    data = base64.b64decode(reference["logits"])
    return statistics.pstdev(struct.unpack(f"<{len(data) // 4}f", data))


def served(model, pools, machine, kill=False):
    """Returns the answers to all requests at once. kill: machine t0 is killed while the first request decodes; it starts
    again, and the requests resume."""
    family_streams.expect_progress()
    names = [name for pool in pools.values() for name in pool]
    scheduler = {**CONFIG["scheduler"], "placement": "auto" if "mixed" in pools else "split"}
    config = {**CONFIG, "model": model, "pools": pools, "scheduler": scheduler,
              "machines": {name: {**GPU, **machine} for name in names}}
    with Cluster(config) as cluster:
        wait_until(lambda: up(cluster), "all machines are up", cluster=cluster)
        streams = [family_streams.Tokens(cluster, family_streams.body_of(index)) for index in (1, 2)]
        if kill:
            wait_until(lambda: len(streams[0].tokens) >= 2, "the first request decodes", cluster=cluster)
            os.kill(cluster.children()["t0"], signal.SIGKILL)
        got = family_streams.answers(streams)
        assert not kill or cluster.metric("cleave_requests_resumed_total") >= 1, cluster.logged()
        return got


def difference(ours, theirs):
    """Returns the largest difference of a log-probability of the likeliest tokens, up to the first position with another
    token: there, the tokens before are still the same."""
    most = 0
    for (token, _, mine), (other, _, likeliest) in zip(ours, theirs):
        mine, likeliest = dict(mine), dict(likeliest)
        common = mine.keys() & likeliest.keys()
        assert len(common) >= 2, (mine, likeliest)
        most = max(most, *(abs(mine[each] - likeliest[each]) for each in common))
        if token != other:
            break
    return most


def ways_of(model):
    """Returns for each of COLUMNS the answers, and the answers that they must equal."""
    split, ranks = {"prompt": ["p0"], "token": ["t0"]}, {"tensor_parallel": 2}
    alone, ranked = served(model, {"mixed": ["m0"]}, {}), served(model, {"mixed": ["m0"]}, ranks)
    ways = [(served(model, split, {}), alone), (served(model, split, {"stages": 2}), alone),
            (served(model, split, ranks), ranked), (ranked, alone), (served(model, split, {}, kill=True), alone)]
    return dict(zip(COLUMNS, ways))


def check_ways(name, place):
    """Returns whether all ways give the answers of one machine, and the row of the table."""
    reference, good = read(name), True
    unit, cells = spread(reference), {way: [] for way in COLUMNS}
    model = os.path.join(place, "ways-" + name.replace("/", "-"))
    tiny_folder.write(reference, model)
    tiny_gguf.write(family_streams.with_tokenizer(reference), model + ".gguf")
    for form, file in {"folder": model, "GGUF": model + ".gguf"}.items():
        for way, (got, want) in ways_of(file).items():
            most = max(difference(*each) for each in zip(got, want)) / unit
            cells[way].append("equal" if got == want else f"{most:.3f}" if most >= 0.001 else f"{most:.1g}")
            good = good and most < DIFFERENT
        print(f"{name}, {form}: {', '.join(f'{way} {each[-1]}' for way, each in cells.items())}", flush=True)
    texts = [each[0] if each[0] == each[1] else "; ".join(each) for each in cells.values()]
    return good, f"| {WAYS.get(name, name)} | {' | '.join(texts)} |"


def check_page():
    """The page must have the rows of WAYS, in this order."""
    with open(PAGE, encoding="utf-8") as file:
        lines = file.read().split("| emulated GPU | " + " | ".join(COLUMNS) + " |\n", 1)[1].split("\n\n", 1)[0].splitlines()
    found = [line.split(" | ")[0].removeprefix("| ") for line in lines[1:]]
    assert found == list(WAYS.values()), f"docs/models.md has the rows {found}, want {list(WAYS.values())}"


def check_all_ways(names, place):
    if not names:
        check_page()
    rows = [check_ways(name, place) for name in names or WAYS]
    print("\n".join(row for _, row in rows), flush=True)
    if not all(good for good, _ in rows):
        sys.exit(f"failed: a log-probability differs by {DIFFERENT} or more")


def check_all_logits(program, names_chosen, place):
    failed = [name for name in names_chosen if not check_logits(program, name, os.path.join(place, name))]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def check_mixed(place):
    latent = os.path.join(place, "latent")
    tiny_folder.write(read("deepseek3"), latent)
    check_clusters("latent attention", {"model": latent}, [(prompt,) for prompt in PROMPTS], 1)
    base, models = wide(tiny_folder.read("llama"), 64), ["base", "all", "some"]
    tiny_folder.read = lambda name: base
    folder = test_adapters.write_models(place)
    config = {"model": folder, "adapters": f"all={place}/all, some={place}/some"}
    check_clusters("adapters", config, [(prompt, model) for prompt in PROMPTS for model in models], 0.3)


def main():
    program, part, *chosen = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="cleave-gpu-families-") as place:
        if part == "ways":
            check_all_ways(chosen, place)
        if part in ("few", "logits"):
            check_all_logits(program, FEW_NAMES if FEW else chosen or names(), place)
        if part in ("few", "mixed"):
            check_mixed(place)


if __name__ == "__main__":
    main()
