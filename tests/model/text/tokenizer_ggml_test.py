"""Goal: texts get the tokens that llama.cpp gives them, for vocabularies of many models.

Method: the vocabularies of llama.cpp (scripts/fetch-templates.sh), each with texts and their tokens, without BOS and with
control tokens as text, as llama.cpp's own test takes them. A vocabulary of a kind that cleave does not read must be
refused when it is opened, with a reason. Prints a table.

usage: tokenizer_ggml_test.py ENCODE_FOLDER
"""

import glob
import json
import os
import subprocess
import sys

SEPARATOR = "\n__ggml_vocab_test__\n"
# None of these may be refused.
SERVED = {"llama-bpe", "llama-spm", "phi-3", "qwen2", "qwen35", "gpt-2", "starcoder", "refact", "command-r", "mpt",
          "falcon", "deepseek-llm", "deepseek-coder", "gemma-4"}


def cases(path):
    """Returns [(text, ids)]."""
    with open(path + ".inp", encoding="utf-8", newline="") as file:
        texts = file.read().split(SEPARATOR)
    with open(path + ".out", encoding="utf-8") as file:
        lines = file.read().splitlines()
    texts = texts[:len(lines)]  # The last separator may be followed by nothing.
    assert len(texts) == len(lines), (path, len(texts), len(lines))
    return [(text, [int(word) for word in line.split()]) for text, line in zip(texts, lines)]


def main():
    folder = os.environ.get("CLEAVE_TEMPLATES")
    paths = sorted(glob.glob(os.path.join(folder or "", "vocabularies", "*.gguf")))
    if not folder or not paths:
        print("SKIP: no vocabularies (scripts/fetch-templates.sh fetches them)")
        sys.exit(77)
    wrong, refused, total = [], set(), 0
    for path in paths:
        name = os.path.basename(path).removeprefix("ggml-vocab-").removesuffix(".gguf")
        if not os.path.exists(path + ".inp"):
            continue
        wanted = cases(path)
        lines = "".join(json.dumps(text) + "\n" for text, _ in wanted)
        done = subprocess.run([sys.argv[1], path, "plain"], input=lines, capture_output=True, text=True)
        if done.returncode == 2:
            refused.add(name)
            print(f"| {name} | refused: {done.stdout.strip()} |")
            continue
        assert done.returncode == 0, (name, done.stderr)
        got = [[int(word) for word in line.split()] for line in done.stdout.splitlines()[:len(wanted)]]
        failed = [(text, want, have) for (text, want), have in zip(wanted, got) if want != have]
        wrong += [(name, *each) for each in failed]
        total += len(wanted)
        print(f"| {name} | {len(wanted) - len(failed)} of {len(wanted)} equal |")
    for each in wrong[:5]:
        print("%s: %r: want %s, got %s" % each)
    assert not wrong, f"{len(wrong)} texts of {total} have other tokens"
    assert not refused & SERVED, refused & SERVED
    print(f"{total} texts, all equal; {len(refused)} vocabularies refused")


main()
