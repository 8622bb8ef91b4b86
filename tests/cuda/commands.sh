#!/bin/sh
# The command and tools/conformance with --device cuda: cases, bench, and what is said about GPUs and commands that cannot be used.
#
#     commands.sh COMMAND [FOLDER_OF_THE_DRIVER]      the folder: that of a driver without a GPU (emulator/driver.c)
set -u
command=$1 emulator=${2:-}
[ -z "$emulator" ] || export LD_LIBRARY_PATH="$emulator" MHA_EMULATED_GPU=new
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0

check() {
    if "$@" >"$work/log" 2>&1; then
        passed=$((passed + 1))
        echo "  ok    $*"
    else
        failed=$((failed + 1))
        sed 's/^/    /' "$work/log" "$work/out" "$work/err"
        echo "FAILED  $*"
    fi
}

# run ARGUMENT...: of the command, or behind "conformance" of that tool, which lies beside it.
run() {
    program=$command
    [ "$1" != conformance ] || { program=${command%/*}/tools/conformance && shift; }
    "$program" "$@" >"$work/out" 2>"$work/err"
}

# refused TEXT ARGUMENT...: exit 2, nothing on standard output, and this one line.
refused() {
    text=$1
    shift
    run "$@"
    [ $? -eq 2 ] && [ ! -s "$work/out" ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -qF -- "$text" "$work/err"
}

all_vectors() { run conformance --device cuda "$MHA_VECTORS" && grep -Eq '^[1-9][0-9]* passed, 0 failed$' "$work/out"; }

# one_measurement PASS: as a table and as JSON.
one_measurement() {
    run bench --device cuda --shape vit_b16 --pass "$1" --seconds 0 && [ "$(wc -L <"$work/out")" -le 80 ] &&
        grep -Eq "^vit_b16 +$1 .* TF/s " "$work/out" || return
    run bench --device cuda --shape vit_b16 --pass "$1" --seconds 0 --json &&
        grep -q '"dtype": "bfloat16".*"device": "cuda".*"sm_mhz": .*"ms_median": [0-9].*"percent_of_peak": [0-9]' "$work/out"
}

only_attention_is_listed() {
    run bench --device cuda --list && grep -qx 'backward full_8k_128' "$work/out" && grep -qx 'decode decode_b64_8k' "$work/out" &&
        ! grep -vE '^(forward|backward|decode) ' "$work/out" && run bench --list && ! grep 8k_128 "$work/out"
}

nothing_is_there() { MHA_EMULATED_GPU=none refused ': --device cuda: cuda: this machine has no GPU' "$@"; }
an_old_gpu() { MHA_EMULATED_GPU=old refused 'has compute capability 8.0; the kernels need 9.0' "$@"; }

# Copies of the programs look for a plug-in of another name, which is not there.
mkdir "$work/tools" || exit 1
for file in mha tools/conformance; do
    LC_ALL=C sed 's/libmha-cuda\.so/libmha-none.so/g' "${command%/*}/$file" >"$work/$file" && chmod +x "$work/$file" || exit 1
done
no_plugin() (
    command=$work/mha
    refused ': --device cuda: cuda needs a plug-in that cannot be loaded: libmha-none.so: ' "$@"
)

if [ -n "${MHA_VECTORS:-}" ]; then
    check all_vectors
else
    skipped=1
    echo '  -     all_vectors: MHA_VECTORS names no folder of cases'
fi
check one_measurement forward
check one_measurement backward
check only_attention_is_listed
for words in "conformance $work" "bench --shape vit_b16" "layer no.safetensors none.safetensors -o $work/y.safetensors"; do
    # shellcheck disable=SC2086 # words
    set -- $words
    check refused ': --device cuda:99: there is no cuda:99; this machine has' "$@" --device cuda:99
    check refused ": --device tpu: there is none called 'tpu'; there are cpu, cuda and cuda:N" "$@" --device tpu
    check no_plugin "$@" --device cuda
    [ -z "$emulator" ] || check nothing_is_there "$@" --device cuda
    [ -z "$emulator" ] || check an_old_gpu "$@" --device cuda:0
done
check refused 'measures the passes forward, backward and decode; gemm runs on the CPU' bench --device cuda --pass gemm
check refused "measures shapes of attention; 'mha_small' runs on the CPU" bench --device cuda --shape mha_small
check refused '--threads is for the CPU and does not go with --device cuda' bench --device cuda --threads 1
mkdir "$work/models" "$work/models/tokens" && echo '[]' >"$work/models/tokens/cases.json"
check refused "--device cuda is for cases of ONNX operators; '$work/models/tokens' runs on the CPU" conformance --device=cuda "$work/models"
if [ $skipped -eq 0 ]; then echo "$passed passed, $failed failed"; else echo "$passed passed, $failed failed, $skipped skipped"; fi
[ $failed -eq 0 ]
