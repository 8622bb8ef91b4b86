#!/bin/sh
# Random tokenizers against the `tokenizers` library, with a Python that has it.
#
#     oracle.sh MHA [SEED [COUNT]]      the command; MHA_PYTHON names the Python
set -u
here=$(dirname "$0")
if python=$("$here/../../support/find_python.sh" tokenizers); then
    TOKENIZERS_PARALLELISM=false exec "$python" -B "$here/oracle.py" "$@" 2>/dev/null
fi
echo '  -     tokenizers_live: no Python with the package tokenizers; MHA_PYTHON names one'
echo '0 passed, 0 failed, 1 skipped'
