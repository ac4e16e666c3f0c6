#!/usr/bin/env bash
# test.sh: builds and runs all tests, and ends with one line: N passed, N failed[, N skipped].
#
#   --fast   the release build only
#   --long   the suite `long` as well: all cases of tests that otherwise draw some
#   --tsan   the threaded parts under ThreadSanitizer as well: wants a machine with nothing else to do, for
#            the tests' deadlines do not know how slow it makes them
#   SUITE…   only these suites (the folders of tests/)
#
# The tests run twice: in the release build, which is what people run, and under AddressSanitizer and
# UndefinedBehaviorSanitizer, without the tests of the suite `release` (those that measure time).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/build.sh

fast=0 tsan=0 suites=() without=(--no-suite long)
while [[ $# -gt 0 ]]; do
    case $1 in
        --fast) fast=1 ;;
        --long) without=() ;;
        --tsan) tsan=1 ;;
        -*) fail "test: unknown option $1" ;;
        *) suites+=(--suite "$1") ;;
    esac
    shift
done

# Keeps going past a failure; the summary at the end decides. Shows the log of each test that fails.
logs=()
run_tests() { # DIR [meson test option…]
    local dir=$1
    shift
    say "running the tests in $dir"
    rm -f "$dir/meson-logs/testlog.json"
    meson test -C "$dir" --no-rebuild --print-errorlogs "$@" </dev/null || true
    logs+=("$dir/meson-logs/testlog.json")
}

build_in build --buildtype=release --
run_tests build --timeout-multiplier 4 "${without[@]}" "${suites[@]}"
if [[ $fast -eq 0 ]]; then
    build_in build-asan --buildtype=debugoptimized -Doptimization=1 -Db_sanitize=address,undefined -Db_lundef=false --
    run_tests build-asan --no-suite release --timeout-multiplier 8 "${suites[@]}"
fi
if [[ $tsan -eq 1 ]]; then
    build_in build-tsan --buildtype=debugoptimized -Db_sanitize=thread -Db_lundef=false --
    [[ ${#suites[@]} -gt 0 ]] || suites=(--suite common --suite compute --suite transport --suite machine)
    export UCX_MEM_EVENTS=no # UCX's hooks of mmap and madvise run in threads that TSan does not know yet
    run_tests build-tsan --no-suite release --timeout-multiplier 8 "${suites[@]}"
fi
exec python3 scripts/test-summary.py "${logs[@]}"
