"""A program that test_types.py checks, and does not run: what type checkers know of the results."""

from typing import Any, assert_type

import mha
import numpy as np


class Tensor:
    """Arrays of any other library."""


half = np.zeros((1, 2, 3, 4), np.float16)
assert_type(mha.attention(half, half, half, causal=True), np.ndarray[Any, np.dtype[np.float16]])
out, lse = mha.attention(half, half, half, window=(3, None), return_lse=True)
assert_type(lse, np.ndarray[Any, np.dtype[np.float32]])
_, weights = mha.attention(half, half, half, key_lengths=[3], return_weights=True)
assert_type(weights, np.ndarray[Any, np.dtype[np.float16]])
_, lse, weights = mha.attention(half, half, half, return_lse=True, return_weights=True)
assert_type(lse, np.ndarray[Any, np.dtype[np.float32]])

tensor = Tensor()
assert_type(mha.attention(tensor, tensor, tensor), Tensor)
first, second = mha.attention(tensor, tensor, tensor, return_weights=True)
assert_type(second, Tensor)

assert_type(mha.stats(half, half, top=3), mha.Stats)
assert_type(mha.attention_backward(out, half, half, half, out), mha.Gradients)
model = mha.Model("folder", tokenizer="folder")
assert_type(model.tokenizer.encode("text"), list[int])
assert_type(model.attention("text")[0, 1], mha.HeadMap)
mha.attention(half, half, half, widow=3)  # type: ignore[call-overload]
