"""mha.attention and mha.attention_varlen for tensors, differentiable."""

from __future__ import annotations

from typing import Any, Literal, Sequence, overload

import torch
from torch import Tensor

from mha._arrays import whole_numbers
from mha._attention import Window, options_of
from mha.torch import _ops
from mha.torch._general import general_attention
from mha.torch._sdpa import FLOATS, seed_of, sum_masks


def _check_tensors(named: dict, axes: dict) -> None:
    """Tensors whose memory mha reads, or that know what its operators are, with these axes."""
    for name, x in named.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: must be a tensor, not {type(x)}")
        if not _ops.is_dense(x):
            raise TypeError(f"{name}: is a nested, sparse or otherwise not dense tensor")
        if name in axes and x.dim() != axes[name].count(",") + 1:
            raise ValueError(f"{name}: has {x.dim()} axes, must be ({axes[name]})")
        if name in axes and x.dtype not in FLOATS:
            raise TypeError(f"{name}: is {x.dtype}, must be float32, bfloat16 or float16")


def _given(**named: Any) -> dict:
    return {name: x for name, x in named.items() if x is not None}


def _numbers(array: Any, device: torch.device) -> Tensor | None:
    """Lengths and starts, which may be lists, as a tensor."""
    if array is None or isinstance(array, Tensor):
        return array
    return torch.as_tensor(whole_numbers(array), device=device)


def _floats(array: Tensor | None) -> Tensor | None:
    return None if array is None else array.float()


def _seed(dropout: float, seed: int | None) -> int:
    """Unless the caller gives one, PyTorch's generator decides."""
    return seed if seed is not None else seed_of(dropout) if dropout else 0


@overload
def attention(q: Tensor, k: Tensor, v: Tensor, *, return_lse: Literal[False] = ..., **options: Any) -> Tensor: ...
@overload
def attention(q: Tensor, k: Tensor, v: Tensor, *, return_lse: Literal[True], **options: Any) -> tuple[Tensor, Tensor]: ...
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    window: Window = None,
    query_lengths: Tensor | Sequence[int] | None = None,
    key_lengths: Tensor | Sequence[int] | None = None,
    key_padding_mask: Tensor | None = None,
    alibi: Tensor | None = None,
    sinks: Tensor | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    dropout: float = 0,
    seed: int | None = None,
    align: str = "top-left",
    return_lse: bool = False,
) -> Any:
    """:func:`mha.attention` with gradients for q, k, v, bias, alibi and sinks, of the result and of lse.

    It works with autocast, torch.compile, torch.export and torch.func, and shards over batch and heads (DTensor).

    Args:
        q: (B,H,Tq,D). float32, bfloat16 or float16, on the CPU or an NVIDIA GPU.
        k: (B,G,Tk,D). H is a multiple of G.
        v: (B,G,Tk,E).
        causal, window, softcap, scale, align: as in :func:`mha.attention`.
        mask: bool, True where a key is visible: (Tq,Tk), (B,Tq,Tk) or (B,H,Tq,Tk), with sizes of 1 to repeat.
        bias: floats that are added to the scores: (Tq,Tk) or (B,H,Tq,Tk), with sizes of 1 to repeat.
        query_lengths, key_lengths: (B) whole numbers: so many rows of each sequence count, the rest is padding. Rows of padding
            have zeros.
        key_padding_mask: bool (B,Tk), True where a key is padding.
        alibi: (H) or (B,H): slopes; the slope times the distance is subtracted from a score.
        sinks: (H): one more logit in the softmax of every row, without a value.
        dropout: the probability with which a weight is dropped, in every call: pass 0 for inference.
        seed: decides which weights are dropped; unless given, PyTorch's generator does.
        return_lse: also return the logarithm of the softmax's denominator, float32 (B,H,Tq), -inf in rows that see no key.

    Returns:
        (B,H,Tq,E) in the type of q, or a tuple of that and lse.

    >>> import torch, mha.torch
    >>> q, slopes = torch.ones(1, 2, 3, 4), torch.tensor([0.5, 0.25], requires_grad=True)
    >>> out, lse = mha.torch.attention(q, q, q, causal=True, window=(1, 0), alibi=slopes, return_lse=True)
    >>> lse.sum().backward()
    >>> slopes.grad.shape
    torch.Size([2])
    """
    floats = _given(bias=bias, alibi=alibi, sinks=sinks)
    _check_tensors(dict(q=q, k=k, v=v, **_given(mask=mask, key_padding_mask=key_padding_mask), **floats),
                   {"q": "B,H,Tq,D", "k": "B,G,Tk,D", "v": "B,G,Tk,E"})  # fmt: skip
    for name, x in floats.items():
        if not x.is_floating_point():
            raise TypeError(f"{name}: is {x.dtype}, must be floats")
    given = options_of({}, q.size(0), q.size(1), k.size(2), window=window, mask=mask, bias=bias, key_padding_mask=key_padding_mask,
                       align=align)  # fmt: skip
    mask, bias = given.get("mask"), given.get("bias")
    if mask is not None and mask.dtype is not torch.bool:
        raise TypeError(f"mask: is {mask.dtype}, must be bool")
    q, k, v, bias = _ops.lower(q, k, v, bias)
    bias = sum_masks(mask, bias)
    options = (bool(causal), given.get("align", 0), given.get("window_left", -1), given.get("window_right", -1), scale, softcap,
               dropout, _seed(dropout, seed))  # fmt: skip
    lengths = [_numbers(x, q.device) for x in (query_lengths, key_lengths)]
    _watch(q, k, bias, sinks, alibi, key_lengths, query_lengths, options)
    out, lse = general_attention(q, k, v, bias, _floats(sinks), _floats(alibi), *lengths, None, None, *options)
    return (out, lse) if return_lse else out


