#!/usr/bin/env python3
"""Sums meson's test logs (testlog.json, one test a line) into the closing line of ./dev test.

Names each test that failed or was skipped, with the reason that a skipped one printed. Exit status 0 only
when something passed and nothing failed; a log that is missing or empty of results counts as a failure. A test that
failed beside others and passed when it ran again alone (again.json beside the log) is named, and has passed.

--failed LOG: only the names of those that failed, a line each, as `meson test` takes them.
"""
import json
import os
import sys

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP", "IGNORED"}


def read(path):
    with open(path, encoding="utf-8") as log:
        return [json.loads(line) for line in log if line.strip()]


def skip_reason(test):
    lines = (test.get("stdout") or "").splitlines()
    return next((line[6:] for line in lines if line.startswith("SKIP: ")), "no reason given")


def again(path):
    """What ran once more, by name."""
    path = os.path.join(os.path.dirname(path), "again.json")
    return {test["name"]: test["result"] for test in read(path)} if os.path.exists(path) else {}


def names_of_failed(path):
    tests = read(path) if os.path.exists(path) else []
    return [test["name"].split(" / ", 1)[-1] for test in tests if test["result"] not in PASSED | SKIPPED]


def main(paths):
    if paths[0] == "--failed":
        print("\n".join(names_of_failed(paths[1])))
        return 0
    passed = failed = skipped = 0
    for path in paths:
        build = path.split("/")[0]
        if not os.path.exists(path):
            print(f"FAILED  {build}: the tests left no log at {path}")
            failed += 1
            continue
        alone = again(path)
        for test in read(path):
            if test["result"] in PASSED:
                passed += 1
            elif test["result"] in SKIPPED:
                skipped += 1
                print(f"skipped {build}: {test['name']}: {skip_reason(test)}")
            elif alone.get(test["name"]) in PASSED:
                passed += 1
                print(f"alone   {build}: {test['name']}: failed beside others, passed alone")
            else:
                failed += 1
                print(f"FAILED  {build}: {test['name']} ({test['result'].lower()})")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 0 if passed > 0 and failed == 0 else 1


sys.exit(main(sys.argv[1:]))
