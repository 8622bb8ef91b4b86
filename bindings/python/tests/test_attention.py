"""mha.attention and its relatives beside the formula in float64, on NumPy arrays."""


import numpy as np
import pytest

import mha
from conftest import oracle

B, H, G, TQ, TK, D, E = 2, 4, 2, 7, 9, 8, 6


@pytest.fixture
def qkv(normal):
    return normal(B, H, TQ, D), normal(B, G, TK, D), normal(B, G, TK, E)


def near(got, want, tolerance=2e-6):
    assert got.shape == want.shape
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=0, atol=tolerance)


def test_plain(qkv):
    out, lse, weights = mha.attention(*qkv, return_lse=True, return_weights=True)
    want = oracle(*qkv)
    near(out, want[0]), near(weights, want[1]), near(lse, want[2])
    assert out.dtype == lse.dtype == weights.dtype == np.float32


def test_causal_and_alignment(qkv):
    near(mha.attention(*qkv, causal=True), oracle(*qkv, visible=np.tri(TQ, TK, dtype=bool))[0])
    bottom = np.tri(TQ, TK, TK - TQ, dtype=bool)
    near(mha.attention(*qkv, causal=True, align="bottom-right"), oracle(*qkv, visible=bottom)[0])


@pytest.mark.parametrize("window, left, right", [((2, 1), 2, 1), (3, 3, 3), ((None, 0), 99, 0), ((1, None), 1, 99)])
def test_window(qkv, window, left, right):
    i, j = np.arange(TQ)[:, None], np.arange(TK)
    near(mha.attention(*qkv, window=window), oracle(*qkv, visible=(i - left <= j) & (j <= i + right))[0])


@pytest.mark.parametrize("shape", [(TQ, TK), (B, TQ, TK), (B, 1, TQ, TK), (B, H, TQ, TK), (1, TK), (B, H, 1, TK)])
def test_mask(qkv, rng, shape):
    mask = rng.random(shape) < 0.5
    visible = mask[:, None] if mask.ndim == 3 else mask
    near(mha.attention(*qkv, mask=mask), oracle(*qkv, visible=visible)[0])


def test_mask_of_rank_3_is_a_batch(normal, rng):
    """Also where there are as many heads as sequences."""
    q = normal(3, 3, 5, 4)
    mask = rng.random((3, 5, 5)) < 0.5
    near(mha.attention(q, q, q, mask=mask), oracle(q, q, q, visible=mask[:, None])[0])


@pytest.mark.parametrize("with_mask", [False, True])
def test_padding(qkv, rng, with_mask):
    padding = np.arange(TK) >= np.array([[5], [TK]])
    mask = rng.random((TQ, TK)) < 0.7 if with_mask else None
    visible = ~padding[:, None, None, :] & (True if mask is None else mask)
    near(mha.attention(*qkv, mask=mask, key_padding_mask=padding), oracle(*qkv, visible=visible)[0])
    if not with_mask:
        near(mha.attention(*qkv, key_lengths=[5, TK]), oracle(*qkv, visible=visible)[0])
        near(mha.attention(*qkv, key_lengths=np.array([5, TK], np.int32)), oracle(*qkv, visible=visible)[0])


def test_dead_rows_are_zeros(qkv):
    out, lse = mha.attention(*qkv, mask=np.zeros((TQ, TK), bool), return_lse=True)
    assert (out == 0).all() and (lse == -np.inf).all()
    sinks = np.ones(H, np.float32)
    out, lse = mha.attention(*qkv, mask=np.zeros((TQ, TK), bool), sinks=sinks, return_lse=True)
    assert (out == 0).all() and (lse == -np.inf).all()


def test_bias_scale_alibi(qkv, normal):
    bias, slopes = normal(1, H, TQ, TK), np.array([0.5, 0.25, 0.1, 0], np.float32)
    distance = np.abs(np.arange(TQ)[:, None] - np.arange(TK))
    near(mha.attention(*qkv, bias=bias, scale=0.3), oracle(*qkv, bias=bias, scale=0.3)[0])
    near(mha.attention(*qkv, alibi=slopes), oracle(*qkv, bias=-slopes[:, None, None] * distance)[0])


def test_bias_of_three_axes(qkv, normal):
    """(H,Tq,Tk) or (B,Tq,Tk): only where B and H are the same can it not be told which."""
    q, k, v = qkv
    out, dout = np.empty((B, H, TQ, E), np.float32), normal(B, H, TQ, E)
    for bias, whole in [(normal(H, TQ, TK), 0), (normal(B, TQ, TK), 1), (normal(1, TQ, TK), 0)]:
        same = np.expand_dims(bias, whole)
        mha.attention(q, k, v, bias=bias, out=out)
        near(out, oracle(q, k, v, bias=same)[0])
        got = mha.attention_backward(dout, q, k, v, out, bias=bias).bias
        want = mha.attention_backward(dout, q, k, v, out, bias=same).bias
        assert got.shape == bias.shape and (got == np.squeeze(want, whole)).all()
        assert (mha.stats(q, k, bias=bias).entropy == mha.stats(q, k, bias=same).entropy).all()
    with pytest.raises(ValueError, match="bias: has 3 axes, and B and H are both 2; must be"):
        mha.attention(q[:, :2], k, v, bias=normal(2, TQ, TK))
    with pytest.raises(ValueError, match="the first of which is 3; must be H = 4 or B = 2"):
        mha.attention(q, k, v, bias=normal(3, TQ, TK))


