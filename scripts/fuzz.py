#!/usr/bin/env python3
"""./dev fuzz [TARGET…] [SECONDS]: looks for inputs that break a parser or a state machine, with clang's libFuzzer.

  ./dev fuzz                       lists the targets
  ./dev fuzz all 60                runs every target for 60 seconds
  ./dev fuzz gguf request 600      runs two targets for 600 seconds each
  ./dev fuzz all 3600 --settled 600   ends a target earlier if it found no new edge in 600 seconds of CPU time
  ./dev fuzz --merge gguf          adds the finds of one target to its corpus in the tree

SECONDS is the time for each target (default 60). Prints one line for each target: executions, edges (places in the code
that inputs reached), new files of the corpus, crashes, and inputs that libFuzzer found slow (slow-unit-*). Exit status: 1
if a target crashed.

A target starts from its seeds, from the corpus of the tree (tests/data/fuzz/TARGET, which `./dev test` runs too), and
from what earlier runs found (.fuzz/TARGET/corpus). Crashes and slow inputs are stored in .fuzz/TARGET/crashes. git ignores
.fuzz.
"""
import argparse
import collections
import functools
import glob
import heapq
import operator
import os
import re
import signal
import subprocess
import sys
import time

BUILD = "build-fuzz"
FOUND = ".fuzz"
TREE = "tests/data/fuzz"
CORPUS_BYTES_MAX = 64 << 10  # Of one target in the tree.
CORPUS_FILES_MAX = 128
INPUT_BYTES_MAX = 16 << 10  # Of one file that --merge adds.
SLOW = "slow-unit-"  # libFuzzer's prefix of files with inputs that took long, but did not fail.
INTERRUPTED = 72  # libFuzzer's exit status after SIGINT.
KEPT = "regression-"  # Files with this prefix are not changed by --merge.
# Targets that read text with keywords: the string literals of these sources are libFuzzer's dictionary.
KEYWORDS = {
    "answer_parser": "model/answer/*.c",
    "folder": "model/file/*.c",
    "gguf": "model/file/*.c",
    "grammar": "model/grammar/*.c",
    "request": "server/api/*.c",
    "template": "model/template/*.c",
    "vocabulary": "model/file/vocabulary*.c",
}
NOT_JSON = ("gguf", "template")
# The longest input of a target in bytes, where libFuzzer's default (4096, or the longest file of the corpus) only costs
# executions.
INPUT_LONGEST = {"answer_parser": 512, "connection": 512, "gateway": 1024, "grammar": 512, "request": 1024,
                 "template": 512, "vocabulary": 2048}
SANITIZERS = {
    # ASan would give the memory of large blocks and their shadow back to the kernel after each input. A quarantine of
    # 32 MB is larger than what an input frees.
    "ASAN_OPTIONS": "abort_on_error=0:detect_leaks=1:allocator_may_return_null=1:malloc_context_size=12:"
                    "quarantine_size_mb=32:clear_shadow_mmap_threshold=1000000000",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
}


def find_targets():
    """Returns the source of each target by its name: tests/…/fuzz_NAME.c with the entry function."""
    found = {}
    for path in sorted(glob.glob("tests/**/fuzz_*.c", recursive=True)):
        with open(path, encoding="utf-8") as source:
            if "int LLVMFuzzerTestOneInput(" in source.read():
                found[os.path.basename(path)[len("fuzz_"):-len(".c")]] = path
    return found


def program_of(source):
    return os.path.join(BUILD, source[:-len(".c")])


def build(sources):
    """Compiles the targets with clang. configure_in of scripts/build.sh has made the folder."""
    command = ["ninja", "-C", BUILD] + [source[:-len(".c")] for source in sources]
    if os.environ.get("CLEAVE_JOBS"):
        command[1:1] = ["-j", os.environ["CLEAVE_JOBS"]]
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
        sys.exit(f"dev: the build in {BUILD} failed")


def environment(**more):
    return dict(os.environ, CLEAVE_SOURCE=os.getcwd(), **SANITIZERS, **more)


def folder(*parts):
    path = os.path.join(*parts)
    os.makedirs(path, exist_ok=True)
    return path


