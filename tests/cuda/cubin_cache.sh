#!/bin/sh
# Looks at when cmake/cubin.cmake compiles a kernel and when it takes one from the cache, with an nvcc that is a script, and at what an nvcc
# changes on a machine without a GPU: nothing.
#
#     cubin_cache.sh CMAKE SCRIPT
set -u
cmake=$1 script=$2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
mkdir "$work/one" "$work/two" "$work/cache"
unset MHA_CUBIN_CACHE
export XDG_CACHE_HOME="$work/cache"
cache=$work/cache/mha/cubins

# It counts its calls, and reports a kernel that spills as many bytes as the source says.
cat >"$work/nvcc" <<'end'
#!/bin/sh
echo x >>"$CALLS"
while [ $# -gt 1 ]; do
    [ "$1" != -o ] || out=$2
    shift
done
cat "$1" "$(dirname "$1")/part.cuh" >"$out"
spills=$(sed -n 's,^// spills ,,p' "$1")
printf 'ptxas info    : Function properties for kernel\n    0 bytes stack frame, %s bytes spill stores, 0 bytes spill loads\n' "${spills:-0}"
end
chmod +x "$work/nvcc"
export CALLS="$work/calls"

for checkout in one two; do
    printf '#include "part.cuh"\nkernel\n' >"$work/$checkout/k.cu"
    echo 'a part' >"$work/$checkout/part.cuh"
done

# compile CHECKOUT [DEFINITION...]
compile() {
    from=$work/$1
    shift
    "$cmake" -DNVCC="$work/nvcc" -DVERSION=V1 -DSOURCE="$from/k.cu" -DOUT="$from/k.cubin" -DSPILL_BYTES=0 -DFOLDERS="$from" "$@" \
        -P "$script" >"$work/said" 2>&1
}
refused() { ! compile "$@"; }
# expect NAME CALLS COMMAND...: the command succeeds, after CALLS calls of nvcc in all.
expect() {
    name=$1 calls=$2
    shift 2
    if "$@" && [ "$(wc -l <"$CALLS")" -eq "$calls" ]; then
        passed=$((passed + 1))
        echo "  ok    $name"
    else
        failed=$((failed + 1))
        cat "$work/said"
        echo "FAILED  $name: $(wc -l <"$CALLS") calls of nvcc"
    fi
}
: >"$CALLS"
same() { cat "$work/$1/k.cu" "$work/$1/part.cuh" | cmp - "$work/$1/k.cubin"; }
entries() { [ "$(find "$cache" -type f | wc -l)" -eq "$1" ]; }

expect a_new_kernel_is_compiled 1 compile one
expect it_is_what_nvcc_wrote 1 same one
touch "$work/one/k.cu"
expect a_newer_file_with_the_same_content_is_not 1 compile one
expect another_checkout_takes_it_from_the_cache 1 compile two
expect with_the_same_content 1 same two
echo 'another part' >"$work/two/part.cuh"
expect a_changed_header_compiles_it 2 compile two
expect the_kernel_of_the_new_header 2 same two
echo 'a part' >"$work/two/part.cuh"
expect the_old_header_is_in_the_cache 2 compile two
expect the_kernel_of_the_old_header 2 same two
expect another_compiler_compiles_it 3 compile two -DVERSION=V2
expect three_entries 3 entries 3
rm "$work/one/k.cubin"
for file in "$cache"/*; do echo damaged >"$file"; done
expect damaged_entries_are_not_used 4 compile one
expect but_compiled_again 4 same one
rm "$work/one/k.cubin"
expect and_replaced 4 compile one
for n in 1 2 3 4 5 6 7 8 9; do
    for m in 0 1 2 3 4 5 6 7 8 9 a b c d e f g h i j k l m n o p q r s t; do
        touch -d 2001-01-01 "$cache/old-$n$m.cubin"
    done
done
echo 'a third part' >"$work/one/part.cuh"
expect another_kernel 5 compile one
expect the_newest_entries_are_kept 5 entries 256
rm "$work/one/k.cubin"
expect among_them_this_one 5 compile one
echo '// spills 8' >>"$work/one/k.cu"
expect a_kernel_that_spills_is_refused 6 refused one
gone() { [ ! -e "$work/one/k.cubin" ]; }
expect and_not_kept 6 gone
expect nor_in_the_cache 7 refused one
expect nothing_temporary_is_left 7 test -z "$(find "$work" -name '*.part' -o -name '*.cubin.*' ! -name '*.key')"
export MHA_CUBIN_CACHE=OFF
rm -f "$work/two/k.cubin"
expect without_a_cache_it_is_compiled 8 compile two
export MHA_CUBIN_CACHE="$work/nvcc/no/folder"
rm -f "$work/two/k.cubin"
expect a_cache_that_cannot_be_written_is_no_error 9 compile two

# configured VALUE: with that MHA_CUDA and an nvcc on the PATH, there is no plug-in, nor what an earlier configuration left of it.
cat >"$work/CMakeLists.txt" <<end
cmake_minimum_required(VERSION 3.22)
project(small NONE)
include("$(dirname "$script")/cuda.cmake")
if(TARGET mha_cuda)
  message(FATAL_ERROR "a plug-in")
endif()
end
configured() {
    mkdir -p "$work/build/src" && : >"$work/build/src/libmha-cuda.so" &&
        PATH=$work:$PATH "$cmake" -S "$work" -B "$work/build" -DMHA_CUDA="$1" >"$work/said" 2>&1 && [ ! -e "$work/build/src/libmha-cuda.so" ]
}
expect turned_off_there_is_no_plug_in 9 configured OFF
gpus=$(find /dev -maxdepth 1 -name 'nvidia[0-9]*' -o -maxdepth 1 -name dxg)
[ -n "$gpus" ] || expect nvcc_without_a_gpu_is_no_reason_to_build_it 9 configured AUTO

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
