"""Goal: a folder with safetensors is served like a GGUF file: the same answers, byte by byte, and the same tokens,
chats and name; and so is a model in several GGUF files. A folder with a mistake, or with more weights than fit into
memory, causes one clear error, and so does a model of which a file is missing.

Method: a model written as BF16 in both formats (the program in the first argument); clusters of both, with stages too;
the tiny model in one file and in three.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

import tiny_model
from cluster import BINARY, DEFAULT_MODEL, MODEL, Cluster, need_model

PROMPTS = ["Once upon a time", "The capital of France is", "def add(a, b):\n    "]
CONFIG = {"kv": {"memory": "16MiB"}, "threads": 1, "transport": {"silence_ms": 120000}}


def answers(model, **config):
    """Returns the answers of a cluster that serves this model, and the model's name."""
    with Cluster({**CONFIG, "model": model, **config}) as cluster:
        name = json.loads(cluster.request("GET", "/v1/models")[2])["data"][0]["id"]
        said = [cluster.post("/v1/completions", {"prompt": prompt, "max_tokens": 16, "temperature": 0, "logprobs": 2})
                for prompt in PROMPTS]
        chat = {"messages": [{"role": "user", "content": "What is gravity?"}], "max_tokens": 8, "temperature": 0}
        reply = cluster.post("/v1/chat/completions", chat)["choices"][0]["message"]["content"]
        tokens = [cluster.post("/tokenize", {"prompt": prompt})["tokens"] for prompt in PROMPTS]
    return [(one["choices"][0]["text"], one["choices"][0]["logprobs"]) for one in said], reply, tokens, name


def fails(model, *parts, prefix=()):
    """Checks that `cleave serve` ends with an error that contains all of `parts`."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({**CONFIG, "model": model, "http": {"listen": "127.0.0.1:0"}}, file)
        file.flush()
        done = subprocess.run([*prefix, BINARY, "serve", file.name], capture_output=True, text=True, timeout=300)
    said = done.stderr + done.stdout
    assert done.returncode in (1, 2), (done.returncode, said)
    for part in parts:
        assert part in said, f"no '{part}' in: {said}"
    assert "Sanitizer" not in said and "assert" not in said.lower(), said


def check_bad(folder):
    shard = os.path.join(folder, "model-00002-of-00003.safetensors")
    os.rename(shard, shard + ".away")
    fails(folder, "model-00002-of-00003.safetensors is missing")
    with open(shard + ".away", "rb") as whole, open(shard, "wb") as cut:
        cut.write(whole.read(1 << 20))
    fails(folder, "model-00002-of-00003.safetensors", "ends at byte")
    os.replace(shard + ".away", shard)
    tokenizer = os.path.join(folder, "tokenizer.json")
    os.rename(tokenizer, tokenizer + ".away")
    fails(folder, "there is no tokenizer.json")
    os.rename(tokenizer + ".away", tokenizer)
    fails(os.path.dirname(folder), "a directory without config.json")
    # The file is larger than the address space. The first process that maps it reports this.
    os.truncate(shard, 64 << 30)
    fails(folder, "cannot map it: Cannot allocate memory", prefix=["prlimit", f"--as={32 << 30}"])


def check_parts(place):
    """A model in three GGUF files, of which the config names the first. The machines' sandbox lets them read the others."""
    whole = tiny_model.write(DEFAULT_MODEL, os.path.join(place, "whole.gguf"), layers=4)
    first = tiny_model.write(DEFAULT_MODEL, os.path.join(place, "parts"), layers=4, parts=3)
    said, got = answers(whole), answers(first)
    assert got[:3] == said[:3], (got, said)
    assert (said[3], got[3]) == ("whole", "parts"), (said[3], got[3])
    os.unlink(first.replace("-00001-", "-00002-"))
    fails(first, "parts-00002-of-00003.gguf is missing: part 2 of 3")
    print("the same answers from three GGUF files")


def main():
    need_model()
    writer = sys.argv[1]
    place = tempfile.mkdtemp(prefix="cleave-folder-")
    try:
        folder, gguf = os.path.join(place, "Small-Chat"), os.path.join(place, "small.gguf")
        os.mkdir(folder)
        subprocess.run([writer, MODEL, folder, "BF16", "3", gguf], check=True)
        said, reply, tokens, name = answers(gguf)
        assert name == "small", name
        assert len({text for text, _ in said}) == len(PROMPTS) and reply
        for model, config in ((folder, {}), (folder + "/", {"machines": {"token-0": {"stages": 2}}})):
            got = answers(model, **config)
            assert got[:3] == (said, reply, tokens), (got, said, reply)
            assert got[3] == "Small-Chat", got[3]
        print(f"{len(PROMPTS)} answers and a chat, the same from the folder, and through two stages")
        check_bad(folder)
        check_parts(place)
    finally:
        shutil.rmtree(place)


main()
