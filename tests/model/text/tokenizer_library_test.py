#!/usr/bin/env python3
"""Goal: a folder with tokenizer.model, or with tekken.json, and without tokenizer.json gives the ids of the library that
made the file.

Method: SentencePiece models trained here on this repository's documents (BPE and unigram, with and without bytes, dummy
prefix, normalisation and user-defined pieces), and a tekken.json whose reference is a plain merge by rank; random texts.
Skipped with a message if Python's `sentencepiece` or `tokenizers` is not installed (pip install sentencepiece tokenizers).
"""
import base64
import importlib.util
import io
import json
import os
import pathlib
import random
import re
import shutil
import sys
import tempfile

sys.path.insert(0, os.environ.get("CLEAVE_TEST_PYTHON", ""))
for module in ("sentencepiece", "tokenizers"):
    if importlib.util.find_spec(module) is None:
        print(f"SKIP: Python's {module} is not installed (pip install {module})")
        sys.exit(77)

import sentencepiece  # noqa: E402
from tokenizers import Regex, pre_tokenizers  # noqa: E402

import tokenizer_texts as texts_of  # noqa: E402

USER = ["<|tool|>", "\u2581\u2581", "\u2581\u2581\u2581"]
MODELS = {
    "bpe, as llama": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                          remove_extra_whitespaces=False),
    "bpe without bytes": dict(model_type="bpe", normalization_rule_name="identity", remove_extra_whitespaces=False),
    "bpe, as gemma": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                          remove_extra_whitespaces=False, add_dummy_prefix=False, user_defined_symbols=USER),
    "bpe, nfkc": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="nmt_nfkc"),
    "unigram": dict(model_type="unigram", normalization_rule_name="nmt_nfkc"),
    "unigram, small letters": dict(model_type="unigram", byte_fallback=True, normalization_rule_name="nmt_nfkc_cf",
                                   remove_extra_whitespaces=False),
}


def trained(options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in texts_of.documents() for line in text.splitlines()), model_writer=model,
        vocab_size=1500, minloglevel=2, num_threads=1, **options)
    return model.getvalue()


def compare(program, name, folder, wanted_of, texts, rows):
    """wanted_of(text): the ids that the library gives."""
    texts_of.write_weights(folder, rows)
    ran = texts_of.encode(program, folder, texts)
    assert ran.returncode == 0, f"{name}: {ran.stdout}{ran.stderr}"
    lines = ran.stdout.splitlines()
    count = 0
    for text, line in zip(texts, lines):
        wanted, got = wanted_of(text), [int(value) for value in line.split()]
        assert got == wanted, f"{name}: {text!r}: wanted {wanted}, got {got}"
        count += len(wanted)
    print(f"{name}: {len(texts)} texts, {count} tokens; opened in {lines[-1]} ms")


def check_sentencepiece(program, draw, scratch):
    for name, options in MODELS.items():
        model = trained(options)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        folder = scratch / name.replace(" ", "-")
        folder.mkdir()
        (folder / "tokenizer.model").write_bytes(model)
        (folder / "tokenizer_config.json").write_text('{"add_bos_token": false}')
        words = [word for text in texts_of.documents() for word in text.split()]
        user = USER[:1] if "gemma" in name else []
        texts = [""] + [texts_of.random_text(draw, words, user) for _ in range(texts_of.TEXTS)]
        if user:  # A U+2581 of the text is a blank, but not one of a user-defined piece.
            texts = [text.replace("\u2581", "") for text in texts]
        compare(program, name, folder, processor.encode, texts, processor.get_piece_size() + 3)


def by_rank(ranks, word):
    """Merges the bytes of a word: the pair whose joint bytes have the lowest rank first, the leftmost of equals."""
    if word in ranks:
        return [ranks[word]]
    parts = [word[i:i + 1] for i in range(len(word))]
    while len(parts) > 1:
        found = [(ranks[a + b], i) for i, (a, b) in enumerate(zip(parts, parts[1:])) if a + b in ranks]
        if not found:
            break
        at = min(found)[1]
        parts[at:at + 2] = [parts[at] + parts[at + 1]]
    return [ranks[part] for part in parts]


# The special tokens of files that do not list them: ids from 0 on. Texts may contain their names.
TEKKEN_SPECIAL = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
                  "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]",
                  "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"]


def check_tekken(program, draw, scratch):
    """A vocabulary of bytes and of pieces of this repository's words; of some tokens no pair exists."""
    words = [word for text in texts_of.documents() for word in text.split()]
    pieces = sorted({piece for word in words for size in (2, 3, 4, 6) for piece in [(" " + word).encode()[:size],
                                                                                  word.encode()[-size:]]})
    draw.shuffle(pieces)
    pieces = [bytes([byte]) for byte in range(256)] + [piece for piece in pieces if len(piece) > 1][:2500]
    ranks = {piece: rank for rank, piece in enumerate(pieces)}
    special = len(TEKKEN_SPECIAL)
    vocab = [{"rank": rank, "token_bytes": base64.b64encode(piece).decode(), "token_str": None}
             for piece, rank in ranks.items()]
    folder = scratch / "tekken"
    folder.mkdir()
    (folder / "tekken.json").write_text(json.dumps({
        "config": {"pattern": texts_of.TEKKEN, "num_vocab_tokens": len(vocab), "default_vocab_size": len(vocab) + special - 5,
                   "default_num_special_tokens": special, "version": "v3"}, "vocab": vocab}))
    used = {piece: rank + special for piece, rank in ranks.items() if rank < len(vocab) - 5}
    splitter = pre_tokenizers.Split(Regex(texts_of.TEKKEN), behavior="isolated")

    def wanted(text):
        ids = [1]
        for part in re.split(names, text):
            if part in TEKKEN_SPECIAL:
                ids.append(TEKKEN_SPECIAL.index(part))
                continue
            for word, _ in splitter.pre_tokenize_str(part):
                ids += by_rank(used, word.encode())
        return ids

    names = "(" + "|".join(re.escape(name) for name in TEKKEN_SPECIAL) + ")"
    texts = [""] + [texts_of.random_text(draw, words, TEKKEN_SPECIAL) for _ in range(texts_of.TEXTS // 4)]
    compare(program, "tekken.json", folder, wanted, texts, len(vocab) + special)


def main():
    program = sys.argv[1]
    print(f"seed: CLEAVE_SEED={texts_of.SEED}")
    draw = random.Random(texts_of.SEED)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="cleave-spm-"))
    try:
        check_sentencepiece(program, draw, scratch)
        check_tekken(program, draw, scratch)
    finally:
        shutil.rmtree(scratch)


main()
