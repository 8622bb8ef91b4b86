"""Continuing texts."""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple, Sequence

import numpy as np

from mha import _mha
from mha._inputs import starts_of
from mha._tokenizer import Tokenizer, vector

_FINISH = (None, "end", "stop", "length", "cancelled")
_METHODS = {None: 0, "greedy": 1, "sample": 2, "beams": 3}


class Generated(NamedTuple):
    """A sequence that was generated."""

    text: str | None  #: of the new tokens; None for a model without a tokenizer
    tokens: list[int]  #: the prompt and the new ones
    prompt: int  #: how many of them are the prompt
    finish: str | None  #: why it has ended: "end", "stop" or "length"; None while it has not
    score: float  #: of a beam search


def steps(
    model: Any, rows: Sequence[np.ndarray], tokenizer: Tokenizer | None, *, method: str | None = None,
    stop: str | Sequence[str] = (), stop_tokens: Sequence[int] = (), decoder: Sequence[np.ndarray] | None = None,
    features: np.ndarray | None = None, **options: Any,
) -> Iterator[list[Generated]]:  # fmt: skip
    """All sequences after each step."""
    if method not in _METHODS:
        raise ValueError(f"method: {method!r} must be 'greedy', 'sample' or 'beams'")
    stop = (stop,) if isinstance(stop, str) else tuple(stop)
    if decoder is not None:
        options |= {"decoder_tokens": np.concatenate(decoder), "decoder_starts": starts_of(decoder)}
    with model._lock:
        handle = _mha.generation_create(
            model._handle, None if tokenizer is None else tokenizer._handle, stop, features=features,
            tokens=np.concatenate(rows) if features is None else None, starts=starts_of(rows), method=_METHODS[method],
            stop_tokens=vector(stop_tokens, "stop_tokens") if len(stop_tokens) else None, **options,
        )  # fmt: skip
    ended = False
    while not ended:
        with model._lock:
            ended = _mha.generation_step(handle)
        yield [_sequence(handle, n, tokenizer is not None) for n in range(len(rows))]


def run(*arguments: Any, **options: Any) -> list[Generated]:
    """All sequences in the end."""
    for found in steps(*arguments, **options):
        last = found
    return last


def _sequence(handle: Any, n: int, has_text: bool) -> Generated:
    tokens, prompt, finish, score, text = _mha.generation_get(handle, n)
    return Generated(text if has_text else None, tokens, prompt, _FINISH[finish], score)
