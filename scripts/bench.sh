#!/usr/bin/env bash
# bench.sh: runs the benchmarks that the build made (build/bench/bench-*), all or the ones that are named,
# each with the default model's path as its argument. Reads nothing and writes its figures to stdout.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/fetch-model.sh

ran=0
for program in build/bench/bench-*; do
    [[ -f $program && -x $program ]] || continue
    name=${program##*/bench-}
    [[ $# -eq 0 || " $* " == *" $name "* ]] || continue
    say "bench $name"
    "$program" "$(model_path)"
    ran=$((ran + 1))
done
[[ $ran -gt 0 ]] || fail "no such benchmark; ./dev bench without a name runs all"
