"""scaled_dot_product_attention with the signature and the meaning of PyTorch's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mha.torch import _ops

FLOATS = frozenset((torch.float32, torch.bfloat16, torch.float16))


def seed_of(dropout_p: float) -> int:
    """From PyTorch's generator, so that torch.manual_seed decides about dropout."""
    if not isinstance(dropout_p, (int, float)):
        raise TypeError(f"dropout_p: must be a number, not {type(dropout_p)}")
    if not 0 <= dropout_p <= 1:
        raise ValueError(f"dropout_p: {dropout_p} is not from 0 to 1")
    return int(torch.randint(1 << 62, ()))


def _check(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, is_causal: bool) -> None:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: must be a tensor, not {type(tensor)}")
        if tensor.dtype not in FLOATS:
            raise TypeError(f"{name}: is {tensor.dtype}, must be float32, bfloat16 or float16")
        if tensor.dim() < 2 or tensor.dim() != query.dim():
            raise ValueError(f"{name}: has {tensor.dim()} axes; all three must have the same number, at least 2")
        if tensor.device.type not in ("cpu", "cuda", "meta"):
            raise ValueError(f"{name}: is on {tensor.device}, must be on the CPU or an NVIDIA GPU")
        if tensor.dtype != query.dtype:
            raise TypeError(f"{name}: is {tensor.dtype}, but query is {query.dtype}")
    if attn_mask is not None and is_causal:
        raise ValueError("attn_mask: must be None if is_causal is set")
    if attn_mask is not None and not isinstance(attn_mask, Tensor):
        raise TypeError(f"attn_mask: must be a tensor, not {type(attn_mask)}")
    if attn_mask is not None and attn_mask.dtype is not torch.bool and attn_mask.dtype not in FLOATS:
        raise TypeError(f"attn_mask: is {attn_mask.dtype}, must be bool or floats")
    if attn_mask is not None and attn_mask.dim() > query.dim():
        raise ValueError(f"attn_mask: has {attn_mask.dim()} axes, query only {query.dim()}")


def lower(*tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """In the type of autocast, where that is on."""
    device = tensors[0].device.type
    if device == "meta" or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(x.to(dtype) if x is not None and x.is_floating_point() else x for x in tensors)


def _heads(query: Tensor, key: Tensor, enable_gqa: bool) -> None:
    if query.dim() < 3 or query.shape[-3] == key.shape[-3]:
        return
    if not enable_gqa and key.shape[-3] != 1 and query.shape[-3] != 1:
        raise ValueError(
            f"key: has {key.shape[-3]} heads, but query has {query.shape[-3]}; enable_gqa lets several of them share a key"
        )


def _four(x: Tensor, batch: tuple) -> Tensor:
    """(...,T,D) with leading axes ``batch``, as (B,H,T,D)."""
    if x.shape[:-2] != batch:
        x = x.expand(*batch, *x.shape[-2:])
    return x.flatten(0, -4) if x.dim() > 4 else x


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """A drop-in for ``torch.nn.functional.scaled_dot_product_attention``, differentiable, also with respect to the mask.

    Args:
        query: (...,H,Tq,D). float32, bfloat16 or float16, on the CPU or an NVIDIA GPU.
        key: (...,G,Tk,D). G is H, or with ``enable_gqa`` a divisor of it.
        value: (...,G,Tk,E).
        attn_mask: bool, True where a key is visible, or floats that are added to the scores; any shape that can be expanded
            to (...,H,Tq,Tk).
        dropout_p: the probability with which weights are dropped, as always in this function: pass 0 for inference.
        is_causal: query i sees the keys 0 to i (top-left alignment), with no ``attn_mask``.
        scale: 1/sqrt(D) unless given.

    Returns:
        (...,H,Tq,E). A row that sees no key has zeros and no gradient, as PyTorch has it since 2.5.

    Under autocast, tensors are cast as PyTorch casts them.

    >>> import torch, mha.torch
    >>> q, bias = torch.ones(2, 4, 5, 8), torch.zeros(5, 5, requires_grad=True)
    >>> mha.torch.scaled_dot_product_attention(q, q, q, bias).sum().backward()
    >>> bias.grad.abs().max() < 1e-5
    tensor(True)
    """
    seed = seed_of(dropout_p) if dropout_p != 0 else 0
    try:
        out = _ops.quick(query, key, value, attn_mask, is_causal, scale, dropout_p, seed)
        if out is not None:
            return out
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            query, key, value, attn_mask = lower(query, key, value, attn_mask)
        options = (None, is_causal, scale, None, dropout_p, seed)
        if _is_usual(query, key, value, attn_mask, is_causal):
            return _ops.attention(query, key, value, attn_mask, *options)
        _check(query, key, value, attn_mask, is_causal)
        return _other_shapes(query, key, value, attn_mask, options, enable_gqa)
    except (TypeError, ValueError) as error:
        raise _renamed(error) from None


def _is_usual(query: Any, key: Any, value: Any, attn_mask: Any, is_causal: bool) -> bool:
    """Whether the call can go to the library as it is, which checks the rest."""
    return (
        isinstance(query, Tensor)
        and isinstance(key, Tensor)
        and isinstance(value, Tensor)
        and query.dtype is key.dtype is value.dtype
        and query.dtype in FLOATS
        and query.dim() == key.dim() == value.dim() == 4
        and query.size(1) == key.size(1) == value.size(1)
        and query.size(0) == key.size(0) == value.size(0)
        and (attn_mask is None or (isinstance(attn_mask, Tensor) and not is_causal))
    )


_NAMES = {"q": "query", "k": "key", "v": "value", "mask": "attn_mask", "bias": "attn_mask", "dropout": "dropout_p"}


def _renamed(error: Exception) -> Exception:
    """The library's line with the name that the argument has here."""
    name, colon, rest = str(error).partition(":")
    return type(error)(_NAMES.get(name, name) + colon + rest)


def _other_shapes(query, key, value, attn_mask, options, enable_gqa):
    """Any number of axes, and those that are repeated."""
    _heads(query, key, enable_gqa)
    rank = query.dim()
    if rank < 4:
        lead = (None,) * (4 - rank)
        return scaled_four(query[lead], key[lead], value[lead], attn_mask, options, enable_gqa)[(0,) * (4 - rank)]
    if rank == 4:
        return scaled_four(query, key, value, attn_mask, options, enable_gqa)
    batch = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    flat = [_four(x, (*batch, x.shape[-3])) for x in (query, key, value)]
    if attn_mask is not None and attn_mask.dim() > 2:
        axes = attn_mask.shape[-3:] if attn_mask.dim() > 3 else attn_mask.shape
        attn_mask = attn_mask.expand(*batch, *axes).flatten(0, -4)
    out = scaled_four(*flat, attn_mask, options, enable_gqa)
    return out.unflatten(0, batch)


def scaled_four(query, key, value, attn_mask, options, enable_gqa):
    """(B,H,T,D), in which an axis of size 1 stands for all."""
    if query.shape[:2] != key.shape[:2] or key.shape[:2] != value.shape[:2]:
        heads = [x.shape[1] for x in (query, key, value)]
        batch = max(x.shape[0] for x in (query, key, value))
        if not enable_gqa:
            heads = [max(heads)] * 3
        query, key, value = (_four(x, (batch, h)) for x, h in zip((query, key, value), heads))
    return _ops.attention(query, key, value, attn_mask, *options)
