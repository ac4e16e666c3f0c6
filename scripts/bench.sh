#!/usr/bin/env bash
# bench.sh: the benchmarks of bench/ over the default model, as one report on stdout: all parts, or those that
# are named. Arguments go to bench/bench.py (--help lists them).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/fetch-model.sh

exec python3 bench/bench.py --model "$(model_path)" "$@"
