#!/bin/sh
# Random tokenizers against the `tokenizers` library, with a Python that has it.
#
#     oracle.sh MHA [SEED [COUNT]]      the command; MHA_PYTHON names the Python
set -u
here=$(dirname "$0")
for candidate in "${MHA_PYTHON:-python3}" "$here/../../../build/venv/bin/python"; do
    if "$candidate" -c 'import tokenizers' 2>/dev/null; then
        TOKENIZERS_PARALLELISM=false exec "$candidate" -B "$here/oracle.py" "$@" 2>/dev/null
    fi
done
echo '  -     tokenizers_live: no Python with the package tokenizers; MHA_PYTHON names one'
echo '0 passed, 0 failed, 1 skipped'
