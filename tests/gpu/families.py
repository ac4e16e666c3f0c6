"""Goal: models of every family work on GPUs: their logits are those of transformers, and a request gets the same answer on
one machine, on a prompt and a token machine, in two stages each, with two ranks each, and after the token machine was
killed. For latent attention and for low-rank adapters, the KV that a CPU has written continues on a GPU in a cluster, and
the reverse.

Method: the tiny random models of tests/data/families, with heads of 64, as folders and, with what GGUF can say, as GGUF
files. Clusters of each kind, all machines on GPUs, answer the same requests, sampled with a seed: log-probabilities and
tokens must be equal, or differ by DIFFERENT up to a position where two tokens were about equally likely. Clusters of one
prompt and one token machine, one of them on a CPU, answer the same greedy requests.

    families.py FAMILY [few | logits [NAME...] | ways [NAME...]]

FAMILY: the program of tests/model/families. few: some families, and the clusters in which one machine is on a GPU.
logits: no clusters. ways: only the clusters with all machines on GPUs.
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
FEW_NAMES = ["deepseek3", "wide/gemma3", "wide/olmo2"]
CPU, GPU = {"device": "cpu", "threads": 1}, {"device": "cuda:0", "fallback": False}
MIXES = {"GPU to CPU": (GPU, CPU), "CPU to GPU": (CPU, GPU), "GPU to GPU": (GPU, GPU)}
FEW = sys.argv[2:] == ["few"]
# A model of each row of the table in docs/models.md; and the largest difference of a log-probability, in units of the
# spread of the logits.
WAYS = ["wide/llama", "wide/qwen3", "wide/qwen3_moe", "wide/gemma2", "wide/phi3", "wide/granite", "wide/olmo3", "wide/cohere2",
        "wide/glm4", "wide/stablelm", "wide/smollm3", "deepseek3", "wide/gpt_oss"]
DIFFERENT = 0.2
WAYS_GGUF = ["wide/llama", "wide/qwen3", "wide/qwen3_moe"]  # As GGUF files, too: their matrices are those of the folders.
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
        command = [program, file, expected, str(EXACT), str(math.inf if experts else SHIPPED), "cuda:0"]
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


def check_ways(name, place):
    """Returns whether all ways give the answers of one machine."""
    reference = read(name)
    unit, good = spread(reference), True
    for form in ("folder", "GGUF") if name in WAYS_GGUF else ("folder",):
        model = os.path.join(place, "ways-" + name.replace("/", "-") + ("" if form == "folder" else ".gguf"))
        if form == "folder":
            tiny_folder.write(reference, model)
        else:
            tiny_gguf.write(family_streams.with_tokenizer(reference), model)
        split, ranks = {"prompt": ["p0"], "token": ["t0"]}, {"tensor_parallel": 2}
        alone, ranked = served(model, {"mixed": ["m0"]}, {}), served(model, {"mixed": ["m0"]}, ranks)
        found = {"split": (served(model, split, {}), alone), "2 stages": (served(model, split, {"stages": 2}), alone),
                 "2 ranks": (served(model, split, ranks), ranked), "2 ranks beside one": (ranked, alone),
                 "resumed": (served(model, split, {}, kill=True), alone)}
        said = []
        for way, (got, want) in found.items():
            most = max(difference(*each) for each in zip(got, want)) / unit
            said.append(f"{way} {'equal' if got == want else f'{most:.1e}'}")
            good = good and most < DIFFERENT
        print(f"{name}, {form}: {', '.join(said)}", flush=True)
    return good


def main():
    with tempfile.TemporaryDirectory(prefix="cleave-gpu-families-") as place:
        if not FEW and sys.argv[2:3] != ["logits"]:
            failed = [name for name in sys.argv[3:] or WAYS if not check_ways(name, place)]
            if failed or sys.argv[2:3] == ["ways"]:
                sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
        chosen = FEW_NAMES if FEW else sys.argv[3:] or names()
        failed = [name for name in chosen if not check_logits(sys.argv[1], name, os.path.join(place, name))]
        if failed or sys.argv[2:3] == ["logits"]:
            sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
        check_clusters("latent attention", {"model": os.path.join(place, "deepseek3")}, [(prompt,) for prompt in PROMPTS], 1)
        base, models = wide(tiny_folder.read("llama"), 64), ["base", "all", "some"]
        tiny_folder.read = lambda name: base
        folder = test_adapters.write_models(place)
        config = {"model": folder, "adapters": f"all={place}/all, some={place}/some"}
        check_clusters("adapters", config, [(prompt, model) for prompt in PROMPTS for model in models], 0.3)


if __name__ == "__main__":
    main()
