"""mha inside existing models."""

from __future__ import annotations

import functools

import torch
from torch.nn import functional

from mha.torch._sdpa import FLOATS, scaled_dot_product_attention

_pytorch = functional.scaled_dot_product_attention


@functools.wraps(scaled_dot_product_attention)
def _chosen(query, key, value, *arguments, **named):
    """mha for what it computes; PyTorch for the rest, such as float64 and tensors on a GPU."""
    ours = all(type(x) in (torch.Tensor, torch.nn.Parameter) and x.is_cpu and x.dtype in FLOATS for x in (query, key, value))
    return (scaled_dot_product_attention if ours else _pytorch)(query, key, value, *arguments, **named)


class use:
    """Replaces ``torch.nn.functional.scaled_dot_product_attention`` by mha's, in all threads: from the call on, or inside a ``with``
    block, whose end restores what was there before, as :meth:`restore` does. Blocks may overlap and end in any order.

    What mha does not compute (tensors on a GPU, float64, subclasses of tensors) goes to PyTorch as before. Models that hold a
    reference to PyTorch's function are not reached. PyTorch's encoder layers and attention modules call another function, the
    "fast path", for inference: it is disabled likewise (``torch.backends.mha``), and with it inputs that are nested tensors.

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
