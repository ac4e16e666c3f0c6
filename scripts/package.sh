#!/usr/bin/env bash
# package.sh [--cuda] [--try] [--hosts] [--image]: builds the Debian packages in build/package, and checks them.
#   --cuda   also the package cleave-cuda (needs nvcc)
#   --try    installs the package in a fresh minimal Debian, serves a stream with the unit's command, and removes it
#            (as root, with debootstrap)
#   --hosts  installs it on two fresh minimal Debians under systemd with the commands of docs/install.md, serves a stream
#            over both, and tries the units (as root, with debootstrap and systemd-nspawn)
#   --image  makes build/package/cleave-image.tar: the root file system of a container that has the package (also as
#            root, with debootstrap)
# The source is a copy of the tracked files, so the build leaves nothing in the tree.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh

cuda='' try='' hosts='' image=''
for argument in "$@"; do
    case $argument in
        --cuda) cuda=1 ;;
        --try) try=1 ;;
        --hosts) hosts=1 ;;
        --image) image=1 ;;
        *) fail "package: unknown option $argument" ;;
    esac
done

# What git says about the source, and the package's version: 0.1.0 for the tag v0.1.0, 0.1.0+5.gHASH for the fifth commit
# after it, and before the first tag 0.1.0~COMMITS.gHASH.
described=$(git describe --always --dirty --abbrev=12)
release=$(sed -n "s/^ *version : '\(.*\)',/\1/p" meson.build | head -1)
case $described in
    v[0-9]*-[0-9]*-g*) version=$(sed 's/^v//; s/-dirty$/.dirty/; s/-\([0-9]*\)-g/+\1.g/' <<<"$described") ;;
    v[0-9]*) version=$(sed 's/^v//; s/-dirty$/+dirty/' <<<"$described") ;;
    *) version="$release~$(git rev-list --count HEAD).g${described//-/.}" ;;
esac

out=$PWD/build/package
rm -rf --one-file-system "$out"
mkdir -p "$out/source"
git ls-files -z | while IFS= read -r -d '' path; do
    [[ ! -e $path ]] || printf '%s\0' "$path"
done | cpio -0pdm --quiet "$out/source"
echo "$described" >"$out/source/described"
cat >"$out/source/debian/changelog" <<END
cleave ($version-1) unstable; urgency=medium

  * See CHANGELOG.md.

 -- The cleave maintainers <cleave@users.noreply.github.com>  $(git log -1 --format=%cD)
END

profiles=()
[[ -z $cuda ]] || profiles=(--build-profiles=pkg.cleave.cuda)
say "building cleave $version (the log: build/package/build.log)"
(cd "$out/source" && DEB_BUILD_OPTIONS="parallel=${CLEAVE_JOBS:-$(nproc)}" \
    dpkg-buildpackage --build=binary --no-sign "${profiles[@]}") >"$out/build.log" 2>&1 || {
    tail -n 40 "$out/build.log" >&2
    fail "dpkg-buildpackage failed"
}
rm -rf --one-file-system "$out/source"
mapfile -t packages < <(find "$out" -name '*.deb' ! -name '*dbgsym*' | sort)
python3 scripts/check-package.py "${packages[@]}"
if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error "${packages[@]}"
fi
[[ -z $try ]] || python3 scripts/try-package.py "$out"/cleave_*.deb
[[ -z $hosts ]] || python3 scripts/try-hosts.py "$out"/cleave_*.deb
[[ -z $image ]] || python3 scripts/try-package.py --image "$out/cleave-image.tar" "$out"/cleave_*.deb
for package in "${packages[@]}"; do
    say "built ${package#"$PWD/"} ($(du -h "$package" | cut -f1))"
done
