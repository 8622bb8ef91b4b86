"""Functions that run behind the import of a module that somebody else may import, or never."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Callable


class _Watcher(MetaPathFinder):
    """Calls a function once, behind the import of a module."""

    def __init__(self, name: str, run: Callable[[], None]):
        self._name, self._run = name, run

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_run(module: ModuleType) -> None:
            execute(module)
            self._run()

        spec.loader.exec_module = execute_and_run  # type: ignore[method-assign]
        return spec


def after_import(name: str, run: Callable[[], None]) -> None:
    """Calls ``run`` now if the module ``name`` has been imported, otherwise when it is."""
    if name in sys.modules:
        run()
    else:
        sys.meta_path.insert(0, _Watcher(name, run))
