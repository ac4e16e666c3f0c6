# shellcheck shell=bash
# common.sh: what every script here says and how it fails. Sourced, never run.

say() {
    printf 'dev: %s\n' "$*" >&2
}

fail() {
    printf 'dev: %s\n' "$*" >&2
    exit 1
}

# Every C, C++ and CUDA file of the tree that we wrote, NUL-terminated.
find_sources() {
    find . -path './build*' -prune -o -path './.*' -prune -o \( -name '*.c' -o -name '*.h' -o -name '*.cc' \
        -o -name '*.cu' -o -name '*.cuh' \) -print0
}