def files_of(path):
    return sorted(glob.glob(os.path.join(glob.escape(path), "*")))


def run_quietly(command, **more):
    """Runs a command. Its output is shown only if it fails."""
    done = subprocess.run(command, env=environment(**more), capture_output=True, check=False)
    if done.returncode != 0:
        sys.stderr.buffer.write(done.stdout + done.stderr)
        sys.exit(f"dev: fuzz: {' '.join(command)} failed")


def seeds_of(name, source):
    """Makes the target write its seeds to a folder, and returns the folder."""
    path = folder(FOUND, name, "seeds")
    for old in files_of(path):
        os.remove(old)
    run_quietly([program_of(source), "-runs=0"], CLEAVE_FUZZ_SEEDS=path)
    return path


def literals_of(pattern):
    """Returns the contents of the string literals of C sources that may be keywords."""
    found = set()
    for path in glob.glob(pattern):
        with open(path, encoding="utf-8") as source:
            text = re.sub(r"/\*.*?\*/|^#include.*?$", "", source.read(), flags=re.S | re.M)
        for literal in re.findall(r'"((?:[^"\\%\n]|\\.){2,100})"', text):
            found.update([literal] + re.split("[|/]", literal))  # Paths to values in JSON, too.
    return sorted(word for word in found if 2 <= len(word) <= 30 and word.count(" ") < 2)


def dictionary_of(name):
    """Writes the file of keywords for libFuzzer, whose format has only the escapes \\\\, \\" and \\xAB. Returns its path;
    None = the target has no keywords. For JSON, each word is also given as a string and as a name."""
    if name not in KEYWORDS:
        return None
    path = os.path.join(folder(FOUND, name), "keywords.txt")
    with open(path, "w", encoding="ascii") as out:
        for literal in literals_of(KEYWORDS[name]):
            word = literal.encode().decode("unicode_escape").encode("latin-1")
            for data in (word, b'"%s"' % word, b'"%s": ' % word)[:1 if name in NOT_JSON else 3]:
                out.write('"' + "".join(f"\\x{byte:02x}" for byte in data) + '"\n')
    return path


