"""Arrays of JAX, which arrive and leave by DLPack."""

import functools
import os

import numpy as np
import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax")
import mha  # noqa: E402
import mha.jax  # noqa: E402
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
    with pytest.raises(TypeError, match="^q: is traced by JAX, .* use mha.jax.attention"):
        jax.jit(lambda x: mha.attention(x, x, x))(q)  # an array without memory


def test_memory_stays_alive():
    out = mha.attention(*[jnp.ones((1, 2, 64, 16))] * 3)
    again = [mha.attention(*[jnp.full((1, 2, 64, 16), float(n))] * 3) for n in range(20)]
    assert (out == 1).all() and all((x == n).all() for n, x in enumerate(again))


# ---- mha.jax: inside programs of JAX


def some(seed, *shape):
    return jax.random.normal(jax.random.PRNGKey(seed), shape)


@pytest.fixture
def arrays():
    """Grouped heads, and a value width of its own, with all that has a gradient."""
    return {
        "q": some(1, 2, 4, 5, 8), "k": some(2, 2, 2, 7, 8), "v": some(3, 2, 2, 7, 3), "bias": some(4, 5, 7),
        "alibi": jnp.array([0.1, 0.2, 0.3, 0.4]), "sinks": jnp.array([0.5, -1.0, 0.0, 2.0]),
    }  # fmt: skip


LENGTHS = jnp.array([7, 4])


def formula(q, k, v, bias, alibi, sinks):
    """Attention of all keys but padding, written down with JAX: out and lse."""
    k, v = jnp.repeat(k, 2, 1), jnp.repeat(v, 2, 1)
    distance = jnp.abs(jnp.arange(5)[:, None] - jnp.arange(7))
    s = jnp.einsum("bhid,bhjd->bhij", q, k) / 8**0.5 + bias - alibi[:, None, None] * distance
    s = jnp.where((jnp.arange(7) < LENGTHS[:, None])[:, None, None], s, -1e30)
    s = jnp.concatenate([s, jnp.broadcast_to(sinks[None, :, None, None], (*s.shape[:3], 1))], -1)
    return jnp.einsum("bhij,bhjd->bhid", jax.nn.softmax(s, -1)[..., :-1], v), jax.nn.logsumexp(s, -1)


OPTIONS = [
    {}, {"causal": True}, {"window": (3, 1)}, {"softcap": 2.0}, {"scale": 0.3}, {"align": "bottom-right", "causal": True},
    {"mask": jnp.arange(35).reshape(5, 7) % 3 > 0}, {"mask": jnp.arange(70).reshape(2, 5, 7) % 3 > 0},
    {"key_padding_mask": jnp.arange(14).reshape(2, 7) % 5 > 3}, {"key_lengths": LENGTHS}, {"dropout": 0.5, "seed": (1 << 40) + 3},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
def test_jit_has_the_bits_of_a_plain_call(arrays, options):
    found = jax.jit(lambda a: mha.jax.attention(**a, **options, return_lse=True))(arrays)
    wanted = mha.attention(*[np.asarray(arrays.pop(name)) for name in "qkv"], **arrays, **options, return_lse=True)
    assert all((np.asarray(x) == y).all() for x, y in zip(found, wanted))


def test_gradients_of_all_inputs(arrays):
    """Through out and lse, beside JAX's own differentiation of the formula."""

    def loss(a, attend):
        out, lse = attend(**a)
        return (out**2).sum() + jnp.sin(lse).sum()

    ours = functools.partial(mha.jax.attention, key_lengths=LENGTHS, return_lse=True)
    found = jax.jit(jax.grad(functools.partial(loss, attend=ours)))(arrays)
    wanted = jax.grad(functools.partial(loss, attend=formula))(arrays)
    for name in arrays:
        assert found[name].dtype == arrays[name].dtype
        assert abs(found[name] - wanted[name]).max() < 1e-5 * max(1, abs(wanted[name]).max()), name


def test_half_types_are_differentiable(arrays):
    half = {name: arrays[name].astype(jnp.bfloat16) for name in "qkv"}
    found = jax.grad(lambda a: mha.jax.attention(**a).astype(jnp.float32).sum())(half)
    assert all(found[name].dtype == jnp.bfloat16 and jnp.isfinite(found[name]).all() for name in "qkv")


def test_vmap_runs_each(arrays):
    q, k, v = (arrays[name] for name in "qkv")
    found = jax.jit(jax.vmap(lambda x: mha.jax.attention(x, k, v)))(jnp.stack([q, 2 * q]))
    assert (found[0] == mha.jax.attention(q, k, v)).all() and (found[1] == mha.jax.attention(2 * q, k, v)).all()


def test_a_key_decides_about_dropout(arrays):
    q, k, v = (arrays[name] for name in "qkv")
    dropped = jax.jit(lambda key: mha.jax.attention(q, k, v, dropout=0.5, seed=key))
    assert (dropped(jax.random.key(3)) == dropped(jax.random.PRNGKey(3))).all()
    assert (dropped(jax.random.key(3)) != dropped(jax.random.key(4))).any()


def test_threads_change_no_bits(arrays):
    q = some(1, 1, 8, 200, 16)
    run = jax.jit(lambda x: mha.jax.attention(x, x, x))
    before = run(q)
    mha.set_num_threads(1)
    try:
        assert (run(q) == before).all()
    finally:
        mha.set_num_threads(0)


@pytest.mark.parametrize(
    "changed, kind",
    [
        ({"q": None}, TypeError), ({"q": some(1, 2, 4, 8)}, ValueError), ({"k": some(1, 2, 3, 7, 8)}, ValueError),
        ({"v": some(1, 2, 2, 6, 3)}, ValueError), ({"bias": some(1, 5, 6)}, ValueError), ({"sinks": some(1, 3)}, ValueError),
        ({"q": jnp.ones((2, 4, 5, 8), jnp.int32)}, TypeError), ({"dropout": 2.0}, ValueError), ({"align": "left"}, ValueError),
        ({"seed": "a", "dropout": 0.5}, TypeError), ({"seed": -1, "dropout": 0.5}, ValueError), ({"window": -3}, ValueError),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused_while_the_program_is_traced(arrays, changed, kind):
    with pytest.raises(kind, match="^" + next(iter(changed))):
        jax.jit(lambda: mha.jax.attention(**{**arrays, **changed}))()
