#!/usr/bin/env python3
"""test-targets.py BUILD [--suite NAME]… [--no-suite NAME]…: prints what `meson test` with these options needs.

Prints the build targets of the selected tests, one a line, for ninja; so a run of some tests compiles nothing else.
--names: prints the names of the selected tests instead.
--left: prints the names of the tests that --no-suite leaves out instead, with their first suite.
"""
import json
import os
import subprocess
import sys


def introspect(build, what):
    run = subprocess.run(["meson", "introspect", f"--{what}", build], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def suites_of(test):
    return [suite.split(":")[-1] for suite in test["suite"]]


def main(arguments):
    build, left = arguments[0], "--left" in arguments
    wanted = {arguments[i + 1] for i, word in enumerate(arguments) if word == "--suite"}
    without = {arguments[i + 1] for i, word in enumerate(arguments) if word == "--no-suite"}
    tests = [test for test in introspect(build, "tests") if not wanted or wanted & set(suites_of(test))]
    if left:
        print("\n".join(f"{suites_of(test)[0]}: {test['name']}" for test in tests if without & set(suites_of(test))))
        return
    selected = [test for test in tests if not without & set(suites_of(test))]
    if "--names" in arguments:
        print("\n".join(test["name"] for test in selected))
        return
    needed = {target for test in selected for target in test["depends"]}
    for target in introspect(build, "targets"):
        if target["id"] in needed:
            print("\n".join(os.path.relpath(path, os.path.abspath(build)) for path in target["filename"]))


main(sys.argv[1:])
