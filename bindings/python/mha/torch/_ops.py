"""The operators mha::attention and mha::attention_backward.

Both take (B,H,T,D) tensors; ``bias`` is a mask that is bool or is added, and ``sinks`` is float32 (H). They are what
torch.compile, torch.export and functional transforms see; in eager mode an autograd.Function calls the same code with less
overhead. ``rest`` stands for what follows the bias: sinks, causal, scale, softcap, dropout, seed.
"""

from __future__ import annotations

import os
from typing import Any, Callable

import numpy as np
import torch
import torch.utils.dlpack
from torch import Tensor
from torch._functorch.utils import unwrap_dead_wrappers

from mha import _mha
from mha._tensors import know_torch

#: Whether a tensor's class says itself what PyTorch's functions do with it. Classes with ``__torch_dispatch__`` alone say what the
#: operators of mha do.
overrides_functions = know_torch(torch)[0]

#: The library of PyTorch that is linked with OpenMP, on whose threads calls run.
OPENMP = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")
_mha.know_team(OPENMP)

INPUTS = "Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? sinks"
OPTIONS = "bool causal, float? scale, float? softcap, float dropout, int seed"
DEVICES = ("CPU", "CUDA")
library = torch.library.Library("mha", "DEF")
library.define(f"attention({INPUTS}, {OPTIONS}) -> (Tensor out, Tensor softmax)")
library.define(
    f"attention_backward({INPUTS}, {OPTIONS}, Tensor out, Tensor softmax, Tensor dout, bool bias_gradient, bool sinks_gradient) "
    "-> (Tensor dq, Tensor dk, Tensor dv, Tensor dbias, Tensor dsinks)"
)

#: Called with (q, k, bias, *rest) before attention that runs here and now; set by mha.torch.statistics.
watcher: Callable[..., None] | None = None


