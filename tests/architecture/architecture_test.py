#!/usr/bin/env python3
"""Goal: the tree keeps the shape that docs/ARCHITECTURE.md promises.

Method: reads every C file under the source root (argument, or CLEAVE_SOURCE) and fails on
- an #include "folder/file.h" that MAY_INCLUDE does not allow (a folder includes only folders above it in the table),
- an #include "…" that names no file of the tree (tests may name a helper beside them), or a header without a guard of its own name,
- a file over 800 lines, or a header over 150 (a warning only: a long contract can be right),
- a call of log, pow, sin and the like in the files that compute answers, because the C library's have other bits on other CPUs,
- a struct typedef ending in _t, a log call in a folder below machine/, and a cycle of includes,
- a function in a product header that no product code calls outside the file that defines it. What only that file calls is
  static (a function that tests call, too, may stay), what nothing but tests calls does not belong in the product
  (FOR_TESTS lists the exceptions with their reasons).
Then plants one violation of each rule in a scratch tree and checks that it is seen: a test that cannot
fail proves nothing.
"""
import collections
import os
import re
import sys
import tempfile

# Which folder may include which. A file belongs to the longest entry that its path begins with. In a set, a folder
# stands for its sub-folders too. A folder may always include itself. The entries are ordered: a folder includes only
# folders above it, without exceptions for single headers. Only a folder and its own sub-folders may include each other.
FORMATS = {"common", "config", "profile"}
ENGINE = FORMATS | {"host", "scheduler", "compute", "model", "transport", "kvcache"}
ALL = {"*"}
MAY_INCLUDE = {
    "common": set(),
    "config": {"common"},
    "profile": {"common"},
    "host": {"common", "config"},
    "scheduler/cluster": {"common", "scheduler"},
    "scheduler/machine": {"common", "scheduler"},
    "scheduler": FORMATS | {"scheduler/cluster", "scheduler/machine"},
    "events": {"common", "scheduler"},
    "compute": {"common"},
    "model/file": {"common", "compute"},
    "model/template": {"common"},
    "model/text": {"common", "model/file", "model/template"},
    "model/grammar": {"common"},
    "model/answer": {"common", "model/file", "model/text"},
    "model/forward": {"common", "compute", "model/file"},
    "transport": {"common"},
    "kvcache/tiers": {"common", "config", "transport", "kvcache"},
    "kvcache": {"common", "transport"},
    "membership": {"common", "config"},
    "prompt_pool": {"common", "scheduler", "transport", "kvcache", "model/grammar"},
    "token_pool": {"common", "scheduler", "transport", "kvcache", "model/grammar"},
    "machine/executor": ENGINE | {"prompt_pool"},
    "machine": ENGINE | {"membership", "prompt_pool", "token_pool", "machine/executor"},
    # The gateway reads the model's files and text, never its weights.
    "server/api": {"common", "model/answer", "model/file", "model/grammar", "model/text"},
    "server/fleet": {"common", "config", "host", "scheduler", "transport"},
    "server/metrics": {"server/fleet", "common", "config", "transport", "server/api"},
    "server/gateway": {"common", "config", "scheduler", "events", "transport", "server/fleet", "server/metrics"},
    "server/web": set(),
    "server/http": {"common", "config", "events", "model/answer", "model/grammar", "server/api", "server/metrics", "server/gateway", "server/web"},
    "server": {"common", "config", "host", "transport", "kvcache/tiers", "membership", "model/file", "server/api", "server/metrics",
               "server/gateway", "server/http", "server/fleet"},
    "tools/report": {"common"},
    "tools/admin": {"common", "tools/report"},
    "tools/fetch": {"common", "config", "model"},
    "tools/check": {"common", "config", "compute", "model", "transport", "machine/executor", "server", "server/api"},
    "tools/trace": {"common", "events", "tools/report"},
    "tools/partition/solver": {"common"},
    "tools/partition": {"common", "profile", "tools/partition/solver"},
    "tools/simulate/splitwise": {"common", "scheduler", "tools/report", "tools/trace", "tools/simulate"},
    "tools/simulate": FORMATS | {"scheduler", "events", "kvcache", "tools/report", "tools/trace", "tools/partition",
                                 "tools/simulate/splitwise"},
    "tools/plan": FORMATS | {"scheduler", "tools/report", "tools/trace", "tools/partition", "tools/simulate"},
    "tools/replay": {"common", "tools/report", "tools/trace"},
    "tools/profile": FORMATS | {"host", "compute", "model", "transport", "machine/executor", "tools/report"},
    "tools/doctor": FORMATS | {"compute", "transport", "tools/profile"},
    "bench": ALL,
    "tests": ALL,
    "main.c": ALL,
}
# Interfaces of the outside world, which folders that are pure, or that must link everywhere, do not use.
PURE = r"(time|sys/time|stdio|unistd|pthread|sys/socket|ucp/.*|microhttpd)\.h"
FORBIDDEN_SYSTEM = {
    "scheduler": PURE,
    "scheduler/cluster": PURE,
    "scheduler/machine": PURE,
    "tools/partition/solver": PURE,
    "kvcache": r"(time|sys/time|unistd|pthread|sys/socket|ucp/.*|microhttpd)\.h",
    "tools/simulate": r"(ucp/.*|cuda.*|microhttpd)\.h",
    "tools/plan": r"(ucp/.*|cuda.*|microhttpd)\.h",
}
# All other folders return a status and an error text.
MAY_LOG = {"common", "machine", "machine/executor", "server", "server/api", "server/metrics", "server/gateway", "server/http",
           "server/fleet", "bench", "tests", "main.c"}
