"""Statistics of heads."""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

from mha import _mha, _threads
from mha._arrays import kind_of, sizes, whole_numbers
from mha._attention import Array, Window, check_names, options_of


class Stats(NamedTuple):
    """What heads look at; None for what was not asked for. All but top_keys are float32; p is the weight of a key."""

    entropy: Array | None = None  #: (B,H,Tq): -sum p log p, in nats
    effective: Array | None = None  #: (B,H,Tq): 1 / sum p^2, the effective number of keys
    largest: Array | None = None  #: (B,H,Tq): the largest p
    distance: Array | None = None  #: (B,H,Tq): the mean distance to the keys
    received: Array | None = None  #: (B,H,Tk): the sum of p over all queries
    heatmap: Array | None = None  #: (B,H,R,C): the map of weights, summed over R x C cells
    top_weights: Array | None = None  #: (B,H,Tq,N): the N largest p
    top_keys: Array | None = None  #: int64 (B,H,Tq,N): whose they are; -1 where there are no more
    divergence: Array | None = None  #: (B,H,H): Jensen-Shannon divergence of each pair of heads, in nats
    cosine: Array | None = None  #: (B,H,H): cosine of the maps of each pair of heads


_ROWS = ("entropy", "effective", "largest", "distance")
_PAIRS = ("divergence", "cosine")


def _check_sizes(heatmap: Any, top: Any) -> None:
    if heatmap is not None:
        if not isinstance(heatmap, (tuple, list)) or len(heatmap) != 2 or not all(hasattr(n, "__index__") for n in heatmap):
            raise TypeError(f"heatmap: {heatmap!r} must be two whole numbers, (rows, columns)")
        if min(heatmap) < 1:
            raise ValueError(f"heatmap: {heatmap!r} must be at least 1 by 1")
    if not hasattr(top, "__index__"):
        raise TypeError(f"top: {top!r} must be a whole number")
    if top < 0:
        raise ValueError(f"top: {top} must not be negative; 0 computes no largest weights")


def _results(kind: Any, q: tuple, k: tuple, want: Sequence[str], heatmap: Any, top: int) -> dict[str, Any]:
    """Memory for what is asked for."""
    shapes = {**{name: q[:3] for name in _ROWS}, "received": (q[0], q[1], k[2]), **{n: (q[0], q[1], q[1]) for n in _PAIRS}}
    check_names(want)
    _check_sizes(heatmap, top)
    unknown = [name for name in want if name not in shapes]
    if unknown:
        raise ValueError(f"want: there is no {unknown[0]!r}; there are {', '.join(shapes)}")
    found = {name: kind.floats(shapes[name]) for name in want}
    if heatmap is not None:
        rows, columns = heatmap
        found["heatmap"] = kind.floats((q[0], q[1], rows, columns))
    if top:
        found["top_weights"] = kind.floats(q[:3] + (top,))
        found["top_keys"] = kind.ints(q[:3] + (top,))
    return found


def stats(
    q: Array,
    k: Array,
    *,
    want: Sequence[str] = ("entropy", "effective", "largest", "distance", "received"),
    heatmap: tuple[int, int] | None = None,
    top: int = 0,
    causal: bool = False,
    mask: Array | None = None,
    bias: Array | None = None,
    window: Window = None,
    key_lengths: Array | Sequence[int] | None = None,
    key_padding_mask: Array | None = None,
    alibi: Array | None = None,
    sinks: Array | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    align: str = "top-left",
) -> Stats:
    """Statistics of the weights of ``attention(q, k, ...)``, computed tile by tile: memory grows with Tq + Tk alone.

    Args:
        q: (B,H,Tq,D).
        k: (B,G,Tk,D).
        want: of "entropy", "effective", "largest", "distance", "received", "divergence", "cosine", those to compute. The
            last two compare all pairs of heads and take longer.
        heatmap: (R,C): also the map of weights, summed over so many rows and columns of cells.
        top: N: also the N largest weights of each row, and their keys.

    The other arguments are as in :func:`attention`.

    Returns:
        :class:`Stats`.

    >>> import numpy as np, mha
    >>> q = np.zeros((1, 1, 4, 8), np.float32)
    >>> s = mha.stats(q, q, causal=True, top=2)
    >>> s.effective[0, 0].round(3).tolist()
    [1.0, 2.0, 3.0, 4.0]
    >>> s.top_keys[0, 0, 0].tolist()
    [0, -1]
    """
    kind = kind_of(q, "q", k=k, bias=bias, alibi=alibi, sinks=sinks)
    shape_q, shape_k = sizes(q, "q", "B,H,Tq,D"), sizes(k, "k", "B,G,Tk,D")
    found = _results(kind, shape_q, shape_k, want, heatmap, top)
    given = options_of(dict(found), *shape_q[:2], shape_k[2], window=window, mask=mask, bias=bias, key_padding_mask=key_padding_mask,
                       align=align)  # fmt: skip
    _mha.stats(
        q=q, k=k, causal=causal, key_lengths=whole_numbers(key_lengths), alibi=alibi, sinks=sinks, softcap=softcap,
        scale=scale, threads=_threads._threads, more=given,
    )  # fmt: skip
    return Stats(**{name: kind.give(array) for name, array in found.items()})
