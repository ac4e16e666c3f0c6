#!/usr/bin/env python3
"""Sums meson's test logs (testlog.json, one test a line) into the closing lines of ./dev test.

Prints a table of the time that each suite took, names each test that failed or was skipped, also in part (with the
reason that the test printed), counts flaky tests, and ends with `N passed, N failed, N skipped`. A test is flaky if it
failed beside other tests and passed when it ran again alone (again.json beside the log); it counts as passed too. The
exit status is 0 only when something passed and nothing failed; a log that is missing or empty counts as a failure.

--failed LOG: prints only the names of the tests that failed, one a line, as `meson test` takes them.
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


def parts_skipped(test):
    """Returns the reasons why a test that passed left out a part."""
    return [line[14:] for line in (test.get("stdout") or "").splitlines() if line.startswith("SKIP in part: ")]


def results_alone(path):
    """Returns {name: result} of the tests that ran again."""
    path = os.path.join(os.path.dirname(path), "again.json")
    return {test["name"]: test["result"] for test in read(path)} if os.path.exists(path) else {}


def names_of_failed(path):
    tests = read(path) if os.path.exists(path) else []
    return [test["name"].split(" / ", 1)[-1] for test in tests if test["result"] not in PASSED | SKIPPED]


def suite_of(name):
    """Returns "cluster" for "cleave:cluster+release / update"."""
    return name.split(" / ")[0].split(":")[-1].split("+")[0]


def print_times(build, tests):
    times = {}
    for test in tests:
        times.setdefault(suite_of(test["name"]), []).append((test.get("duration", 0), test["name"].split(" / ")[-1]))
    for suite, found in sorted(times.items(), key=lambda item: -sum(each[0] for each in item[1])):
        total, (longest, name) = sum(each[0] for each in found), max(found)
        print(f"time    {build}: {suite:12} {len(found):4} tests {total:7.1f} s in all, longest {longest:6.1f} s ({name})")


def main(paths):
    if paths[0] == "--failed":
        print("\n".join(names_of_failed(paths[1])))
        return 0
    passed = failed = skipped = flaky = 0
    for path in paths:
        build = path.split("/")[0]
        if not os.path.exists(path):
            print(f"FAILED  {build}: the tests left no log at {path}")
            failed += 1
            continue
        tests, alone = read(path), results_alone(path)
        print_times(build, tests)
        for test in tests:
            if test["result"] in PASSED:
                passed += 1
                for reason in parts_skipped(test):
                    print(f"in part {build}: {test['name']}: skipped: {reason}")
            elif test["result"] in SKIPPED:
                skipped += 1
                print(f"skipped {build}: {test['name']}: {skip_reason(test)}")
            elif alone.get(test["name"]) in PASSED:
                passed += 1
                flaky += 1
                print(f"FLAKY   {build}: {test['name']}: failed beside others, passed alone")
            else:
                failed += 1
                print(f"FAILED  {build}: {test['name']} ({test['result'].lower()})")
    print(f"{flaky} flaky")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 0 if passed > 0 and failed == 0 else 1


sys.exit(main(sys.argv[1:]))
