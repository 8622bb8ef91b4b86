"""Maps and tables as HTML, for notebooks. All text goes through html.escape."""

from __future__ import annotations

import base64
import itertools
import struct
import zlib
from html import escape
from typing import Iterable, Sequence

import numpy as np

# From white to dark blue, in steps that look even.
_STOPS = np.array([(255, 255, 255), (198, 219, 239), (107, 174, 214), (33, 113, 181), (8, 48, 107)], float)
_AT = np.linspace(0, 255, len(_STOPS))
_PALETTE = np.stack([np.interp(np.arange(256), _AT, _STOPS[:, n]) for n in range(3)], 1).round().astype(np.uint8)

_STYLE = (
    "<style>.mha-maps td,.mha-maps th,.mha-heads td,.mha-heads th{padding:2px 8px;text-align:right;white-space:pre}"
    ".mha-maps img,.mha-heads img{image-rendering:pixelated;border:1px solid #8888;background:#fff;vertical-align:middle}"
    ".mha-heads td.words,.mha-maps td.words,.mha-heads th.words{text-align:left}"
    ".mha-map{border-collapse:collapse}.mha-map td{padding:0;min-width:16px;height:16px}"
    ".mha-map th{font-weight:normal;white-space:pre;padding:0 4px;text-align:right}"
    ".mha-map thead th{writing-mode:vertical-rl;text-align:left;padding:4px 0}</style>"
)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(weights: np.ndarray) -> bytes:
    """A PNG file of weights from 0 to their largest, one pixel for each."""
    most = float(weights.max(initial=0))
    levels = np.nan_to_num(weights * (255 / most if most > 0 else 0)).clip(0, 255).astype(np.uint8)
    rows, columns = levels.shape
    lines = np.concatenate([np.zeros((rows, 1), np.uint8), levels], 1)  # each with the filter "none"
    header = struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)
    parts = ((b"IHDR", header), (b"PLTE", _PALETTE.tobytes()), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def pooled(weights: np.ndarray, most: int) -> np.ndarray:
    """The map with no more than so many rows and columns: the largest weight of each cell."""
    for axis in (0, 1):
        size = weights.shape[axis]
        if size > most:
            starts = np.arange(most) * size // most
            weights = np.maximum.reduceat(weights, starts, axis)
    return weights


def image(weights: np.ndarray, pixels: int, title: str = "") -> str:
    """An <img> of a map, ``pixels`` wide or high, whichever is more. Roots, so that small weights are seen beside large ones."""
    small = np.sqrt(pooled(weights, 2 * pixels).clip(0))
    scale = pixels / max(small.shape[0], small.shape[1], 1)
    width, height = (max(round(n * scale), 1) for n in (small.shape[1], small.shape[0]))
    data = base64.b64encode(png(small)).decode()
    return (
        f'<img width="{width}" height="{height}" title="{escape(title)}" alt="{escape(title)}" '
        f'src="data:image/png;base64,{data}">'
    )


def cells(weights: np.ndarray, queries: Sequence[str], keys: Sequence[str]) -> str:
    """A map as a table with tokens at its sides."""
    most = float(weights.max(initial=0)) or 1.0
    head = "".join(f"<th>{escape(key)}</th>" for key in keys)
    lines = []
    for query, row in zip(queries, weights):
        tds = []
        for key, weight in zip(keys, row):
            r, g, b = _PALETTE[int(np.clip(weight / most * 255, 0, 255))]
            title = escape(f"{query} → {key}: {weight:.3f}")
            tds.append(f'<td title="{title}" style="background:rgb({r},{g},{b})"></td>')
        lines.append(f"<tr><th>{escape(query)}</th>{''.join(tds)}</tr>")
    return (
        f'{_STYLE}<table class="mha-map"><thead><tr><td></td>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table>'
    )


def table(
    kind: str, heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "", words: tuple[int, ...] = (0,)
) -> str:
    """A table of cells that are HTML already; the columns ``words`` are text."""

    def line(tag: str, row: Iterable[str]) -> str:
        kinds = (' class="words"' if n in words else "" for n in itertools.count())
        return "<tr>" + "".join(f"<{tag}{kind}>{cell}</{tag}>" for kind, cell in zip(kinds, row)) + "</tr>"

    head, body = line("th", map(escape, heads)), "".join(line("td", row) for row in rows)
    note = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'{_STYLE}<table class="{kind}">{note}<thead>{head}</thead><tbody>{body}</tbody></table>'
