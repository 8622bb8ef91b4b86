"""The functions of attention."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Sequence, TypeAlias, TypedDict, TypeVar, Unpack, overload

import numpy as np

from mha import _mha
from mha._arrays import kind_of, sizes, whole_numbers
from mha import _threads

Array: TypeAlias = Any  # of NumPy, PyTorch, CuPy, JAX, or anything with __dlpack__
Window: TypeAlias = int | tuple[int | None, int | None] | None
_Kind = TypeVar("_Kind")  # of the caller's arrays
_Number = TypeVar("_Number", bound=np.generic)
_empty = np.empty
_ALIGN = {"top-left": 0, "bottom-right": 1}


def _window_sides(window: Any) -> tuple[int, int]:
    """The keys before and after a query; -1 for all of them."""
    sides = (window, window) if not isinstance(window, (tuple, list)) else window
    if len(sides) != 2:
        raise ValueError(f"window: {window!r} must be a number or (left, right)")
    for side in sides:
        if side is not None and not hasattr(side, "__index__"):
            raise TypeError(f"window: {window!r} must be a whole number or two of them")
        if side is not None and side < 0:
            raise ValueError(f"window: {window!r} must not be negative; None is unlimited")
    left, right = (-1 if side is None else side for side in sides)
    return left, right


def _mask_axes(mask: Array) -> Array:
    """(B,Tq,Tk) as (B,1,Tq,Tk); the library would take the first of three axes for heads."""
    return mask[:, None] if len(getattr(mask, "shape", ())) == 3 else mask


def _bias_axes(bias: Array, batch: int, heads: int) -> Array:
    """(H,Tq,Tk) and (B,Tq,Tk) with four axes."""
    if len(getattr(bias, "shape", ())) != 3:
        return bias
    first = bias.shape[0]
    if first == batch == heads and first != 1:
        raise ValueError(f"bias: has 3 axes, and B and H are both {first}; must be (1,H,Tq,Tk) or (B,1,Tq,Tk)")
    if first not in (1, batch, heads):
        raise ValueError(f"bias: has 3 axes, the first of which is {first}; must be H = {heads} or B = {batch}")
    return bias[:, None] if first == batch else bias[None]


def _with_padding(mask: Array, padding: Array, batch: int, keys: int) -> Array:
    """The mask without keys that are padding: (B,Tk), True for padding, as PyTorch has it."""
    if tuple(getattr(padding, "shape", ())) != (batch, keys):
        raise ValueError(f"key_padding_mask: must have shape (B,Tk) = {(batch, keys)}")
    if "bool" not in str(padding.dtype):
        raise TypeError(f"key_padding_mask: is {padding.dtype}, must be bool")
    visible = ~padding[:, None, None, :]
    return visible if mask is None else mask & visible


def check_names(want: Sequence[str]) -> None:
    """A str is a sequence, too: of its letters."""
    if isinstance(want, str) or not all(isinstance(name, str) for name in want):
        raise TypeError(f"want: {want!r} must be a list of names, such as ['entropy']")


def options_of(
    given: dict[str, Any], batch: int, heads: int, keys: int, *, window: Any, mask: Array, bias: Array, key_padding_mask: Array,
    align: str,
) -> dict[str, Any]:  # fmt: skip
    """Adds to the arguments of a call those that are not the extension's own words."""
    if mask is not None:
        given["mask"] = mask = _mask_axes(mask)
    if key_padding_mask is not None:
        given["mask"] = _with_padding(mask, key_padding_mask, batch, keys)
    if bias is not None:
        given["bias"] = _bias_axes(bias, batch, heads)
    if window is not None:
        given["window_left"], given["window_right"] = _window_sides(window)
    if align != "top-left":
        if align not in _ALIGN:
            raise ValueError(f"align: {align!r} must be 'top-left' or 'bottom-right'")
        given["align"] = _ALIGN[align]
    return given


def _shape_error(q: Array, k: Array, v: Array) -> Exception:
    """What is wrong with shapes that do not have four axes."""
    try:
        sizes(q, "q", "B,H,Tq,D"), sizes(k, "k", "B,G,Tk,D"), sizes(v, "v", "B,G,Tk,E")
    except (TypeError, ValueError) as error:
        return error
    raise AssertionError("shapes are right")


