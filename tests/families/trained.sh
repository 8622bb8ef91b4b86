#!/bin/sh
# Models that other people trained, through the command, beside the answers that came with them.
#
#     trained.sh MHA      MHA_MODELS: folder of models and answers; MHA_STORIES15M: as ./dev data stories15m prints it
set -u
mha=$1 passed=0 failed=0 skipped=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

skip() { skipped=$((skipped + 1)) && echo "  -     $1: $2"; }
# check NAME GOT WANT: whether two files are the same, apart from a newline at the end.
check() {
    if [ "$(cat "$2")" = "$(cat "$3")" ]; then passed=$((passed + 1)) && echo "  ok    $1"; else
        failed=$((failed + 1))
        echo "FAILED  $1"
        diff "$2" "$3" | head -n 5
    fi
}

# The whole story from the beginning token on, to the next one or to the end of the context.
story() { "$mha" generate "$1" --ids 1 --tokens "$2" --quiet >"$work/got" 2>"$work/err" || cat "$work/err"; }

models=${MHA_MODELS:-}
if [ -f "$models/stories260k.safetensors" ]; then
    story "$models/stories260k.safetensors" 200
    check stories260k "$work/got" "$models/stories260k.expected.txt"
else skip stories260k 'MHA_MODELS names no folder with stories260k.safetensors'; fi

if [ -f "$models/stories15m.expected.txt" ] && [ -f "${MHA_STORIES15M:-}/stories15M.bin" ]; then
    story "$MHA_STORIES15M/stories15M.bin" 255
    check stories15m "$work/got" "$models/stories15m.expected.txt"
else skip stories15m 'MHA_STORIES15M names no folder with stories15M.bin, or MHA_MODELS none with the answer'; fi

if [ -f "$models/gpt-nano-sort.safetensors" ]; then
    for letters in 2,1,0,2,0,1 0,0,0,0,0,0 1,2,1,2,1,2 2,2,1,1,0,0 0,1,2,0,1,2; do
        echo "$letters" | tr ',' '\n' | sort -n | tr '\n' ',' >>"$work/want"
        "$mha" generate "$models/gpt-nano-sort.safetensors" --ids "$letters" --tokens 6 --json --quiet 2>"$work/err" |
            sed -n 's/.*"tokens": \[\([0-9, ]*\)\]}.*/\1,/p' | tr -d ' \n' >>"$work/sorted" || cat "$work/err"
    done
    check gpt_nano_sort "$work/sorted" "$work/want"
else skip gpt_nano_sort 'MHA_MODELS names no folder with gpt-nano-sort.safetensors'; fi

# Every family, logits, hidden states, attention weights and continuations.
if [ -d "$models/hf" ]; then
    "${mha%/*}/tools/conformance" "$models/hf" >"$work/all" 2>&1
    grep -A1 -E '^FAILED|^conformance:' "$work/all"
    tail -n 1 "$work/all" | sed 's/^[0-9]* passed, //' >"$work/got"
    echo '0 failed' >"$work/none"
    check families "$work/got" "$work/none"
else skip families 'MHA_MODELS names no folder with hf/'; fi

if [ $skipped -gt 0 ]; then echo "$passed passed, $failed failed, $skipped skipped"; else echo "$passed passed, $failed failed"; fi
[ $failed -eq 0 ]
