"""tokenizer_texts: what the tests that compare tokenizers with other libraries share: texts, the program encode_folder, and
folders that have only a tokenizer."""
import json
import os
import pathlib
import random
import struct
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
SEED = int(os.environ.get("CLEAVE_SEED", random.randrange(1 << 32)))
TEXTS = 400

UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + r"+|[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER
          + r"*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")




def documents():
    return [path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))]


def random_text(draw, words, special):
    parts = []
    for _ in range(draw.randrange(1, 30)):
        kind = draw.randrange(13)
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
            parts.append(draw.choice(["camelCaseWord", "HTTPServer", "\u0411\u043e\u043b\u044c\u0448\u043e\u0439", "x" * 200, "ABC" * 30,
                                      "|---:" * draw.randrange(1, 12)]))
        elif kind == 11:
            parts.append(draw.choice(["e\u0301", "o\u0302\u0301", "\u1112\u1161\u11ab", "\u212b", "\ufb01x", "\uff21\uff22",
                                      "\u0130", "\u2460", "\u00bd", "\u0915\u093c", "word", " word ", "aword", "the THE"]))
        else:
            parts.append(draw.choice(words).upper())
    return "".join(parts)


def write_weights(path, rows):
    """Writes config.json and an embedding of one column: only its rows count here."""
    header = json.dumps({"model.embed_tokens.weight":
                         {"dtype": "BF16", "shape": [rows, 1], "data_offsets": [0, rows * 2]}}).encode()
    (path / "config.json").write_text('{"model_type": "llama"}')
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(rows * 2))


def encode(program, folder, texts):
    """The program's output, line by line."""
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    return subprocess.run([program, str(folder)], input=lines, capture_output=True, text=True, check=False)
