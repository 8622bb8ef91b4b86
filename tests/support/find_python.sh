#!/bin/sh
# Prints a Python that has the packages: the first of $MHA_PYTHON, `python3`, the system's own, and the virtual environment
# that `./dev setup all` makes. Exit 1 if there is none. Packages are not imported, which takes seconds for some.
#
#     find_python.sh PACKAGE[=MAJOR]...      MAJOR: its smallest major version
here=$(cd "$(dirname "$0")" && pwd)
for python in "${MHA_PYTHON:-python3}" python3 /usr/bin/python3 "$here/../../build/venv/bin/python"; do
    if "$python" - "$@" <<'end' 2>/dev/null; then
import importlib.metadata
import sys

for word in sys.argv[1:]:
    package, _, major = word.partition("=")
    if int(importlib.metadata.version(package).split(".")[0]) < int(major or 0):
        sys.exit(1)
end
        echo "$python" && exit
    fi
done
exit 1
