"""Goal: the program is built so that memory errors are hard to exploit: position-independent, all of its table of
imported functions read-only, no executable stack, guarded stacks, checked string functions.

Method: reads the program's ELF headers (binutils' readelf).
"""

import re
import subprocess
import sys


def readelf(program, *options):
    return subprocess.run(["readelf", "--wide", *options, program], check=True, stdout=subprocess.PIPE, text=True).stdout


def check(program):
    header, segments = readelf(program, "--file-header"), readelf(program, "--program-headers")
    dynamic, symbols = readelf(program, "--dynamic"), readelf(program, "--dyn-syms")
    stack = re.search(r"GNU_STACK.*? ([RWE ]{3}) ", segments)
    yield "is position-independent", re.search(r"Type:\s+DYN", header)
    yield "has a read-only segment after relocation", "GNU_RELRO" in segments
    yield "binds all imports at start", "BIND_NOW" in dynamic or re.search(r"FLAGS_1.*NOW", dynamic)
    yield "has no executable stack", stack and "E" not in stack.group(1)
    yield "guards its stacks", "__stack_chk_fail" in symbols
    yield "checks string functions", re.search(r"__(mem|str|snprintf|vsnprintf|fprintf|printf)\w*_chk", symbols)


missing = [what for what, found in check(sys.argv[1]) if not found]
assert not missing, f"{sys.argv[1]}: want that it " + ", ".join(missing)
