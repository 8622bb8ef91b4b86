"""The parameters of a model as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Iterator

import numpy as np

from mha import _mha

# Types of mha.h: float32, bfloat16 (as the upper halves of float32 numbers), float16.
_KINDS = {0: "<f4", 1: "<u2", 2: "<f2"}


class _Memory:
    """Memory of a model, which lives as long as this."""

    def __init__(self, handle: Any, kind: str, shape: tuple, strides: tuple, address: int, writable: bool):
        self._handle = handle
        width = int(kind[2])
        self.__array_interface__ = {
            "version": 3, "typestr": kind, "shape": shape, "strides": tuple(width * s for s in strides),
            "data": (address, not writable),
        }  # fmt: skip


class Parameters(Mapping):
    """Name to array, in the order of the file."""

    def __init__(self, model: Any):
        self._model = model

    def _all(self) -> dict[str, tuple]:
        """As they lie now: switching heads off replaces weights that lie in a file."""
        return {one[0]: one[1:] for one in _mha.model_parameters(self._model._handle)}

    def __getitem__(self, name: str) -> np.ndarray:
        own = bool(self._model.info["file_bytes"])
        with self._model._lock:
            type, shape, strides, address = self._all()[name]
            array = np.asarray(_Memory(self._model._handle, _KINDS[type], shape, strides, address, own))
            if own:
                return array
            copy = (array.astype(np.uint32) << 16).view(np.float32) if type == 1 else array.copy()
        copy.flags.writeable = False
        return copy

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())
