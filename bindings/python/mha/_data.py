"""Labelled images, and Vision Transformers that are trained on them."""

from __future__ import annotations

import os
from typing import Any, Callable, NamedTuple

import numpy as np

from mha import _mha, _threads

_PARTS = {"train": False, "test": True}


def is_test(part: str) -> bool:
    if part not in _PARTS:
        raise ValueError(f"part: {part!r} must be 'train' or 'test'")
    return _PARTS[part]


class Score(NamedTuple):
    """How good predictions are."""

    count: int  # type: ignore[assignment]  # a tuple has a method of that name, which nobody calls here
    correct: int
    loss: float  #: mean cross-entropy, in nats

    @property
    def accuracy(self) -> float:
        """The share of predictions that are correct."""
        return self.correct / self.count if self.count else 0.0


class Data:
    """Labelled images: a folder with the four files of MNIST, or of a set in the same format; or ``"synthetic"``, digits that
    are drawn by a program, 6000 for training and 1000 for testing (``"synthetic:N"``: N and N/6).

    >>> import mha
    >>> data = mha.Data("synthetic:60")
    >>> images, labels = data.examples("test")
    >>> images.shape, labels.shape
    ((10, 28, 28), (10,))
    """

    def __init__(self, place: str | os.PathLike[str]):
        self._handle = _mha.data_open(os.fspath(place))
        #: name, about, synthetic, train, test, rows, columns, classes
        self.info: dict[str, Any] = _mha.data_about(self._handle)

    def __repr__(self) -> str:
        return f"<mha.Data {self.info['about']}>"

    def examples(self, part: str = "test") -> tuple[np.ndarray, np.ndarray]:
        """Images (N,rows,columns) as bytes, 255 for ink, and their labels (N), of the part "train" or "test"."""
        images, labels = _mha.data_examples(self._handle, is_test(part))
        return (
            np.frombuffer(images, np.uint8).reshape(-1, self.info["rows"], self.info["columns"]),
            np.frombuffer(labels, np.uint8),
        )


def data_of(data: Any) -> Data:
    return data if isinstance(data, Data) else Data(data)


class Step(NamedTuple):
    """A step of a training, for its ``watch``."""

    epoch: int
    step: int
    loss: float
    norm: float  #: of the gradient, before clipping
    rate: float  #: learning rate
    examples: int
    correct: int


class Trained(NamedTuple):
    """What came out of a training."""

    model: Any  #: a Model with the averaged weights; its ``save`` writes a file
    test: Score
    held_out: Score


def train(
    data: Data | str | os.PathLike[str] = "synthetic",
    *,
    preset: str | None = None,
    watch: Callable[[Step], Any] | None = None,
    **settings: Any,
) -> Trained:
    """Trains a Vision Transformer, as ``mha train vit`` does, with the same bits for any number of threads.

    Args:
        data: :class:`Data`, or where they are.
        preset: a recipe by name, such as "demo"; see ``mha train vit --help``.
        watch: called after each step; if it returns False, training ends early.
        settings: keys of the recipe, such as epochs, width, depth, lr or seed.

    >>> import mha
    >>> trained = mha.train("synthetic:120", epochs=1, width=16, depth=1, heads=2, batch=20)
    >>> trained.model.info["blocks"], trained.test.count
    (1, 20)
    """
    from mha._model import Model

    given = data_of(data)
    texts = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in settings.items()}
    handle = _mha.training_create(given._handle, preset, texts, _threads.get_num_threads())
    while (report := _mha.training_step(handle)) is not None:
        if watch is not None and watch(Step(**report)) is False:
            break
    held_out, test = (Score(*_mha.training_evaluate(handle, part)) for part in (0, 1))
    return Trained(Model._made(_mha.training_model(handle)), test, held_out)
