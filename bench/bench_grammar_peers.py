#!/usr/bin/env python3
"""bench_grammar_peers: constrained output of cleave beside llguidance and xgrammar (PyPI), which follow the same answers.

`bench-grammar --dump` writes a vocabulary of 151,000 tokens, constraints, and answers that follow them. Each library
compiles each constraint anew for each repeat, and makes a mask and takes a token for each token of the answers. The
first answer after compiling is "cold". A library that refuses a token ends that answer there (they differ in white space
and in the order of keys); the table says how many tokens it followed. One thread; times are of the processor. The
libraries' times contain about 1 microsecond per call for Python.

usage: bench_grammar_peers.py PYTHON-WITH-PACKAGES   e.g. a virtual environment with: llguidance xgrammar torch numpy
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from statistics import median

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
REPEATS = 5


class Llguidance:
    def __init__(self, tokens):
        import llguidance
        import llguidance.numpy
        self.lib, self.numpy = llguidance, llguidance.numpy
        eos = len(tokens)

        class Wrapped:
            eos_token_id, bos_token_id = eos, None
            special_token_ids = [eos]

            def __init__(self):
                self.tokens = [*tokens, b"<eos>"]

            def __call__(self, text):
                return list(text.encode() if isinstance(text, str) else text)

        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Wrapped()))
        self.mask = llguidance.numpy.allocate_token_bitmask(1, self.tokenizer.vocab_size)

    def compile(self, kind, text):
        matcher = self.lib.LLMatcher
        grammar = {"json_schema": lambda: matcher.grammar_from_json_schema(text),
                   "json_object": lambda: matcher.grammar_from_json_schema('{"type": "object"}'),
                   "regex": lambda: matcher.grammar_from_regex(text),
                   "grammar": lambda: matcher.grammar_from_lark(gbnf_to_lark(text))}[kind]()
        found = matcher(self.tokenizer, grammar)
        assert not found.is_error(), found.get_error()
        return found

    def begin(self, compiled):
        return compiled.deep_copy()

    def token(self, run, token):
        self.numpy.fill_next_token_bitmask(run, self.mask, 0)
        return run.consume_token(token)


def gbnf_to_lark(text):
    from llguidance.gbnf_to_lark import gbnf_to_lark as convert
    return convert(text)


class Xgrammar:
    def __init__(self, tokens):
        import xgrammar
        self.lib = xgrammar
        info = xgrammar.TokenizerInfo([*tokens, b"<eos>"], xgrammar.VocabType.RAW, vocab_size=len(tokens) + 1,
                                      stop_token_ids=[len(tokens)])
        self.info = info
        self.mask = xgrammar.allocate_token_bitmask(1, info.vocab_size)

    def compile(self, kind, text):
        compiler = self.lib.GrammarCompiler(self.info, max_threads=1, cache_enabled=False)
        return {"json_schema": lambda: compiler.compile_json_schema(text),
                "json_object": lambda: compiler.compile_json_schema('{"type": "object"}'),
                "regex": lambda: compiler.compile_regex(text),
                "grammar": lambda: compiler.compile_grammar(text)}[kind]()

    def begin(self, compiled):
        return self.lib.GrammarMatcher(compiled)

    def token(self, run, token):
        run.fill_next_token_bitmask(self.mask)
        return run.accept_token(token)


def measure(peer, constraint):
    """Returns (compile us, [cold us], [warm us], tokens followed of all), or the reason why not."""
    kind, text = constraint["text"].split(":", 1)
    compiles, cold, warm, followed = [], [], [], 0
    for repeat in range(REPEATS):
        begin = time.process_time_ns()
        try:
            compiled = peer.compile(kind, text)
        except Exception as error:  # noqa: BLE001 (each library has exceptions of its own)
            return f"{type(error).__name__}: {str(error)[:60]}"
        compiles.append((time.process_time_ns() - begin) / 1000)
        for number, answer in enumerate(constraint["answers"]):
            run = peer.begin(compiled)
            for token in answer:
                begin = time.process_time_ns()
                good = peer.token(run, token)
                (warm if number else cold).append((time.process_time_ns() - begin) / 1000)
                if not good:
                    break
                followed += 1
    return median(compiles), cold, warm, followed / REPEATS


def quantile(values, q):
    return sorted(values)[int(q * (len(values) - 1))] if values else 0


def table(name, peer, constraints):
    print(f"{name}\n{'constraint':20} {'compile':>10} | {'cold, us':>8} {'99 %':>8} | {'warm, us':>8} {'99 %':>8} {'most':>8} | followed")
    compiles, all_warm = [], []
    for constraint in constraints:
        found = measure(peer, constraint)
        if isinstance(found, str):
            print(f"{constraint['name']:20} {found}")
            continue
        compiled, cold, warm, followed = found
        compiles.append(compiled)
        all_warm += warm
        total = sum(map(len, constraint["answers"]))
        print(f"{constraint['name']:20} {compiled / 1000:10.2f} | {quantile(cold, 0.5):8.1f} {quantile(cold, 0.99):8.1f} | "
              f"{quantile(warm, 0.5):8.1f} {quantile(warm, 0.99):8.1f} {quantile(warm, 1):8.0f} | {followed:.0f} of {total}")
    print(f"all: compile {median(compiles) / 1000:.2f} ms (median of the constraints), {median(all_warm):.1f} us per warm token "
          "(median)\n", flush=True)


def peers(path):
    with open(path) as file:
        dump = json.load(file)
    tokens = [bytes.fromhex(each) for each in dump["tokens"]]
    for name, kind in (("llguidance", Llguidance), ("xgrammar", Xgrammar)):
        begin = time.process_time()
        peer = kind(tokens)
        print(f"{name}: the vocabulary takes {1000 * (time.process_time() - begin):.0f} ms")
        table(name, peer, dump["constraints"])


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--peers":
        peers(sys.argv[2])
        return
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    binary = os.path.join(ROOT, "build", "bench", "bench-grammar")
    with tempfile.NamedTemporaryFile(suffix=".json") as dump:
        subprocess.run([binary, "--dump", dump.name], check=True)
        subprocess.run([binary], check=True)
        subprocess.run([sys.argv[1], os.path.abspath(__file__), "--peers", dump.name], check=True)


main()
