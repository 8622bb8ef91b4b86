#!/bin/sh
# Runs the tests of the Python package of a build tree, with a Python that has pytest and NumPy.
#
#     run.sh BUILD [ARGUMENT...]      arguments of pytest
here=$(cd "$(dirname "$0")" && pwd)
build=$1
shift
skip()
{
    echo "  -     python: $1"
    echo '0 passed, 0 failed, 1 skipped'
    exit 0
}
python=$here/../../../build/venv/bin/python
[ -f "$build/python/mha/_mha.abi3.so" ] || skip 'the package is not built: no headers of Python 3.11 or later'
"$python" -c 'import pytest, numpy' 2>/dev/null || skip 'no pytest and NumPy in build/venv; ./dev setup all installs them'
cd "$here" || exit 1
# Its last line, such as '2 failed, 120 passed, 1 skipped in 1.36s', as the line that ./dev reads.
# MHA_PRELOAD: the runtime of a sanitizer.
LD_PRELOAD=${MHA_PRELOAD:-} PYTHONPATH=$build/python "$python" -B -m pytest -q -p no:cacheprovider -rs "$@" 2>&1 | awk '
    { print }
    / in [0-9.]+s/ { last = $0 }
    function count(word) { return match(last, "[0-9]+ " word) ? substr(last, RSTART, RLENGTH) + 0 : 0 }
    END {
        failed = count("failed") + count("error")
        if (last == "") failed = 1
        for (n = 1; n <= count("skipped"); n++) print "  -     python: a case was skipped; see above"
        printf "%d passed, %d failed, %d skipped\n", count("passed"), failed, count("skipped")
        exit failed > 0
    }'
