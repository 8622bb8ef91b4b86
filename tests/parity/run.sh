#!/bin/sh
# Installs a build tree into a temporary prefix and runs parity.py over the shared library that is there, or modules.py over
# the command, with a Python that has PyTorch.
#
#     run.sh BUILD [ARGUMENT...]      arguments of parity.py, such as --case 17; CMAKE from the environment, and PARITY,
#                                     the script to run
set -u
build=$1
shift
if ! python=$("$(dirname "$0")/../../bench/find_torch.sh"); then
    echo '  -     parity: no PyTorch 2.5 or later; ./dev setup bench fetches one'
    echo '0 passed, 0 failed, 1 skipped'
    exit 0
fi

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
"${CMAKE:-cmake}" --install "$build" --prefix "$work" >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
"$python" -B "$(dirname "$0")/${PARITY:-parity.py}" "$work" "$@"
