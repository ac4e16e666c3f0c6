# shellcheck shell=bash
# packages.sh: installs the packages that a step needs and this computer lacks. Sourced by ./dev.
#
# The check looks for what a package provides (a command, a pkg-config module, a header …), not for a Debian package. So
# it takes a few milliseconds, and passes on any distribution that has these parts.
source scripts/common.sh

# step | Debian package | what the package provides: cmd:NAME, any:NAME,NAME (one of these commands), pc:MODULE,
# file:PATH, py:MODULE or clang:OPTION
PACKAGES='
build  gcc                   cmd:gcc
build  libc6-dev             file:/usr/include/stdio.h
build  pkg-config            cmd:pkg-config
build  meson                 cmd:meson
build  ninja-build           cmd:ninja
build  libucx-dev            pc:ucx
build  libmicrohttpd-dev     pc:libmicrohttpd
build  libjansson-dev        pc:jansson
build  libgnutls28-dev       pc:gnutls
build  libpcre2-dev          pc:libpcre2-8
build  libunistring-dev      file:/usr/include/uninorm.h
build  libcurl4-openssl-dev  pc:libcurl
build  zlib1g-dev            pc:zlib
build  libhiredis-dev        pc:hiredis
serve  curl                  cmd:curl
fetch  python3               cmd:python3
fetch  python3-pip           py:pip
test   python3               cmd:python3
test   curl                  cmd:curl
test   g++                   cmd:g++
test   iproute2              cmd:ip
test   procps                cmd:ps
test   openssl               cmd:openssl
test   etcd-server           cmd:etcd
test   redis-server          cmd:redis-server
test   gnuplot-nox           cmd:gnuplot
test   chromium-headless-shell any:chromium-headless-shell,chromium
clients python3-venv         py:ensurepip
arm64  gcc-aarch64-linux-gnu cmd:aarch64-linux-gnu-gcc
arm64  qemu-user-static      cmd:qemu-aarch64-static
fuzz   python3               cmd:python3
fuzz   clang                 cmd:clang
fuzz   libclang-rt-dev       clang:-fsanitize=fuzzer,address,undefined
bench  python3               cmd:python3
bench  libdnnl-dev           file:/usr/include/dnnl.h
format clang-format          cmd:clang-format
package debhelper            cmd:dh
package dpkg-dev             cmd:dpkg-buildpackage
package cpio                 cmd:cpio
debian debootstrap           cmd:debootstrap
hosts  systemd-container     cmd:systemd-nspawn
hosts  iproute2              cmd:ip
hosts  procps                cmd:pgrep
lint   cppcheck              cmd:cppcheck
lint   shellcheck            cmd:shellcheck
'

package_is_there() {
    case $1 in
        cmd:*) command -v "${1#cmd:}" >/dev/null ;;
        any:*) compgen -c | grep -qxE "$(tr ',' '|' <<<"${1#any:}")" ;;
        pc:*) pkg-config --exists "${1#pc:}" 2>/dev/null ;;
        file:*) [[ -e ${1#file:} ]] ;;
        clang:*)
            echo 'int LLVMFuzzerTestOneInput(void); int LLVMFuzzerTestOneInput(void) { return 0; }' |
                clang "${1#clang:}" -x c - -o /dev/null 2>/dev/null
            ;;
        py:*) python3 -c "import importlib.util as u, sys; sys.exit(u.find_spec('${1#py:}') is None)" 2>/dev/null ;;
    esac
}

packages_install() {
    local log shown status=0
    log=$(mktemp)
    say "installing with apt: $*"
    shown='s/^Get:[0-9]* [^ ]* [^ ]* [^ ]* \([^[ ]*\) .*/  getting \1/p; s/^Setting up \([^ ]*\).*/  setting up \1/p; s/^Need to get/  to get/p'
    {
        apt-get -q -o DPkg::Lock::Timeout=300 update &&
            DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
                install --no-install-recommends "$@"
    } </dev/null 2>&1 | tee "$log" | sed -un "$shown" >&2 || status=1
    if [[ $status -ne 0 ]]; then
        tail -n 20 "$log" >&2
        fail "apt-get could not install: $* (its log: $log)"
    fi
    rm -f "$log"
    hash -r
}

# Installs what the named steps need and this computer lacks.
packages_need() {
    local missing=() step package gives
    while read -r step package gives; do
        [[ " $* " == *" $step "* ]] || continue
        package_is_there "$gives" || missing+=("$package")
    done <<<"$PACKAGES"
    [[ ${#missing[@]} -gt 0 ]] || return 0

    if ! command -v apt-get >/dev/null; then
        fail "missing on this machine: ${missing[*]} (Debian's package names; install their like with your package manager)"
    fi
    if [[ $(id -u) -ne 0 ]]; then
        fail "missing packages; as root, run: apt-get install --no-install-recommends ${missing[*]}"
    fi
    packages_install "${missing[@]}"
}
