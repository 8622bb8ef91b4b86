"""What lies inside one block of a model."""

from __future__ import annotations

from typing import Any

import numpy as np


def inside(model: Any, inputs: Any, attention: int, target: Any) -> dict[str, np.ndarray]:
    """As :meth:`mha.Model.inside`."""
    count = len(model.attentions)
    if not isinstance(attention, (int, np.integer)) or not 0 <= attention < count:
        raise ValueError(f"attention: must be a number from 0 to {count - 1}, not {attention!r}")
    a = model.attentions[attention]
    named, _, _, sizes = model._one(inputs, target)
    T, S = model._map_size(a, *sizes)
    rows, heads = (T, a["model_width"]), (a["heads"], T, a["width"])
    groups, pairs = (a["kv_heads"], S, a["width"]), (a["heads"], T, S)
    shapes = {"x": rows, "read": rows, "q": heads, "k": groups, "v": groups, "scores": pairs, "heads": heads}
    shapes |= {"attended": rows, "middle": rows, "mlp_read": rows, "hidden": (T, a["mlp"]), "mlp": rows, "y": rows}
    if not a["mlp"]:
        del shapes["hidden"]
    arrays = {name: np.empty((1, *shape), np.float32) for name, shape in shapes.items()}
    maps: list = [None] * count
    maps[attention] = weights = np.empty((1, *pairs), np.float32)
    model._run(maps, inside_attention=attention, **named, **{f"inside_{name}": one for name, one in arrays.items()})
    return {name: one[0] for name, one in arrays.items()} | {"weights": weights[0]}
