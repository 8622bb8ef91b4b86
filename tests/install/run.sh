#!/bin/sh
# Installs a build tree into a temporary prefix and tests what is there: the libraries themselves, programs built by
# pkg-config and by find_package, the programs of README.md, of pages and of the headers, and the examples.
#
#     run.sh SOURCE BUILD      with CC, CXX, CMAKE and VERSION from the environment
set -u
source=$1 build=$2
here=$source/tests/install
: "${CC:=cc}" "${CXX:=c++}" "${CMAKE:=cmake}" "${VERSION:?}"
strict='-Wall -Wextra -Wpedantic -Werror -Wmissing-field-initializers'

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
prefix=$work/prefix
passed=0 failed=0 skipped=0

# check NAME COMMAND...: one test; what the command prints is shown only if it fails.
check() {
    name=$1
    shift
    if "$@" >log 2>&1; then
        passed=$((passed + 1))
        echo "  ok    $name"
    else
        failed=$((failed + 1))
        sed 's/^/    /' log
        echo "FAILED  $name"
    fi
}

# with PROGRAMS NAME COMMAND...: the same on a machine that has the programs; one that lacks one of them says so.
with() {
    for program in $1; do
        if ! command -v "$program" >/dev/null; then
            skipped=$((skipped + 1))
            echo "  -     $2: no $program here"
            return
        fi
    done
    shift
    check "$@"
}

install_tree() { "$CMAKE" --install "$build" --prefix "$prefix"; }

# The manual page and the completions are those of this command.
pages_of_the_command() {
    "$prefix/bin/mha" --generate man | diff - "$prefix/share/man/man1/mha.1" &&
        "$prefix/bin/mha" --generate complete-bash | diff - "$prefix/share/bash-completion/completions/mha" &&
        "$prefix/bin/mha" --generate complete-zsh | diff - "$prefix/share/zsh/site-functions/_mha"
}

tools_are_not_installed() { [ "$(ls "$prefix/bin")" = mha ]; }

soname_is_versioned() {
    readelf -d "$lib" | grep -F "soname: [libmha.so.${VERSION%.*}]" && [ -L "$libdir/libmha.so" ]
}

exports_only_mha() {
    nm -D --defined-only "$1" | awk '{ print $3 } $3 !~ /^mha_/ { bad = 1 } END { exit bad || NR == 0 }'
}

# exports_what_the_headers_declare LIBRARY HEADER...: every name that the headers declare is in the library, and the library
# has no public name beyond them.
exports_what_the_headers_declare() {
    exporter=$1
    shift
    (cd "$prefix/include" && grep -oh '^MHA_API [^(]*(' "$@") | grep -o 'mha_[a-z0-9_]*($' | tr -d '(' | sort >declared
    nm -D --defined-only "$exporter" | awk '{ print $3 }' | sort | diff declared -
}

# By the libraries it names, and by the version that each undefined symbol asks of one of them.
needs_only_libc_and_libm() {
    readelf -d "$lib" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' >needed
    ! grep -vE '^(lib(c|m|pthread)\.so|ld-linux)' needed &&
        ! nm -D --undefined-only "$lib" | grep -vE '^ *w |@GLIBC'
}

is_under_1_mb() {
    strip -o stripped.so "$lib" && size=$(wc -c <stripped.so) && echo "$size bytes" && [ "$size" -lt 1000000 ]
}

header_has_the_version() {
    sed -n 's/^#define MHA_VERSION_[A-Z]* //p' "$source/include/mha.h" | tr '\n' . | grep -Fx "$VERSION."
}

# Each macro that initialises a struct stands in header_alone.c, which the next tests compile.
every_initialiser_is_tried() {
    grep -oE '^#define MHA_([A-Z]+_)*(DEFAULTS|NO_[A-Z]+)' "$source"/include/mha*.h -h | cut -d ' ' -f 2 >macros
    [ -s macros ] && while read -r macro; do grep -w "$macro" "$here/header_alone.c" || return 1; done <macros
}

