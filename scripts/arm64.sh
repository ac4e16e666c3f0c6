#!/usr/bin/env bash
# arm64.sh: `./dev test --arm64 [SUITE…]`: builds cleave for 64-bit ARM and runs it in QEMU's user mode: tests of these
# suites (default: those of SUITES), and a cluster, whose answers and log-probabilities must equal those of the build for
# this computer (tests/cluster/test_arm64.py). Only the portable kernels exist for ARM. Debian only, as root: to start
# the ARM program's processes, the kernel gets an entry for it (binfmt_misc), which is removed at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/build.sh

SUITES=(kvcache scheduler events prompt_pool token_pool)
PACKAGES=(libc6-dev libucx-dev libmicrohttpd-dev libjansson-dev libgnutls28-dev libpcre2-dev libunistring-dev libcurl4-openssl-dev libhiredis-dev zlib1g-dev)
DIR=build-arm64
ENTRY=/proc/sys/fs/binfmt_misc/cleave-arm64

# Unpacks the ARM packages of this distribution into $root/sysroot. Nothing is installed.
sysroot_make() {
    local root=$1 file dir
    rm -rf "$root"
    mkdir -p "$root"/{state/lists/partial,cache/archives/partial} "$root"/sysroot/usr/{lib,bin,sbin}
    for dir in lib bin sbin; do
        ln -s "usr/$dir" "$root/sysroot/$dir"
    done
    : >"$root/status"
    cat >"$root/apt.conf" <<CONF
Dir::State "$root/state";
Dir::State::status "$root/status";
Dir::Cache "$root/cache";
APT::Architecture "arm64";
APT::Architectures "arm64";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
CONF
    say "fetching ARM packages"
    APT_CONFIG=$root/apt.conf apt-get -qq update >&2
    APT_CONFIG=$root/apt.conf apt-get -qq install -y --download-only "${PACKAGES[@]}" >&2
    for file in "$root"/cache/archives/*.deb; do
        dpkg-deb --fsys-tarfile "$file" | tar -x -C "$root/sysroot" --keep-directory-symlink
    done
    rm -rf "$root/cache" "$root/state"
}

cross_file() {
    local sysroot=$1
    cat <<CROSS
[binaries]
c = 'aarch64-linux-gnu-gcc'
ar = 'aarch64-linux-gnu-ar'
strip = 'aarch64-linux-gnu-strip'
pkgconfig = 'pkg-config'
exe_wrapper = ['qemu-aarch64-static', '-L', '$sysroot']
[built-in options]
c_args = ['--sysroot=$sysroot']
c_link_args = ['--sysroot=$sysroot']
[properties]
sys_root = '$sysroot'
pkg_config_libdir = ['$sysroot/usr/lib/aarch64-linux-gnu/pkgconfig', '$sysroot/usr/share/pkgconfig']
needs_exe_wrapper = true
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
CROSS
}

# The kernel starts ARM programs with QEMU from here on.
entry_add() {
    local magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
    local mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
    [[ -e /proc/sys/fs/binfmt_misc/register ]] || mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc ||
        fail "binfmt_misc cannot be mounted: want root"
    if grep -qs '^interpreter.*qemu-aarch64' /proc/sys/fs/binfmt_misc/*; then
        return # The distribution's package has made one.
    fi
    printf ':%s:M::%s:%s:%s:F' "${ENTRY##*/}" "$magic" "$mask" "$(command -v qemu-aarch64-static)" \
        >/proc/sys/fs/binfmt_misc/register || fail "binfmt_misc takes no entry: want root"
    trap 'echo -1 >"$ENTRY"' EXIT
}

[[ $# -eq 0 ]] || SUITES=("$@")
root=${XDG_CACHE_HOME:-$HOME/.cache}/cleave/arm64-$(. /etc/os-release && echo "$VERSION_CODENAME")
if [[ ! -e $root/complete ]]; then
    sysroot_make "$root"
    touch "$root/complete"
fi
if [[ ! -f $DIR/build.ninja ]]; then
    cross_file "$root/sysroot" >"$root/cross.txt"
    configure_in $DIR --cross-file "$root/cross.txt" --buildtype=release -Dcuda=disabled
fi
export QEMU_LD_PREFIX=$root/sysroot
build_release cleave
selection=()
for suite in "${SUITES[@]}"; do
    selection+=(--suite "$suite")
done
mapfile -t targets < <(python3 scripts/test-targets.py $DIR --no-suite long --no-suite cluster "${selection[@]}")
ninja -C $DIR cleave "${targets[@]}" >&2 || fail "the build in $DIR failed"
entry_add
status=0
meson test -C $DIR --no-rebuild --print-errorlogs --timeout-multiplier 100 --no-suite long "${selection[@]}" || status=1
CLEAVE_BINARY=$PWD/build/cleave CLEAVE_BINARY_ARM64=$PWD/$DIR/cleave python3 tests/cluster/test_arm64.py || status=1
exit $status
