#!/usr/bin/env python3
"""Goal: what the pages name exists. Method: reads README.md and the pages of docs/ and deploy/. Every command line of cleave
and of ./dev has a subcommand and options of the program's own tables, every key of a config is in docs/configuration.md
(which another test compares with the parser), every metric in docs/metrics.md, every file and every link in the tree.
tests/cluster/test_docs.py runs the command lines. Argument: the program."""
import fnmatch
import glob
import json
import os
import re
import shlex
import subprocess
import sys

SOURCE = os.environ["CLEAVE_SOURCE"]
TABLES = {}  # {subcommand: its options}
# Folders and files at the top of a build folder or of an installed system, and names that stand for others.
NOT_IN_TREE = re.compile(r"build(-asan|-tsan)?(/|$)|shared/|.*\b[A-Z]{3,}\b.*")
PAGES = sorted(["README.md", "CONTRIBUTING.md", "SECURITY.md"] + [
    os.path.relpath(path, SOURCE) for path in glob.glob(os.path.join(SOURCE, "docs/**/*.md"), recursive=True) +
    glob.glob(os.path.join(SOURCE, "deploy/**/*.md"), recursive=True)])


def read(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        return file.read()


def tree_files():
    """All files and folders of the tree, without builds."""
    found = set()
    for folder, folders, files in os.walk(SOURCE):
        folders[:] = [f for f in folders if not f.startswith((".", "build")) and f != "shared"]
        at = os.path.relpath(folder, SOURCE)
        found |= {os.path.normpath(os.path.join(at, name)) for name in files + folders}
    return found


FILES = tree_files()
TOP = {path for path in FILES if "/" not in path}
METRICS = set(re.findall(r"^\| `([\w:]+)` \|", read("docs/metrics.md"), re.M))
KEYS = set(re.findall(r"^\| `([a-z0-9_/NAME]+)` \|", read("docs/configuration.md"), re.M))
SECTIONS = {key.split("/")[0] for key in KEYS if "/" in key}
DEV = set(re.search(r"^    (serve \| .*)\) \"cmd_", read("dev"), re.M).group(1).split(" | ")) | {"help"}


def blocks_of(text):
    """Returns the fenced blocks as (language, lines), and the text without them."""
    blocks = [(m.group(2), [line[len(m.group(1)):] for line in m.group(3).split("\n")]) for m in re.finditer(
        r"^( *)```(\w*)\n(.*?)\n? *```$", text, re.S | re.M)]
    return blocks, re.sub(r"^( *)```\w*\n.*?\n? *```$", "", text, flags=re.S | re.M)


def spans_of(prose):
    return [re.sub(r"\s+", " ", span.replace("\\|", "|")) for span in re.findall(r"`([^`]+)`", prose)]


def command_lines(blocks):
    """Yields the shell command lines of the blocks, with continued lines joined."""
    for language, lines in blocks:
        text = re.sub(r"\\\n\s*", "", "\n".join(lines))
        for line in text.split("\n"):
            prompt = line.startswith("$ ")
            if language in ("sh", "bash") or prompt:
                yield line[2:] if prompt else line


def words_of(line):
    """The words of each simple command of a line."""
    lexer = shlex.shlex(line.replace("…", " ").replace("\u00a0", " "), posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split, lexer.commenters = True, "#"
    command = []
    for word in lexer:
        if set(word) <= set("|&;()"):
            yield command
            command = []
        else:
            command.append(word)
    yield command


def check_command(words):
    """Returns what is wrong with a command of cleave or ./dev; None = nothing."""
    while words and (words[0] in ("sudo", "exec", "srun") or re.fullmatch(r"[A-Z_]+=\S*", words[0])):
        words = words[1:]
    if "--" in words and words[0] == "runuser":
        words = words[words.index("--") + 1:]
    if not words:
        return None
    program = words[0]
    if program == "./dev":
        return None if len(words) == 1 or words[1] in DEV or words[1] == "COMMAND" else f"no ./dev {words[1]}"
    if program not in ("cleave", "build/cleave") or len(words) == 1:
        return None
    name = words[1]
    if name.startswith("-") or name == "help" or re.fullmatch("[A-Z]+", name):
        return None
    if name not in TABLES:
        return f"no subcommand {name}"
    for word in words[2:]:
        option = re.match(r"\[?(-[-\w]+)", word)
        if option and not re.fullmatch(r"-?\d.*", word) and option.group(1) not in TABLES[name]:
            return f"cleave {name} has no option {option.group(1)}"
    return None


def is_key(path):
    if path in KEYS or any(key.startswith(path + "/") for key in KEYS):
        return True
    parts = path.split("/")
    if parts[0] == "machines" and len(parts) > 1:
        parts[1] = "NAME"
    return "/".join(parts) in KEYS or "/".join(parts) == "machines/NAME"


def keys_of(value, at=""):
    for name, below in value.items():
        path = f"{at}/{name}" if at else name
        yield path
        if isinstance(below, dict):
            yield from keys_of(below, path)


def json_of(text):
    """Reads JSON, or members of an object; None = it is neither."""
    for whole in (text, "{" + text + "}"):
        try:
            value = json.loads(whole)
            return value if isinstance(value, dict) else None
        except ValueError:
            continue
    return None


def check_span(span):
    """Yields what is wrong with a span of code in prose."""
    if re.match(r"(build/)?cleave [a-z]|\./dev [a-z]", span):
        try:
            for words in words_of(span):
                wrong = check_command(words)
                if wrong:
                    yield wrong
        except ValueError:
            pass  # An open quotation mark: a piece of a command.
        return
    key = re.fullmatch(r"([a-z_]+(?:/[\w-]+)+)(: .*)?", span)
    if key and key.group(1).split("/")[0] in SECTIONS:
        if not is_key(key.group(1)) and key.group(1) not in FILES:
            yield f"no key {key.group(1)}"
        return
    if re.match(r'\{?"[a-z_]+": ', span):
        value = json_of(span)
        if value and set(value) & SECTIONS and not set(value) - {key.split("/")[0] for key in KEYS}:
            yield from (f"no key {path}" for path in keys_of(value) if not is_key(path))
        return
    metric = re.fullmatch(r"((?:cleave|vllm:|process)_?[a-z_]*[a-z])(_\*|\{.*\})?", span)
    if metric and span.startswith(("cleave_", "vllm:", "process_")) and metric.group(2) != "_*":
        name = re.sub(r"_(bucket|sum|count)$", "", metric.group(1))
        if metric.group(1) not in METRICS and name not in METRICS:
            yield f"no metric {metric.group(1)}"


def is_file(path, page):
    """A file or folder of the tree, from the top, or from the page's folder or the folders that docs abbreviate."""
    path = re.sub(r"(:\d+)?$", "", path).rstrip("/")
    names = [path, os.path.normpath(os.path.join(os.path.dirname(page), path))]
    return any(name in FILES or any(c in name for c in "*[") and fnmatch.filter(FILES, name) for name in names)


def check_path(span, page):
    first = span.split("/")[0]
    if not re.fullmatch(r"[\w.*@-]+(/[\w.*@-]+)+/?", span) or first not in TOP or NOT_IN_TREE.match(span):
        return None
    if is_key(span) or is_file(span, page):
        return None
    return f"no file {span}"


def slugs_of(text):
    """The anchors that GitHub makes of the headings."""
    _, prose = blocks_of(text)
    found = set()
    for heading in re.findall(r"^#+ (.*)$", prose, re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.add(slug if slug not in found else f"{slug}-1")
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))


def check_link(target, page):
    if re.match(r"[a-z]+:", target):
        return None
    path, _, anchor = target.partition("#")
    path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
    if path not in FILES and path != ".":
        return f"no file {target}"
    if anchor and path.endswith(".md") and anchor not in slugs_of(read(path)):
        return f"no heading #{anchor} in {path}"
    return None


def check_page(page, text):
    blocks, prose = blocks_of(text)
    for language, lines in blocks:
        value = json_of("\n".join(lines)) if language == "json" else None
        if value and set(value) & SECTIONS and not set(value) - {key.split("/")[0] for key in KEYS}:
            yield from (f"no key {path}" for path in keys_of(value) if not is_key(path))
    for line in command_lines(blocks):
        for words in words_of(line):
            yield check_command(words)
    for span in spans_of(prose):
        yield from check_span(span)
        yield check_path(span, page)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        yield check_link(target, page)


PLANTED = [  # (a page, what must be said about it)
    ("```sh\ncleave serv x\n```", "no subcommand serv"), ("```\n$ cleave check \\\n    --deeep x\n```", "no option --deeep"),
    ("```sh\nA=1 build/cleave plan --step 1 | cleave trace x --nope\n```", "no option --nope"),
    ("`./dev sereve`", "no ./dev sereve"), ("`cleave drain t0 --wiat`", "no option --wiat"),
    ("`http/lisen`", "no key http/lisen"), ('`"http": {"lisen": 1}`', "no key http/lisen"),
    ('```json\n{"pools": {"promt": 1}}\n```', "no key pools/promt"), ("`machines/t0/thread`", "no key machines/t0/thread"),
    ("`cleave_gone_total`", "no metric cleave_gone_total"), ("`server/http/gone.c`", "no file server/http/gone.c"),
    ("[x](gone.md)", "no file gone.md"), ("[x](docs/operation.md#gone)", "no heading #gone"),
    ("`tests/architecture/*.x`", "no file tests/architecture/*.x"),
]
GOOD = ["```sh\nrunuser -u cleave -- cleave check x --deep # --nope\nls --nope\n```", "`http/listen: \"x\"`", "`cleave_ready`",
        "`cleave_key_*`", "`machines/NAME/threads`", "`server/http/*.c`", "[x](docs/operation.md#at-three-oclock)",
        "`cleave_request_queue_seconds_bucket`", "```\ncleave is ready\n```", "`docs/x.html is no path`"]


def check_itself():
    for text, wanted in PLANTED:
        said = [wrong for wrong in check_page("README.md", text) if wrong]
        assert len(said) == 1 and wanted in said[0], (text, said)
    for text in GOOD:
        said = [wrong for wrong in check_page("README.md", text) if wrong]
        assert said == [], (text, said)


def tables_read(program):
    said = subprocess.run([program, "--help=json"], capture_output=True, text=True, check=True).stdout
    for command in json.loads(said)["commands"]:
        table = command["table"]
        TABLES[table["command"]] = {f"--{option['name']}" for option in table["options"]} | {"-h", "--help", "--version"}


def main():
    tables_read(sys.argv[1])
    assert len(KEYS) > 100 and len(METRICS) > 80 and len(PAGES) > 30, (len(KEYS), len(METRICS), len(PAGES))
    check_itself()
    wrong = [f"{page}: {message}" for page in PAGES for message in check_page(page, read(page)) if message]
    for message in wrong:
        print(message)
    print(f"{len(PAGES)} pages, {len(wrong)} errors")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
