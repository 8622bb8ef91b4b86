"""Results in the caller's kind of array.

A kind has ``empty(shape, dtype)``, memory for a result with the dtype of one of the caller's arrays; ``floats(shape)`` and
``ints(shape)``, float32 and int64; and ``give(result)``, which makes it an array of the caller's. Inputs are read by the
extension, whatever their kind.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from mha import _gpu, _mha
from mha._tensors import know_torch

_mha.know_numpy(np.ndarray)


class _Numpy:
    empty = staticmethod(np.empty)

    @staticmethod
    def floats(shape: tuple) -> np.ndarray:
        return np.empty(shape, np.float32)

    @staticmethod
    def ints(shape: tuple) -> np.ndarray:
        return np.empty(shape, np.int64)

    @staticmethod
    def give(result: Any) -> Any:
        return result


class _Torch:
    def __init__(self, torch: Any):
        self._torch = torch

    def empty(self, shape: tuple, dtype: Any) -> Any:
        return self._torch.empty(shape, dtype=dtype)

    def floats(self, shape: tuple) -> Any:
        return self._torch.empty(shape, dtype=self._torch.float32)

    def ints(self, shape: tuple) -> Any:
        return self._torch.empty(shape, dtype=self._torch.int64)

    @staticmethod
    def give(result: Any) -> Any:
        return result


class _Exchange:
    """Libraries whose arrays are not written to, such as JAX: NumPy's memory, passed on with from_dlpack."""

    floats = staticmethod(_Numpy.floats)
    ints = staticmethod(_Numpy.ints)

    def __init__(self, array: Any):
        self._namespace = array.__array_namespace__()
        self._dtype = array.dtype

    @staticmethod
    def empty(shape: tuple, dtype: Any) -> np.ndarray:
        name = str(dtype)
        return np.empty(shape, name if name in ("float16", "float32") else np.float32)

    def give(self, result: Any) -> Any:
        given = self._namespace.from_dlpack(result)
        return given.astype(self._dtype) if str(self._dtype) == "bfloat16" and result.dtype == np.float32 else given


_numpy = _Numpy()
_torch: _Torch | None = None


def _torch_kind(array: Any, named: dict[str, Any]) -> Any:
    """PyTorch is imported already: the array is a tensor of it."""
    global _torch
    import torch.utils.dlpack

    if _torch is None:
        _torch = _Torch(torch)
        know_torch(torch)
    for name, one in named.items():
        if torch.is_grad_enabled() and isinstance(one, torch.Tensor) and one.requires_grad:
            raise ValueError(f"{name}: requires grad; use mha.torch, whose functions are differentiable, or .detach()")
    return _gpu.Kind(torch, device=array.device) if array.is_cuda else _torch


def kind_of(array: Any, name: str, **others: Any) -> Any:
    """The kind of an array; TypeError for what is none. ``others``: further arguments, which must not require grad either."""
    if type(array) is np.ndarray:
        return _numpy
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _torch_kind(array, {name: array, **others})
    if isinstance(array, np.ndarray):
        return _numpy
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(array, jax.core.Tracer):
        raise TypeError(f"{name}: is traced by JAX, and has no memory yet; use mha.jax.attention in jax.jit, jax.grad and jax.vmap")
    if hasattr(array, "__dlpack__") and hasattr(array, "__array_namespace__"):
        return _gpu.kind_of(array, name) or _Exchange(array)
    raise TypeError(f"{name}: must be an array, not {type(array)}")


def sizes(array: Any, name: str, axes: str) -> tuple:
    """The shape of an array that must have these axes, such as "B,H,Tq,D"."""
    shape = getattr(array, "shape", None)
    if shape is None:
        raise TypeError(f"{name}: must be an array, not {type(array)}")
    if len(shape) != axes.count(",") + 1:
        raise ValueError(f"{name}: has shape {tuple(shape)}, must be ({axes})")
    return tuple(shape)


def whole_numbers(array: Any) -> Any:
    """Lengths and offsets may be lists."""
    if not isinstance(array, (list, tuple)):
        return array
    made = np.asarray(array)
    return made.astype(np.int64) if made.dtype.kind in "iu" or made.size == 0 else made