class Options(TypedDict, total=False):
    """For type checkers: what all calls of attention take by name."""

    causal: bool
    mask: Array | None
    bias: Array | None
    window: Window
    key_lengths: Array | Sequence[int] | None
    key_padding_mask: Array | None
    alibi: Array | None
    sinks: Array | None
    softcap: float | None
    scale: float | None
    dropout: float
    seed: int
    align: str
    out: Array | None


# Results are arrays of the caller's kind. Those of NumPy also say what their numbers are.
_NumPy: TypeAlias = np.ndarray[Any, np.dtype[_Number]]


@overload
def attention(
    q: _NumPy[_Number], k: Array, v: Array, *, return_lse: Literal[False] = ..., return_weights: Literal[False] = ..., **options: Unpack[Options]
) -> _NumPy[_Number]: ...  # fmt: skip
@overload
def attention(
    q: _NumPy[_Number], k: Array, v: Array, *, return_lse: Literal[True], return_weights: Literal[False] = ..., **options: Unpack[Options]
) -> tuple[_NumPy[_Number], _NumPy[np.float32]]: ...  # fmt: skip
@overload
def attention(
    q: _NumPy[_Number], k: Array, v: Array, *, return_lse: Literal[False] = ..., return_weights: Literal[True], **options: Unpack[Options]
) -> tuple[_NumPy[_Number], _NumPy[_Number]]: ...  # fmt: skip
@overload
def attention(
    q: _NumPy[_Number], k: Array, v: Array, *, return_lse: Literal[True], return_weights: Literal[True], **options: Unpack[Options]
) -> tuple[_NumPy[_Number], _NumPy[np.float32], _NumPy[_Number]]: ...  # fmt: skip
@overload
def attention(
    q: _Kind, k: Array, v: Array, *, return_lse: Literal[False] = ..., return_weights: Literal[False] = ..., **options: Unpack[Options]
) -> _Kind: ...  # fmt: skip
@overload
def attention(
    q: _Kind, k: Array, v: Array, *, return_lse: Literal[True], return_weights: bool = ..., **options: Unpack[Options]
) -> tuple[_Kind, ...]: ...  # fmt: skip
@overload
def attention(
    q: _Kind, k: Array, v: Array, *, return_lse: bool = ..., return_weights: Literal[True], **options: Unpack[Options]
) -> tuple[_Kind, ...]: ...  # fmt: skip
@overload
def attention(
    q: _Kind, k: Array, v: Array, *, return_lse: bool = ..., return_weights: bool = ..., **options: Unpack[Options]
) -> _Kind | tuple[_Kind, ...]: ...  # fmt: skip
def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
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
    dropout: float = 0,
    seed: int = 0,
    align: str = "top-left",
    out: Array | None = None,
    return_lse: bool = False,
    return_weights: bool = False,
) -> Any:
    """``softmax(scale * q k^T + bias) v`` for every head, without storing the (Tq, Tk) matrix.

    Args:
        q: (B,H,Tq,D). float32, bfloat16 or float16, as k and v; any strides.
        k: (B,G,Tk,D). H is a multiple of G.
        v: (B,G,Tk,E).
        causal: query i sees the keys up to its own position.
        mask: bool, True where a key is visible: (Tq,Tk), (B,Tq,Tk) or (B,H,Tq,Tk), with sizes of 1 to repeat.
        bias: floats that are added to the scores: (Tq,Tk), (H,Tq,Tk), (B,Tq,Tk) or (B,H,Tq,Tk), with sizes of 1 to repeat.
            Three axes are refused where B and H are the same.
        window: how far a query sees: (left, right), None for no limit, or one number for both sides.
        key_lengths: (B) whole numbers: so many keys of each sequence count, the rest is padding.
        key_padding_mask: bool (B,Tk), True where a key is padding.
        alibi: float32 (H) or (B,H): slopes; the slope times the distance is subtracted from a score.
        sinks: float32 (H): one more logit in the softmax of every row, without a value.
        softcap: scores become ``softcap * tanh(score / softcap)``.
        scale: 1/sqrt(D) unless given.
        dropout: the probability with which a weight is dropped; ``seed`` decides which ones.
        align: where the first query stands if Tq and Tk differ: at the first key ("top-left"), or so that the last query
            stands at the last key ("bottom-right").
        out: where the result goes, (B,H,Tq,E), in place of a new array.
        return_lse: also return the logarithm of the softmax's denominator, float32 (B,H,Tq).
        return_weights: also return the weights, (B,H,Tq,Tk), in the type of q.

    Returns:
        (B,H,Tq,E) in the type of q, or a tuple with what else was asked for, in the order above. A row that sees no key
        has zeros, and an lse of -inf, with sinks as well.

    >>> import numpy as np, mha
    >>> q = np.zeros((1, 1, 2, 4), np.float32)
    >>> v = np.array([[[[1.0], [3.0]]]], np.float32)
    >>> mha.attention(q, q, v).ravel().tolist()
    [2.0, 2.0]
    >>> out, weights = mha.attention(q, q, v, causal=True, return_weights=True)
    >>> weights[0, 0].tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    if (
        type(q) is np.ndarray
        and mask is bias is window is key_lengths is key_padding_mask is alibi is sinks is softcap is out is None
        and not (dropout or seed or return_lse or return_weights or align != "top-left")
    ):  # with less overhead
        return _mha.forward(q=q, k=k, v=v, causal=causal, scale=scale, threads=_threads._threads, empty=_empty, dtype=q.dtype)
    kind = kind_of(q, "q", k=k, v=v, bias=bias, alibi=alibi, sinks=sinks)
    try:
        b, h, tq, _ = q.shape
        _, _, tk, e = v.shape
    except (AttributeError, ValueError):
        raise _shape_error(q, k, v) from None
    if out is None:
        out = kind.empty((b, h, tq, e), q.dtype)
    given: dict[str, Any] = {}
    if mask is not None or bias is not None or window is not None or key_padding_mask is not None or align != "top-left":
        options_of(given, b, h, tk, window=window, mask=mask, bias=bias, key_padding_mask=key_padding_mask, align=align)
    if return_lse:
        given["lse"] = kind.floats((b, h, tq))
    if return_weights:
        given["weights"] = kind.empty((b, h, tq, tk), q.dtype)
    _mha.forward(
        q=q, k=k, v=v, out=out, causal=causal, key_lengths=whole_numbers(key_lengths), alibi=alibi, sinks=sinks,
        softcap=softcap, scale=scale, dropout=dropout, seed=seed, threads=_threads._threads, more=given,
    )  # fmt: skip
    if not return_lse and not return_weights:
        return kind.give(out)
    return tuple(kind.give(result) for result in (out, given.get("lse"), given.get("weights")) if result is not None)


def check_rows(starts: Any, name: str, rows: int, of: str) -> None:
    """Every row belongs to a sequence. What lies on a GPU is not read, and what is no vector is the library's to refuse."""
    if isinstance(starts, (list, tuple)) or (isinstance(starts, np.ndarray) and starts.ndim == 1):
        ends = starts
    elif getattr(getattr(starts, "device", None), "type", "") == "cpu" and len(getattr(starts, "shape", ())) == 1:
        ends = starts.tolist()
    else:
        return
    if len(ends) and (ends[0] != 0 or ends[-1] != rows):
        raise ValueError(f"{name}: goes from {ends[0]} to {ends[-1]}, must go from 0 to {rows}, the rows of {of}")