def test_softcap_and_sinks(qkv):
    q, k, v = qkv
    s = np.repeat(k, H // G, 1).astype(np.float64)
    s = 2 * np.tanh(q @ s.swapaxes(-1, -2) / np.sqrt(D) / 2)
    sinks = np.array([0.5, -1, 0, 3], np.float32)
    e = np.exp(s)
    weights = e / (e.sum(-1, keepdims=True) + np.exp(sinks.astype(np.float64))[:, None, None])
    near(mha.attention(q, k, v, softcap=2.0, sinks=sinks), weights @ np.repeat(v, H // G, 1))


def test_dropout_is_decided_by_its_seed(qkv):
    one, same, other = (mha.attention(*qkv, dropout=0.5, seed=s, return_weights=True)[1] for s in (1, 1, 2))
    assert (one == same).all() and (one != other).any()
    assert 0.2 < (one == 0).mean() < 0.8


def test_any_strides_without_copies(normal):
    rows = normal(B, TQ, 2 * H, D)  # heads behind tokens, every other one, width reversed
    q = rows.transpose(0, 2, 1, 3)[:, ::2, :, ::-1]
    repeated = np.broadcast_to(q[:1], q.shape)
    near(mha.attention(q, repeated, repeated), oracle(q, repeated, repeated)[0])


def test_out_is_written(qkv):
    rows = np.full((B, TQ, H, E), np.nan, np.float32)
    out = rows.transpose(0, 2, 1, 3)
    assert mha.attention(*qkv, out=out) is out
    near(out, oracle(*qkv)[0])


@pytest.mark.parametrize("name, tolerance", [("float16", 2e-3), ("bfloat16", 2e-2)])
def test_half_types(qkv, name, tolerance):
    dtype = np.float16 if name == "float16" else pytest.importorskip("ml_dtypes").bfloat16
    q, k, v = (x.astype(dtype) for x in qkv)
    out = mha.attention(q, k, v)
    assert out.dtype == dtype
    near(out.astype(np.float64), oracle(q, k, v)[0], tolerance)


def test_empty_arrays():
    none = np.zeros((0, 2, 3, 4), np.float32)
    assert mha.attention(none, none, none).shape == (0, 2, 3, 4)
    q, k = np.ones((1, 1, 3, 4), np.float32), np.ones((1, 1, 0, 4), np.float32)
    assert (mha.attention(q, k, k) == 0).all()


def test_varlen_has_the_bits_of_single_calls(normal):
    q, k, v = normal(10, H, D), normal(13, G, D), normal(13, G, E)
    qs, ks = np.array([0, 4, 4, 10]), np.array([0, 5, 8, 13])
    out, lse = mha.attention_varlen(q, k, v, qs, ks, causal=True, return_lse=True)
    assert out.shape == (10, H, E) and lse.shape == (H, 10)
    for b in range(3):
        one = [x[a[b] : a[b + 1]].swapaxes(0, 1)[None] for x, a in ((q, qs), (k, ks), (v, ks))]
        alone, alone_lse = mha.attention(*one, causal=True, return_lse=True)
        assert (out[qs[b] : qs[b + 1]].swapaxes(0, 1) == alone[0]).all()
        assert (lse[:, qs[b] : qs[b + 1]] == alone_lse[0]).all()


def loss_gradient(loss, array, step=1e-3):
    """By central differences, in float32: the loss is a float64 sum."""
    gradient = np.zeros(array.shape)
    for at in np.ndindex(*array.shape):
        kept = array[at]
        array[at] = kept + step
        up = loss()
        array[at] = kept - step
        gradient[at] = (up - loss()) / (2 * step)
        array[at] = kept
    return gradient


def test_backward(normal):
    arrays = {"q": normal(1, 2, 3, 4), "k": normal(1, 1, 5, 4), "v": normal(1, 1, 5, 3)}
    extra = {"bias": normal(2, 3, 5)[None], "alibi": normal(2), "sinks": normal(2)}
    dout = normal(1, 2, 3, 3)

    def loss():
        return float((mha.attention(**arrays, **extra, causal=True).astype(np.float64) * dout).sum())

    out = mha.attention(**arrays, **extra, causal=True)
    got = mha.attention_backward(dout, *arrays.values(), out, **extra, causal=True)
    for name, array in {**arrays, **extra}.items():
        near(getattr(got, name), loss_gradient(loss, array), 3e-4)
    only = mha.attention_backward(dout, *arrays.values(), out, **extra, causal=True, want=["bias"])
    assert only.q is None and (only.bias == got.bias).all()


def test_stats(qkv):
    q, k, _ = qkv
    s = mha.stats(q, k, want=("entropy", "effective", "largest", "distance", "received", "divergence", "cosine"),
                  heatmap=(TQ, TK), top=3)  # fmt: skip
    p = oracle(q, k, np.zeros((B, G, TK, 1)))[1]
    near(s.entropy, -(p * np.log(p)).sum(-1)), near(s.effective, 1 / (p * p).sum(-1), 1e-5), near(s.largest, p.max(-1))
    near(s.distance, (p * np.abs(np.arange(TQ)[:, None] - np.arange(TK))).sum(-1), 1e-5)
    near(s.received, p.sum(-2)), near(s.heatmap, p)
    order = np.argsort(-p, -1)[..., :3]
    assert (s.top_keys == order).all()
    near(s.top_weights, np.take_along_axis(p, order, -1))
    flat = p.reshape(B, H, -1) / np.linalg.norm(p.reshape(B, H, -1), axis=-1, keepdims=True)
    near(s.cosine, flat @ flat.swapaxes(1, 2))
    a, b = p[:, :, None], p[:, None]
    near(s.divergence, (a * np.log(2 * a / (a + b)) + b * np.log(2 * b / (a + b))).sum(-1).mean(-1) / 2)
    assert mha.stats(q, k).heatmap is None
