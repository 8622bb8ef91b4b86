"""mha inside existing models."""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.nn import functional

from mha.torch._sdpa import FLOATS, is_causal_bias, pytorch_attention, scaled_dot_product_attention


@functools.cache
def _gpu_computes(device: int) -> bool:
    """Whether the package has the plug-in for GPUs, and it runs on this one."""
    q = torch.zeros(1, 1, 1, 16, dtype=torch.float16, device=f"cuda:{device}")
    try:
        scaled_dot_product_attention(q, q, q)
    except (ValueError, RuntimeError):
        return False
    return True


def _is_ours(x: Tensor) -> bool:
    """Whether mha reads a tensor: dense, of the class of PyTorch itself, in memory that it knows. It checks the rest."""
    return (type(x) is Tensor or type(x) is torch.nn.Parameter) and (
        x.is_cpu or (x.is_cuda and (torch.compiler.is_compiling() or _gpu_computes(x.get_device())))
    )


def _pytorch(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """PyTorch's function. A causal bias looks for the function by its name, which now is that of mha's."""
    if is_causal_bias(attn_mask):
        return type(attn_mask)._dispatch(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    return pytorch_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


@functools.wraps(scaled_dot_product_attention)
def _chosen(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """mha for what it computes; PyTorch for the rest, such as float64, and for what it has to say about arguments."""
    if (
        not (is_causal and attn_mask is not None)  # PyTorch computes it for some inputs and not for others
        and _is_ours(query)
        and query.dtype in FLOATS
        and _is_ours(key)
        and _is_ours(value)
        and (attn_mask is None or _is_ours(attn_mask) or is_causal_bias(attn_mask))
    ):
        try:
            return scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        except (ValueError, TypeError, NotImplementedError):
            pass
    return _pytorch(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


class use:
    """Replaces ``torch.nn.functional.scaled_dot_product_attention`` by mha's, in all threads: from the call on, or inside a ``with``
    block, whose end restores what was there before, as :meth:`restore` does. Blocks may overlap and end in any order.

    It computes what PyTorch's function computes, on the CPU and, where the package has the plug-in, on a GPU: what mha does not
    compute (float64, other devices, subclasses of tensors) goes to PyTorch as before, and so do arguments that mha refuses. Models
    that hold a reference to PyTorch's function are not reached. PyTorch's encoder layers and attention modules call another
    function, the "fast path", for inference: it is disabled likewise (``torch.backends.mha``), and with it inputs that are nested
    tensors.

    >>> import torch, mha.torch
    >>> layer = torch.nn.MultiheadAttention(8, 2)
    >>> x = torch.ones(3, 1, 8)
    >>> with mha.torch.use():
    ...     out, _ = layer(x, x, x, need_weights=False)
    >>> out.shape
    torch.Size([3, 1, 8])
    """

    _active: list[use] = []  # in any order of their ends: the last one that ends restores what was there before the first
    _before: tuple

    def __init__(self) -> None:
        if not use._active:
            use._before = functional.scaled_dot_product_attention, torch.backends.mha.get_fastpath_enabled()
        use._active.append(self)
        functional.scaled_dot_product_attention = _chosen
        torch.backends.mha.set_fastpath_enabled(False)

    def restore(self) -> None:
        """Ends this replacement; PyTorch's function is back when all have ended. A second call does nothing."""
        if self not in use._active:
            return
        use._active.remove(self)
        if not use._active:
            functional.scaled_dot_product_attention, fast_path = use._before
            torch.backends.mha.set_fastpath_enabled(fast_path)

    def __enter__(self) -> use:
        return self

    def __exit__(self, *error: object) -> None:
        self.restore()
