"""Type checkers know the package: mypy the types of a program that uses it, pyright those of all that is public."""

import json
import os
import pathlib
import subprocess
import sys
import sysconfig
import venv

import pytest

import mha

PACKAGES = [pathlib.Path(mha.__file__).parents[1], sysconfig.get_path("purelib")]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A Python that has mha installed, as type checkers look for it, and what this one has."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "all.pth").write_text("".join(f"{path}\n" for path in PACKAGES))
    return folder / "bin"


def run(environment, *words):
    path = {"PATH": f"{environment}:{os.environ['PATH']}"}
    return subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, env=os.environ | path, check=False)


def test_mypy_knows_the_results(environment, tmp_path):
    pytest.importorskip("mypy")
    program, settings = pathlib.Path(__file__).parent / "typed.py", tmp_path / "mypy.ini"
    settings.write_text("[mypy]\nstrict = true\nfollow_imports = silent\n[mypy-torch.*]\nfollow_imports = skip\n")  # large
    found = run(environment, "mypy", f"--config-file={settings}", f"--cache-dir={tmp_path}",
                f"--python-executable={environment / 'python'}", str(program))  # fmt: skip
    assert found.returncode == 0 and "Success" in found.stdout, found.stdout + found.stderr


def test_pyright_knows_everything_public(environment):
    pytest.importorskip("pyright")
    found = run(environment, "pyright", "--verifytypes", "mha", "--ignoreexternal", "--outputjson")
    report = json.loads(found.stdout)["typeCompleteness"]
    unknown = [symbol["name"] for symbol in report["symbols"] if symbol["isExported"] and not symbol["isTypeKnown"]]
    assert not unknown and report["exportedSymbolCounts"]["withKnownType"] >= len(mha.__all__), unknown
