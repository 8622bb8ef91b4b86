#!/bin/sh
# Prints a Python that has PyTorch 2.5 or later: the first of `python3`, the system's own, and the virtual environment
# that `./dev setup bench` makes. Exit 1 if there is none.
here=$(cd "$(dirname "$0")" && pwd)
for python in python3 /usr/bin/python3 "$here/../build/venv/bin/python"; do
    if "$python" - <<'end' 2>/dev/null; then
import importlib.metadata
import sys

version = importlib.metadata.version("torch").split(".")
sys.exit((int(version[0]), int(version[1])) < (2, 5))
end
        echo "$python" && exit
    fi
done
exit 1