# Functions that only tests call, and the reason why they are in the product.
FOR_TESTS = {
    "adapter_open_memory": "parsers are fuzzed and tested with bytes in memory",
    "config_print_reference": "test_config writes docs/configuration.md with it, and compares",
    "http_clients_count": "tests of the limits count the connections that are open",
    "model_file_open_memory": "parsers are fuzzed and tested with bytes in memory",
    "model_file_open_parts": "parsers are fuzzed and tested with bytes in memory",
    "partition_cluster_parse": "parsers are fuzzed and tested with bytes in memory",
    "profile_parse": "parsers are fuzzed and tested with bytes in memory",
    "wait_clock_set": "test_wait replaces the clock of the waiting backend",
}
FILE_LINES_MAX = 800
HEADER_LINES_USUAL = 150

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.M)
STRUCT_T = re.compile(r"\btypedef\s+(?:struct|enum|union)\b\s*\w*\s*(?:\{[^}]*\})?\s*(\w+_t)\s*;")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
TEXT = re.compile(r'"(?:\\.|[^"\\\n])*"')
# The C library's versions of these functions for other CPUs give other bits. fma, sqrt and floor are exact.
LIBM = re.compile(r"\b((?:exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|cbrt|hypot|sin|cos|sincos|tan|asin|acos|atan|atan2|sinh|cosh|"
                  r"tanh|erf|erfc|tgamma|lgamma)[fl]?)\s*\(")
# The folders whose C files compute prompts and answers.
SAME_BITS = ["compute", "model"]
# jansson calls a text malformed if memory runs out.
JSON_LOAD = re.compile(r"\b(json_load(?:s|b|f|fd|_file|_callback))\s*\(")
# Statements that add to a JSON value and do not look at the result, and copies that may be incomplete.
JSON_DROPPED = re.compile(r"(?:[;{}]|\)[ \t]*\n|\belse\b|\(void\)!?)\s*(json_(?:object_set|object_update|array_append|"
                          r"array_extend|array_insert|array_set)\w*)\s*\(")
JSON_COPY = re.compile(r"\b(json_copy)\s*\(")
# A prototype at the beginning of a line, and the beginning of a function's definition.
PROTOTYPE = re.compile(r"^(?!static|typedef|return)[a-z][\w *]*?[ *]([a-z]\w*)\([^;{}]*\)[^;{}()]*;", re.M)
DEFINITION = re.compile(r"^[a-z][\w *]*?[ *]([a-z]\w*)\([^;{}]*\)\s*\{", re.M)
WORD = re.compile(r"\b[a-z]\w*\b")


