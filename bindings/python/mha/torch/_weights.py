"""The operator mha::attention_weights: attention that also returns its weights, differentiable in both.

The gradient of the result is the fused one. That of the weights is needed only by a loss that uses them; it is computed with
matrices of (Tq,Tk) numbers, which the weights have in any case.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mha import _mha
from mha.torch import _ops

_ops.library.define(
    f"attention_weights({_ops.INPUTS}, {_ops.OPTIONS}, bool mean) -> (Tensor out, Tensor softmax, Tensor weights)"
)


def _memory(q: Tensor, k: Tensor, v: Tensor, mean: bool) -> tuple[Tensor, Tensor, Tensor]:
    heads = () if mean else (q.size(1),)
    return _ops.result(q, v), _ops.rows(q), q.new_empty((q.size(0), *heads, q.size(2), k.size(2)))


def _forward(q, k, v, bias, sinks, causal, scale, softcap, dropout, seed, mean):
    out, softmax, weights = _memory(q, k, v, mean)
    mask, added = _ops.visibility(bias)
    _mha.forward(q=q, k=k, v=v, out=out, softmax=softmax, weights=weights, mask=mask, bias=added, sinks=sinks, causal=causal,
                 scale=scale, softcap=softcap, dropout=dropout, seed=seed, team=torch.get_num_threads())  # fmt: skip
    return out, softmax, weights


def _fake(q, k, v, bias, *rest):
    return _memory(q, k, v, rest[-1])


def _setup(ctx, inputs, output):
    *tensors, causal, scale, softcap, dropout, seed, ctx.mean = inputs
    ctx.options = causal, scale, softcap, dropout, seed
    ctx.save_for_backward(*tensors, *output[:2])
    ctx.set_materialize_grads(False)


def _of_weights(ctx, dweights):
    """What the weights add to the gradients of q, k, bias and sinks, in float32."""
    q, k, v, bias, sinks, _, _ = ctx.saved_tensors
    causal, scale, softcap, dropout, seed = ctx.options
    heads, groups = q.size(1), q.size(1) // k.size(1)
    scale = q.size(3) ** -0.5 if scale is None else scale
    p = _run(q, k, v, bias, sinks, causal, scale, softcap, 0.0, 0, False)[2].float()
    dp = (dweights / heads).unsqueeze(1).expand_as(p).float() if ctx.mean else dweights.float()
    if dropout:
        kept = _run(q, k, v, bias, sinks, causal, scale, softcap, dropout, seed, False)[2]
        dp = torch.where(kept != 0, dp / (1 - dropout), 0)
    total = (p * dp).sum(-1, keepdim=True)
    ds = p * (dp - total)
    dsinks = None if sinks is None else -((1 - p.sum(-1, keepdim=True)) * total).sum((0, 2, 3))
    keys, dscores = k.float().repeat_interleave(groups, 1), ds
    if softcap:
        dscores = ds * (1 - torch.tanh(scale / softcap * (q.float() @ keys.transpose(-1, -2))).square())
    dq = scale * dscores @ keys
    dk = scale * (dscores.transpose(-1, -2) @ q.float()).unflatten(1, (k.size(1), groups)).sum(2)
    return dq, dk, ds if bias is None else ds.sum_to_size(bias.shape), dsinks


def _gradients(ctx, dout, dsoftmax, dweights):
    *inputs, out, softmax = ctx.saved_tensors
    of_bias, of_sinks = _ops.wanted(ctx, inputs[3])
    found = [None] * 5
    if dout is not None:
        found = _ops.op_backward(inputs, ctx.options, out, softmax, dout, of_bias, of_sinks)
    dq, dk, dv, dbias, dsinks = found
    if dweights is not None:
        q, k, _, bias, sinks = inputs
        more_q, more_k, more_bias, more_sinks = _of_weights(ctx, dweights)
        dq, dk = _added(dq, more_q, q), _added(dk, more_k, k)
        dbias = _added(dbias, more_bias, bias) if of_bias else None
        dsinks = _added(dsinks, more_sinks, sinks) if of_sinks else None
    return dq, dk, dv, dbias if of_bias else None, dsinks if of_sinks else None, *[None] * 6


def _added(gradient: Tensor | None, more: Tensor, like: Tensor) -> Tensor:
    return (more if gradient is None else gradient + more).to(like.dtype)


for _device in _ops.DEVICES:
    _ops.library.impl("attention_weights", _forward, _device)
torch.library.register_fake("mha::attention_weights", _fake, lib=_ops.library)
torch.library.register_autograd("mha::attention_weights", _gradients, setup_context=_setup, lib=_ops.library)


class Weighted(torch.autograd.Function):
    """The operator in eager mode, with less overhead."""

    @staticmethod
    def forward(ctx, *inputs):
        output = _forward(*inputs)
        ctx.mark_non_differentiable(output[1])
        _setup(ctx, inputs, output)
        return output

    backward = staticmethod(_gradients)


# Without what torch.autograd.Function.apply does for functional transforms.
_eager = super(torch.autograd.Function, Weighted).apply
_transformed = _ops.transformed(torch.ops.mha.attention_weights, _ops.without_softmax(_setup), _gradients)


def _run(*inputs):
    return _transformed(*inputs) if _ops.is_transformed() else torch.ops.mha.attention_weights(*inputs)


def attention_weights(q, k, v, bias, *rest):
    """(B,H,Tq,E) and the weights after dropout: (B,H,Tq,Tk), or if the last argument, ``mean``, is true, their mean over heads,
    (B,Tq,Tk)."""
    if not _ops.is_eager(q, k, v, bias) or _ops.is_transformed() or q.is_meta:
        out, _, weights = _run(q, k, v, bias, *rest)
        return out, weights
    q, k, v, bias = _ops.unwrap_dead_wrappers((q, k, v, bias))
    if _ops.watcher is not None:
        _ops.watcher(q, k, bias, *rest[:-1])
    run = _eager if _ops.needs_gradient(q, k, v, bias, rest[0]) else _forward
    out, _, weights = run(q, k, v, bias, *rest)
    return out, weights
