"""The examples of docstrings and of both READMEs run."""

import doctest
import importlib
import pathlib
import pkgutil
import re
import tomllib

import pytest

import mha

README = pathlib.Path(__file__).parent.parent / "README.md"
MODULES = [
    name for _, name, _ in pkgutil.walk_packages(mha.__path__, "mha.") if name != "mha._mha" and not name.startswith("mha.torch")
]  # fmt: skip


@pytest.mark.parametrize("name", ["mha", *MODULES])
def test_docstrings(name):
    if name == "mha.jax":
        pytest.importorskip("jax")
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_every_function_has_an_example():
    for name in mha.__all__:
        thing = getattr(mha, name)
        assert thing.__doc__, name
        if not isinstance(thing, type):
            assert ">>>" in thing.__doc__, name


def test_readme():
    pytest.importorskip("transformers")
    pytest.importorskip("jax")
    tried = doctest.testfile(str(README), module_relative=False)
    assert tried.failed == 0 and tried.attempted > 20


def test_first_readme():
    """The programs of the README of the whole project."""
    programs = re.findall(r"^```python\n(.*?)^```$", (README.parents[2] / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert programs
    for program in programs:
        exec(compile(program, "README.md", "exec"), {})


def test_version():
    project = tomllib.loads((README.parents[2] / "pyproject.toml").read_text())["project"]
    assert project["version"] == mha.__version__
