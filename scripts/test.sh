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
# UndefinedBehaviorSanitizer, without the tests of the suite `release` (those that measure time, or run no code that
# others do not). Many tests mostly wait, so more of them run at a time than there are cores, and the sanitizers'
# build is compiled meanwhile, with what they leave of the cores.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/build.sh

fast=0 tsan=0 suites=() without=(--no-suite long)
while [[ $# -gt 0 ]]; do
    case $1 in
        --fast) fast=1 ;;
        --long)
            without=()
            export CLEAVE_FUZZ_SECONDS=${CLEAVE_FUZZ_SECONDS:-5}
            ;;
        --tsan) tsan=1 ;;
        -*) fail "test: unknown option $1" ;;
        *) suites+=(--suite "$1") ;;
    esac
    shift
done

processes=${CLEAVE_TEST_PROCESSES:-$(($(nproc) + 1))}
again_max=5 # more failures than that are no accident

# Keeps going past a failure; the summary at the end decides. Shows the log of each test that fails.
logs=()
run_tests() { # DIR [meson test option…]
    local dir=$1
    shift
    say "running the tests in $dir"
    rm -f "$dir"/meson-logs/{testlog,again}.json
    meson test -C "$dir" --no-rebuild --print-errorlogs --num-processes "$processes" "$@" </dev/null || true
    logs+=("$dir/meson-logs/testlog.json")
}

# What failed beside other tests runs once more, with nothing beside it: a computer that was busy is told from a fault.
# The summary names it either way.
run_again() { # DIR [meson test option…]
    local dir=$1 names
    shift
    mapfile -t names < <(python3 scripts/test-summary.py --failed "$dir/meson-logs/testlog.json" | sort -u | sed '/^$/d')
    [[ ${#names[@]} -gt 0 && ${#names[@]} -le $again_max ]] || return 0
    say "once more, alone, in $dir: ${names[*]}"
    meson test -C "$dir" --no-rebuild --print-errorlogs --num-processes 1 --logbase again "$@" "${names[@]}" </dev/null || true
}

# Lines of the source are all that a report shows (-g1). The backend for GPUs on the emulator has no checks of these
# sanitizers, so that of the release build is taken.
build_asan() {
    build_in build-asan --buildtype=debugoptimized -Doptimization=1 -Ddebug=false -Dc_args=-g1 \
        -Db_sanitize=address,undefined -Db_lundef=false -Dcuda=disabled -Dgpu_emulator="$PWD/build" --
}

build_in build --buildtype=release --
if [[ $fast -eq 0 ]]; then
    set -m # a process group of its own, which can be ended as a whole
    (
        renice -n 19 "$BASHPID" >/dev/null
        build_asan
    ) >build-asan.log 2>&1 &
    asan=$!
    set +m
    trap 'kill -- "-$asan" 2>/dev/null || true' EXIT
fi
run_tests build --timeout-multiplier 4 "${without[@]}" "${suites[@]}"
if [[ $fast -eq 0 ]]; then
    say "waiting for the build with sanitizers, build-asan"
    wait "$asan" || {
        cat build-asan.log >&2
        fail "the build in build-asan failed"
    }
    trap - EXIT
    rm -f build-asan.log
    run_tests build-asan --no-suite release --timeout-multiplier 8 "${suites[@]}"
    run_again build-asan --timeout-multiplier 8
fi
run_again build --timeout-multiplier 4
if [[ $tsan -eq 1 ]]; then
    build_in build-tsan --buildtype=debugoptimized -Db_sanitize=thread -Db_lundef=false -Dcuda=disabled --
    [[ ${#suites[@]} -gt 0 ]] || suites=(--suite common --suite compute --suite transport --suite machine)
    export UCX_MEM_EVENTS=no # UCX's hooks of mmap and madvise run in threads that TSan does not know yet
    run_tests build-tsan --no-suite release --timeout-multiplier 8 "${suites[@]}"
fi
exec python3 scripts/test-summary.py "${logs[@]}"
