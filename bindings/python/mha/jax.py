"""Attention in programs of JAX: under ``jax.jit``, ``jax.grad`` and ``jax.vmap``, on the CPU.

The functions of :mod:`mha` take arrays of JAX, too, but not inside of ``jax.jit``, where an array has no memory yet.

>>> import jax, mha.jax
>>> q = jax.numpy.ones((1, 2, 3, 4))
>>> loss = lambda x: mha.jax.attention(x, x, x, causal=True).sum()
>>> jax.jit(jax.grad(loss))(q).shape
(1, 2, 3, 4)
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

from mha import _mha, _threads
from mha._attention import Window, options_of

__all__ = ["attention"]

for _name, _handler in _mha.xla_handlers().items():
    jax.ffi.register_ffi_target(_name, _handler, platform="cpu")

_FLOATS = ("bias", "alibi", "sinks")  # beside q, k and v, the inputs that have gradients


class _Settings(NamedTuple):
    """What is the same in every run of a compiled program."""

    options: tuple  # (name, value)
    return_lse: bool


def attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    *,
    causal: bool = False,
    mask: jax.Array | None = None,
    bias: jax.Array | None = None,
    window: Window = None,
    key_lengths: jax.Array | None = None,
    key_padding_mask: jax.Array | None = None,
    alibi: jax.Array | None = None,
    sinks: jax.Array | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    dropout: float = 0,
    seed: int | jax.Array = 0,
    align: str = "top-left",
    return_lse: bool = False,
) -> Any:
    """:func:`mha.attention` for JAX: the same arguments, shapes and results, and bits that are those of :func:`mha.attention`.

    Gradients are those of q, k, v, bias, alibi and sinks, also through lse. Options that are not arrays are constants of the compiled
    program; ``seed`` may also be a key of ``jax.random``, so that every step of a training drops other weights. ``jax.vmap`` runs one
    call after another.

    Returns:
        (B,H,Tq,E) in the type of q, or with ``return_lse`` a tuple of that and float32 (B,H,Tq).

    >>> import jax, mha.jax
    >>> q, bias = jax.numpy.ones((1, 2, 3, 4)), jax.numpy.zeros((3, 3))
    >>> loss = lambda b: mha.jax.attention(q, q, q, bias=b).sum()
    >>> bool((abs(jax.grad(loss)(bias)) < 1e-6).all())
    True
    """
    given = {"q": q, "k": k, "v": v, "bias": bias, "alibi": alibi, "sinks": sinks, "key_lengths": key_lengths}
    arrays = {name: jnp.asarray(array) for name, array in given.items() if array is not None}
    for name in ("q", "k", "v"):
        if name not in arrays:
            raise TypeError(f"{name}: must be an array, not None")
        if arrays[name].ndim != 4:
            axes = "B,H,Tq,D" if name == "q" else "B,G,Tk,E" if name == "v" else "B,G,Tk,D"
            raise ValueError(f"{name}: has shape {arrays[name].shape}, must be ({axes})")
    (batch, heads, _, _), keys = arrays["q"].shape, arrays["k"].shape[2]
    more = options_of(
        {}, batch, heads, keys, window=window, mask=None if mask is None else jnp.asarray(mask), bias=arrays.get("bias"),
        key_padding_mask=None if key_padding_mask is None else jnp.asarray(key_padding_mask), align=align,
    )  # fmt: skip
    arrays.update((name, more.pop(name)) for name in ("mask", "bias") if name in more)
    options: dict[str, Any] = {"causal": np.bool_(causal)}
    options.update((name, np.int64(more[name])) for name in ("window_left", "window_right") if name in more)
    options.update((name, np.int32(more[name])) for name in ("align",) if name in more)
    options.update((n, np.float32(x)) for n, x in (("softcap", softcap), ("scale", scale)) if x is not None)
    if dropout:
        options["dropout"] = np.float32(dropout)
        arrays["seed"] = _halves(seed)
    settings = _Settings(tuple(sorted(options.items())), return_lse)
    _check(settings, arrays)
    return _attend(settings, arrays)


def _halves(seed: Any) -> jax.Array:
    """A seed of 64 bits as two uint32, the upper half first."""
    if hasattr(seed, "dtype") and jax.dtypes.issubdtype(seed.dtype, jax.dtypes.prng_key):
        seed = jax.random.key_data(seed)
    if getattr(seed, "dtype", None) == np.uint32 and seed.ndim == 1 and seed.size >= 2:
        return jnp.asarray(seed[-2:])
    if not hasattr(seed, "__index__"):
        raise TypeError(f"seed: must be a whole number or a key of jax.random, not {type(seed)}")
    number = int(seed)
    if not 0 <= number < 1 << 64:
        raise ValueError(f"seed: {number} is out of range")
    return jnp.asarray([number >> 32, number & 0xFFFFFFFF], jnp.uint32)


def _results(arrays: dict[str, Any], *names: str) -> dict[str, Any]:
    """Shapes and types of what forward computes."""
    (b, h, tq, _), e = arrays["q"].shape, arrays["v"].shape[3]
    shapes = {"out": (b, h, tq, e), "lse": (b, h, tq), "softmax": (b, h, tq, 2)}
    return {name: jax.ShapeDtypeStruct(shapes[name], arrays["q"].dtype if name == "out" else jnp.float32) for name in names}


def _check(settings: _Settings, arrays: dict[str, Any]) -> None:
    """Refuses what a run would refuse, with Python's exceptions, when the program is traced. One number stands for each array."""
    standing = {name: np.broadcast_to(np.zeros((), x.dtype), x.shape) for name, x in arrays.items() if name != "seed"}
    standing["out"] = np.empty(_results(arrays, "out")["out"].shape, arrays["q"].dtype)
    _mha.check(**standing, **{name: value.item() for name, value in settings.options}, threads=_threads._threads)