# shellcheck disable=SC2086 # $strict is a list of words
header_compiles_alone() { "$@" $strict -I"$prefix/include" -fsyntax-only "$here/header_alone.c"; }

pkg() { PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config "$@"; }
pkg_config_knows_the_version() { [ "$(pkg --modversion mha)" = "$VERSION" ]; }

# by_pkg_config COMPILER FILE [--static]
# shellcheck disable=SC2046 # pkg-config prints a list of words
by_pkg_config() {
    "$1" "$2" -o user $(pkg ${3+"$3"} --cflags --libs mha) && LD_LIBRARY_PATH=$libdir ./user
}

# by_find_package FOLDER KINDS: the project beside this file, with the kinds of library that it asks for.
by_find_package() {
    "$CMAKE" -S "$here" -B "$1" -DKINDS="$2" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX" && "$CMAKE" --build "$1" || return 1
    for program in "$1"/c_* "$1"/cpp_*; do "./$program" || return 1; done
}

# A tree that was moved and lost its shared library: mha.pc and the CMake package must both lead to the static one.
moved_tree() {
    mv "$prefix" "$work/elsewhere" && prefix=$work/elsewhere &&
        libdir=$prefix/${libdir#"$work"/prefix/} && rm "$libdir"/libmha.so* "$libdir"/libmha-model.so* "$libdir"/cmake/mha/mha-shared*
}

# The program of a document: the first ```c block of a page, the indented program at the top of a header.
program_of() {
    case $1 in
        *.md) awk '/^```c$/ { on = 1; next } /^```/ && on { exit } on' "$source/$1" ;;
        *.h) sed -n '/^ \*     #include/,/^ \*     }$/s/^ \*     //p; /^ \*     }$/q' "$source/include/$1" ;;
    esac
}

document_program() {
    program_of "$1" >program.c
    # shellcheck disable=SC2086
    "$CC" -std=c11 $strict -I"$prefix/include" program.c -o program -L"$libdir" -lmha -lm &&
        LD_LIBRARY_PATH=$libdir ./program >printed && cat printed && [ -s printed ]
}

# It prints what the page says.
page_program() {
    document_program "$1" && sed -n '/^It prints$/,$ s/^    //p' "$source/$1" | head -n "$(wc -l <printed)" | diff - printed
}

# The program of mha_model.h, over a model that the command has trained for one step.
# shellcheck disable=SC2046,SC2086
model_program() {
    program_of mha_model.h >program.c
    "$CC" -std=c11 $strict program.c -o program $(pkg ${1+"$1"} --cflags --libs mha-model) || return 1
    LD_LIBRARY_PATH=$libdir ./program absent.safetensors && return 1
    # A model with other maps than the program has room for is an error, too.
    "$prefix/bin/mha" train vit --data synthetic:64 --epochs 1 --batch 32 --config patch=14 --force -o other.safetensors || return 1
    LD_LIBRARY_PATH=$libdir ./program other.safetensors && return 1
    [ -f vit.safetensors ] || "$prefix/bin/mha" train vit --data synthetic:64 --epochs 1 --batch 32 -o vit.safetensors || return 1
    LD_LIBRARY_PATH=$libdir ./program vit.safetensors >printed && cat printed && [ "$(wc -l <printed)" = 10 ]
}

# The program of mha_text.h, over a model of which the answer is known.
# shellcheck disable=SC2046,SC2086
text_program() {
    program_of mha_text.h >program.c
    "$CC" -std=c11 $strict program.c -o program $(pkg ${1+"$1"} --cflags --libs mha-model) || return 1
    LD_LIBRARY_PATH=$libdir ./program absent text && return 1
    mkdir -p text && "$prefix/bin/mha" tokenize --train "$source/README.md" --vocab 300 -o text/tokenizer.json &&
        python3 "$here/text_model.py" text 300 || return 1
    LD_LIBRARY_PATH=$libdir ./program text ab >printed && cat printed &&
        "$prefix/bin/mha" tokenize text --decode '40 40 40 40 40 40 40' | diff - printed
}

