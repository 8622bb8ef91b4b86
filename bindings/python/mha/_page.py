"""The page of ``mha view``: one HTML file, which shows itself in a notebook."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from html import escape
from typing import Any, Sequence

import numpy as np

from mha import _command


class Page:
    """An interactive page of heads: one HTML file that needs no network."""

    def __init__(self, html: str, height: int = 760):
        self.html = html
        self.height = height  #: of the frame in a notebook, in pixels

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html)

    def __repr__(self) -> str:
        return f"<mha.Page {len(self.html.encode()) / 1e6:.1f} MB>"

    def _repr_html_(self) -> str:
        # The page is a document of its own; without same-origin rights its scripts cannot reach the notebook.
        return (
            f'<iframe srcdoc="{escape(self.html)}" sandbox="allow-scripts allow-downloads" '
            f'style="width:100%;height:{int(self.height)}px;border:1px solid #8888;border-radius:4px"></iframe>'
        )


def write(path: str | os.PathLike[str] | None, *arguments: str) -> Page:
    """Runs ``mha view`` and reads what it has written, at ``path`` or in a folder that is removed."""
    with tempfile.TemporaryDirectory() as folder:
        place = os.path.join(folder, "page.html") if path is None else os.fspath(path)
        _command.run("view", *arguments, "-o", place)
        with open(place, encoding="utf-8") as file:
            return Page(file.read())


def _safetensors(path: str, array: np.ndarray, notes: dict[str, str]) -> None:
    """A file with one tensor, "attention"."""
    dense = np.ascontiguousarray(array, "<f4")
    header = {
        "__metadata__": notes,
        "attention": {"dtype": "F32", "shape": list(dense.shape), "data_offsets": [0, dense.nbytes]},
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + dense.tobytes())


def view(
    weights: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    tokens: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    first: str = "layers",
) -> Page:
    """The page of attention weights of any model, such as those of ``attention(..., return_weights=True)``.

    Args:
        weights: (heads,Tq,Tk) or (layers,heads,Tq,Tk); rows sum to 1, or are 0.
        path: where to write the HTML file; unless given, it is only returned.
        tokens: what stands at each query, and at each key unless ``keys`` are given.
        first: the meaning of the first of four axes: "layers" or "batch".

    Returns:
        :class:`Page`, which a notebook shows.

    >>> import numpy as np, mha
    >>> q = np.random.default_rng(0).standard_normal((1, 2, 3, 8), dtype=np.float32)
    >>> _, weights = mha.attention(q, q, q, return_weights=True)
    >>> mha.view(weights[0], tokens=["a", "b", "c"]).html[:15]
    '<!doctype html>'
    """
    array = np.asarray(weights, np.float32)
    if array.ndim not in (3, 4):
        raise ValueError(f"weights: have shape {array.shape}, must be (heads,Tq,Tk) or (layers,heads,Tq,Tk)")
    if first not in ("layers", "batch"):
        raise ValueError(f"first: {first!r} must be 'layers' or 'batch'")
    notes = {"attention.axes": ("" if array.ndim == 3 else first + ",") + "heads,queries,keys"}
    if tokens is not None:
        notes["query_tokens"] = json.dumps([str(token) for token in tokens])
        notes["key_tokens"] = json.dumps([str(token) for token in (tokens if keys is None else keys)])
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "attention")
        _safetensors(file, array, notes)
        return write(path, "--attention", file)
