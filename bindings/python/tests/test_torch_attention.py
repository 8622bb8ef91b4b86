"""mha.torch.attention, attention_varlen and the functions of flash-attn, beside the formula in float64."""

import doctest
import importlib

import pytest

torch = pytest.importorskip("torch")
import mha.torch  # noqa: E402

B, H, G, TQ, TK, D, E = 2, 4, 2, 5, 7, 8, 6


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(11)


@pytest.mark.parametrize("name", ["mha.torch._attention", "mha.torch._flash"])
def test_doctests(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def formula(q, k, v, *, causal=False, mask=None, bias=None, window=None, query_lengths=None, key_lengths=None,
            key_padding_mask=None, alibi=None, sinks=None, softcap=None, scale=None, align="top-left"):  # fmt: skip
    """The result and lse of (B,H,T,D) tensors in float64."""
    k, v = (x.repeat_interleave(q.size(1) // x.size(1), 1) for x in (k, v))
    s = q @ k.mT * (q.size(3) ** -0.5 if scale is None else scale)
    s = s if softcap is None else softcap * torch.tanh(s / softcap)
    queries, keys = torch.full((q.size(0),), q.size(2)), torch.full((q.size(0),), k.size(2))
    queries = queries if query_lengths is None else torch.as_tensor(query_lengths)
    keys = keys if key_lengths is None else torch.as_tensor(key_lengths)
    i, j = torch.arange(q.size(2))[:, None], torch.arange(k.size(2))
    p = i + ((keys - queries)[:, None, None, None] if align == "bottom-right" else 0)
    s = s if bias is None else s + bias
    s = s if alibi is None else s - (alibi[:, None, None] if alibi.dim() == 1 else alibi[:, :, None, None]) * (p - j).abs()
    visible = (i < queries[:, None, None, None]) & (j < keys[:, None, None, None])
    if causal:
        visible = visible & (j <= p)
    if window is not None:
        left, right = (window, window) if isinstance(window, int) else window
        visible = visible if left is None else visible & (j >= p - left)
        visible = visible if right is None else visible & (j <= p + right)
    if mask is not None:
        visible = visible & (mask[:, None] if mask.dim() == 3 else mask)
    if key_padding_mask is not None:
        visible = visible & ~key_padding_mask[:, None, None]
    s = s.masked_fill(~visible, -torch.inf)
    dead = (s == -torch.inf).all(3, keepdim=True)
    if sinks is not None:
        s = torch.cat([s, sinks[:, None, None].expand(*s.shape[:3], 1)], 3)
    w = s.masked_fill(dead, 0).softmax(3).masked_fill(dead, 0)[..., : k.size(2)]
    return w @ v, s.masked_fill(dead, 0).logsumexp(3).masked_fill(dead[..., 0], -torch.inf)


OPTIONS = {
    "nothing": {},
    "causal and a window": {"causal": True, "window": (2, None)},
    "the last query at the last key": {"causal": True, "window": 2, "align": "bottom-right"},
    "softcap and scale": {"softcap": 0.7, "scale": 0.4},
    "alibi": {"alibi": (H,), "align": "bottom-right"},
    "alibi of each sequence": {"alibi": (B, H)},
    "sinks": {"sinks": (H,), "causal": True},
    "bias": {"bias": (1, H, TQ, TK), "softcap": 2.0},
    "a bias of heads": {"bias": (H, TQ, TK)},
    "mask and bias": {"mask": (B, TQ, TK), "bias": (TQ, TK)},
    "lengths": {"query_lengths": [3, 5], "key_lengths": [7, 4], "causal": True, "align": "bottom-right"},
    "padding": {"key_padding_mask": [[False] * 7, [False] * 4 + [True] * 3]},
    "all": {"causal": True, "window": (3, None), "align": "bottom-right", "alibi": (H,), "sinks": (H,), "bias": (1, 1, TQ, TK),
            "softcap": 3.0, "scale": 0.5, "key_lengths": [6, 5], "mask": (TQ, TK)},
}  # fmt: skip


def drawn(options):
    """Tensors in place of shapes."""
    made = {}
    for name, value in options.items():
        if name in ("alibi", "sinks", "bias"):
            value = torch.rand(value) if name == "alibi" else torch.randn(value)
        elif name == "mask":
            value = torch.rand(value) < 0.7
        elif name == "key_padding_mask":
            value = torch.tensor(value)
        made[name] = value
    return made


def both(function, want, tensors, options, parts=("out", "lse")):
    """Compares results, and the gradients of the result, of lse and of both, for everything that is differentiable."""
    floats = {name: x for name, x in options.items() if isinstance(x, torch.Tensor) and x.is_floating_point()}
    fixed = {name: x for name, x in options.items() if name not in floats}
    found = []
    douts = None
    for compute, dtype in ((function, torch.float32), (want, torch.float64)):
        leaves = [x.to(dtype).detach().requires_grad_() for x in (*tensors, *floats.values())]
        out, lse = compute(*leaves[:3], **dict(zip(floats, leaves[3:])), **fixed)
        douts = douts or (torch.randn(out.shape), torch.randn(lse.shape))
        gradients = []
        for use in ((1, 0), (0, 1), (1, 1)):
            alive = lse > -torch.inf
            loss = use[0] * (out * douts[0].to(dtype)).sum() + use[1] * (lse * douts[1].to(dtype))[alive].sum()
            gradients.append(torch.autograd.grad(loss, leaves, retain_graph=True, allow_unused=True))
        found.append((out, lse, gradients))
    (out, lse, gradients), (want_out, want_lse, want_gradients) = found
    assert (out - want_out).abs().max() < 2e-6
    assert ((lse - want_lse).abs() < 2e-6).logical_or(lse == want_lse).all() and lse.dtype == torch.float32
    for case, (ours, theirs) in enumerate(zip(gradients, want_gradients)):
        for name, a, b in zip(["q", "k", "v", *floats], ours, theirs):
            a, b = (x if x is not None else torch.zeros(()) for x in (a, b))
            assert (a - b).abs().max() < 2e-5, (name, ("out", "lse", "both")[case])


@pytest.mark.parametrize("name", OPTIONS)
def test_results_and_gradients(name):
    tensors = [torch.randn(B, H, TQ, D), torch.randn(B, G, TK, D), torch.randn(B, G, TK, E)]
    both(lambda *a, **o: mha.torch.attention(*a, return_lse=True, **o), formula, tensors, drawn(OPTIONS[name]))


def test_same_bits_as_scaled_dot_product_attention():
    q = torch.randn(B, H, TQ, D, requires_grad=True)
    one, two = mha.torch.attention(q, q, q, causal=True), mha.torch.scaled_dot_product_attention(q, q, q, is_causal=True)
    dout = torch.randn_like(one)
    assert (one == two).all()
    assert (torch.autograd.grad(one, q, dout)[0] == torch.autograd.grad(two, q, dout)[0]).all()


STARTS = [0, 3, 3, 8, 10], [0, 4, 6, 6, 13]


def varlen_formula(q, k, v, *, alibi=None, query_starts=STARTS[0], key_starts=STARTS[1], **options):
    out, lse = torch.zeros(*q.shape[:2], v.size(2), dtype=q.dtype), torch.full((q.size(1), q.size(0)), -torch.inf, dtype=q.dtype)
    for b in range(len(query_starts) - 1):
        rows, keys = slice(*query_starts[b : b + 2]), slice(*key_starts[b : b + 2])
        slopes = alibi if alibi is None or alibi.dim() == 1 else alibi[b]
        o, l = formula(*(x.transpose(0, 1)[None] for x in (q[rows], k[keys], v[keys])), alibi=slopes, **options)
        out = torch.cat([out[: rows.start], o[0].transpose(0, 1), out[rows.stop :]])
        lse = torch.cat([lse[:, : rows.start], l[0], lse[:, rows.stop :]], 1)
    return out, lse


@pytest.mark.parametrize("name", ["nothing", "causal and a window", "the last query at the last key", "softcap and scale", "alibi",
                                  "alibi of each sequence", "sinks"])  # fmt: skip
def test_varlen(name):
    """Also rows and keys that belong to no sequence: they have zeros, and no gradient."""
    options = {n: x for n, x in OPTIONS[name].items()}
    options = drawn({**options, "alibi": (4, H)} if name == "alibi of each sequence" else options)
    tensors = [torch.randn(12, H, D), torch.randn(14, G, D), torch.randn(14, G, E)]
    both(lambda *a, **o: mha.torch.attention_varlen(*a, *STARTS, return_lse=True, **o), varlen_formula, tensors, options)


def test_dropout():
    q, eye = torch.randn(1, 2, 64, 8), torch.eye(64).expand(1, 2, 64, 64).clone().requires_grad_()
    torch.manual_seed(1)
    one, two = (mha.torch.attention(q, q, eye, dropout=0.5) for _ in range(2))
    torch.manual_seed(1)
    assert (one == mha.torch.attention(q, q, eye, dropout=0.5)).all() and (one != two).any()
    assert (mha.torch.attention(q, q, eye, dropout=0.5, seed=3) == mha.attention(q, q, eye.detach(), dropout=0.5, seed=3)).all()
    (dv,) = torch.autograd.grad(one, eye, eye)
    assert (dv - one.mT).abs().max() < 1e-6


def test_flash_functions():
    q, k, v, slopes = torch.randn(B, TQ, H, D), torch.randn(B, TK, G, D), torch.randn(B, TK, G, D), torch.rand(B, H)

    def flash(q, k, v, alibi):
        out, lse, nothing = mha.torch.flash_attn_func(q, k, v, softmax_scale=0.3, causal=True, window_size=(3, -1), softcap=2.0,
                                                      alibi_slopes=alibi, return_attn_probs=True)  # fmt: skip
        assert nothing is None
        return out, lse

    def want(q, k, v, alibi):
        out, lse = formula(*(x.transpose(1, 2) for x in (q, k, v)), alibi=alibi, scale=0.3, causal=True, window=(3, None), softcap=2.0,
                           align="bottom-right")  # fmt: skip
        return out.transpose(1, 2), lse

    both(flash, want, (q, k, v), {"alibi": slopes})
    starts = [torch.tensor([0, n, 2 * n], dtype=torch.int32) for n in (TQ, TK)]
    packed = mha.torch.flash_attn_varlen_func(*(x.flatten(0, 1) for x in (q, k, v)), *starts, TQ, TK, 0.0, 0.3, True, (3, -1), 2.0, slopes)
    assert (packed.view(B, TQ, H, D) == flash(q, k, v, slopes)[0]).all()
    assert mha.torch.flash_attn_func(q, k, v).shape == q.shape
    with pytest.raises(ValueError, match="^block_table: "):
        mha.torch.flash_attn_varlen_func(q[0], k[0], v[0], *starts, TQ, TK, block_table=starts[0])
    with pytest.raises(ValueError, match="^window_size: "):
        mha.torch.flash_attn_func(q, k, v, window_size=3)


def test_half_and_autocast():
    q = torch.randn(1, 2, 5, 8, requires_grad=True)
    want = mha.torch.attention(q, q, q, sinks=torch.zeros(2))
    half = mha.torch.attention(*[q.bfloat16()] * 3, sinks=torch.zeros(2, dtype=torch.bfloat16))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = mha.torch.attention(q, q, q, sinks=torch.zeros(2))
    assert half.dtype == cast.dtype == torch.bfloat16 and (half - want).abs().max() < 3e-2 and (cast == half).all()


def test_operators_and_transforms():
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    q, bias, sinks, alibi = torch.randn(1, 2, 5, 8), torch.randn(5, 5), torch.randn(2), torch.rand(2)
    for tensor in (q, bias, sinks, alibi):
        tensor.requires_grad_()
    numbers = (True, 1, 3, -1, None, 2.0, 0.0, 0)
    for inputs in ((q, q, q, bias, sinks, alibi, None, torch.tensor([4]), None, None), (q, q, q, *[None] * 7)):
        torch.library.opcheck(torch.ops.mha.general_attention.default, (*inputs, *numbers), test_utils=tests)

    def loss(q, alibi):
        out, lse = mha.torch.attention(q, q, q, causal=True, window=3, alibi=alibi, return_lse=True)
        return out.square().sum() + lse.sum()

    want = torch.autograd.grad(loss(q, alibi), (q, alibi))
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    for found in (torch.func.grad(loss, (0, 1))(q.detach(), alibi.detach()), torch.autograd.grad(compiled(q, alibi), (q, alibi))):
        for a, b in zip(found, want):
            assert (a - b).abs().max() < 1e-5
    each = torch.vmap(torch.func.grad(loss), (0, None))(torch.stack([q, 2 * q]).detach(), alibi.detach())
    assert (each[0] - want[0]).abs().max() < 1e-5
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(torch.autograd.grad(loss(q, alibi), q, create_graph=True)[0].sum(), q)


def test_statistics():
    class Net(torch.nn.Module):
        def forward(self, q):
            return mha.torch.attention(q, q, q, causal=True, window=1)

    q = torch.randn(1, 2, 5, 8)
    with mha.torch.statistics(net := Net(), top=3) as heads:
        net(q)
    assert (heads[""].top_keys[..., 2] == -1).all() and heads[""].entropy.shape == (1, 2, 5)


X = torch.zeros(1, 2, 3, 4)


@pytest.mark.parametrize(
    "name, value, kind",
    [
        ("q", X[0], ValueError),
        ("k", X.double(), TypeError),
        ("v", X.to_sparse(), TypeError),
        ("k", None, TypeError),
        ("mask", torch.zeros(3, 3), TypeError),
        ("mask", torch.zeros(3, 2, dtype=torch.bool), ValueError),
        ("bias", torch.zeros(3, 3, dtype=torch.int64), TypeError),
        ("alibi", torch.zeros(3), ValueError),
        ("sinks", [1.0], TypeError),
        ("window", -1, ValueError),
        ("key_lengths", [9], ValueError),
        ("align", "middle", ValueError),
        ("softcap", -1.0, ValueError),
        ("dropout", 2.0, ValueError),
        ("seed", 0.5, (TypeError, RuntimeError)),
    ],
)
def test_errors(name, value, kind):
    with pytest.raises(kind, match=f"{name}"):
        mha.torch.attention(**{"q": X, "k": X, "v": X, name: value})


def test_errors_of_varlen():
    x = torch.zeros(3, 1, 4)
    for starts in ([0, 9], [2, 1], None, [0.5]):
        with pytest.raises((ValueError, TypeError), match="starts"):
            mha.torch.attention_varlen(x, x, x, starts)
