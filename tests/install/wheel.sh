#!/bin/sh
# A wheel without the libraries of tokenizers would refuse files later, without a word when it is built: building it stops, and
# says what is missing.
#
#     wheel.sh SOURCE CMAKE
source=$1 cmake=$2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 flags=
if ! python3 -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null; then
    echo '  -     wheel: no headers of Python'
    echo '0 passed, 0 failed, 1 skipped'
    exit 0
fi
mkdir "$work/sources" && touch "$work/sources/pcre2_1.orig.tar.gz" "$work/sources/utf8proc_1.orig.tar.gz"

# configure NAME=VALUE...: what the configuration of a wheel says, where everything else is there.
configure() {
    rm -rf "$work/build"
    set -- "$@" ZLIB_LINKS=ON PNG_LINKS=ON PCRE2_LINKS=ON UTF8PROC_LINKS=ON WASM_LINKS=ON SOURCES="$work/sources"
    for definition; do # the first one of a name counts
        case " $flags" in *" -DMHA_${definition%%=*}="*) ;; *) flags="$flags -DMHA_$definition" ;; esac
    done
    # shellcheck disable=SC2086 # words
    "$cmake" -S "$source" -B "$work/build" -DSKBUILD=2 -DMHA_PYTHON=ON -DMHA_CUDA=OFF -DMHA_TESTS=OFF -DMHA_INSTALL=OFF \
        $flags 2>&1
}
# refused TEXT NAME=VALUE...: it stops, and its message has the text.
refused() {
    text=$1
    shift
    if said=$(configure "$@") || ! echo "$said" | tr -s ' \n' ' ' | grep -qF "$text"; then
        echo "  FAIL  with $*: no '$text' in: $said" && failed=$((failed + 1))
    else
        passed=$((passed + 1))
    fi
}

refused 'libpcre2-dev (or MHA_PCRE2=OFF)' PCRE2_LINKS=OFF
refused 'libutf8proc-dev (or MHA_UTF8PROC=OFF)' UTF8PROC_LINKS=OFF
refused 'wasi-libc and libclang-rt-14-dev-wasm32, for pages that run models (or MHA_WASM=OFF)' WASM_LINKS=OFF
refused 'the sources of utf8proc, which ./dev setup downloads, for pages that run models (or MHA_WASM=OFF)' SOURCES="$work"
if said=$(configure WASM=OFF SOURCES="$work"); then
    passed=$((passed + 1))
else
    echo "  FAIL  with everything that is wanted: $said" && failed=$((failed + 1))
fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