def _watch(q, k, bias, sinks, alibi, key_lengths, query_lengths, options):
    """Tells mha.torch.statistics of the call, unless rows are padding, which statistics have no word for."""
    if _ops.watcher is None or query_lengths is not None or not _ops.is_eager(q, k, q, bias):
        return
    causal, align, left, right, scale, softcap, dropout, seed = options
    window = tuple(None if side < 0 else side for side in (left, right))
    _ops.watcher(q, k, bias, sinks, causal, scale, softcap, dropout, seed, alibi=alibi, key_lengths=key_lengths,
                 window=None if window == (None, None) else window, align=("top-left", "bottom-right")[align])  # fmt: skip


@overload
def attention_varlen(
    q: Tensor, k: Tensor, v: Tensor, query_starts: Tensor | Sequence[int], key_starts: Tensor | Sequence[int] | None = None, *,
    return_lse: Literal[False] = ..., **options: Any,
) -> Tensor: ...  # fmt: skip
@overload
def attention_varlen(
    q: Tensor, k: Tensor, v: Tensor, query_starts: Tensor | Sequence[int], key_starts: Tensor | Sequence[int] | None = None, *,
    return_lse: Literal[True], **options: Any,
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
def attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    query_starts: Tensor | Sequence[int],
    key_starts: Tensor | Sequence[int] | None = None,
    *,
    causal: bool = False,
    window: Window = None,
    alibi: Tensor | None = None,
    sinks: Tensor | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    dropout: float = 0,
    seed: int | None = None,
    align: str = "top-left",
    return_lse: bool = False,
) -> Any:
    """:func:`mha.attention_varlen` with gradients for q, k, v, alibi and sinks, of the result and of lse.

    Args:
        q: (sum of Tq,H,D): sequence b has the rows query_starts[b] to query_starts[b+1] - 1.
        k: (sum of Tk,G,D), likewise with key_starts.
        v: (sum of Tk,G,E).
        query_starts: (B+1) whole numbers, int32 or int64.
        key_starts: (B+1); query_starts unless given.
        alibi: (H) or (B,H), with the slopes of a sequence in each row.

    The rest is as in :func:`attention`.

    Returns:
        (sum of Tq,H,E), or with return_lse a tuple of that and float32 (H,sum of Tq). Rows that belong to no sequence have zeros.

    >>> import torch, mha.torch
    >>> x, v = torch.zeros(5, 1, 4), torch.arange(5.0).view(5, 1, 1).requires_grad_()
    >>> out = mha.torch.attention_varlen(x, x, v, [0, 2, 5])
    >>> out.flatten().tolist()
    [0.5, 0.5, 3.0, 3.0, 3.0]
    """
    _check_tensors(dict(q=q, k=k, v=v, **_given(alibi=alibi, sinks=sinks)), {"q": "T,H,D", "k": "T,G,D", "v": "T,G,E"})
    if query_starts is None:
        raise TypeError("query_starts: must be a tensor, not None")
    given = options_of({}, 0, 0, 0, window=window, mask=None, bias=None, key_padding_mask=None, align=align)
    q, k, v = _ops.lower(q, k, v)
    starts = _numbers(query_starts, q.device)
    options = (bool(causal), given.get("align", 0), given.get("window_left", -1), given.get("window_right", -1), scale, softcap,
               dropout, _seed(dropout, seed))  # fmt: skip
    rows = [x.transpose(0, 1)[None] for x in (q, k, v)]
    out, lse = general_attention(*rows, None, _floats(sinks), _floats(alibi), None, None, starts,
                                 starts if key_starts is None else _numbers(key_starts, q.device), *options)  # fmt: skip
    out = out[0].transpose(0, 1)
    return (out, lse[0]) if return_lse else out