def sources(root):
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith((".", "build")))
        for name in sorted(files):
            if name.endswith((".c", ".h", ".inc", ".cu", ".cuh")):
                yield os.path.relpath(os.path.join(folder, name), root)


def owner(path):
    """Returns the longest entry of the table that contains the file, else the file's folder."""
    found = [folder for folder in MAY_INCLUDE if within(path, folder)]
    return max(found, key=len) if found else os.path.dirname(path)


def within(path, folder):
    return path == folder or path.startswith(folder + "/")


def allowed(path, target):
    mine, other = owner(path), owner(target)
    if mine not in MAY_INCLUDE:
        return False
    may = MAY_INCLUDE[mine]
    return may == ALL or other == mine or any(within(other, folder) for folder in may)


def check_table():
    """The table has no cycle, because each entry names only entries above it."""
    above = set()
    for folder, may in MAY_INCLUDE.items():
        for other in may - ALL - above:
            if not within(other, folder) and not within(folder, other) and not any(within(a, other) for a in above):
                yield f"table: {folder} may include {other}, which is not above it"
        above.add(folder)


def check_includes(path, text, known):
    for match in INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        quoted, target = match.group(1) == '"', match.group(2)
        if not quoted:
            pattern = FORBIDDEN_SYSTEM.get(owner(path))
            if pattern and re.fullmatch(pattern, target):
                yield f"{path}:{line}: <{target}> has no place in {owner(path)}/"
        elif owner(path) == "tests" and f"{os.path.dirname(path)}/{target}" in known:
            continue  # A helper beside the test.
        elif target not in known:
            yield f'{path}:{line}: "{target}" is no file of the tree (name it from the root)'
        elif not allowed(path, target):
            yield f"{path}:{line}: {owner(path)} may not include {target}"


def check_file(path, text, known):
    """Yields (is_error, message) for one file."""
    for message in check_includes(path, text, known):
        yield True, message
    code = COMMENT.sub(lambda m: "\n" * m.group(0).count("\n"), text)
    lines = text.count("\n")
    if lines > FILE_LINES_MAX:
        yield True, f"{path}: {lines} lines, at most {FILE_LINES_MAX}"
    if path.endswith(".h"):
        # Only interfaces: the kernels' inline code and the tests' golden values are other kinds of headers.
        if lines > HEADER_LINES_USUAL and os.path.dirname(path) in MAY_INCLUDE:
            yield False, f"{path}: {lines} lines, a header has usually up to {HEADER_LINES_USUAL}"
        guard = re.sub(r"[^A-Z0-9]", "_", path.upper())
        if f"#ifndef {guard}\n" not in text:
            yield True, f"{path}: no include guard {guard}"
    for name in STRUCT_T.findall(code):
        yield True, f"{path}: typedef {name}: a struct is written as struct, and _t is POSIX's"
    if owner(path) in MAY_INCLUDE and owner(path) not in MAY_LOG:
        if re.search(r"\blog_(line|debug|info|warn|error)\s*\(", code):
            yield True, f"{path}: this folder never logs (return a status and an error text)"
    if path.endswith((".c", ".h")) and any(within(path, folder) for folder in SAME_BITS):
        for name in LIBM.findall(TEXT.sub('""', code)):
            yield True, f"{path}: {name}() has other bits on other CPUs (call common/fixed_math.h)"
    if path != "common/json.c" and not within(path, "tests"):
        for name in JSON_LOAD.findall(code):
            yield True, f"{path}: {name}() reports a lack of memory as malformed JSON (call common/json.h)"
    # The processes of tools/ end if jansson finds no memory (json_exit_without_memory).
    if path != "common/json.c" and owner(path) not in ("tests", "bench") and not within(path, "tools"):
        for name in JSON_DROPPED.findall(code):
            yield True, f"{path}: {name}() fails if memory runs out (look at its result)"
        for name in JSON_COPY.findall(code):
            yield True, f"{path}: {name}() leaves members out if memory runs out (call json_value_copy)"
    if owner(path) not in MAY_INCLUDE:
        yield True, f"{path}: the folder is not in the table of tests/architecture"


