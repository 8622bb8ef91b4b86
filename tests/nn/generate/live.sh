#!/bin/sh
# Random cases of generation, answered by the `transformers` library and by ours. The seed is printed; MHA_SEED sets it.
#
#     live.sh REPLAY      the program that runs the cases; MHA_PYTHON names a Python that has the library
set -u
here=$(cd "$(dirname "$0")" && pwd)
if ! python=$("$here/../../support/find_python.sh" torch transformers=5); then
    echo '  -     generate_live: no Python with transformers 5 or later; MHA_PYTHON names one'
    echo '0 passed, 0 failed, 1 skipped'
    exit 0
fi

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
seed=${MHA_SEED:-$(date +%s)}
echo "seed $seed"
"$python" -B -W ignore "$here/live.py" "$seed" $((400 / ${MHA_SAMPLE:-1} + 1)) "$work/cases" || exit 1
"$1" "$work/cases"
