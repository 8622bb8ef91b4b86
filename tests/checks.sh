# shellcheck shell=bash disable=SC2034,SC2154 # variables of ./dev, which sources it
# `./dev format` and `./dev check`: stage_NAME runs a stage, build_NAME builds what it runs.

files() { git ls-files -co --exclude-standard -- "$@"; }

do_format() {
    command -v clang-format >/dev/null || setup all
    clang-format --version | grep -q 'version 14\.' ||
        say "clang-format 14 is expected; this is $(clang-format --version)"
    if [ "${1:-}" = --check ]; then set -- --dry-run -Werror; else set -- -i; fi
    files '*.c' '*.h' '*.cpp' | xargs -P "$(nproc)" -n 100 clang-format "$@"
}

stage_format() { do_format --check; }
stage_shell() { files '*.sh' | xargs shellcheck dev .ci/run; }
stage_house() { tests/house.sh && tests/documents.sh; }
# Runs clang-tidy on all files; with MHA_TIDY=changed only on changed ones. The static analyzer takes more than nine tenths of
# the time: it then gives up a function after a third of its usual 225,000 states, visits the 40 files of which most lines changed, and is
# off for tests (which run under the sanitizers).
stage_tidy() {
    local states=(-Xclang -analyzer-config -Xclang max-nodes=75000) plain=(--checks='-clang-analyzer-*') most=40
    cmake --preset clang --log-level=NOTICE && compiled_files >/dev/null || return 1
    if [ "${MHA_TIDY:-}" != changed ]; then
        compiled_files | tidy
    else
        local files others
        files=$(changed_files)
        others=$(sed '/^tests\//d' <<<"$files" | sed "1,${most}d")
        [ -z "$others" ] || echo "without the static analyzer: ${others//$'\n'/ }"
        sed '/^tests\//d' <<<"$files" | sed -n "1,${most}p" | tidy "${states[@]/#/--extra-arg=}" &&
            { sed -n '/^tests\//p' <<<"$files" && printf '%s\n' "$others"; } | tidy "${plain[@]}"
    fi
}
tidy() { xargs -r -t -P "$(nproc)" -n 1 clang-tidy -p build/clang --quiet "$@"; }

# The files compiled by the preset clang, except generated ones and kernels. Fails if there are none.
compiled_files() {
    sed -n "s,^ *\"file\": \"$PWD/\(.*\)\".*,\\1,p" build/clang/compile_commands.json | grep -vE '^build/|\.cu$' | sort -u
}

# The compiled files that changed since base_commit, and one that includes each changed header; those of which most lines changed first.
changed_files() {
    local base lines file
    base=$(base_commit)
    if [ -z "$base" ]; then compiled_files && return; fi
    {
        git diff --numstat --diff-filter=d --no-renames "$base" | awk '{ print $1 + $2, $3 }'
        git ls-files -o --exclude-standard | xargs -r wc -l | awk '$2 != "total" { print $1, $2 }'
    } | while read -r lines file; do
        case $file in *.h | *.def | *.inc) file=$(includer "$file") ;; esac
        printf '%s\t%s\n' "$file" "$lines"
    done | awk -F '\t' 'NR == FNR { known[$1]; next } $1 in known { lines[$1] += $2 }
        END { for (file in lines) print lines[file], file }' <(compiled_files) - | sort -k 1,1nr -k 2 | cut -d ' ' -f 2
}

# The merge base with origin/main. If that is HEAD itself, or there is none, the last commit that is 4 hours older than
# HEAD, or nothing if the history is shorter.
base_commit() {
    local base head
    head=$(git rev-parse HEAD)
    base=$(git merge-base HEAD origin/main 2>/dev/null) || base=$head
    [ "$base" != "$head" ] || base=$(git rev-list -1 --before=$(($(git log -1 --format=%ct) - 4 * 3600)) HEAD)
    echo "$base"
}

# includer HEADER: a C file that includes it, directly or indirectly; nothing if there is none.
includer() {
    local at=$1 name
    while [ -n "$at" ] && [[ $at != *.c ]]; do
        name=${at##*/}
        at=$(git grep -lE "^ *# *include *[<\"](.*/)?${name}[>\"]" -- '*.c' '*.h' | sort -t . -k 2 | head -n 1)
    done
    echo "$at"
}

# What stages run, apart, so that .ci/run can build it while tests run.
fuzz_targets=(fuzz_safetensors fuzz_config fuzz_wav fuzz_tokenizer)
build_asan() { compile asan; } # also the build with clang, with warnings as errors
build_tsan() { compile tsan tests_threads; }
build_fuzz() { compile fuzz "${fuzz_targets[@]}"; }
build_cross() { compile cross-"$other" tests_isa; }

# Runs a part of the cases; .ci/run runs all without a sanitizer.
stage_asan() { build_asan && MHA_SAMPLE=10 run_tests asan; }
# Without address randomization, which the thread sanitizer of older compilers does not support.
stage_tsan() {
    local label=threads
    if setarch -R true; then local launcher=(setarch -R); fi
    build_tsan && MHA_SAMPLE=20 MHA_ISAS=best run_tests tsan
}
# One process per processor. libFuzzer looks for leaks after inputs that freed less than they allocated, so that the check at
# the end, which takes seconds on Arm (tests/support/leaks.c), finds no more.
stage_fuzz() {
    local -x ASAN_OPTIONS=leak_check_at_exit=0
    local target
    build_fuzz || return
    for target in "${fuzz_targets[@]}"; do
        mkdir -p "build/fuzz/corpus/$target" && "build/fuzz/tests/$target" -fork="$(nproc)" -max_total_time=10 \
            -artifact_prefix=build/fuzz/ "build/fuzz/corpus/$target" || return
    done
}
# Runs few of the cases: qemu is about fifty times slower. The kernels in plain C, which every architecture has, run there in
# the tests of kernels alone.
stage_cross() {
    local label=isa
    build_cross && MHA_SAMPLE=60 MHA_ISAS=vector run_tests cross-"$other"
}

do_check() {
    local stage start result log cases passed=0 failed=0 do=stage
    setup all
    if [ "${1:-}" = --build ]; then
        do=build
        shift
        [ $# -gt 0 ] || set -- asan tsan fuzz cross
    fi
    [ $# -gt 0 ] || set -- format shell house tidy asan tsan fuzz cross
    for stage; do
        [ "$(type -t "${do}_$stage")" = function ] || die "unknown stage '$stage'; run ./dev for a list"
    done
    mkdir -p build
    for stage; do
        start=$SECONDS log=build/check-$stage.log
        [ $do = stage ] || log=build/check-$stage-build.log
        start_watch "$stage" "$log"
        if "${do}_$stage" >"$log" 2>&1 </dev/null; then
            result=ok passed=$((passed + 1))
        else
            result=FAILED failed=$((failed + 1))
            end_watch
            tail -n 200 "$log" | sed 's/^/    /'
        fi
        end_watch
        cases=$(tail -n 1 "$log" | grep ' passed, ' || true)
        printf '  %-6s  %-6s  %4d s   %s\n' "$result" "$stage" $((SECONDS - start)) "$cases"
    done
    printf '%d passed, %d failed\n' $passed $failed
    [ $failed -eq 0 ]
}
