"""The operators mha::attention and mha::attention_backward.

Both take (B,H,T,D) tensors; ``bias`` is a mask that is bool or is added. They are what torch.compile, torch.export and functional
transforms see; in eager mode an autograd.Function calls the same code with less overhead.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.utils.dlpack
from torch import Tensor

from mha import _mha

_mha.know_torch(torch.Tensor, torch.nn.Parameter, torch.utils.dlpack.to_dlpack)

OPTIONS = "bool causal, float? scale, float dropout, int seed"
library = torch.library.Library("mha", "DEF")
library.define(f"attention(Tensor q, Tensor k, Tensor v, Tensor? bias, {OPTIONS}) -> (Tensor out, Tensor softmax)")
library.define(
    f"attention_backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor out, Tensor softmax, {OPTIONS}, "
    "bool bias_gradient) -> (Tensor dq, Tensor dk, Tensor dv, Tensor dbias)"
)


def visibility(bias: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """A mask and a bias, of which one is None."""
    if bias is None:
        return None, None
    return (bias, None) if bias.dtype is torch.bool else (None, bias)


def result(q: Tensor, v: Tensor) -> Tensor:
    """(B,H,Tq,E), laid out as q is: heads that lie side by side, as projections leave them, do so in the result."""
    return torch.empty_like(q) if q.size(3) == v.size(3) else q.new_empty((q.size(0), q.size(1), q.size(2), v.size(3)))


def rows(q: Tensor) -> Tensor:
    """(B,H,Tq,2): the softmax of rows, on the device of q."""
    return torch.empty((q.size(0), q.size(1), q.size(2), 2), dtype=torch.float32, device=q.device)


def forward(q, k, v, bias, causal, scale, dropout, seed):
    """The result, and the softmax of its rows, which the backward pass reads."""
    out = result(q, v)
    softmax = torch.empty((q.size(0), q.size(1), q.size(2), 2), dtype=torch.float32)
    mask, added = visibility(bias)
    _mha.forward(q=q, k=k, v=v, out=out, softmax=softmax, mask=mask, bias=added, causal=causal, scale=scale, dropout=dropout,
                 seed=seed, threads=torch.get_num_threads())  # fmt: skip
    return out, softmax


def infer(q, k, v, bias, causal, scale, dropout, seed):
    """The result alone, for calls without a gradient."""
    out = result(q, v)
    mask, added = visibility(bias)
    _mha.forward(q=q, k=k, v=v, out=out, mask=mask, bias=added, causal=causal, scale=scale, dropout=dropout, seed=seed,
                 threads=torch.get_num_threads())  # fmt: skip
    return out


def quick(q, k, v, bias, causal, scale, dropout, seed):
    """``infer`` for the usual call, in which q, k and v are alike, with the least overhead; None for any other call."""
    if not is_eager(q, k, v, bias) or (causal and bias is not None) or torch._C._are_functorch_transforms_active():
        return None
    if needs_gradient(q, k, v, bias):
        return None
    out = torch.empty_like(q)
    mask, added = visibility(bias)
    done = _mha.forward(q=q, k=k, v=v, out=out, mask=mask, bias=added, causal=causal, scale=scale, dropout=dropout, seed=seed,
                        alike=True, threads=torch.get_num_threads())  # fmt: skip
    return out if done else None


def backward(dout, q, k, v, bias, out, softmax, causal, scale, dropout, seed, bias_gradient):
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    mask, added = visibility(bias)
    dbias = torch.empty(added.shape, dtype=torch.float32) if bias_gradient else None
    _mha.backward(q=q, k=k, v=v, out=out, dout=dout, softmax=softmax, dq=dq, dk=dk, dv=dv, dbias=dbias, mask=mask, bias=added,
                  causal=causal, scale=scale, dropout=dropout, seed=seed, threads=torch.get_num_threads())  # fmt: skip
    return dq, dk, dv, torch.empty(0) if dbias is None else dbias.to(bias.dtype)


def _fake_forward(q, k, v, bias, causal, scale, dropout, seed):
    return result(q, v), rows(q)


def _fake_backward(dout, q, k, v, bias, out, softmax, causal, scale, dropout, seed, bias_gradient):
    dbias = bias.new_empty(bias.shape) if bias_gradient else q.new_empty(0, dtype=torch.float32)
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), dbias


def _setup(ctx, inputs, output):
    q, k, v, bias, *ctx.options = inputs
    ctx.save_for_backward(q, k, v, bias, *output)
    ctx.set_materialize_grads(False)


def _gradients(ctx, dout, dsoftmax, function):
    if dout is None:
        return (None,) * 8
    q, k, v, bias, out, softmax = ctx.saved_tensors
    wanted = ctx.needs_input_grad[3] and bias is not None and bias.dtype is not torch.bool
    dq, dk, dv, dbias = function(dout, q, k, v, bias, out, softmax, *ctx.options, wanted)
    return dq, dk, dv, dbias if wanted else None, None, None, None, None


def _op_gradients(ctx, dout, dsoftmax):
    return _gradients(ctx, dout, dsoftmax, torch.ops.mha.attention_backward)


for _name, _function, _fake in (("attention", forward, _fake_forward), ("attention_backward", backward, _fake_backward)):
    library.impl(_name, _function, "CPU")
    torch.library.register_fake(f"mha::{_name}", _fake, lib=library)
torch.library.register_autograd("mha::attention", _op_gradients, setup_context=_setup, lib=library)


class Attention(torch.autograd.Function):
    """mha::attention in eager mode."""

    @staticmethod
    def forward(ctx, q, k, v, bias, *options):
        out, softmax = forward(q, k, v, bias, *options)
        _setup(ctx, (q, k, v, bias, *options), (out, softmax))
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dout):
        return _gradients(ctx, dout, None, backward)


class Transformed(torch.autograd.Function):
    """mha::attention under torch.func.grad and its relatives, which want setup_context."""

    @staticmethod
    def forward(q, k, v, bias, causal, scale, dropout, seed):
        return torch.ops.mha.attention(q, k, v, bias, causal, scale, dropout, seed)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        _setup(ctx, inputs, output)

    backward = staticmethod(_op_gradients)


def _plain(tensor: Any) -> bool:
    return type(tensor) is Tensor or type(tensor) is torch.nn.Parameter


def is_eager(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> bool:
    """Whether memory can be read here and now: nobody traces, and no tensor is of a subclass."""
    return (
        not torch.compiler.is_compiling()
        and not torch._C._len_torch_dispatch_stack()
        and _plain(q)
        and _plain(k)
        and _plain(v)
        and (bias is None or _plain(bias))
    )


def needs_gradient(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> bool:
    return torch.is_grad_enabled() and (
        q.requires_grad or k.requires_grad or v.requires_grad or (bias is not None and bias.requires_grad)
    )


def attention(q, k, v, bias, causal, scale, dropout, seed):
    """(B,H,Tq,E), differentiable, in the way that costs least here."""
    if torch._C._are_functorch_transforms_active() and not torch.compiler.is_compiling():
        return Transformed.apply(q, k, v, bias, causal, scale, dropout, seed)[0]
    if not is_eager(q, k, v, bias):
        return torch.ops.mha.attention(q, k, v, bias, causal, scale, dropout, seed)[0]
    run = Attention.apply if needs_gradient(q, k, v, bias) else infer
    return run(q, k, v, bias, causal, scale, dropout, seed)
