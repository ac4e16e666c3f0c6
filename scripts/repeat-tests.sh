#!/usr/bin/env bash
# repeat-tests.sh: runs the default tests several times, to find flaky ones. ./dev test must have built them.
#
#   scripts/repeat-tests.sh RUNS [--busy] [--half] [meson test option…]
#
#   --busy   a busy loop beside the tests for each core
#   --half   the processes of a test together get at most half a core (a control group with a quota; needs root)
#
# Ends with a table: how often each test failed, and the wall time of each run. The exit status is 0 if none failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh

runs=${1:?usage: scripts/repeat-tests.sh RUNS [--busy] [--half] [meson test option…]}
shift
busy=0 wrapper=() options=()
for word in "$@"; do
    case $word in
        --busy) busy=$(nproc) ;;
        --half) wrapper=(--wrapper "$PWD/scripts/half-core.sh") ;;
        *) options+=("$word") ;;
    esac
done
export CLEAVE_TEST_PYTHON=$PWD/build/python
work=$(mktemp -d)
loops=()
trap 'kill "${loops[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT
for ((i = 0; i < busy; i++)); do
    timeout 14400 sh -c 'while :; do :; done' &
    loops+=($!)
done

failed=0
for ((run = 1; run <= runs; run++)); do
    begin=$SECONDS
    for half in "build sanitized" "build-asan release"; do
        read -r dir without <<<"$half"
        rm -f "$dir"/meson-logs/repeat*.json
        meson test -C "$dir" --no-rebuild --num-processes "${CLEAVE_TEST_PROCESSES:-$(($(nproc) + 1))}" \
            --timeout-multiplier 20 --logbase repeat --no-suite long --no-suite "$without" "${wrapper[@]}" "${options[@]}" \
            </dev/null >"$work/$dir.$run" 2>&1 || true
        compgen -G "$dir/meson-logs/repeat*.json" >/dev/null || {
            tail -n 20 "$work/$dir.$run" >&2
            fail "meson has not run the tests of $dir"
        }
        python3 - "$dir" "$run" "$work/failures" <<'PYTHON'
import glob, json, sys
build, run, failures = sys.argv[1:]
found = glob.glob(f"{build}/meson-logs/repeat*.json")  # Meson adds the name of a wrapper.
with open(found[0]) as log, open(failures, "a") as out:
    tests = [json.loads(line) for line in log if line.strip()]
    bad = [test["name"] for test in tests if test["result"] not in ("OK", "EXPECTEDFAIL", "SKIP", "IGNORED")]
    out.writelines(f"{build}: {name}\n" for name in bad)
    print(f"run {run}, {build}: {len(tests) - len(bad)} passed or skipped, {len(bad)} failed" +
          "".join(f"\n    {name}" for name in bad), flush=True)
PYTHON
    done
    printf 'run %d took %d s\n' "$run" "$((SECONDS - begin))"
done
if [[ -s $work/failures ]]; then
    failed=1
    say "failures in $runs runs:"
    sort "$work/failures" | uniq -c | sort -rn
else
    say "$runs runs, no failure"
fi
exit "$failed"
