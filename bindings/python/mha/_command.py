"""The mha command, which the package carries: it writes the page of :meth:`Model.view`, and ``mha`` on the PATH runs it."""

from __future__ import annotations

import os
import subprocess
import sys

PATH = os.path.join(os.path.dirname(__file__), "bin", "mha")


def run(*arguments: str) -> str:
    """What the command prints. ValueError with its line if it fails."""
    if not os.access(PATH, os.X_OK):
        raise RuntimeError("view: this package was built without the mha command, which writes the page")
    done = subprocess.run([PATH, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        reason = lines[-1].removeprefix("mha: ") if lines else f"the mha command ended with {done.returncode}"
        raise ValueError(reason)
    return done.stdout


def main() -> None:
    """``mha`` on the PATH."""
    if not os.access(PATH, os.X_OK):
        sys.exit("mha: this package was built without the command")
    os.execv(PATH, ["mha", *sys.argv[1:]])
