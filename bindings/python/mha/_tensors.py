"""Tensors of PyTorch whose class says itself what they are."""

from __future__ import annotations

from typing import Any

from mha import _mha


def _overrides(kind: type, name: str, tensor: type, parameter: type) -> bool:
    own, usual = getattr(kind, name), getattr(tensor, name)
    return own is not getattr(parameter, name) and getattr(own, "__func__", own) is not getattr(usual, "__func__", usual)


def know_torch(torch: Any) -> tuple:
    """Tells the extension of PyTorch. Returns two functions of an object: whether it is a tensor whose class says itself what
    PyTorch's functions do with it (``__torch_function__``), as that of a causal bias or a masked tensor, so that its memory need
    not hold its numbers; and whether the class does so for functions or operators (``__torch_dispatch__``)."""
    tensor, parameter = torch.Tensor, torch.nn.Parameter

    def overrides_functions(x: Any) -> bool:
        kind = type(x)
        return (
            kind is not tensor
            and kind is not parameter
            and isinstance(x, tensor)
            and _overrides(kind, "__torch_function__", tensor, parameter)
        )

    def overrides(x: Any) -> bool:
        return overrides_functions(x) or _overrides(type(x), "__torch_dispatch__", tensor, parameter)

    _mha.know_torch(tensor, parameter, torch.utils.dlpack.to_dlpack, overrides)
    return overrides_functions, overrides