def lower(*tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """In the type of autocast, where that is on."""
    first = tensors[0]
    device = "cpu" if first.is_cpu else first.device.type
    if device == "meta" or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    kept = (dtype, torch.float64, torch.bool)  # PyTorch does not cast float64 either
    return tuple(x if x is None or x.dtype in kept or not x.is_floating_point() else x.to(dtype) for x in tensors)


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


def forward(q, k, v, bias, sinks, causal, scale, softcap, dropout, seed):
    """The result, and the softmax of its rows, which the backward pass reads."""
    out = result(q, v)
    softmax = rows(q)
    mask, added = visibility(bias)
    _mha.forward(q=q, k=k, v=v, out=out, softmax=softmax, mask=mask, bias=added, sinks=sinks, causal=causal, scale=scale,
                 softcap=softcap, dropout=dropout, seed=seed, team=torch.get_num_threads())  # fmt: skip
    return out, softmax


def eager(run, out, q, k, v, bias, sinks, causal, scale, softcap, dropout, seed):
    """The result, computed into ``out`` here and now, and differentiable. ``run`` is the extension's function; None if it returns
    False."""
    gradient = needs_gradient(q, k, v, bias, sinks)
    softmax = rows(q) if gradient and q.is_cuda else None
    mask, added = visibility(bias)
    kept = run(q=q, k=k, v=v, out=out, softmax=softmax, keep=gradient and softmax is None, causal=causal, scale=scale,
               team=torch.get_num_threads(), dropout=dropout, seed=seed, mask=mask, bias=added, softcap=softcap, sinks=sinks)  # fmt: skip
    if kept is False:
        return None
    if not gradient:
        return out
    return _tie(q, k, v, bias, sinks, (out, kept if softmax is None else softmax, (causal, scale, softcap, dropout, seed)))


def quick(q, k, v, bias, causal, scale, dropout, seed):
    """``attention`` for the usual call, in which q, k and v are alike, with the least overhead; None for any other call."""
    if (
        not is_eager(q, k, v, bias)
        or watcher is not None
        or torch._C._are_functorch_transforms_active()
    ):
        return None
    if torch._C._is_any_autocast_enabled():
        q, k, v, bias = lower(q, k, v, bias)
    return eager(_mha.forward_alike, torch.empty_like(q), q, k, v, bias, None, causal, scale, None, dropout, seed)


def backward(inputs, options, out, softmax, dout, wanted):
    """Gradients of ``inputs``: q, k, v, bias, in its type, and sinks; None for those that are not ``wanted``. ``softmax`` is what
    the forward pass wrote, or kept: bytes."""
    q, k, v, bias, sinks = inputs
    causal, scale, softcap, dropout, seed = options
    of_q, of_k, of_v, of_bias, of_sinks = wanted
    dq = torch.empty_like(q) if of_q else None
    dk = torch.empty_like(k) if of_k else None
    dv = torch.empty_like(v) if of_v else None
    dbias = torch.empty(bias.shape, dtype=torch.float32, device=bias.device) if of_bias else None
    dsinks = torch.empty_like(sinks) if of_sinks else None
    mask, added = visibility(bias)
    kept, softmax = (softmax, None) if type(softmax) is bytes else (None, softmax)
    _mha.backward(q=q, k=k, v=v, out=out, dout=dout, kept=kept, softmax=softmax, dq=dq, dk=dk, dv=dv, dbias=dbias, dsinks=dsinks,
                  causal=causal, scale=scale, team=torch.get_num_threads(), dropout=dropout, seed=seed, mask=mask, bias=added,
                  softcap=softcap, sinks=sinks)  # fmt: skip
    return dq, dk, dv, dbias.to(bias.dtype) if of_bias else None, dsinks


def _op_backward(q, k, v, bias, sinks, causal, scale, softcap, dropout, seed, out, softmax, dout, of_bias, of_sinks):
    """``backward`` as an operator, whose results are tensors in any case."""
    options = causal, scale, softcap, dropout, seed
    found = backward((q, k, v, bias, sinks), options, out, softmax, dout, (True, True, True, of_bias, of_sinks))
    return tuple(torch.empty(0, device=q.device) if x is None else x for x in found)


def _fake_forward(q, k, v, bias, *rest):
    return result(q, v), rows(q)


def _fake_backward(q, k, v, bias, sinks, *more):
    bias_gradient, sinks_gradient = more[-2:]
    nothing = q.new_empty(0, dtype=torch.float32)
    dbias = bias.new_empty(bias.shape) if bias_gradient else nothing
    dsinks = torch.empty_like(sinks) if sinks_gradient else torch.empty_like(nothing)
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), dbias, dsinks


def wanted(ctx: Any, bias: Tensor | None) -> tuple[bool, bool]:
    """Whether the gradients of the bias and of the sinks are asked for."""
    return ctx.needs_input_grad[3] and bias is not None and bias.dtype is not torch.bool, ctx.needs_input_grad[4]


def _setup(ctx, inputs, output):
    *tensors, causal, scale, softcap, dropout, seed = inputs
    ctx.options = causal, scale, softcap, dropout, seed
    ctx.save_for_backward(*tensors, *output)
    ctx.set_materialize_grads(False)


def op_backward(inputs, options, out, softmax, dout, of_bias, of_sinks):
    """``backward`` by its operator, under any transform and with tensors of any kind."""
    run = _transformed_backward if is_transformed() else torch.ops.mha.attention_backward
    dq, dk, dv, dbias, dsinks = run(*inputs, *options, out, softmax, dout, of_bias, of_sinks)
    return dq, dk, dv, dbias if of_bias else None, dsinks if of_sinks else None


def _op_gradients(ctx, dout, dsoftmax):
    if dout is None:
        return (None,) * 10
    *inputs, out, softmax = ctx.saved_tensors
    return *op_backward(inputs, ctx.options, out, softmax, dout, *wanted(ctx, inputs[3])), *[None] * 5


def setup_nothing(ctx, inputs, output):
    pass


def refuse(ctx, *gradients):
    raise RuntimeError("mha: attention has no second derivative")


for _name, _function, _fake in (("attention", forward, _fake_forward), ("attention_backward", _op_backward, _fake_backward)):
    for _device in DEVICES:
        library.impl(_name, _function, _device)
    torch.library.register_fake(f"mha::{_name}", _fake, lib=library)
