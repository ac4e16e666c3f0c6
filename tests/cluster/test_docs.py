"""Goal: the command lines of the pages work. Method: takes every command line of cleave out of the fenced blocks, and runs
it in a scratch folder with the files that the pages assume (a trace, a profile, a kind of machines), beside a running
cluster with a tiny model. LESS makes a run short; a line that is not run needs a reason in NOT_RUN.
tests/architecture/docs_test.py checks the words of all lines."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from cluster import BINARY, Cluster

SOURCE = os.environ["CLEAVE_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests/architecture"))
import docs_test  # noqa: E402

# (piece of a command line, what it is replaced by): fewer seconds, and the cluster of this test.
LESS = [
    ("cleave replay AzureLLMInferenceTrace_conv.csv --duration 60", "cleave replay AzureLLMInferenceTrace_conv.csv --duration 2"),
    ("cleave replay my-trace.csv --start 600 --duration 120", "cleave replay my-trace.csv --start 600 --duration 2"),
    ("cleave replay ", "cleave replay --url http://{address} "),
    ("cleave status", "cleave status --url http://{address}"),
    ("cleave profile ", "cleave profile --quick --model {model} "),
    ("cleave check /etc/cleave/cleave.json", "cleave check --json {config}"),
    ("runuser -u cleave -- ", ""),
    ("--profile profile.json --trace poisson", "--profile profile.json --hardware waiter.json --trace poisson"),
    ("--duration 300", "--duration 20"), ("seconds=30000", "seconds=300"), ("--step 0.5 --rate-most 80", "--step 1 --rate-most 8"),
    ("--clusters paper --fixed iso-power --fixed iso-cost", "--clusters paper --fixed iso-power --duration 10 --step 60"),
]
NOT_RUN = {
    "cleave serve plan.json": "Cluster starts the same program",
    "cleave model fetch smollm2-135m": "it needs the network; tests/tools/fetch/fetch_test.py",
    "cleave machine CONFIG NAME --stage K": "names stand for others; tests/cluster/test_stages_net.py",
}
OTHERS = ("./dev", "apt", "cp", "systemctl", "build/bench/bench-engine", "meson", "kubectl", "tests/", "bench/", "openssl",
          "redis-server", "sum=", "echo ")


def lines_of_pages():
    """Yields (page, command line); a variable that an earlier line of the block sets is replaced."""
    for page in docs_test.PAGES:
        blocks, _ = docs_test.blocks_of(docs_test.read(page))
        for block in blocks:
            if any(re.match(r"# on (a|b|both hosts|each host)\b", line) for line in block[1][:1]):
                continue  # scripts/try-hosts.py runs these on two hosts.
            variables = {}
            for line in docs_test.command_lines([block]):
                line = line.split("  #")[0].split(" # ")[0].strip()
                name, equals, value = line.partition("=")
                if equals and name.isupper() and " " not in name:
                    variables[f"${name}"] = value.strip('"')
                    continue
                for name, value in variables.items():
                    line = line.replace(name, value)
                if line and not line.startswith("#"):
                    yield page, line


def is_ours(line):
    return any(words and words[0] in ("cleave", "build/cleave", "runuser") for words in docs_test.words_of(line))


def scratch_make(folder):
    """The files that the pages assume."""
    os.makedirs(os.path.join(folder, "build"))
    os.symlink(BINARY, os.path.join(folder, "build/cleave"))
    for name in ("deploy", "tests"):
        os.symlink(os.path.join(SOURCE, name), os.path.join(folder, name))
    subprocess.run([BINARY, "trace", "poisson:rate=2,seconds=1300,prompt=lognormal:100:0.8,output=lognormal:30:0.8",
                    "--write", "my-trace.csv"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    shutil.copy(os.path.join(folder, "my-trace.csv"), os.path.join(folder, "AzureLLMInferenceTrace_conv.csv"))
    blocks, _ = docs_test.blocks_of(docs_test.read("docs/planner.md"))
    waiter = next("\n".join(lines) for _, lines in blocks if any('"name": "waiter"' in line for line in lines))
    with open(os.path.join(folder, "waiter.json"), "w", encoding="utf-8") as file:
        file.write(waiter)


def events_make(folder):
    """Two event logs, as a gateway with log/events_file leaves them after it has begun a new file."""
    path = os.path.join(folder, "events.jsonl")
    with Cluster({"log": {"events_file": path}}) as cluster:
        for index in range(2):
            cluster.post("/v1/completions", {"prompt": f"Question {index}", "max_tokens": 4})
    with open(path, encoding="utf-8") as file:
        lines = file.readlines()
    with open(path + ".1", "w", encoding="utf-8") as file:
        file.writelines(lines[:-1])
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(lines[-1:])


def check_first_request(address):
    """The curl line that README.md and the start of cleave show."""
    command = re.search(r"^ +(curl -N (?:.*\\\n)+.*)$", docs_test.read("README.md"), re.M).group(1)
    said = subprocess.run(["bash", "-euc", command.replace("127.0.0.1:8080", address)], capture_output=True, text=True,
                          check=True).stdout
    assert said.startswith("data: {") and said.endswith("data: [DONE]\n\n"), said


def main():
    docs_test.tables_read(BINARY)
    ran, left, others = 0, set(), []
    with Cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        scratch_make(folder)
        events_make(folder)
        path = {**os.environ, "PATH": os.path.join(folder, "build") + ":" + os.environ["PATH"]}
        values = {"address": f"127.0.0.1:{cluster.port}", "config": os.path.join(cluster.folder.name, "config.json"),
                  "model": cluster.config["model"]}
        check_first_request(values["address"])
        for page, line in lines_of_pages():
            if line in NOT_RUN:
                left.add(line)
                continue
            if not is_ours(line):
                others.append(line)
                continue
            command = line
            for old, new in LESS:
                command = command.replace(old, new)
            for name, value in values.items():
                command = command.replace("{" + name + "}", value)
            start = time.monotonic()
            done = subprocess.run(["bash", "-euc", command], cwd=folder, env=path, stdin=subprocess.DEVNULL, text=True,
                                  capture_output=True)
            assert done.returncode == 0, (page, command, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
            ran += 1
            print(f"{time.monotonic() - start:6.1f} s  {command}", flush=True)
    assert left == set(NOT_RUN), f"not in the pages: {set(NOT_RUN) - left}"
    strange = [line for line in others if not line.startswith(OTHERS)]
    assert not strange, f"run them, or name their program in OTHERS: {strange}"
    print(f"{ran} command lines ran, {len(left)} did not, {len(others)} are of other programs")
    assert ran >= 12, ran


if __name__ == "__main__":
    main()
