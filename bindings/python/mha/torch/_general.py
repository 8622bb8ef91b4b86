"""The operators mha::general_attention and mha::general_attention_backward: everything that libmha's attention composes.

They take (B,H,T,D) tensors, or with starts packed ones, (1,H,T,D). mha::attention is the part that scaled_dot_product_attention
needs, with less overhead. ``rest`` stands for the options: causal, align, window_left, window_right, scale, softcap, dropout, seed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mha import _mha
from mha.torch import _ops

INPUTS = (
    "Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? sinks, Tensor? alibi, Tensor? query_lengths, Tensor? key_lengths, "
    "Tensor? query_starts, Tensor? key_starts"
)
OPTIONS = (
    "bool causal, int align, int window_left, int window_right, float? scale, float? softcap, float dropout, int seed"
)
TENSORS, DIFFERENTIABLE, NUMBERS = 10, 6, 8
_ops.library.define(f"general_attention({INPUTS}, {OPTIONS}) -> (Tensor out, Tensor softmax, Tensor lse)")
_ops.library.define(
    f"general_attention_backward({INPUTS}, {OPTIONS}, Tensor out, Tensor softmax, Tensor dout, Tensor? dlse, bool[] wanted) "
    "-> (Tensor dq, Tensor dk, Tensor dv, Tensor dbias, Tensor dsinks, Tensor dalibi)"
)
_NAMES = ("bias", "sinks", "alibi", "query_lengths", "key_lengths", "query_starts", "key_starts")
_OPTION_NAMES = ("causal", "align", "window_left", "window_right", "scale", "softcap", "dropout", "seed")


def _arguments(inputs: tuple, options: tuple) -> dict:
    """Those of the extension's functions, but q, k and v."""
    given = dict(zip(_NAMES, inputs[3:]), **dict(zip(_OPTION_NAMES, options)))
    given["mask"], given["bias"] = _ops.visibility(given["bias"])
    return given


def _results(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    softmax = _ops.rows(q)
    return _ops.result(q, v), softmax, softmax.new_empty(softmax.shape[:3])


def _forward(*arguments):
    inputs, options = arguments[:TENSORS], arguments[TENSORS:]
    q, k, v = inputs[:3]
    out, softmax, lse = _results(q, v)
    if inputs[8] is not None:  # rows that belong to no sequence
        out.zero_(), softmax.zero_(), lse.fill_(-torch.inf)
        softmax[..., 0] = -torch.inf
    _mha.forward(q=q, k=k, v=v, out=out, softmax=softmax, lse=lse, team=torch.get_num_threads(), more=_arguments(inputs, options))
    return out, softmax, lse


def _fake_forward(*arguments):
    return _results(arguments[0], arguments[2])


def _gradients_like(inputs: tuple, wanted: list, kind: Any) -> list:
    """Memory for the gradients: of what is added to scores, in float32; empty where none is wanted."""
    nothing = inputs[0].new_empty(0)
    return [
        (kind(x) if n < 3 else kind(x, dtype=torch.float32)) if wanted[n] else nothing.clone()
        for n, x in enumerate(inputs[:DIFFERENTIABLE])
    ]


def _backward(*arguments):
    inputs, options = arguments[:TENSORS], arguments[TENSORS : TENSORS + NUMBERS]
    out, softmax, dout, dlse, wanted = arguments[TENSORS + NUMBERS :]
    q, k, v = inputs[:3]
    packed = inputs[8] is not None or inputs[9] is not None  # what belongs to no sequence is left alone
    found = _gradients_like(inputs, wanted, torch.zeros_like if packed else torch.empty_like)
    given = _arguments(inputs, options)
    for name, gradient, is_wanted in zip(("dq", "dk", "dv", "dbias", "dsinks", "dalibi"), found, wanted):
        if is_wanted:
            given[name] = gradient
    _mha.backward(q=q, k=k, v=v, out=out, softmax=softmax, dout=dout, dlse=dlse, team=torch.get_num_threads(), more=given)
    return tuple(found)


def _fake_backward(*arguments):
    return tuple(_gradients_like(arguments[:TENSORS], arguments[-1], torch.empty_like))


def _setup(ctx, inputs, output):
    ctx.options = inputs[TENSORS:]
    ctx.save_for_backward(*inputs[:TENSORS], *output[:2])
    ctx.set_materialize_grads(False)


def _gradients(ctx, dout, dsoftmax, dlse):
    nothing = (None,) * (TENSORS + NUMBERS)
    if dout is None and dlse is None:
        return nothing
    *inputs, out, softmax = ctx.saved_tensors
    wanted = list(ctx.needs_input_grad[:DIFFERENTIABLE])
    wanted[3] = wanted[3] and inputs[3] is not None and inputs[3].dtype is not torch.bool
    dout = torch.zeros_like(out) if dout is None else dout
    run = _transformed_backward if _ops.is_transformed() else torch.ops.mha.general_attention_backward
    found = run(*inputs, *ctx.options, out, softmax, dout, dlse, wanted)
    kept = [x.to(y.dtype) if is_wanted else None for x, y, is_wanted in zip(found, inputs, wanted)]
    return *kept, *nothing[DIFFERENTIABLE:]


for _name, _function, _fake in (
    ("general_attention", _forward, _fake_forward),
    ("general_attention_backward", _backward, _fake_backward),
):
    for _device in _ops.DEVICES:
        _ops.library.impl(_name, _function, _device)
    torch.library.register_fake(f"mha::{_name}", _fake, lib=_ops.library)
torch.library.register_autograd("mha::general_attention", _gradients, setup_context=_setup, lib=_ops.library)
torch.library.register_autograd(
    "mha::general_attention_backward", _ops.refuse, setup_context=_ops.setup_nothing, lib=_ops.library
)

_transformed = _ops.transformed(torch.ops.mha.general_attention, _ops.without_softmax(_setup), _gradients)
_transformed_backward = _ops.transformed(torch.ops.mha.general_attention_backward, _ops.setup_nothing, _ops.refuse)


def general_attention(*arguments: Any) -> tuple[Tensor, Tensor]:
    """The result, (B,H,Tq,E), and the logarithm of the softmax's denominator, float32 (B,H,Tq): both differentiable."""
    run = _transformed if _ops.is_transformed() else torch.ops.mha.general_attention
    out, _, lse = run(*arguments)
    return out, lse
