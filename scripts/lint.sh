#!/usr/bin/env bash
# lint.sh: checks that a reviewer need not make: warnings as errors, cppcheck, shellcheck, corpora without a fuzz target.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/build.sh

configure_in build-lint --buildtype=debugoptimized --werror
ninja -C build-lint ${CLEAVE_JOBS:+-j "$CLEAVE_JOBS"} >&2 || fail "the build in build-lint failed"
say "cppcheck"
# Without --project=build-lint/compile_commands.json: with it, cppcheck 2.10 does not find the headers of the tree.
find_sources | tr '\0' '\n' | grep '\.c$' | cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 -I . -D_GNU_SOURCE \
    --enable=warning,performance -j2 --suppress=missingIncludeSystem \
    --suppressions-list=scripts/cppcheck.txt --include=scripts/cppcheck.macros --file-list=-
say "shellcheck"
shellcheck -x dev .ci/run scripts/*.sh tests/gpu/check tests/gpu/skip.sh
say "corpora of fuzz targets"
for folder in tests/data/fuzz/*/; do
    name=$(basename "$folder")
    [[ -n $(find tests -name "fuzz_$name.c") ]] || fail "no fuzz target reads $folder"
done
say "nothing found"
