"""attn_implementation="mha" for models of the transformers library."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from mha.torch import _ops
from mha.torch._imports import after_import
from mha.torch._sdpa import seed_of, sum_masks
from mha.torch._weights import attention_weights


def _weights_wanted(more: dict[str, Any]) -> bool:
    """Some models do not pass output_attentions on: then transformers collects the weights that layers return."""
    if more.get("output_attentions"):
        return True
    try:
        from transformers.utils.output_capturing import _active_collector
    except ImportError:
        return False
    return any(name.endswith("attentions") for name in _active_collector.get() or ())


def attention_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **more: Any,
) -> tuple[Tensor, Tensor | None]:
    """(B,Tq,H,E), and with ``output_attentions`` the weights (B,H,Tq,Tk). Query heads may share keys.

    Windows of local attention are in the mask. ``softcap`` is that of Gemma 2, and ``s_aux`` has the sinks of gpt-oss, (H).
    """
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = bool(causal) and attention_mask is None and query.size(2) > 1
    if causal and position_bias is not None:
        visible = torch.ones(query.size(2), key.size(2), dtype=torch.bool, device=query.device).tril()
        attention_mask, causal = visible, False
    bias = sum_masks(attention_mask, position_bias)
    sinks = None if s_aux is None else s_aux.flatten().float()
    query, key, value, bias = _ops.lower(query, key, value, bias)
    options = (sinks, causal, scaling, softcap, dropout, seed_of(dropout) if dropout else 0)
    if _weights_wanted(more):
        out, weights = attention_weights(query, key, value, bias, *options, False)
    else:
        out, weights = _ops.attention(query, key, value, bias, *options), None
    return out.transpose(1, 2).contiguous(), weights


#: Types of models that use the attention interface in a way that only eager attention understands, and what they do.
INCOMPATIBLE = {
    "deepseek_v4": "it extends the mask by numbers that are added to scores",
    "doge": "it adds numbers to the mask of eager attention, and expects it for causal attention, too",
    "umt5": "it does not tell attention that its decoder is causal",
}


def _check(model: Any) -> None:
    """ValueError for a model whose attention would not see its masks. Masks are made for the implementation that the configuration
    names, so that a model that computes attention itself, whatever the name, would read masks that are not made for it, or none."""
    name = type(model).__name__
    if not model._can_set_attn_implementation():
        why = "it computes attention itself, without the attention interface"
    elif not (model._supports_sdpa or model._supports_attention_backend):
        why = "it does not say that it supports other implementations of attention"
    else:
        why = INCOMPATIBLE.get(model.config.model_type)
    if why is not None:
        raise ValueError(f'attn_implementation: {name} cannot use "mha": {why}; use "eager"')


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register("mha", attention_forward)
    AttentionMaskInterface.register("mha", sdpa_mask)
    # Every model asks this function whether it supports what its configuration names. It knows "sdpa", but not our name.
    adjust = PreTrainedModel.get_correct_attn_implementation

    @functools.wraps(adjust)
    def checked(self: Any, requested_attention: str | None, *arguments: Any, **named: Any) -> str:
        if requested_attention == "mha":
            _check(self)
        return adjust(self, requested_attention, *arguments, **named)

    PreTrainedModel.get_correct_attn_implementation = checked


def offer() -> None:
    """Makes "mha" an attention implementation of transformers, when somebody imports it, which takes seconds."""
    after_import("transformers.modeling_utils", _register)
