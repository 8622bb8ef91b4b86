#!/bin/sh
# Runs a script in node 18 or later: run_node.sh SCRIPT [ARGUMENT...]
set -u
script=$1
skip() { echo "  -     ${script##*/}: $1" && echo '0 passed, 0 failed, 1 skipped' && exit 0; }
command -v node >/dev/null || skip 'no node; ./dev setup all installs it'
version=$(node -p 'parseInt(process.versions.node)')
[ "$version" -ge 18 ] || skip "node $version is older than 18"
wasi=--experimental-wasi-unstable-preview1 # 18 asks for it
[ "$version" -lt 20 ] || wasi=--no-warnings
# Node 20.20 crashes at the end of some of these programs, half of the time, if its collector discards bytecode meanwhile.
exec node --no-warnings --no-flush-bytecode $wasi "$@"
