#!/usr/bin/env python3
"""Goal: the subcommands share one command line. Method: runs each of them with -h, --help, --version and wrong usage,
and checks the exit status, standard output and standard error. Argument: the binary."""
import subprocess
import sys

CLEAVE = sys.argv[1]
# An option with a value, a wrong value, and the arguments that every call needs.
COMMANDS = {
    "serve": ("--threads", "-1", []),
    "machine": ("--stage", "-1", ["embedded", "prompt-0"]),
    "model": ("--tries", "0", ["fetch", "smollm2-135m"]),
    "check": ("--machine", None, ["/nowhere"]),
    "status": ("--timeout-s", "-1", []),
    "top": ("--interval-s", "-1", []),
    "machines": ("--timeout-s", "-1", []),
    "drain": ("--wait-s", "-1", ["token-0"]),
    "undrain": ("--timeout-s", "-1", ["token-0"]),
    "requests": ("--count", "0", []),
    "bundle": ("--timeout-s", "-1", ["/nowhere/file.tar"]),
    "reload": ("--timeout-s", "-1", []),
    "doctor": (None, None, []),
    "profile": ("--seconds", "-1", []),
    "partition": ("--stages", "-1", ["--profile", "/nowhere"]),
    "simulate": ("--repair", "-1", ["--trace", "/nowhere"]),
    "plan": ("--step", "-1", []),
    "trace": ("--speed", "-1", ["/nowhere"]),
    "replay": ("--timeout", "-1", ["/nowhere"]),
}


def run(*arguments):
    return subprocess.run([CLEAVE, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)


def answered(*arguments):
    """Returns the standard output."""
    done = run(*arguments)
    assert done.returncode == 0 and done.stderr == "" and done.stdout != "", (arguments, done)
    return done.stdout


def refused(command, arguments, *parts):
    """Checks for one line that has the parts and says how to get help."""
    done = run(*command, *arguments)
    assert done.returncode == 2 and done.stdout == "", (command, arguments, done)
    assert len(done.stderr.splitlines()) == 1, (command, arguments, done.stderr)
    for part in (" ".join(["cleave", *command]) + ": ", " ".join(["(cleave", *command, "--help"]), *parts):
        assert part in done.stderr, (part, done.stderr)


def check_command(name, option, wrong, needed):
    help_text = answered(name, "--help")
    assert help_text.startswith(f"usage: cleave {name} "), help_text
    for text in ("\n  -h, --help ", "\n  --version "):
        assert text in help_text, help_text
    assert answered(name, "-h") == help_text == answered(name, "--no-such-option", "--help")
    assert answered(name, "--version") == answered("--version")
    refused([name], ["--no-such-option", *needed], "--no-such-option")
    refused([name], ["-x", *needed], "-x")
    refused([name], ["one", "two", "three"], "three" if name == "machine" else "")
    if option is None:
        return
    assert f"\n  {option} " in help_text, help_text
    refused([name], [*needed, option], option)
    refused([name], [option, "--", *needed], option)
    if wrong is None:
        return
    refused([name], [*needed, option, wrong], option, f'"{wrong}"')
    refused([name], [f"{option}={wrong}", *needed], option, f'"{wrong}"')


overview = answered("--help")
assert answered("-h") == overview == answered("help")
for name, row in COMMANDS.items():
    check_command(name, *row)
    assert f"\n  {name} " in overview, overview
listed = [line.split()[0] for line in overview.splitlines() if line.startswith("  ")]
assert sorted(listed) == sorted(COMMANDS), listed
for lost in (["--help"], ["--help=json"], ["--version"], ["trace", "--help"], ["check", "--schema"]):
    with open("/dev/full", "w") as full:  # Linux: each write fails as on a full disk
        done = subprocess.run([CLEAVE, *lost], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1 and "standard output" in done.stderr, (lost, done)
refused([], [])
refused([], ["no-such-command"], "no-such-command")
