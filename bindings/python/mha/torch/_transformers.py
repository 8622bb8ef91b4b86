"""attn_implementation="mha" for models of the transformers library."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from mha.torch import _ops
from mha.torch._sdpa import lower, seed_of
from mha.torch._weights import attention_weights

TABLE = "transformers.modeling_utils"

def _sum(mask: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """A position bias and a mask as one tensor that is added."""
    if mask is None or bias is None:
        return bias if mask is None else mask
    return bias.masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else bias + mask


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
        hidden = torch.ones(query.size(2), key.size(2), dtype=torch.bool).triu(1)
        attention_mask, causal = ~hidden, False
    bias = _sum(attention_mask, position_bias)
    sinks = None if s_aux is None else s_aux.flatten().float()
    query, key, value, bias = lower(query, key, value, bias)
    options = (sinks, causal, scaling, softcap, dropout, seed_of(dropout) if dropout else 0)
    if _weights_wanted(more):
        out, weights = attention_weights(query, key, value, bias, *options, False)
    else:
        out, weights = _ops.attention(query, key, value, bias, *options), None
    return out.transpose(1, 2).contiguous(), weights


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register("mha", attention_forward)
    AttentionMaskInterface.register("mha", sdpa_mask)


class _Watcher(MetaPathFinder):
    """Calls :func:`_register` behind the import of the module that has the table of implementations."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != TABLE:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            execute(module)
            _register()

        spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def offer() -> None:
    """Makes "mha" an attention implementation of transformers: now, or when somebody imports it. The import takes seconds, so
    this module leaves it to those who need it."""
    if TABLE in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _Watcher())