def attention_varlen(
    q: Array,
    k: Array,
    v: Array,
    query_starts: Array | Sequence[int],
    key_starts: Array | Sequence[int] | None = None,
    *,
    causal: bool = False,
    window: Window = None,
    alibi: Array | None = None,
    sinks: Array | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    dropout: float = 0,
    seed: int = 0,
    align: str = "top-left",
    return_lse: bool = False,
) -> Any:
    """Attention of sequences of unlike length, packed one behind another without padding.

    Args:
        q: (sum of Tq,H,D): sequence b has the rows query_starts[b] to query_starts[b+1] - 1.
        k: (sum of Tk,G,D), likewise with key_starts.
        v: (sum of Tk,G,E).
        query_starts: (B+1) whole numbers, int32 or int64, from 0 to the rows of q.
        key_starts: (B+1); query_starts unless given.

    The rest is as in :func:`attention`.

    Returns:
        (sum of Tq,H,E), or with return_lse a tuple of that and float32 (H,sum of Tq). A sequence has the bits that
        :func:`attention` gives it alone.

    >>> import numpy as np, mha
    >>> x = np.zeros((5, 1, 4), np.float32)
    >>> v = np.arange(5, dtype=np.float32).reshape(5, 1, 1)
    >>> mha.attention_varlen(x, x, v, [0, 2, 5]).ravel().tolist()
    [0.5, 0.5, 3.0, 3.0, 3.0]
    """
    kind = kind_of(q, "q", k=k, v=v, alibi=alibi, sinks=sinks)
    shape_q, shape_k, shape_v = sizes(q, "q", "T,H,D"), sizes(k, "k", "T,G,D"), sizes(v, "v", "T,G,E")
    if query_starts is None:
        raise TypeError("query_starts: must be an array, not None")
    # With zeros, where no sequence has rows.
    out, lse = kind.empty(shape_q[:2] + shape_v[2:], q.dtype), None
    out[...] = 0
    given = options_of({}, 0, 0, 0, window=window, mask=None, bias=None, key_padding_mask=None, align=align)
    if return_lse:
        lse = given["lse"] = kind.floats((1, shape_q[1], shape_q[0]))
        lse[...] = -np.inf
    starts = whole_numbers(query_starts)
    check_rows(query_starts, "query_starts", shape_q[0], "q")
    if key_starts is not None or shape_k[0] != shape_q[0]:
        check_rows(query_starts if key_starts is None else key_starts, "key_starts", shape_k[0], "k")
    _mha.forward(
        q=q, k=k, v=v, out=out, packed=True, query_starts=starts,
        key_starts=starts if key_starts is None else whole_numbers(key_starts), causal=causal, alibi=alibi, sinks=sinks,
        softcap=softcap, scale=scale, dropout=dropout, seed=seed, threads=_threads._threads, more=given,
    )  # fmt: skip
    return kind.give(out) if lse is None else (kind.give(out), kind.give(lse[0]))