def _call(operation: str, settings: _Settings, reads: dict[str, Any], writes: dict[str, Any]) -> dict[str, Any]:
    call = jax.ffi.ffi_call("mha_attention_" + operation, tuple(writes.values()), vmap_method="sequential")
    found = call(*reads.values(), reads=" ".join(reads), writes=" ".join(writes), **dict(settings.options))
    return dict(zip(writes, found))


def _returned(settings: _Settings, found: dict[str, Any]) -> Any:
    return (found["out"], found["lse"]) if settings.return_lse else found["out"]


def _wanted(settings: _Settings) -> tuple:
    return ("out", "lse") if settings.return_lse else ("out",)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(settings: _Settings, arrays: dict[str, Any]) -> Any:
    return _returned(settings, _call("forward", settings, arrays, _results(arrays, *_wanted(settings))))


def _forward(settings: _Settings, arrays: dict[str, Any]) -> tuple:
    found = _call("forward", settings, arrays, _results(arrays, *_wanted(settings), "softmax"))
    return _returned(settings, found), (arrays, found["out"], found["softmax"])


def _backward(settings: _Settings, kept: tuple, gradient: Any) -> tuple:
    arrays, out, softmax = kept
    dout, dlse = gradient if settings.return_lse else (gradient, None)
    reads = {**arrays, "out": out, "softmax": softmax, "dout": dout}
    if dlse is not None:
        reads["dlse"] = dlse
    of = [name for name in ("q", "k", "v", *_FLOATS) if name in arrays]
    writes = {"d" + name: jax.ShapeDtypeStruct(arrays[name].shape, jnp.float32 if name in _FLOATS else arrays[name].dtype) for name in of}
    found = _call("backward", settings, reads, writes)
    return (
        {
            name: found["d" + name].astype(array.dtype) if name in of else np.zeros(array.shape, jax.dtypes.float0)
            for name, array in arrays.items()
        },
    )


_attend.defvjp(_forward, _backward)
