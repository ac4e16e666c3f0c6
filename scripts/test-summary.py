#!/usr/bin/env python3
"""Sums meson's test logs (testlog.json, one test a line) into the closing line of ./dev test.

Names each test that failed or was skipped, with the reason that a skipped one printed. Exit status 0 only
when something passed and nothing failed; a log that is missing or empty of results counts as a failure.
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


def main(paths):
    passed = failed = skipped = 0
    for path in paths:
        build = path.split("/")[0]
        if not os.path.exists(path):
            print(f"FAILED  {build}: the tests left no log at {path}")
            failed += 1
            continue
        for test in read(path):
            if test["result"] in PASSED:
                passed += 1
            elif test["result"] in SKIPPED:
                skipped += 1
                print(f"skipped {build}: {test['name']}: {skip_reason(test)}")
            else:
                failed += 1
                print(f"FAILED  {build}: {test['name']} ({test['result'].lower()})")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 0 if passed > 0 and failed == 0 else 1


sys.exit(main(sys.argv[1:]))
