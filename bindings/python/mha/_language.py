"""What language models make of texts: missing words, the loss, what the decoder of a pair reads."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from mha import _generate
from mha._generate import Generated
from mha._inputs import lengths_of, padded, token_rows

_WINDOW = 1024  # a window has so many rows of logits


class Filled(NamedTuple):
    """A token for a mask."""

    id: int
    piece: str | None  #: as the vocabulary spells it
    probability: float


class TextScore(NamedTuple):
    """How well a model predicts a text."""

    tokens: int  #: of the text
    scored: int  #: those that were predicted: all but the first
    loss: float  #: mean cross-entropy, in nats
    perplexity: float  #: exp(loss)
    bits_per_byte: float | None  #: None if the text was given as ids


def softmax(logits: np.ndarray) -> np.ndarray:
    """Of each row, in float64."""
    exact = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    return exact / exact.sum(-1, keepdims=True)


def best_of(probabilities: np.ndarray, top: int) -> np.ndarray:
    """The indices of the largest; of equals, the first."""
    return np.argsort(-probabilities, kind="stable")[:top]


def fill(model: Any, text: str, top: int) -> list[list[Filled]]:
    info, tokenizer = model.info, model.tokenizer
    predicts = info["head"] and not info["pooled"] and info["classes"] == info["vocabulary"] and info["vocabulary"]
    if not predicts or info["causal"] or info["encoder_blocks"] or info["decoder_only"]:
        raise ValueError("model: is no masked language model, such as BERT")
    mask = tokenizer.info["mask"]
    for name in ("[MASK]", "<mask>"):
        if mask < 0 and tokenizer.id(name) is not None:
            mask = tokenizer.id(name)
    if mask < 0:
        raise ValueError("model: its tokenizer has no mask token")
    ids = np.asarray(tokenizer.encode(text), np.int32)
    if mask not in ids:
        raise ValueError(f"text: has no {tokenizer.piece(mask)}; write it where a word is missing")
    found = []
    for row in model.logits(ids)[ids == mask]:
        p = softmax(row)
        found.append([Filled(int(id), tokenizer.piece(int(id)), float(p[id])) for id in best_of(p, top)])
    return found


def _losses(logits: np.ndarray, targets: np.ndarray) -> float:
    """The sum of -ln(probability), a few rows at a time: vocabularies are large."""
    total = 0.0
    for at in range(0, len(targets), 64):
        rows = logits[at : at + 64].astype(np.float64)
        top = rows.max(-1)
        sums = np.log(np.exp(rows - top[:, None]).sum(-1)) + top
        total += float((sums - rows[np.arange(len(rows)), targets[at : at + 64]]).sum())
    return total


def score(model: Any, text: Any, window: int, stride: int) -> TextScore:
    info = model.info
    predicts = info["head"] and not info["pooled"] and info["classes"] >= info["vocabulary"]
    if not (info["decoder_only"] and info["causal"] and predicts):
        raise ValueError("model: must be a decoder that predicts the next token, such as GPT-2 or Llama")
    rows, single = token_rows(text, lambda: model.tokenizer, "text")
    if not single:
        raise ValueError("text: must be one text, not a batch")
    ids = rows[0]
    if len(ids) < 2:
        raise ValueError("text: has too little text; there must be a token after the first one")
    most = info["positions"] or (info["context"] if info["context"] > 1 else _WINDOW)
    window = window or min(most, _WINDOW)
    stride = stride or max(window // 2, 1)
    if window < 2 or (info["positions"] and window > info["positions"]) or not 0 < stride < window:
        raise ValueError(f"window: {window} with steps of {stride} does not fit a model of {info['positions']} positions")
    total, start, done = 0.0, 0, 1
    while done < len(ids):
        end = min(start + window, len(ids))
        logits = model.logits(ids[start:end])
        total += _losses(logits[done - 1 - start : end - 1 - start], ids[done:end])
        start, done = start + stride, end
    scored = len(ids) - 1
    bits = None
    if isinstance(text, str):
        bits = total / (math.log(2) * max(len(text.encode()) - model.tokenizer._first_bytes(text), 1))
    loss = total / scored
    return TextScore(len(ids), scored, loss, math.exp(min(loss, 700.0)), bits)


def read_tokens(one: Generated) -> np.ndarray:
    """The tokens of a sequence without one at the end that the model has not read, for which it may have no position."""
    return np.asarray(one.tokens[:-1] if one.finish == "length" else one.tokens, np.int32)


def targets_of(model: Any, rows: list[np.ndarray], target: Any, new_tokens: int) -> list[np.ndarray]:
    """What the decoder reads for these sources: the target, behind the tokens that a decoder starts with, or what it generates."""
    if target is None:
        found = _generate.run(model, rows, None, method="greedy", max_new_tokens=new_tokens)
        return [read_tokens(one) for one in found]
    given, _ = token_rows(target, lambda: model.target_tokenizer, "target")
    if len(given) != len(rows):
        raise ValueError(f"target: has {len(given)} texts, must have {len(rows)}")
    if not isinstance(target if isinstance(target, str) else target[0], str):
        return given
    start = _generate.run(model, rows[:1], None, method="greedy", max_new_tokens=1)[0]
    return [np.concatenate([np.asarray(start.tokens[: start.prompt], np.int32), one]) for one in given]


def sides_of(tokenizer: Any) -> tuple[np.ndarray, np.ndarray]:
    """The tokens that the tokenizer adds before and after a text."""
    whole, own = tokenizer.encode("a"), tokenizer.encode("a", special=False)
    for at in range(len(whole) - len(own) + 1):
        if whole[at : at + len(own)] == own:
            return np.asarray(whole[:at], np.int32), np.asarray(whole[at + len(own) :], np.int32)
    return np.empty(0, np.int32), np.empty(0, np.int32)


def inputs_of(rows: list[np.ndarray], decoder: list[np.ndarray] | None) -> tuple[dict, np.ndarray]:
    """Arguments of a run, with padding, and the lengths of what the results belong to."""
    lengths = lengths_of(rows)
    named = {"tokens": padded(rows), "lengths": lengths}
    if decoder is None:
        return named, lengths
    if len(decoder) != len(rows):
        raise ValueError(f"decoder: has {len(decoder)} texts, must have {len(rows)}")
    last = lengths_of(decoder, "decoder")
    return named | {"decoder_tokens": padded(decoder)}, last
