#!/usr/bin/env bash
# bench.sh: runs the benchmarks of bench/ with the default model and prints one report: all parts, or the named ones.
# Arguments go to bench/bench.py (--help lists them).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/fetch-model.sh

exec python3 bench/bench.py --model "$(model_path)" "$@"
