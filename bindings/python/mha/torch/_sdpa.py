"""scaled_dot_product_attention with the signature and the meaning of PyTorch's."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor
from torch._C._nn import scaled_dot_product_attention as pytorch_attention

from mha.torch import _ops
from mha.torch._errors import renamed
from mha.torch._general import general_attention

FLOATS = frozenset((torch.float32, torch.bfloat16, torch.float16))


def seed_of(dropout_p: float) -> int:
    """From PyTorch's generator, so that torch.manual_seed decides about dropout."""
    if not isinstance(dropout_p, (int, float)):
        raise TypeError(f"dropout_p: must be a number, not {type(dropout_p)}")
    if not 0 <= dropout_p <= 1:
        raise ValueError(f"dropout_p: {dropout_p} is not from 0 to 1")
    return int(torch.randint(1 << 62, ()))


def _check(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None) -> None:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: must be a tensor, not {type(tensor)}")
        if tensor.dtype not in FLOATS:
            raise TypeError(f"{name}: is {tensor.dtype}, must be float32, bfloat16 or float16")
        if not _ops.is_dense(tensor):
            raise TypeError(f"{name}: is a nested, sparse or otherwise not dense tensor")
        if tensor.dim() < 2:
            raise ValueError(f"{name}: has {tensor.dim()} axes, must have at least 2")
        if tensor.device.type not in ("cpu", "cuda", "meta"):
            raise ValueError(f"{name}: is on {tensor.device}, must be on the CPU or an NVIDIA GPU")
        if tensor.dtype != query.dtype:
            raise TypeError(f"{name}: is {tensor.dtype}, but query is {query.dtype}")
    if attn_mask is not None and not isinstance(attn_mask, Tensor):
        raise TypeError(f"attn_mask: must be a tensor, not {type(attn_mask)}")
    if attn_mask is not None and attn_mask.dtype is not torch.bool and attn_mask.dtype not in FLOATS:
        raise TypeError(f"attn_mask: is {attn_mask.dtype}, must be bool or floats")
    rank = max(query.dim(), key.dim(), value.dim())
    if attn_mask is not None and attn_mask.dim() > rank:
        raise ValueError(f"attn_mask: has {attn_mask.dim()} axes, the result only {rank}")


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
            A causal bias of ``torch.nn.attention.bias`` is computed as such.
        is_causal: query i sees the keys 0 to i (top-left alignment), of those that ``attn_mask`` shows.
        scale: 1/sqrt(D) unless given.

    Returns:
        (...,H,Tq,E). A row that sees no key has zeros and no gradient, as PyTorch has it since 2.5.

    Numbers of axes may differ, as in PyTorch. Under autocast, tensors are cast as PyTorch casts them. Tensors of classes that say
    themselves what PyTorch's functions do with them (``__torch_function__``) go to PyTorch's function. Arguments that are refused
    raise errors that are both a RuntimeError, as PyTorch's are, and a ValueError or TypeError.

    >>> import torch, mha.torch
    >>> q, bias = torch.ones(2, 4, 5, 8), torch.zeros(5, 5, requires_grad=True)
    >>> mha.torch.scaled_dot_product_attention(q, q, q, bias).sum().backward()
    >>> bias.grad.abs().max() < 1e-5
    tensor(True)
    """
    try:
        seed = seed_of(dropout_p) if dropout_p != 0 else 0
        out = _ops.quick(query, key, value, attn_mask, is_causal, scale, dropout_p, seed)
        if out is not None:
            return out
        if is_causal_bias(attn_mask):
            bottom_right, attn_mask, is_causal = _diagonal(query, key, attn_mask, is_causal), None, True
        elif any(map(_ops.overrides_functions, (query, key, value, attn_mask))):
            return pytorch_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        else:
            bottom_right = False
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            query, key, value, attn_mask = _ops.lower(query, key, value, attn_mask)
        options = (None, is_causal, scale, None, dropout_p, seed)
        if _is_usual(query, key, value, attn_mask) and not bottom_right:
            return _ops.attention(query, key, value, attn_mask, *options)
        _check(query, key, value, attn_mask)
        return _other_shapes(query, key, value, attn_mask, enable_gqa, options, bottom_right)
    except (TypeError, ValueError) as error:
        raise renamed(error, _NAMES) from None


def _is_usual(query: Any, key: Any, value: Any, attn_mask: Any) -> bool:
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
        and (attn_mask is None or isinstance(attn_mask, Tensor))
    )


_NAMES = {"q": "query", "k": "key", "v": "value", "mask": "attn_mask", "bias": "attn_mask", "dropout": "dropout_p"}


def is_causal_bias(x: Any) -> bool:
    """Whether it is a CausalBias. Its module, which takes long to import, has been imported if there is one."""
    if not _ops.overrides_functions(x):
        return False
    module = sys.modules.get("torch.nn.attention.bias")
    return module is not None and isinstance(x, module.CausalBias)


def _diagonal(query: Any, key: Any, bias: Any, is_causal: bool) -> bool:
    """Whether the diagonal of a causal bias, which has no memory, ends at the last query and key instead of beginning at the first."""
    if is_causal:
        raise ValueError("attn_mask: is a causal bias, so is_causal must not be set")
    if isinstance(query, Tensor) and isinstance(key, Tensor) and min(query.dim(), key.dim()) >= 2:
        have, want = (bias.seq_len_q, bias.seq_len_kv), (query.size(-2), key.size(-2))
        if have != want:
            raise ValueError(f"attn_mask: is a causal bias of {have}, must be {want}")
    return bias.variant == type(bias.variant).LOWER_RIGHT and bias.seq_len_q != bias.seq_len_kv


def _other_shapes(query, key, value, attn_mask, enable_gqa, options, bottom_right):
    """Any number of axes, and those that are repeated."""
    rank = max(query.dim(), key.dim(), value.dim())
    query, key, value = (x[(None,) * (max(rank, 4) - x.dim())] for x in (query, key, value))
    _heads(query, key, enable_gqa)
    batch = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    heads = [x.size(-3) for x in (query, key, value)]
    if not enable_gqa:
        heads = [max(heads)] * 3
    elif heads[1] != heads[2]:
        key, value = (x.repeat_interleave(heads[0] // x.size(-3), -3) for x in (key, value))
        heads = [heads[0]] * 3
    q, k, v = (_four(x, (*batch, h)) for x, h in zip((query, key, value), heads))
    if attn_mask is not None and attn_mask.dim() > 2 and rank > 4:
        axes = attn_mask.shape[-3:] if attn_mask.dim() > 3 else attn_mask.shape
        attn_mask = attn_mask.expand(*batch, *axes).flatten(0, -4)
    if bottom_right:
        sinks, causal, scale, softcap, dropout, seed = options
        out = general_attention(q, k, v, attn_mask, sinks, *[None] * 5, causal, 1, -1, -1, scale, softcap, dropout, seed)[0]
    else:
        out = _ops.attention(q, k, v, attn_mask, *options)
    return out.unflatten(0, batch) if rank > 4 else out[(0,) * (4 - rank)]


def sum_masks(mask: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """A mask, bool or added, and a bias as one tensor."""
    if mask is None or bias is None:
        return bias if mask is None else mask
    return bias.masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else bias + mask
