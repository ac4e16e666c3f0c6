# shellcheck shell=bash
# build.sh: configures once and compiles. Sourced by ./dev and by the scripts that build.
source scripts/common.sh

# configure_in DIR [meson option…]: does nothing if DIR is already configured.
configure_in() {
    local dir=$1
    shift
    if [[ ! -f $dir/build.ninja ]]; then
        say "configuring $dir"
        meson setup "$dir" "$@" >"$dir.setup.log" 2>&1 || {
            cat "$dir.setup.log" >&2
            rm -f "$dir.setup.log"
            fail "meson could not configure $dir"
        }
        rm -f "$dir.setup.log"
    elif command -v c++ >/dev/null && ! grep -q '^rule cpp_COMPILER' "$dir/build.ninja"; then
        # DIR was configured before a C++ compiler was installed. With a compiler, the tests of the CUDA backend are
        # built, too.
        meson setup --reconfigure "$dir" >/dev/null || fail "meson could not configure $dir again"
    fi
}

build_release() { # [target…]
    configure_in build --buildtype=release
    ninja -C build ${CLEAVE_JOBS:+-j "$CLEAVE_JOBS"} "$@" >&2 || fail "the build in build failed"
}
