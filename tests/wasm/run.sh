#!/bin/sh
# Runs a test program of WebAssembly in node: run.sh PROGRAM.wasm [WORD...]
set -u
skip() { echo "  -     ${program##*/}: $1" && echo '0 passed, 0 failed, 1 skipped' && exit 0; }
program=$1
command -v node >/dev/null || skip 'no node'
node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' || skip "node $(node --version) is older than 20"
exec node --no-warnings "$(dirname "$0")/run.mjs" "$@"
