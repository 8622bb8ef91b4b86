#!/bin/sh
# Installs a build tree into a temporary prefix and runs parity.py over the shared library that is there, with the first
# python3 that has PyTorch: the system's own may, where another one comes first.
#
#     run.sh BUILD [ARGUMENT...]      arguments of parity.py, such as --case 17; CMAKE from the environment
set -u
build=$1
shift
for python in python3 /usr/bin/python3 ''; do
    [ -z "$python" ] || "$python" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("torch"))' \
        2>/dev/null && break
done
if [ -z "$python" ]; then
    echo '  -     parity: PyTorch is not installed'
    echo '0 passed, 0 failed, 1 skipped'
    exit 0
fi

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
"${CMAKE:-cmake}" --install "$build" --prefix "$work" >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
"$python" -B "$(dirname "$0")/parity.py" "$work" "$@"
