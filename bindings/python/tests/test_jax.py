"""Arrays of JAX, which arrive and leave by DLPack."""

import os

import numpy as np
import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax")
import mha  # noqa: E402
from jax import numpy as jnp  # noqa: E402


@pytest.fixture
def q():
    return jax.random.normal(jax.random.PRNGKey(1), (2, 4, 5, 8))


def of_jax(q, causal=False):
    """JAX's own attention, whose heads come after the tokens."""
    rows = [q.transpose(0, 2, 1, 3)] * 3
    return jax.nn.dot_product_attention(*rows, is_causal=causal).transpose(0, 2, 1, 3)


def test_attention(q):
    out, lse, weights = mha.attention(q, q, q, causal=True, return_lse=True, return_weights=True)
    assert all(isinstance(x, jax.Array) for x in (out, lse, weights))
    assert abs(out - of_jax(q, True)).max() < 1e-6
    assert abs(weights.sum(-1) - 1).max() < 1e-6 and lse.shape == (2, 4, 5)
    visible = jnp.tril(jnp.ones((5, 5), bool))
    assert (mha.attention(q, q, q, mask=visible) == out).all()
    assert (mha.attention(q, np.asarray(q), q, causal=True) == out).all()  # of two libraries
    assert (mha.attention(q, q, q, key_padding_mask=jnp.zeros((2, 5), bool)) == mha.attention(q, q, q)).all()
    assert (mha.attention(q, q, q, key_lengths=jnp.array([5, 5])) == mha.attention(q, q, q)).all()


@pytest.mark.parametrize("name, tolerance", [("float16", 2e-3), ("bfloat16", 2e-2)])
def test_half(q, name, tolerance):
    half = q.astype(name)
    out = mha.attention(half, half, half)
    assert isinstance(out, jax.Array) and out.dtype == name
    assert abs(out.astype("float32") - of_jax(q)).max() < tolerance


def test_gradients(q):
    out = mha.attention(q, q, q)
    found = mha.attention_backward(jnp.ones_like(out), q, q, q, out)
    want = jax.grad(lambda x: of_jax(x).sum())(q)
    assert isinstance(found.q, jax.Array) and abs(found.q + found.k + found.v - want).max() < 1e-5


def test_statistics_and_packed_sequences(q):
    found = mha.stats(q, q, top=1)
    weights = mha.attention(q, q, q, return_weights=True)[1]
    assert isinstance(found.entropy, jax.Array) and (found.top_keys[..., 0] == weights.argmax(-1)).all()
    rows = q[0].transpose(1, 0, 2)
    packed = mha.attention_varlen(rows, rows, rows, [0, 2, 5])
    assert isinstance(packed, jax.Array)
    assert (packed[:2].transpose(1, 0, 2) == mha.attention(*[q[:1, :, :2]] * 3)[0]).all()


def test_errors(q):
    with pytest.raises(TypeError, match="^q: is int32"):
        mha.attention(q.astype("int32"), q, q)
    with pytest.raises(ValueError, match="^out: is read-only"):
        mha.attention(q, q, q, out=q)
    with pytest.raises(TypeError, match="^q: does not give its memory by DLPack"):
        jax.jit(lambda x: mha.attention(x, x, x))(q)  # an array without memory


def test_memory_stays_alive():
    out = mha.attention(*[jnp.ones((1, 2, 64, 16))] * 3)
    again = [mha.attention(*[jnp.full((1, 2, 64, 16), float(n))] * 3) for n in range(20)]
    assert (out == 1).all() and all((x == n).all() for n, x in enumerate(again))