torch.library.register_autograd("mha::attention", _op_gradients, setup_context=_setup, lib=library)
torch.library.register_autograd("mha::attention_backward", refuse, setup_context=setup_nothing, lib=library)


class Attention(torch.autograd.Function):
    """The gradient of ``eager``, whose result is given to it: it is a node of the graph and computes nothing forward.

    Its backward pass leaves to the operator what reads no memory here and now: ``create_graph`` and ``is_grads_batched``."""

    @staticmethod
    def forward(ctx, q, k, v, bias, sinks, call):
        out, ctx.softmax, ctx.options = call
        ctx.save_for_backward(q, k, v, bias, sinks, out)
        return out

    @staticmethod
    def backward(ctx, dout):
        *inputs, out = ctx.saved_tensors
        if torch.is_grad_enabled() or is_transformed() or torch._C._functorch.is_legacy_batchedtensor(dout):
            softmax = _as_tensor(ctx.softmax, out.shape)
            found = op_backward(inputs, ctx.options, out, softmax, dout, *ctx.needs_input_grad[3:5])
        else:
            found = backward(inputs, ctx.options, out, ctx.softmax, dout, ctx.needs_input_grad[:5])
        return *found, None


def _as_tensor(softmax: Tensor | bytes, shape: torch.Size) -> Tensor:
    """The softmax of rows as an operator takes it."""
    if not isinstance(softmax, bytes):
        return softmax
    return torch.from_numpy(np.ndarray((*shape[:3], 2), np.float32, softmax).copy())


# Without what torch.autograd.Function.apply does for functional transforms.
_tie = super(torch.autograd.Function, Attention).apply


def transformed(op: Any, setup: Any, gradients: Any) -> Any:
    """An operator under torch.func.grad and its relatives, which want setup_context."""

    class Transformed(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*inputs):
            return op(*inputs)

        setup_context = staticmethod(setup)
        backward = staticmethod(gradients)

    return Transformed.apply


def without_softmax(setup: Any) -> Any:
    """``setup`` of an operator whose second result, the softmax of rows, has no gradient."""

    def marked(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        setup(ctx, inputs, output)

    return marked


_transformed = transformed(torch.ops.mha.attention, without_softmax(_setup), _op_gradients)
_transformed_backward = transformed(torch.ops.mha.attention_backward, setup_nothing, refuse)


def _plain(tensor: Any) -> bool:
    return type(tensor) is Tensor or type(tensor) is torch.nn.Parameter


def is_dense(x: Tensor) -> bool:
    """Whether the numbers of a tensor lie in memory as its sizes and strides say, or its class answers to operators."""
    return x.layout is torch.strided and not (x.is_nested or x.is_quantized or overrides_functions(x))


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


def needs_gradient(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, sinks: Tensor | None = None) -> bool:
    """Also where PyTorch carries derivatives forward: a node of the graph refuses these."""
    return torch.autograd.forward_ad._current_level >= 0 or (
        torch.is_grad_enabled()
        and (
            q.requires_grad
            or k.requires_grad
            or v.requires_grad
            or (bias is not None and bias.requires_grad)
            or (sinks is not None and sinks.requires_grad)
        )
    )


def is_transformed() -> bool:
    """Whether torch.func.grad, torch.vmap or the like is at work, outside of torch.compile, which handles them itself."""
    return torch._C._are_functorch_transforms_active() and not torch.compiler.is_compiling()


def attention(q, k, v, bias, *rest):
    """(B,H,Tq,E), differentiable, in the way that costs least here."""
    if is_transformed():
        return _transformed(q, k, v, bias, *rest)[0]
    if not is_eager(q, k, v, bias) or q.is_meta:
        return torch.ops.mha.attention(q, k, v, bias, *rest)[0]
    q, k, v, bias = unwrap_dead_wrappers((q, k, v, bias))  # tensors that outlived a functional transform
    if watcher is not None:
        watcher(q, k, bias, *rest)
    return eager(_mha.forward, result(q, v), q, k, v, bias, *rest)