def find_cycle(texts):
    graph = {path: [t for q, t in INCLUDE.findall(text) if q == '"' and t in texts]
             for path, text in texts.items() if path.endswith(".h")}
    done, on_path = set(), []

    def visit(path):
        if path in on_path:
            return on_path[on_path.index(path):] + [path]
        if path in done:
            return None
        on_path.append(path)
        for target in graph.get(path, []):
            cycle = visit(target)
            if cycle:
                return cycle
        on_path.pop()
        done.add(path)
        return None

    return next((cycle for cycle in map(visit, sorted(graph)) if cycle), None)


def check_callers(texts, exceptions):
    """Yields a message for each function of a product header that no other product file calls, and for each exception
    that is not needed."""
    code = {path: TEXT.sub('""', COMMENT.sub(" ", text)) for path, text in texts.items()}
    in_headers, found, needed = {}, {}, set()
    for path, text in code.items():
        if path.endswith(".h"):
            for name in PROTOTYPE.findall(text):
                if owner(path) != "tests":
                    in_headers.setdefault(name, path)
            text = PROTOTYPE.sub("", text)
        defines = set(DEFINITION.findall(text))
        for name, count in collections.Counter(WORD.findall(text)).items():
            found.setdefault(name, []).append((path, name in defines, count))
    for name, header_path in sorted(in_headers.items()):
        uses = found.get(name, [])
        if any(owner(path) != "tests" and not defines for path, defines, _ in uses):
            continue  # The product calls the function, or names it in a table.
        inside = any(owner(path) != "tests" and defines and count > 1 for path, defines, count in uses)
        tested = any(owner(path) == "tests" for path, _, _ in uses)
        if inside and not tested:
            yield f"{header_path}: {name} is called only in the file that defines it: make it static"
        elif not inside and name in exceptions:
            needed.add(name)
        elif not inside:
            yield f"{header_path}: no product code calls {name}"
    for name in sorted(set(exceptions) - needed):
        yield f"FOR_TESTS: {name} needs no exception"


def check_tree(root, exceptions):
    texts = {}
    for path in sources(root):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            texts[path] = file.read()
    found = [item for path, text in texts.items() for item in check_file(path, text, set(texts))]
    cycle = find_cycle(texts)
    if cycle:
        found.append((True, "headers include each other: " + " > ".join(cycle)))
    found += [(True, message) for message in check_callers(texts, exceptions)]
    return [m for is_error, m in found if is_error], [m for is_error, m in found if not is_error], len(texts)


def header(path, body=""):
    guard = re.sub(r"[^A-Z0-9]", "_", path.upper())
    return f"#ifndef {guard}\n#define {guard}\n{body}#endif\n"


