"""Statistics of the heads of a model while it runs."""

from __future__ import annotations

import threading
from typing import Any, Iterator, Mapping, Sequence

import torch
from torch import Tensor

import mha
from mha.torch import _ops


class statistics(Mapping[str, mha.Stats]):
    """Statistics of the attention that a model computes inside a ``with`` block, for each of its modules that calls mha.

    It sees :class:`MultiheadAttention`, models of transformers with ``attn_implementation="mha"``, and calls of
    :func:`attention` and :func:`scaled_dot_product_attention`, also those of PyTorch's function under :class:`use`, in the thread that entered the block.
    Code that torch.compile has compiled is not seen. Weights are computed again, tile by tile, and are never stored.

    Args:
        model: any module.
        want, heatmap, top: which statistics, as in :func:`mha.stats`.

    It is a mapping from the names of modules, as ``model.named_modules()`` has them and in the order of their first calls, to
    :class:`mha.Stats` of the last call; :attr:`calls` has every call.

    >>> import torch, mha.torch
    >>> layer = mha.torch.MultiheadAttention(8, 2, batch_first=True)
    >>> model = torch.nn.Sequential()
    >>> model.attention = layer
    >>> x = torch.ones(1, 3, 8)
    >>> with mha.torch.statistics(model) as heads:
    ...     _ = layer(x, x, x)
    >>> list(heads), heads["attention"].entropy.shape
    (['attention'], torch.Size([1, 2, 3]))
    >>> heads.mean("effective").round(decimals=2).tolist()
    [[3.0, 3.0]]
    """

    def __init__(
        self,
        model: torch.nn.Module,
        want: Sequence[str] = ("entropy", "effective", "largest", "distance", "received"),
        *,
        heatmap: tuple[int, int] | None = None,
        top: int = 0,
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"model: must be a module, not {type(model)}")
        self.calls: list[tuple[str, mha.Stats]] = []  #: the name of the module and its statistics, call by call
        self._last: dict[str, mha.Stats] = {}
        self._model = model
        self._options: dict[str, Any] = {"want": want, "heatmap": heatmap, "top": top}
        self._running: list[str] = []  # names of the modules that are running, the innermost one last
        self._hooks: list[Any] = []

    def __enter__(self) -> statistics:
        if _ops.watcher is not None:
            raise RuntimeError("another block of mha.torch.statistics is open")
        self._thread = threading.get_ident()
        for name, module in self._model.named_modules():
            self._hooks.append(module.register_forward_pre_hook(lambda *_, name=name: self._enter(name)))
            self._hooks.append(module.register_forward_hook(lambda *_: self._leave(), always_call=True))
        _ops.watcher = self._watch
        return self

    def __exit__(self, *error: object) -> None:
        _ops.watcher = None
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._running.clear()

    def _here(self) -> bool:
        return not torch.compiler.is_compiling() and threading.get_ident() == self._thread

    def _enter(self, name: str) -> None:
        if self._here():
            self._running.append(name)

    def _leave(self) -> None:
        if self._here() and self._running:
            self._running.pop()

    def _watch(self, q, k, bias, sinks, causal, scale, softcap, dropout, seed, **more) -> None:
        if not self._here() or not self._running:
            return
        with torch.no_grad():
            mask, added = _ops.visibility(bias)
            if added is not None and added.dim() == 3:
                added = added[None]
            found = mha.stats(q.detach(), k.detach(), mask=mask, bias=added, sinks=sinks, causal=causal, scale=scale,
                              softcap=softcap, **more, **self._options)  # fmt: skip
        self.calls.append((self._running[-1], found))
        self._last[self._running[-1]] = found

    def __getitem__(self, name: str) -> mha.Stats:
        return self._last[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._last)

    def __len__(self) -> int:
        return len(self._last)

    def mean(self, name: str) -> Tensor:
        """The mean of "entropy", "effective", "largest" or "distance" over all rows of the last calls: (modules,H), in the order
        of the mapping."""
        return torch.stack([getattr(found, name).mean((0, 2)) for found in self.values()])