class Gradients(NamedTuple):
    """Gradients of a loss; None for what was not asked for."""

    q: Array | None
    k: Array | None
    v: Array | None
    bias: Array | None = None
    alibi: Array | None = None
    sinks: Array | None = None


def attention_backward(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    *,
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
    dropout: float = 0,
    seed: int = 0,
    align: str = "top-left",
    want: Sequence[str] | None = None,
) -> Gradients:
    """The gradients of :func:`attention`, without storing the (Tq, Tk) matrix.

    Args:
        dout: (B,H,Tq,E): the gradient of the loss with respect to the result.
        q, k, v: what the forward call read.
        out: what it returned.
        want: of "q", "k", "v", "bias", "alibi", "sinks", those to compute; unless given, all of them whose array is given.

    The other arguments are those of the forward call, dropout and seed included.

    Returns:
        :class:`Gradients`: of q, k and v in their types; of bias, alibi and sinks in float32 and in their shapes.

    >>> import numpy as np, mha
    >>> q = np.zeros((1, 1, 2, 4), np.float32)
    >>> v = np.array([[[[1.0], [3.0]]]], np.float32)
    >>> bias = np.zeros((2, 2), np.float32)
    >>> out = mha.attention(q, q, v, bias=bias)
    >>> g = mha.attention_backward(np.ones_like(out), q, q, v, out, bias=bias)
    >>> g.v.ravel().tolist(), g.bias.tolist()
    ([1.0, 1.0], [[-0.5, 0.5], [-0.5, 0.5]])
    """
    kind = kind_of(q, "q", k=k, v=v, bias=bias, alibi=alibi, sinks=sinks)
    shape_q, shape_k = sizes(q, "q", "B,H,Tq,D"), sizes(k, "k", "B,G,Tk,D")
    sizes(v, "v", "B,G,Tk,E")
    if want is not None:
        check_names(want)
    arrays = {"q": q, "k": k, "v": v, "bias": bias, "alibi": alibi, "sinks": sinks}
    chosen = [name for name, array in arrays.items() if array is not None] if want is None else list(want)
    for name in chosen:
        if name not in arrays or arrays[name] is None:
            raise ValueError(f"want: there is no {name!r} to compute the gradient of")
    found = {
        name: kind.empty(arrays[name].shape, arrays[name].dtype) if name in "qkv" else kind.floats(tuple(arrays[name].shape))
        for name in chosen
    }
    given = options_of({}, *shape_q[:2], shape_k[2], window=window, mask=mask, bias=bias, key_padding_mask=key_padding_mask,
                       align=align)  # fmt: skip
    given.update(("d" + name, array) for name, array in found.items())
    if "bias" in found:
        given["dbias"] = _bias_axes(found["bias"], *shape_q[:2])
    _mha.backward(
        q=q, k=k, v=v, out=out, dout=dout, causal=causal, key_lengths=whole_numbers(key_lengths), alibi=alibi, sinks=sinks,
        softcap=softcap, scale=scale, dropout=dropout, seed=seed, threads=_threads._threads, more=given,
    )  # fmt: skip
    return Gradients(*(kind.give(found[name]) if name in found else None for name in Gradients._fields))