PLANTED = [  # (the expected message, the files of the scratch tree)
    ("common may not include kvcache/a.h", {"kvcache/a.h": header("kvcache/a.h"), "common/a.c": '#include "kvcache/a.h"\n'}),
    ("token_pool may not include prompt_pool/a.h", {"prompt_pool/a.h": header("prompt_pool/a.h"), "token_pool/a.c": '#include "prompt_pool/a.h"\n'}),
    ("server/http may not include model/forward/a.h", {"model/forward/a.h": header("model/forward/a.h"),
                                                       "server/http/a.c": ' #  include "model/forward/a.h"\n'}),
    ("server/gateway may not include server/http/a.h", {"server/http/a.h": header("server/http/a.h"),
                                                        "server/gateway/a.c": '#include "server/http/a.h"\n'}),
    ("<time.h> has no place in scheduler/", {"scheduler/a.c": "#include <time.h>\n"}),
    ("is no file of the tree", {"model/file/a.c": '#include "gguf.h"\n'}),
    ("801 lines, at most 800", {"model/file/a.c": "\n" * 801}),
    ("no include guard MODEL_FILE_A_H", {"model/file/a.h": "int a;\n"}),
    ("typedef kv_pool_t", {"kvcache/a.c": "typedef struct {\n    int a;\n} kv_pool_t;\n"}),
    ("never logs", {"transport/a.c": 'void f(void)\n{\n    log_info("x");\n}\n'}),
    ("powf() has other bits", {"model/forward/a.c": "/* exp(x) */\nstatic float f(float x)\n{\n    return powf(x, 2);\n}\n"}),
    ("json_loadb() reports a lack of memory", {"config/a.c": "/* json_loads() */\nstatic void f(void)\n{\n    json_loadb(0, 0, 0, 0);\n}\n"}),
    ("json_object_set_new() fails if memory", {"config/a.c": "static void f(void)\n{\n    if (1)\n        json_object_set_new(0, 0, 0);\n}\n"}),
    ("json_array_append() fails if memory", {"server/http/a.c": "static void f(void)\n{\n    (void)json_array_append(0, 0);\n}\n"}),
    ("json_copy() leaves members out", {"model/text/a.c": "static int f(void)\n{\n    return json_copy(0) == 0;\n}\n"}),
    ("not in the table", {"stray/a.c": "int a;\n"}),
    ("not in the table", {"model/a.c": "int a;\n"}),
    ("headers include each other", {"model/file/a.h": header("model/file/a.h", '#include "model/file/b.h"\n'),
                                    "model/file/b.h": header("model/file/b.h", '#include "model/file/a.h"\n')}),
]
PLANTED += [
    ("no product code calls kv_seen", {"kvcache/a.h": header("kvcache/a.h", "int kv_seen(void);\n"),
                                       "kvcache/a.c": "/* kv_seen */\nint kv_seen(void)\n{\n    return 0;\n}\n",
                                       "tests/a.c": "int main(void)\n{\n    return kv_seen();\n}\n"}),
    ("kv_seen is called only in the file", {"kvcache/a.h": header("kvcache/a.h", "int kv_seen(int a,\n            int b);\n"),
                                            "kvcache/a.c": "int kv_seen(int a,\n            int b)\n{\n    return a + b;\n}\n"
                                                           "static int f(void)\n{\n    return kv_seen(1, 2);\n}\n"}),
]
CLEAN = {"common/a.h": header("common/a.h"), "compute/a.h": header("compute/a.h", '#include "common/a.h"\n'),
         "server/a.c": '#include "common/a.h"\n#include <time.h>\n/* log_info(…) */\n',
         "main.c": '#include "compute/a.h"\n', "kvcache/a.c": "typedef uint32_t kv_block_id;\n",
         "config/a.c": "static int f(void)\n{\n    int failed =\n        json_object_set(0, 0, 0) ||\n        json_array_append(0, 0);\n"
                       "    return failed;\n}\n",
         "kvcache/b.h": header("kvcache/b.h", "int kv_called(void);\nint kv_tested(void);\n"),
         "kvcache/b.c": "int kv_tested(void)\n{\n    return 0;\n}\nint kv_called(void)\n{\n    return kv_tested();\n}\n",
         "kvcache/d.c": "static int f(void)\n{\n    return kv_called();\n}\n",
         "tests/b.c": "int main(void)\n{\n    return kv_tested();\n}\n"}


def check_planted(files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)) or root, exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        return check_tree(root, {})[0]


def check_itself():
    failures = list(check_table()) + [f"self-check: a clean tree is refused: {m}" for m in check_planted(CLEAN)]
    for wanted, files in PLANTED:
        errors = check_planted(files)
        if len(errors) != 1 or wanted not in errors[0]:
            failures.append(f"self-check: want one error with '{wanted}', got {errors}")
    stale = list(check_callers({}, {"kv_gone": "a reason"}))
    if stale != ["FOR_TESTS: kv_gone needs no exception"]:
        failures.append(f"self-check: want a message about the exception kv_gone, got {stale}")
    return failures


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.environ["CLEAVE_SOURCE"]
    errors, warnings, count = check_tree(root, FOR_TESTS)
    errors += check_itself()
    for message in warnings:
        print(f"warning: {message}")
    for message in errors:
        print(message)
    print(f"{count} files, {len(errors)} errors, {len(warnings)} warnings")
    return 0 if count > 0 and not errors else 1


sys.exit(main())
