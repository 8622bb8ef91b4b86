"""torch.vmap of the operators: the N samples become N times as many heads, since sinks, as all else, may differ between heads.

With the samples in front, q is (N,B,H,T,D); the operators get (B,N*H,T,D), which is a view if B is 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mha.torch import _ops, _weights  # noqa: F401 (they define the operators)


def _in_front(x: Tensor, dim: int | None, count: int) -> Tensor:
    return x.expand(count, *x.shape) if dim is None else x.movedim(dim, 0)


def _fold(x: Tensor, dim: int | None, count: int) -> Tensor:
    """(N,B,H,...) as (B,N*H,...)."""
    return _in_front(x, dim, count).transpose(0, 1).flatten(1, 2)


def _unfold(x: Tensor, count: int) -> Tensor:
    """(B,N*H,...) as (N,B,H,...)."""
    return x.unflatten(1, (count, -1)).transpose(0, 1)


def _fold_bias(bias: Tensor | None, dim: int | None, count: int, heads: int, alone: bool) -> Tensor | None:
    """(b,N*H,Tq,Tk). A bias that all samples and heads share stays as it is, unless each sample wants a gradient (``alone``)."""
    if bias is None or (dim is None and not alone and (bias.dim() < 3 or bias.size(-3) == 1)):
        return bias
    bias = _in_front(bias, dim, count)
    bias = bias[(slice(None), *[None] * (5 - bias.dim()))]
    return _fold(bias.expand(-1, -1, heads, -1, -1), 0, count)


def _fold_inputs(info, in_dims, inputs, alone):
    """q, k, v, bias and sinks for a call with N*H heads."""
    count, (q, k, v, bias, sinks) = info.batch_size, inputs
    q, k, v = (_fold(x, dim, count) for x, dim in zip((q, k, v), in_dims))
    bias = _fold_bias(bias, in_dims[3], count, q.size(1) // count, alone)
    return q, k, v, bias, None if sinks is None else _in_front(sinks, in_dims[4], count).flatten()


def _forward(info, in_dims, *arguments):
    folded = _fold_inputs(info, in_dims, arguments[:5], False)
    found = torch.ops.mha.attention(*folded, *arguments[5:])
    return tuple(_unfold(x, info.batch_size) for x in found), (0, 0)


def _with_weights(info, in_dims, *arguments):
    folded = _fold_inputs(info, in_dims, arguments[:5], False)
    *found, weights = (
        _unfold(x, info.batch_size) for x in torch.ops.mha.attention_weights(*folded, *arguments[5:-1], False)
    )
    return (*found, weights.mean(2) if arguments[-1] else weights), (0, 0, 0)


def _backward(info, in_dims, *arguments):
    count, inputs, options = info.batch_size, arguments[:5], arguments[5:10]
    of_bias, of_sinks = arguments[13:]
    folded = _fold_inputs(info, in_dims, inputs, of_bias)
    results = (_fold(x, dim, count) for x, dim in zip(arguments[10:13], in_dims[10:13]))
    *found, dbias, dsinks = torch.ops.mha.attention_backward(*folded, *options, *results, of_bias, of_sinks)
    if of_bias:
        bias, dim = inputs[3], in_dims[3]
        shape = bias.shape if dim is None else bias.movedim(dim, 0).shape[1:]
        dbias = _unfold(dbias, count).sum_to_size((count, *[1] * (4 - len(shape)), *shape)).reshape(count, *shape)
    dsinks = dsinks.unflatten(0, (count, -1)) if of_sinks else dsinks
    return (*(_unfold(x, count) for x in found), dbias, dsinks), (0, 0, 0, 0 if of_bias else None, 0 if of_sinks else None)


for _name, _rule in (("attention", _forward), ("attention_backward", _backward), ("attention_weights", _with_weights)):
    torch.library.register_vmap(f"mha::{_name}", _rule, lib=_ops.library)
