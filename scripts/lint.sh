#!/usr/bin/env bash
# lint.sh: what a reviewer need not look for: warnings as errors, cppcheck, shellcheck.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/build.sh

configure_in build-lint --buildtype=debugoptimized --werror
ninja -C build-lint ${CLEAVE_JOBS:+-j "$CLEAVE_JOBS"} >&2 || fail "the build in build-lint failed"
say "cppcheck"
# Not with --project=build-lint/compile_commands.json: cppcheck 2.10 does not find the headers of the tree that way.
find_sources | tr '\0' '\n' | grep '\.c$' | cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 -I . -D_GNU_SOURCE \
    --enable=warning,performance -j2 --suppress=missingIncludeSystem \
    --suppressions-list=scripts/cppcheck.txt --file-list=-
say "shellcheck"
shellcheck -x dev .ci/run scripts/*.sh tests/gpu/check tests/gpu/skip.sh
say "nothing found"
