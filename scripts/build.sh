# shellcheck shell=bash
# build.sh: configures once and compiles. Sourced by ./dev and by the scripts that build.
source scripts/common.sh

# build_in DIR [meson option…] -- [target…]: nothing but ninja's own check when all is up to date.
build_in() {
    local dir=$1 options=()
    shift
    while [[ $# -gt 0 && $1 != -- ]]; do
        options+=("$1")
        shift
    done
    shift
    if [[ ! -f $dir/build.ninja ]]; then
        say "configuring $dir"
        meson setup "$dir" "${options[@]}" >"$dir.setup.log" 2>&1 || {
            cat "$dir.setup.log" >&2
            rm -f "$dir.setup.log"
            fail "meson could not configure $dir"
        }
        rm -f "$dir.setup.log"
    elif command -v c++ >/dev/null && ! grep -q '^rule cpp_COMPILER' "$dir/build.ninja"; then
        # Configured before there was a C++ compiler: with one come the tests of the CUDA backend.
        meson setup --reconfigure "$dir" >/dev/null || fail "meson could not configure $dir again"
    fi
    ninja -C "$dir" ${CLEAVE_JOBS:+-j "$CLEAVE_JOBS"} "$@" >&2 || fail "the build in $dir failed"
}

build_release() { # [target…]
    build_in build --buildtype=release -- "$@"
}
