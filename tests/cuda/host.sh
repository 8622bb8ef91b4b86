#!/bin/sh
# The plug-in and its kernels over a driver whose GPU is the CPU (emulator): a sample of the tests of attention, and what is said
# about GPUs that are not there.
#
#     host.sh TEST_CUDA FOLDER_OF_THE_DRIVER COMMAND
set -u
test=$1 driver=$2 command=$3
export LD_LIBRARY_PATH="$driver"
passed=0 failed=0

# said NAME GPU TEXT: what `mha info --json` says with that GPU.
said() {
    if MHA_EMULATED_GPU=$2 "$command" info --json | grep -F "$3" >/dev/null; then
        passed=$((passed + 1))
        echo "  ok    $1"
    else
        failed=$((failed + 1))
        MHA_EMULATED_GPU=$2 "$command" info --json | grep gpu
        echo "FAILED  $1: not '$3'"
    fi
}

said a_gpu new '{"device": "cuda:0", "description": "Emulated GPU, compute capability 9.0, 4 multiprocessors, 0 GiB"}'
said no_gpu none '"gpu_reason": "device: cuda: this machine has no GPU"'
said a_gpu_behind_an_old_one two '{"device": "cuda:1", "description": "Emulated GPU, compute capability 9.0'
said an_old_gpu_before_it two '{"device": "cuda:0", "reason": "device: cuda:0, Emulated GPU, has compute capability 8.0; the kernels need 9.0"}'
said no_reason_then two '"gpu_reason": null'
said an_old_gpu old 'device: cuda:0, Emulated GPU, has compute capability 8.0; the kernels need 9.0'

log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
MHA_SAMPLE=${MHA_SAMPLE_HOST:-24} "$test" boundary unlike grouped other_widths no_keys slices lse_with some_gradients are_added graph no_memory current \
    host not_there too_little >"$log" 2>&1
status=$?
sed '$d' "$log"
read -r p _ f _ <<END
$(tail -n 1 "$log")
END
case $p in *[!0-9]* | '') tail -n 1 "$log" && p=0 f=1 ;; esac # it ended early
[ "$status" -eq 0 ] || [ "$f" -gt 0 ] || f=1                  # something was left in the driver
printf '%d passed, %d failed\n' $((passed + p)) $((failed + f))
[ $((failed + f)) -eq 0 ]
