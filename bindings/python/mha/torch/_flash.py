"""Functions with the signatures of the package flash-attn, for programs that call it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from mha.torch._attention import attention, attention_varlen


def _options(causal, window_size, softcap, alibi_slopes, dropout_p, softmax_scale) -> dict:
    """As this package's attention calls them. There, the last query stands at the last key."""
    if not isinstance(window_size, (tuple, list)) or len(window_size) != 2:
        raise ValueError(f"window_size: {window_size!r} must be (left, right)")
    left, right = (None if side is None or side < 0 else side for side in window_size)
    return {"causal": causal, "window": None if left is right is None else (left, right), "softcap": softcap or None,
            "alibi": alibi_slopes, "dropout": dropout_p, "scale": softmax_scale, "align": "bottom-right"}  # fmt: skip


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """``flash_attn.flash_attn_func``: attention of (B,Tq,H,D), (B,Tk,G,D) and (B,Tk,G,E), differentiable.

    Causal masks, windows and ALiBi are aligned at the last query and the last key. Gradients are the same in every run, so
    ``deterministic`` changes nothing.

    Returns:
        (B,Tq,H,E), or with ``return_attn_probs`` a tuple of that, lse, float32 (B,H,Tq), and None: flash-attn returns its weights
        for its own tests only; :func:`mha.attention` has ``return_weights``. A row that sees no key has an lse of -inf.

    >>> import torch, mha.torch
    >>> q = torch.ones(1, 3, 2, 4)
    >>> mha.torch.flash_attn_func(q, q, q, causal=True).shape
    torch.Size([1, 3, 2, 4])
    """
    options = _options(causal, window_size, softcap, alibi_slopes, dropout_p, softmax_scale)
    out, lse = attention(*(x.transpose(1, 2) for x in (q, k, v)), return_lse=True, **options)
    out = out.transpose(1, 2)
    return (out, lse, None) if return_attn_probs else out


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Tensor | None = None,
) -> Any:
    """``flash_attn.flash_attn_varlen_func``: attention of packed sequences, (sum of Tq,H,D), differentiable.

    As :func:`flash_attn_func`, with ``cu_seqlens_q`` and ``cu_seqlens_k``, (B+1) each, as the starts of the sequences. The longest
    lengths are not needed and not looked at. A ``block_table`` (a paged cache of keys) is refused.

    Returns:
        (sum of Tq,H,E), or with ``return_attn_probs`` a tuple of that, lse, float32 (H,sum of Tq), and None.
    """
    if block_table is not None:
        raise ValueError("block_table: must be None, a paged cache of keys is not supported")
    options = _options(causal, window_size, softcap, alibi_slopes, dropout_p, softmax_scale)
    out, lse = attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, return_lse=True, **options)
    return (out, lse, None) if return_attn_probs else out
