#!/usr/bin/env bash
# package.sh [--cuda] [--try] [--hosts] [--image]: builds the Debian packages in build/package, and checks them.
#   --cuda   also the package cleave-cuda (needs nvcc)
#   --try    installs the package in a fresh minimal Debian, serves a stream with the unit's command, and removes it
#            (as root, with debootstrap)
#   --hosts  installs it on two fresh minimal Debians under systemd with the commands of docs/install.md, serves a stream
#            over both, and tries the units; then installs the package of the previous release (built from its commit,
#            once) and upgrades host by host with the commands of docs/upgrade.md while clients stream (as root)
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

# package_build FOLDER COMMIT DESCRIBED PROFILE…: builds the packages of the source in FOLDER/source, then removes it.
# DESCRIBED is what git describe says. The package's version: 0.1.0 for the tag v0.1.0, 0.1.0+5.gHASH for the fifth commit
# after it, and before the first tag 0.1.0~COMMITS.gHASH.
package_build() {
    local folder=$1 commit=$2 described=$3 version release
    shift 3
    release=$(sed -n "s/^ *version : '\(.*\)',/\1/p" "$folder/source/meson.build" | head -1)
    case $described in
        v[0-9]*-[0-9]*-g*) version=$(sed 's/^v//; s/-dirty$/.dirty/; s/-\([0-9]*\)-g/+\1.g/' <<<"$described") ;;
        v[0-9]*) version=$(sed 's/^v//; s/-dirty$/+dirty/' <<<"$described") ;;
        *) version="$release~$(git rev-list --count "$commit").g${described//-/.}" ;;
    esac
    echo "$described" >"$folder/source/described"
    cat >"$folder/source/debian/changelog" <<END
cleave ($version-1) unstable; urgency=medium

  * See CHANGELOG.md.

 -- The cleave maintainers <cleave@users.noreply.github.com>  $(git log -1 --format=%cD "$commit")
END
    say "building cleave $version (the log: ${folder#"$PWD/"}/build.log)"
    (cd "$folder/source" && DEB_BUILD_OPTIONS="parallel=${CLEAVE_JOBS:-$(nproc)}" \
        dpkg-buildpackage --build=binary --no-sign "$@") >"$folder/build.log" 2>&1 || {
        tail -n 40 "$folder/build.log" >&2
        fail "dpkg-buildpackage failed"
    }
    rm -rf --one-file-system "$folder/source"
}

# Builds the package of the previous release in build/package-COMMIT, if it is not there.
previous_package() {
    local commit
    commit=$(sed -n 's/^commit //p' tests/cluster/previous_release)
    previous=$PWD/build/package-${commit:0:12}
    compgen -G "$previous/cleave_*.deb" >/dev/null && return
    git cat-file -e "$commit^{commit}" 2>/dev/null || fail "package: commit $commit is not in this checkout's history"
    rm -rf --one-file-system "$previous"
    mkdir -p "$previous/source"
    git archive "$commit" | tar -x -C "$previous/source"
    package_build "$previous" "$commit" "$(git describe --always --abbrev=12 "$commit")"
}

out=$PWD/build/package
rm -rf --one-file-system "$out"
mkdir -p "$out/source"
git ls-files -z | while IFS= read -r -d '' path; do
    [[ ! -e $path ]] || printf '%s\0' "$path"
done | cpio -0pdm --quiet "$out/source"
profiles=()
[[ -z $cuda ]] || profiles=(--build-profiles=pkg.cleave.cuda)
package_build "$out" HEAD "$(git describe --always --dirty --abbrev=12)" "${profiles[@]}"
[[ -z $hosts ]] || previous_package
mapfile -t packages < <(find "$out" -name '*.deb' ! -name '*dbgsym*' | sort)
python3 scripts/check-package.py "${packages[@]}"
if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error "${packages[@]}"
fi
[[ -z $try ]] || python3 scripts/try-package.py "$out"/cleave_*.deb
[[ -z $hosts ]] || python3 scripts/try-hosts.py --previous "$previous"/cleave_*.deb -- "$out"/cleave_*.deb
[[ -z $image ]] || python3 scripts/try-package.py --image "$out/cleave-image.tar" "$out"/cleave_*.deb
for package in "${packages[@]}"; do
    say "built ${package#"$PWD/"} ($(du -h "$package" | cut -f1))"
done
