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
    f"attention_weights(Tensor q, Tensor k, Tensor v, Tensor? bias, {_ops.OPTIONS}, bool mean) "
    "-> (Tensor out, Tensor softmax, Tensor weights)"
)


def _memory(q: Tensor, k: Tensor, v: Tensor, mean: bool) -> tuple[Tensor, Tensor, Tensor]:
    heads = () if mean else (q.size(1),)
    return _ops.result(q, v), _ops.rows(q), q.new_empty((q.size(0), *heads, q.size(2), k.size(2)))


def _forward(q, k, v, bias, causal, scale, dropout, seed, mean):
    out, softmax, weights = _memory(q, k, v, mean)
    mask, added = _ops.visibility(bias)
    _mha.forward(q=q, k=k, v=v, out=out, softmax=softmax, weights=weights, mask=mask, bias=added, causal=causal, scale=scale,
                 dropout=dropout, seed=seed, threads=torch.get_num_threads())  # fmt: skip
    return out, softmax, weights


def _fake(q, k, v, bias, causal, scale, dropout, seed, mean):
    return _memory(q, k, v, mean)


def _setup(ctx, inputs, output):
    q, k, v, bias, *ctx.options, ctx.mean = inputs
    ctx.save_for_backward(q, k, v, bias, *output[:2])
    ctx.set_materialize_grads(False)


def _of_weights(ctx, dweights):
    """What the weights add to the gradients of q, k and bias, in float32."""
    q, k, v, bias, _, _ = ctx.saved_tensors
    causal, scale, dropout, seed = ctx.options
    heads, scale = q.size(1), q.size(3) ** -0.5 if scale is None else scale
    p = torch.ops.mha.attention_weights(q, k, v, bias, causal, scale, 0.0, 0, False)[2].float()
    dp = (dweights / heads).unsqueeze(1).expand_as(p).float() if ctx.mean else dweights.float()
    if dropout:
        kept = torch.ops.mha.attention_weights(q, k, v, bias, causal, scale, dropout, seed, False)[2]
        dp = torch.where(kept != 0, dp / (1 - dropout), 0)
    ds = p * (dp - (p * dp).sum(-1, keepdim=True))
    groups = heads // k.size(1)
    dq = scale * ds @ k.float().repeat_interleave(groups, 1)
    dk = scale * (ds.transpose(-1, -2) @ q.float()).unflatten(1, (k.size(1), groups)).sum(2)
    return dq, dk, ds


def _gradients(ctx, dout, dsoftmax, dweights):
    q, k, v, bias, out, softmax = ctx.saved_tensors
    wanted = ctx.needs_input_grad[3] and bias is not None and bias.dtype is not torch.bool
    dq = dk = dv = dbias = None
    if dout is not None:
        dq, dk, dv, dbias = torch.ops.mha.attention_backward(dout, q, k, v, bias, out, softmax, *ctx.options, wanted)
    if dweights is not None:
        more_q, more_k, ds = _of_weights(ctx, dweights)
        dq = more_q.to(q.dtype) if dq is None else (dq + more_q).to(q.dtype)
        dk = more_k.to(k.dtype) if dk is None else (dk + more_k).to(k.dtype)
        if wanted:
            more = ds.sum_to_size(bias.shape)
            dbias = more.to(bias.dtype) if dbias is None or dout is None else (dbias + more).to(bias.dtype)
    return dq, dk, dv, dbias if wanted else None, None, None, None, None, None


_ops.library.impl("attention_weights", _forward, "CPU")
torch.library.register_fake("mha::attention_weights", _fake, lib=_ops.library)
torch.library.register_autograd("mha::attention_weights", _gradients, setup_context=_setup, lib=_ops.library)


def attention_weights(q, k, v, bias, causal, scale, dropout, seed, mean):
    """(B,H,Tq,E) and the weights after dropout: (B,H,Tq,Tk), or with ``mean`` their mean over heads, (B,Tq,Tk)."""
    out, _, weights = torch.ops.mha.attention_weights(q, k, v, bias, causal, scale, dropout, seed, mean)
    return out, weights