# Numbers below 1e-6, which are rounding and not the same on every machine, all read alike.
without_rounding() { sed -E 's/\b(0\.0e\+00|[0-9]\.[0-9]e-(0[7-9]|[1-9][0-9]))\b/TINY/g' "$@"; }

# An example prints what its first comment says.
# shellcheck disable=SC2046,SC2086
example() {
    sed -n '/^ \* It prints/,/^ \*\/$/s/^ \*     //p' "$1" >promised
    "$CC" -std=c11 $strict "$1" -o program $(pkg --cflags --libs mha) -lm && LD_LIBRARY_PATH=$libdir ./program >printed &&
        [ -s promised ] && without_rounding printed >plain && without_rounding promised | diff - plain
}

# Those that need a model are compiled, and say how to call them.
# shellcheck disable=SC2046,SC2086
model_example() {
    "$CC" -std=c11 $strict "$1" -o program $(pkg --cflags --libs mha-model) -lm || return 1
    ! LD_LIBRARY_PATH=$libdir ./program >printed && grep -q '^usage: ' printed
}

# The one for a GPU is compiled without CUDA; where there is no GPU, it says why.
# shellcheck disable=SC2046,SC2086
gpu_example() {
    "$CC" -std=c11 $strict "$1" -o program $(pkg --cflags --libs mha) -lm || return 1
    LD_LIBRARY_PATH=$libdir ./program >printed || grep -q '^device: cuda' printed
}

check installs install_tree
lib=$(find "$prefix" -name libmha.so)
libdir=${lib%/*}

check command_runs "$prefix/bin/mha" --version
check pages_of_the_command pages_of_the_command
check tools_are_not_installed tools_are_not_installed
check soname_is_versioned soname_is_versioned
check exports_only_mha exports_only_mha "$lib"
check exports_what_the_headers_declare exports_what_the_headers_declare "$lib" mha.h mha_ops.h
check model_exports_only_mha exports_only_mha "$libdir/libmha-model.so"
check model_exports_what_the_headers_declare exports_what_the_headers_declare "$libdir/libmha-model.so" mha_model.h mha_text.h mha_speech.h
check needs_only_libc_and_libm needs_only_libc_and_libm
check shared_library_is_under_1_mb is_under_1_mb
check header_has_the_version header_has_the_version
check every_initialiser_is_tried every_initialiser_is_tried
check header_alone_c11 header_compiles_alone "$CC" -std=c11
with "$CXX" header_alone_cxx11 header_compiles_alone "$CXX" -x c++ -std=c++11
check program_of_readme document_program README.md
check program_of_library_page page_program docs/library.md
check program_of_gpu_page document_program docs/gpu.md
check program_of_header document_program mha.h
check program_of_ops_header document_program mha_ops.h
with pkg-config pkg_config_knows_the_version pkg_config_knows_the_version
with pkg-config pkg_config_c by_pkg_config "$CC" "$here/user.c"
with "pkg-config $CXX" pkg_config_cxx by_pkg_config "$CXX" "$here/user.cpp"
with pkg-config program_of_model_header model_program
with "pkg-config python3" program_of_text_header text_program
for file in "$source"/examples/*.c; do
    name=${file##*/}
    kind=example
    [ "$name" != cuda_attention.c ] || kind=gpu_example
    ! grep -qE 'mha_(model|text)\.h' "$file" || kind=model_example
    with pkg-config "example_${name%.c}" $kind "$file"
done
with "$CXX" find_package by_find_package both "shared;static"
check tree_can_be_moved moved_tree
with pkg-config pkg_config_static_c by_pkg_config "$CC" "$here/user.c" --static
with "pkg-config $CXX" pkg_config_static_cxx by_pkg_config "$CXX" "$here/user.cpp" --static
with pkg-config model_program_static model_program --static
with "$CXX" find_package_static by_find_package alone static

printf '%d passed, %d failed' "$passed" "$failed"
[ "$skipped" -eq 0 ] || printf ', %d skipped' "$skipped"
echo
[ "$failed" -eq 0 ]
