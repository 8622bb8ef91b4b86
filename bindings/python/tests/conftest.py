"""What the tests share: the oracle, random arrays."""

import numpy as np
import pytest


def oracle(q, k, v, *, visible=None, bias=None, scale=None):
    """Attention in float64 from the formula; dead rows are zeros. Returns out, weights and lse."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    s = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        s = s + np.asarray(bias, np.float64)
    if visible is not None:
        s = np.where(visible, s, -np.inf)
    top = s.max(-1, keepdims=True, initial=-1e300)
    e = np.exp(s - top)
    total = e.sum(-1, keepdims=True)
    weights = np.divide(e, total, out=np.zeros_like(e), where=total > 0)
    with np.errstate(divide="ignore"):
        return weights @ v, weights, (top + np.log(total))[..., 0]


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def normal(rng):
    return lambda *shape: rng.standard_normal(shape, dtype=np.float32)
