#!/bin/sh
# Runs a script in node: node.sh SCRIPT [ARGUMENT...]
set -u
script=$1
shift
skip() { echo "  -     ${script##*/}: $1" && echo '0 passed, 0 failed, 1 skipped' && exit 0; }
command -v node >/dev/null || skip 'no node; ./dev setup all installs it'
node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)' || skip "node $(node --version) is older than 18"
exec node "$script" "$@"