class Run:
    """One libFuzzer process."""

    def __init__(self, name, source, seeds, number, given):
        self.name, self.source = name, source
        self.corpus, self.crashes = folder(FOUND, name, "corpus"), folder(FOUND, name, "crashes")
        self.before = len(files_of(self.corpus))
        self.crashes_before = set(files_of(self.crashes))
        self.log = os.path.join(FOUND, name, f"log-{number}.txt")
        command = [program_of(source), f"-max_total_time={given.seconds}", f"-timeout={given.timeout}",
                   "-rss_limit_mb=2048", "-malloc_limit_mb=1024", "-len_control=20", "-print_final_stats=1", f"-artifact_prefix={self.crashes}/",
                   self.corpus, seeds]
        dictionary = dictionary_of(name)
        if dictionary is not None:
            command.insert(1, f"-dict={dictionary}")
        if name in INPUT_LONGEST:
            command.insert(1, f"-max_len={INPUT_LONGEST[name]}")
        if files_of(os.path.join(TREE, name)):
            command.append(os.path.join(TREE, name))
        self.begin = time.monotonic()
        self.edges, self.grown, self.settled = 0, 0.0, None
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment())

    def read_log(self):
        """Returns the text of the log, and the highest number of edges in it."""
        with open(self.log, encoding="utf-8", errors="replace") as log:
            text = log.read()
        return text, max((int(number) for number in re.findall(r"\bcov: (\d+)", text)), default=0)

    def cpu_seconds(self):
        """Returns the CPU time of the process, so that a busy computer does not end a target earlier."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end_if_settled(self, seconds):
        """Ends the process if the number of edges has not grown for this CPU time. The time in which libFuzzer reads
        the corpus does not count, because no edges are printed until then."""
        if self.process.poll() is not None:
            return
        edges, now = self.read_log()[1], self.cpu_seconds()
        if edges != self.edges or edges == 0:
            self.edges, self.grown = edges, now
        elif now - self.grown >= seconds and self.settled is None:
            self.settled = f"settled: last new edge after {self.grown:.0f} of {now:.0f} s of CPU time"
            self.process.send_signal(signal.SIGINT)

    def failed(self):
        return self.process.returncode not in ((0, INTERRUPTED) if self.settled else (0,))

    def result(self):
        """Waits for the end. Returns executions, edges, seconds, and the files of new crashes and slow inputs."""
        self.process.wait()
        text, edges = self.read_log()
        executed = re.search(r"stat::number_of_executed_units:\s*(\d+)", text)
        found = [path for path in files_of(self.crashes) if path not in self.crashes_before]
        return int(executed[1]) if executed else 0, edges, time.monotonic() - self.begin, found


def report(runs):
    """Prints the line of a target. Returns True if it crashed."""
    results = [run.result() for run in runs]
    found = sorted({path for result in results for path in result[3]})
    slow = [path for path in found if os.path.basename(path).startswith(SLOW)]
    crashes = [path for path in found if path not in slow]
    died = [run.log for run in runs if run.failed()]
    name, source = runs[0].name, runs[0].source
    print(f"{name}: {sum(result[0] for result in results)} executions in {max(result[2] for result in results):.0f} s, "
          f"{max(result[1] for result in results)} edges{''.join(f' ({run.settled})' for run in runs if run.settled)}, "
          f"{len(files_of(runs[0].corpus)) - runs[0].before} new files in {runs[0].corpus}, {len(crashes)} crashes"
          f"{f', {len(slow)} slow inputs' if slow else ''}", flush=True)
    for path in found:
        print(f"  {path}: {'slow: ' if path in slow else ''}replay with {program_of(source)} {path}", flush=True)
    if died:
        print(f"  what it printed: {' '.join(died)}", flush=True)
    return bool(died)


def fuzz(names, targets, given):
    """Runs up to `given.jobs` processes at a time: one for each target, or all of them for one target. A target whose
    edges have not grown for `given.settled` seconds of CPU time ends early; 0 = never."""
    jobs, settled = given.jobs, given.settled
    failed, waiting, running = False, collections.deque(names), []
    seeds = {name: seeds_of(name, targets[name]) for name in names}
    if len(names) == 1:
        runs = [Run(names[0], targets[names[0]], seeds[names[0]], i, given) for i in range(jobs)]
        while settled and any(run.process.poll() is None for run in runs):
            time.sleep(1)
            for run in runs:
                run.end_if_settled(settled)
        return report(runs)
    while waiting or running:
        while waiting and len(running) < jobs:
            name = waiting.popleft()
            running.append(Run(name, targets[name], seeds[name], 0, given))
        ended = [run for run in running if run.process.poll() is not None]
        if not ended:
            time.sleep(1 if settled else 0.2)
            for run in running if settled else ():
                run.end_if_settled(settled)
        for run in ended:
            running.remove(run)
            failed = report([run]) or failed
    return failed


def coverage_of(name, source, folders):
    """Runs every file of the folders. Returns what each file reaches: a number with one bit for each edge and function.
    Ends if a file crashes, because --merge would remove this file from the tree."""
    crashes = folder(FOUND, name, "crashes")
    control, empty = os.path.join(FOUND, name, "merge.txt"), folder(FOUND, name, "merged")
    if os.path.exists(control):
        os.remove(control)
    for old in files_of(empty):
        os.remove(old)
    # With -merge=1 libFuzzer would list an edge only for the first file that reaches it.
    run_quietly([program_of(source), "-set_cover_merge=1", "-use_counters=0", "-timeout=25", "-rss_limit_mb=2048",
                 f"-merge_control_file={control}", f"-artifact_prefix={crashes}/", empty] + folders)
    with open(control, encoding="utf-8") as lines:
        text = lines.read().split("\n")
    paths = text[2:2 + int(text[0])]
    bits, edges = {}, {path: 0 for path in paths}
    begun, ended = set(), set()
    for line in text[2 + len(paths):]:
        word, *numbers = line.split() or [""]
        if word == "STARTED":
            begun.add(paths[int(numbers[0])])
        if word in ("FT", "COV"):
            ended.add(paths[int(numbers[0])])
            edges[paths[int(numbers[0])]] |= sum(1 << bits.setdefault((word, number), len(bits))
                                                 for number in set(numbers[1:]))
    if begun - ended:
        sys.exit(f"dev: fuzz: {name} is not merged, because {len(begun - ended)} inputs crash: "
                 f"{' '.join(sorted(begun - ended))}")
    return edges


def bit_count(number):
    return bin(number).count("1")


def union(numbers):
    return functools.reduce(operator.or_, numbers, 0)


def merge(name, source):
    """Chooses the finds that reach the most code for their size, within the limits of a corpus in the tree."""
    tree, seeds = folder(TREE, name), seeds_of(name, source)
    folders = [path for path in (seeds, tree, os.path.join(FOUND, name, "corpus")) if files_of(path)]
    edges = coverage_of(name, source, folders)
    kept = [path for path in files_of(tree) if os.path.basename(path).startswith(KEPT)]
    reached = union(edges.get(path, 0) for path in files_of(seeds) + kept)

    def rank(path):
        """Minus the gain of a file for its share of both limits. The gain only falls while other files are chosen."""
        share = os.path.getsize(path) / CORPUS_BYTES_MAX + 1 / CORPUS_FILES_MAX
        return -bit_count(edges[path] & ~reached) / share, path

    left = [rank(path) for path in edges if path not in kept and 0 < os.path.getsize(path) <= INPUT_BYTES_MAX]
    heapq.heapify(left)
    chosen, size = {}, sum(os.path.getsize(path) for path in kept)
    while left and len(chosen) + len(kept) < CORPUS_FILES_MAX:
        best = heapq.heappop(left)[1]
        now = rank(best)
        if now[0] == 0 or size + os.path.getsize(best) > CORPUS_BYTES_MAX:
            continue
        if left and now > left[0]:
            heapq.heappush(left, now)
            continue
        reached |= edges[best]
        size += os.path.getsize(best)
        with open(best, "rb") as data:
            chosen[os.path.basename(best)[:12]] = data.read()
    for path in files_of(tree):
        if path not in kept:
            os.remove(path)
    for short, data in chosen.items():
        with open(os.path.join(tree, short), "wb") as out:
            out.write(data)
    print(f"{name}: {len(chosen) + len(kept)} files, {size} bytes in {tree}; {bit_count(reached)} of "
          f"{bit_count(union(edges.values()))} edges and functions", flush=True)


def show(targets):
    for name, source in targets.items():
        tree = files_of(os.path.join(TREE, name))
        print(f"{name:20} {source}, {len(tree)} inputs of {sum(map(os.path.getsize, tree))} bytes")


def options(arguments):
    parser = argparse.ArgumentParser(prog="./dev fuzz", usage=argparse.SUPPRESS, description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--list", action="store_true", help="list the targets")
    parser.add_argument("--merge", action="store_true", help="add finds to the corpus of the tree; with SECONDS, run first")
    parser.add_argument("--settled", type=int, default=0, metavar="S", help="end a target after S seconds of CPU time without new edges")
    parser.add_argument("--timeout", type=int, default=25, metavar="S",
                        help="report an input that takes longer (default 25 s; more where other work takes the CPU)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes at a time (default 1)")
    return parser.parse_args(arguments)


def main(arguments):
    given = options(arguments)
    targets = find_targets()
    numbers = [int(word) for word in given.words if word.isdigit()]
    names = [re.sub("^fuzz_", "", word) for word in given.words if not word.isdigit()]
    if given.list or not names:
        show(targets)
        return 0
    names = list(targets) if names == ["all"] else names
    for name in names:
        if name not in targets:
            sys.exit(f"dev: no fuzz target {name}; ./dev fuzz --list shows all targets")
    if len(numbers) > 1 or given.jobs < 1 or given.timeout < 1 or given.settled < 0:
        sys.exit("dev: fuzz: want at most one number of seconds, --settled of at least 0, and --timeout and --jobs of at least 1")
    build([targets[name] for name in names])
    failed = False
    given.seconds = numbers[0] if numbers else 60
    if numbers or not given.merge:
        failed = fuzz(names, targets, given)
    if given.merge:
        for name in names:
            merge(name, targets[name])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
