"""What heads attend to: weights of one text, and numbers over many."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple, Sequence

import numpy as np

from mha import _html, _mha

_CELLS = 48  # tokens at the sides of a map, at most; larger ones are a picture
_SHOWN = 400  # heads of a table or a grid, at most


class HeadMap:
    """The weights of one head, which show themselves in a notebook.

    Args:
        weights: (Tq,Tk): a row holds the weights of one query.
        queries: what stands at each row; numbers unless given.
        keys: what stands at each column; ``queries`` unless given.
        title: a line above the map.

    >>> import numpy as np, mha
    >>> map = mha.HeadMap(np.eye(2), ["a", "<b>"])
    >>> "&lt;b&gt;" in map._repr_html_()
    True
    """

    def __init__(
        self, weights: Any, queries: Sequence[str] | None = None, keys: Sequence[str] | None = None, title: str = ""
    ):
        self.weights: np.ndarray[Any, np.dtype[np.float32]] = np.asarray(weights, np.float32)
        if self.weights.ndim != 2:
            raise ValueError(f"weights: have shape {self.weights.shape}, must be (Tq,Tk)")
        rows, columns = self.weights.shape
        self.queries: list[str] = list(queries) if queries is not None else [str(n) for n in range(rows)]
        self.keys: list[str] = list(keys) if keys is not None else self.queries if rows == columns else [str(n) for n in range(columns)]
        self.title = title
        for name, words, size in (("queries", self.queries, rows), ("keys", self.keys, columns)):
            if len(words) != size:
                raise ValueError(f"{name}: has {len(words)} words, must have {size}")

    def __repr__(self) -> str:
        return f"<mha.HeadMap {self.weights.shape[0]} x {self.weights.shape[1]}{': ' + self.title if self.title else ''}>"

    def _repr_html_(self) -> str:
        title = f"<div>{escape(self.title)}</div>" if self.title else ""
        if max(self.weights.shape) <= _CELLS:
            return title + _html.cells(self.weights, self.queries, self.keys)
        return title + _html.image(self.weights, 480, self.title)


@dataclass(frozen=True, repr=False)
class Attention:
    """The weights of all heads for one text or image. ``attention[n, h]`` is head h of attention n as a :class:`HeadMap`."""

    tokens: list[str]  #: what stands at each position that the first stack reads
    maps: list[np.ndarray]  #: one (H,Tq,Tk) for each attention, in the order of Model.attentions
    target: list[str] | None  #: what stands at each position of the decoder, for a model with two stacks
    attentions: list[dict[str, Any]]  #: Model.attentions

    def _of(self, decoder: bool, cross: bool) -> list[np.ndarray]:
        pair = self.target is not None
        return [
            map for map, a in zip(self.maps, self.attentions)
            if not pair or (a["decoder"] == decoder and a["cross"] == cross)
        ]  # fmt: skip

    @property
    def encoder(self) -> list[np.ndarray]:
        """The maps of the encoder; of a model with one stack, all."""
        return self._of(False, False)

    @property
    def decoder(self) -> list[np.ndarray]:
        """The maps of the decoder over its own tokens; of a model with one stack, all."""
        return self._of(True, False)

    @property
    def cross(self) -> list[np.ndarray]:
        """The maps (H,Tq,Tk) from the decoder's tokens to the encoder's; empty for a model with one stack."""
        return self._of(True, True) if self.target is not None else []

    def __getitem__(self, place: tuple[int, int]) -> HeadMap:
        n, head = place
        a = self.attentions[n]
        queries = self.target if self.target is not None and a["decoder"] else self.tokens
        keys = self.tokens if self.target is None or a["cross"] or not a["decoder"] else self.target
        return HeadMap(self.maps[n][head], queries, keys, _place(a, head))

    def __repr__(self) -> str:
        heads = sum(len(map) for map in self.maps)
        return f"<mha.Attention {heads} heads, {len(self.tokens)} tokens>"

    def _repr_html_(self) -> str:
        rows, shown = [], 0
        for a, map in zip(self.attentions, self.maps):
            if shown >= _SHOWN:
                break
            name = escape(_place(a, None))
            rows.append([name, *(_html.image(map[h], 72, _place(a, h)) for h in range(len(map)))])
            shown += len(map)
        most = max((len(row) - 1 for row in rows), default=0)
        heads = sum(len(map) for map in self.maps)
        note = f"the first {shown} of {heads} heads" if shown < heads else ""
        return _html.table("mha-maps", ["", *(f"head {h}" for h in range(most))], rows, note)


def _place(a: dict[str, Any], head: int | None) -> str:
    """Where a head is, counted from 0, as in files."""
    kind = "cross-attention, " if a.get("cross") else ""
    return f"{kind}block {a['block']}" + ("" if head is None else f", head {head}")


class Head(NamedTuple):
    """What a head attends to: means over the windows of a text. NaN where a number does not apply."""

    attention: int
    block: int
    head: int
    decoder: bool
    cross: bool
    words: str  #: the role in words, such as "the previous token"
    entropy: float
    uniform: float
    effective: float
    largest: float
    distance: float
    itself: float
    previous: float
    next: float
    first: float
    last: float
    duplicate: float
    induction: float
    chance: float
    position: float
    content: float
    monotone: float


class ImageHead(NamedTuple):
    """What a head of a Vision Transformer attends to: means over images and rows."""

    block: int
    head: int
    words: str  #: the role in words, such as "its neighbourhood"
    importance: float  #: to first order, the change of the loss of an image without the head
    entropy: float
    effective: float
    largest: float
    distance: float  #: in patches
    itself: float
    previous: float
    next: float
    first: float
    place: float
    position: float
    content: float
    nearest: int  #: the most similar head of the block; -1 for none
    divergence: float
    cosine: float
    alike: bool


class Heads(list[Any]):
    """All heads of a survey, a list of :class:`Head` or :class:`ImageHead`, which shows itself in a notebook as a table."""

    _COLUMNS = ("entropy", "effective", "largest", "distance", "itself", "previous", "first", "induction", "importance")

    def __init__(self, handle: Any, images: bool):
        self._handle, self._images = handle, images
        kind, found = (ImageHead, _mha.image_survey_heads) if images else (Head, _mha.survey_heads)
        super().__init__(kind(**head) for head in found(handle))

    def map(self, n: int) -> np.ndarray:
        """The mean map (Tq,Tk) of head n of the list over all windows or images; of windows of unlike length, that of the first."""
        if not 0 <= n < len(self):
            raise IndexError(f"n: {n} is not below {len(self)}")
        read, kind = (_mha.image_survey_map, np.float64) if self._images else (_mha.survey_map, np.float32)
        queries, keys, numbers = read(self._handle, n)
        return np.frombuffer(numbers, kind).reshape(queries, keys).astype(np.float32)

    def _repr_html_(self) -> str:
        columns = [name for name in self._COLUMNS if self and hasattr(self[0], name)]
        rows = []
        for n, head in enumerate(self[:_SHOWN]):
            place = _place(head._asdict(), head.head)
            numbers = (getattr(head, name) for name in columns)
            rows.append([escape(place), _html.image(self.map(n), 40, place), escape(head.words), *map(_number, numbers)])
        note = f"the first {_SHOWN} of {len(self)} heads" if len(self) > _SHOWN else ""
        return _html.table("mha-heads", ["head", "mean map", "attends to", *columns], rows, note, words=(0, 2))


def _number(x: float) -> str:
    return "–" if math.isnan(x) else f"{x:.3g}"
