"""Embeddings: one vector for each text or image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mha import _mha
from mha._inputs import read_images

if TYPE_CHECKING:
    from mha._model import Model


def embed(model: Model, texts: Any, pool: str | None, normalize: bool | None, prompt: str | None) -> np.ndarray:
    """As Model.embed says."""
    text = isinstance(texts, str) or (isinstance(texts, (list, tuple)) and texts and isinstance(texts[0], str))
    if prompt is not None and not text:
        raise ValueError("prompt: is for texts")
    if model._sees or model.info["encoder_blocks"]:
        if pool not in (None, "mean", "first"):
            raise ValueError(f"pool: {pool!r} must be 'mean' or 'first' for images and models with two stacks")
        inputs, single = read_images(model, texts) if model._sees else model._rows(texts)
        last = [model.hidden(one)[-1].astype(np.float64) for one in inputs]
        found = np.stack([row[0] if pool == "first" else row.mean(0) for row in last])
        normalize = normalize is not False
    else:
        about = model._path, pool, prompt, normalize is False
        if text:
            single, tokenizer = isinstance(texts, str), model.tokenizer
            with model._lock:
                numbers, width = _mha.embed_texts(model._handle, tokenizer._handle, *about, [texts] if single else list(texts))
            found = np.frombuffer(numbers, np.float32).reshape(-1, width)
        else:
            rows, single = model._rows(texts)
            vectors = [_mha.embed_rows(model._handle, None, *about, np.ascontiguousarray(model.hidden(row)[-1])) for row in rows]
            found = np.stack([np.frombuffer(v, np.float32) for v in vectors])
    if normalize:
        lengths = np.linalg.norm(found.astype(np.float64), axis=-1, keepdims=True)
        found = found / np.where(lengths > 0, lengths, 1)
    found = np.array(found, np.float32)
    return found[0] if single else found
