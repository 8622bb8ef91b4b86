"""Arrays on a GPU: results of the caller's library on the caller's device, in the order of its stream.

PyTorch and CuPy are known: libraries whose arrays can be written to, and whose stream can be asked for.
"""

from __future__ import annotations

import sys
from typing import Any

from mha import _mha

CUDA = 2  # of DLPack


class Kind:
    """Makes arrays with the ``empty`` of a library, on one device."""

    def __init__(self, library: Any, **place: Any):
        self._library, self._place = library, place

    def empty(self, shape: tuple, dtype: Any) -> Any:
        return self._library.empty(shape, dtype=dtype, **self._place)

    def floats(self, shape: tuple) -> Any:
        return self.empty(shape, self._library.float32)

    def ints(self, shape: tuple) -> Any:
        return self.empty(shape, self._library.int64)

    @staticmethod
    def give(result: Any) -> Any:
        return result


def _library_of(array: Any) -> str:
    return type(array).__module__.partition(".")[0]


def kind_of(array: Any, name: str) -> Kind | None:
    """The kind of an array on a GPU; None for one that is elsewhere."""
    try:
        device = array.__dlpack_device__()[0]
    except Exception as error:  # of the other library, such as that of a tracer of JAX, which has no memory
        raise TypeError(f"{name}: does not give its memory by DLPack: {error}") from None
    if device != CUDA:
        return None
    if _library_of(array) == "cupy":
        return Kind(sys.modules["cupy"])
    raise TypeError(f"{name}: is on a GPU; there, arrays of PyTorch and CuPy are taken, not {type(array)}")


def _stream(array: Any, device: int) -> int:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return torch.cuda.current_stream(device).cuda_stream
    if _library_of(array) == "cupy":
        return sys.modules["cupy"].cuda.get_current_stream().ptr
    raise TypeError(f"an array on a GPU must be one of PyTorch or CuPy, not {type(array)}")


_mha.know_streams(_stream)
