"""What models read: rows of token ids, with padding; images; sounds."""

from __future__ import annotations

import os
from typing import Any, Sequence

import numpy as np

from mha import _mha
from mha._tokenizer import Tokenizer, vector


def find_tokenizer(path: str) -> str:
    """Where the tokenizer of a model lies: in its folder, or beside its file as NAME.tokenizer.json."""
    if os.path.isdir(path):
        return path
    named = os.path.splitext(path)[0] + ".tokenizer.json"
    return named if os.path.exists(named) else os.path.dirname(path) or "."


def is_single(inputs: Any) -> bool:
    """Whether there is one text, or one sequence of ids, and not a batch."""
    return isinstance(inputs, str) or not len(inputs) or not isinstance(inputs[0], (str, list, tuple, np.ndarray))


def token_rows(inputs: Any, tokenizer: Any, name: str = "inputs") -> tuple[list[np.ndarray], bool]:
    """The ids of each text, and whether there is one that is not in a list. ``tokenizer`` is called if there is a str."""
    if not isinstance(inputs, (str, list, tuple, np.ndarray)):
        raise TypeError(f"{name}: must be a text, ids, or a list of either, not {type(inputs)}")
    single = is_single(inputs)
    rows = [inputs] if single else list(inputs)
    return [
        np.asarray(tokenizer().encode(row), np.int32) if isinstance(row, str) else vector(row, "tokens") for row in rows
    ], single


def starts_of(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Where each row begins, if one lies behind another, and where the last one ends."""
    return np.cumsum([0] + [len(row) for row in rows], dtype=np.int64)


def lengths_of(rows: Sequence[np.ndarray], name: str = "inputs") -> np.ndarray:
    lengths = np.array([len(row) for row in rows], np.int64)
    if not lengths.size or not lengths.min():
        raise ValueError(f"{name}: a text has no tokens")
    return lengths


def padded(rows: Sequence[np.ndarray]) -> np.ndarray:
    to = np.zeros((len(rows), max(len(row) for row in rows)), np.int32)
    for place, row in zip(to, rows):
        place[: len(row)] = row
    return to


def words_of(row: np.ndarray, tokenizer: Tokenizer | None) -> list[str]:
    """What each token stands for: its text with the space before it, or its piece; the id without a tokenizer."""
    if tokenizer is None:
        return [str(id) for id in row]
    return [_word(int(id), tokenizer) for id in row]


def _word(id: int, tokenizer: Tokenizer) -> str:
    # The text of the token twice has the token with its space behind that of the token once.
    if not tokenizer.is_special(id):
        once, twice = tokenizer.decode([id]), tokenizer.decode([id, id])
        if len(twice) > len(once) and "\ufffd" not in twice:
            return twice[len(once) :]
    return tokenizer.piece(id) or ""


def read_images(model: Any, images: Any) -> tuple[np.ndarray, bool]:
    """Images (B,channels,rows,columns) from 0 to 1, and whether there is one that is not in a batch."""
    if isinstance(images, (str, os.PathLike)):
        return read_picture(model, images)[None], True
    if isinstance(images, (list, tuple)) and images and all(isinstance(one, (str, os.PathLike)) for one in images):
        return np.stack([read_picture(model, one) for one in images]), False
    pixels = np.asarray(images)
    if pixels.dtype == np.uint8:
        pixels = pixels / np.float32(255)
    if pixels.dtype.kind != "f":
        raise TypeError(f"images: are {pixels.dtype}, must be bytes, or floats from 0 to 1")
    pixels = pixels.astype(np.float32, copy=False)
    size = tuple(model.info[name] for name in ("channels", "rows", "columns"))
    for shape, batch in ((size, False), (size[1:], False), ((-1, *size), True), ((-1, *size[1:]), True)):
        if pixels.ndim == len(shape) and pixels.shape[batch:] == shape[batch:] and (len(shape) - batch == 3 or size[0] == 1):
            return pixels.reshape(-1, *size), not batch
    raise ValueError(f"images: have shape {pixels.shape}, must be (channels,rows,columns) = {size}, or a batch of that")


def read_picture(model: Any, path: str | os.PathLike[str]) -> np.ndarray:
    """A picture from a PNG or PGM file as the model reads it: (channels,rows,columns)."""
    if not model._sees:
        raise ValueError("images: this model does not read images")
    pixels = np.empty(tuple(model.info[name] for name in ("channels", "rows", "columns")), np.float32)
    _mha.model_picture(model._handle, os.fspath(path), pixels)
    return pixels


def patch_names(info: dict[str, Any]) -> list[str]:
    """The tokens of an image."""
    patch = max(info["patch"], 1)
    grid = [f"row {r + 1}, column {c + 1}" for r in range(info["rows"] // patch) for c in range(info["columns"] // patch)]
    extra = info["tokens"] - len(grid)
    names = ["class"] if info["class_token"] else []
    return names + [f"token {n + 1}" for n in range(extra - len(names))] + grid


def read_samples(sound: Any) -> np.ndarray:
    """Samples at 16 kHz from a WAV file or an array."""
    if isinstance(sound, (str, os.PathLike)):
        return np.frombuffer(_mha.sound_read(os.fspath(sound)), np.float32)
    samples = np.asarray(sound)
    if samples.ndim != 1 or samples.dtype.kind != "f":
        raise TypeError("sound: must be the path of a WAV file, or a vector of floats at 16000 samples per second")
    return np.ascontiguousarray(samples, np.float32)
