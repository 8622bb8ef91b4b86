"""mha.torch.scaled_dot_product_attention beside PyTorch's in float64."""

import doctest
import importlib
import os

import pytest

torch = pytest.importorskip("torch")
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: E402
from torch.nn.attention.bias import causal_lower_right, causal_upper_left  # noqa: E402
from torch.testing._internal.two_tensor import TwoTensor  # noqa: E402

import mha.torch  # noqa: E402

sdpa = mha.torch.scaled_dot_product_attention
pytorch = torch.nn.functional.scaled_dot_product_attention


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


def leaves(*shapes, dtype=torch.float32):
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


def double(x):
    return x.detach().double().requires_grad_(x.requires_grad) if x is not None and x.is_floating_point() else x


def compare(inputs, mask=None, tolerance=2e-6, **options):
    """The result, which has the same bits without gradients, and all gradients, the mask's included."""
    exact, exact_mask = [double(x) for x in inputs], double(mask)
    out, want = sdpa(*inputs, mask, **options), pytorch(*exact, exact_mask, **options)
    assert out.dtype == inputs[0].dtype and out.shape == want.shape
    assert (out - want).abs().max() < tolerance
    with torch.no_grad():
        assert (sdpa(*inputs, mask, **options) == out).all()
    dout = torch.randn_like(out)
    out.backward(dout)
    want.backward(dout.double())
    for x, y in zip((*inputs, mask), (*exact, exact_mask)):
        if x is not None and x.requires_grad:
            assert x.grad.dtype == x.dtype and (x.grad - y.grad).abs().max() < 2 * tolerance


@pytest.mark.parametrize("name", ["mha.torch", "mha.torch._sdpa", "mha.torch._statistics", "mha.torch._use"])
def test_doctests(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "q, k, v",
    [
        ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 6)),
        ((5, 8), (7, 8), (7, 6)),
        ((3, 7, 8), (3, 5, 8), (3, 5, 8)),
        ((2, 1, 3, 5, 8), (2, 1, 3, 7, 8), (2, 1, 3, 7, 6)),
        ((2, 3, 5, 8), (1, 3, 7, 8), (1, 3, 7, 8)),
        ((2, 3, 5, 8), (2, 1, 7, 8), (2, 1, 7, 8)),
        ((2, 3, 5, 8), (3, 7, 8), (7, 6)),
        ((5, 8), (3, 7, 8), (2, 3, 7, 8)),
        ((2, 2, 3, 5, 8), (2, 3, 7, 8), (1, 7, 8)),
    ],
)
def test_shapes(q, k, v, causal):
    compare(leaves(q, k, v), is_causal=causal)


def test_groups_and_scale():
    compare(leaves((2, 6, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8)), enable_gqa=True, scale=0.2)
    compare(leaves((6, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8)), enable_gqa=True)
    compare(leaves((1, 6, 5, 8), (1, 3, 7, 8), (1, 2, 7, 8)), enable_gqa=True)
    with pytest.raises(ValueError, match="^key: has 2 heads"):
        sdpa(*leaves((2, 6, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8)))


@pytest.mark.parametrize("shape", [(5, 7), (2, 1, 5, 7), (2, 3, 5, 7), (3, 5, 7), (1, 7)])
@pytest.mark.parametrize("kind", ["bool", "added"])
def test_masks(shape, kind):
    mask = torch.rand(shape) < 0.7 if kind == "bool" else torch.randn(shape, requires_grad=True)
    compare(leaves((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)), mask)


@pytest.mark.parametrize("shape", [(5, 7), (3, 5, 7), (2, 2, 1, 5, 7), (2, 2, 3, 5, 7)])
def test_masks_of_five_axes(shape):
    compare(leaves((2, 2, 3, 5, 8), (2, 2, 3, 7, 8), (2, 2, 3, 7, 8)), torch.randn(shape, requires_grad=True))


def test_dead_rows():
    inputs = leaves((1, 1, 3, 4), (1, 1, 3, 4), (1, 1, 3, 4))
    compare(inputs, torch.tensor([[True] * 3, [False] * 3, [True, False, True]]))
    assert (inputs[0].grad[0, 0, 1] == 0).all()
    compare(inputs_again := leaves(*[(1, 1, 3, 4)] * 3), torch.full((3, 3), -torch.inf).triu(1) - torch.inf)
    assert (inputs_again[2].grad == 0).all()


@pytest.mark.parametrize("dtype, tolerance", [(torch.bfloat16, 3e-2), (torch.float16, 4e-3)])
def test_half(dtype, tolerance):
    mask = torch.randn(5, 7).to(dtype).requires_grad_()
    compare(leaves((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8), dtype=dtype), mask, tolerance)


def test_strides():
    rows = torch.randn(2, 5, 3, 8).requires_grad_()
    q = rows.transpose(1, 2)
    out = sdpa(q, q.flip(3), q)
    want = pytorch(*(x.double() for x in (q, q.flip(3), q)))
    assert (out - want).abs().max() < 2e-6 and out.stride() == q.stride()


@pytest.mark.filterwarnings("ignore:Input")  # that it is float32
def test_gradcheck():
    inputs = leaves((1, 2, 3, 4), (1, 2, 4, 4), (1, 2, 4, 4), (3, 4))
    torch.autograd.gradcheck(sdpa, inputs, eps=1e-2, atol=1e-3, rtol=1e-2, nondet_tol=0)


def test_only_what_needs_a_gradient():
    q, k, v = torch.randn(1, 1, 3, 4, requires_grad=True), torch.randn(1, 1, 3, 4), torch.randn(1, 1, 3, 4)
    sdpa(q, k, v).sum().backward()
    assert q.grad is not None and k.grad is None
    with torch.no_grad():
        assert not sdpa(q, k, v).requires_grad
    assert not sdpa(k, k, v).requires_grad
    with pytest.raises(RuntimeError):
        torch.autograd.grad(torch.autograd.grad(sdpa(q, k, v).sum(), q, create_graph=True)[0].sum(), q)


def test_one_gradient_at_a_time():
    """What needs no gradient is not computed, and the others have the same bits."""
    shapes = [(1, 2, 5, 8), (1, 2, 7, 8), (1, 2, 7, 8)]
    drawn, dout = [torch.randn(s) for s in shapes], torch.randn(1, 2, 5, 8)
    every = [x.clone().requires_grad_() for x in drawn]
    sdpa(*every).backward(dout)
    for n in range(3):
        inputs = [x.clone().requires_grad_(m == n) for m, x in enumerate(drawn)]
        sdpa(*inputs).backward(dout)
        assert [x.grad is not None for x in inputs] == [m == n for m in range(3)]
        assert (inputs[n].grad == every[n].grad).all()


@pytest.mark.parametrize("shape", [(1, 2, 5, 8), (0, 2, 5, 8)])
def test_no_second_derivative(shape):
    (q,) = leaves(shape)
    for loss in (sdpa(q, q, q).sum(), sdpa(q, q, q).square().sum()):
        (dq,) = torch.autograd.grad(loss, q, create_graph=True)
        assert (dq == torch.autograd.grad(loss, q)[0]).all()
        with pytest.raises(RuntimeError, match="no second derivative"):
            dq.square().sum().backward()


def test_gradients_of_many_results_at_once():
    q, k, v, mask = inputs = leaves((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 6), (5, 7))
    out = sdpa(q, k, v, mask)
    douts = torch.randn(4, *out.shape)
    found = torch.autograd.grad(out, inputs, douts, is_grads_batched=True, retain_graph=True)
    for n, dout in enumerate(douts):
        for every, one in zip(found, torch.autograd.grad(out, inputs, dout, retain_graph=True)):
            assert (every[n] == one).all()


@pytest.mark.parametrize("kept", [b"", bytes(81), bytearray(80), 3])
def test_kept_memory_is_checked(kept):
    q = torch.zeros(1, 2, 5, 8)
    assert len(mha._mha.forward(q=q, k=q, v=q, out=torch.empty_like(q), keep=True)) == 80
    with pytest.raises(ValueError, match="^kept: "):
        mha._mha.backward(q=q, k=q, v=q, out=q, dout=q, kept=kept)


def test_forward_mode_is_refused():
    q = torch.randn(1, 2, 5, 8)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, torch.ones_like(q))
        assert (sdpa(q, q, q) == sdpa(q, q, q)).all()
        for inputs in ((dual, q, q), (q, q, dual), (q, q, dual[..., :3])):
            with pytest.raises(NotImplementedError):
                sdpa(*inputs)


def test_meta():
    q, v = torch.empty(2, 3, 5, 8, device="meta", requires_grad=True), torch.empty(2, 3, 5, 6, device="meta")
    out = sdpa(q, q, v)
    assert out.is_meta and out.shape == (2, 3, 5, 6)
    out.sum().backward()
    assert q.grad.shape == q.shape
    layer = mha.torch.MultiheadAttention(8, 2, device="meta")
    out, weights = layer(q[0], q[0], q[0])
    assert out.shape == (3, 5, 8) and weights.shape == (5, 3, 3)


def test_tensors_of_a_transform_that_is_over():
    kept = []
    torch.func.grad(lambda x: kept.append(x) or x.sum())(q := torch.randn(1, 2, 5, 8))
    weight = torch.ones(1, 2, 5, 8, requires_grad=True)
    assert (sdpa(kept[0], weight, kept[0]) - sdpa(q, weight, q)).abs().max() == 0
    assert (sdpa(kept[0], q, kept[0]) == sdpa(q, q, q)).all()


def test_dropout():
    q = torch.randn(1, 2, 64, 8, requires_grad=True)
    eye = torch.eye(64).expand(1, 2, 64, 64)
    torch.manual_seed(1)
    one, two = (sdpa(q, q, eye, dropout_p=0.5) for _ in range(2))
    torch.manual_seed(1)
    again = sdpa(q, q, eye, dropout_p=0.5)
    assert (one == again).all() and (one != two).any() and 0.4 < (one == 0).float().mean() < 0.6
    assert abs(one.sum(-1).mean() - 1) < 0.1
    # The gradient of the values is that of the weights that were kept.
    v = eye.clone().requires_grad_()
    torch.manual_seed(1)
    sdpa(q, q, v, dropout_p=0.5).backward(eye)
    assert (v.grad - one.transpose(-1, -2)).abs().max() < 1e-6
    assert (sdpa(q, q, eye, dropout_p=1.0) == 0).all()


def test_autocast():
    q = torch.randn(1, 2, 5, 8, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert sdpa(q, q, q, torch.zeros(5, 5)).dtype == torch.bfloat16
        compare_out = pytorch(q, q, q)
    assert (sdpa(*[q.bfloat16()] * 3) - compare_out).abs().max() < 3e-2


def test_threads_follow_pytorch():
    q = torch.randn(2, 4, 100, 16)
    want, threads = sdpa(q, q, q), torch.get_num_threads()
    for count in (1, 3):
        torch.set_num_threads(count)
        assert (sdpa(q, q, q) == want).all()
    torch.set_num_threads(threads)


class Items(torch.utils.data.Dataset):
    """Computes attention in the worker that loads an item."""

    def __init__(self, q):
        self.q = q

    def __len__(self):
        return 4

    def __getitem__(self, n):
        return sdpa(self.q * n, self.q, self.q)


def test_workers_of_a_loader():
    q = torch.randn(1, 2, 64, 8)
    want = [sdpa(q * n, q, q) for n in range(4)]  # starts threads in the parent
    loader = torch.utils.data.DataLoader(Items(q), batch_size=None, num_workers=2, timeout=60,
                                         multiprocessing_context="fork")  # fmt: skip
    for got, one in zip(loader, want, strict=True):
        assert (got == one).all()


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux")
def test_no_leaks():
    q, bias, dout = torch.ones(1, 1, 4, 8, requires_grad=True), torch.zeros(4, 4, requires_grad=True), torch.ones(1, 1, 4, 8)

    def calls(count):
        for _ in range(count):
            sdpa(q, q, q)
            torch.autograd.grad(sdpa(q, q, q, bias), (q, bias), dout)
            with pytest.raises(ValueError):
                sdpa(q, q[:, :, :2], q)

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    calls(2000)
    before = resident()
    calls(6000)  # a tensor lost in each would take more
    assert resident() - before < 1 << 20


def test_use():
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    x = torch.randn(2, 5, 16)
    want = layer(x, is_causal=True, src_mask=torch.nn.Transformer.generate_square_subsequent_mask(5))
    calls = []
    original, mha.torch._ops.quick = mha.torch._ops.quick, lambda *a: calls.append(a) or original(*a)
    try:
        with mha.torch.use():
            got = layer(x, is_causal=True, src_mask=torch.nn.Transformer.generate_square_subsequent_mask(5))
            assert torch.nn.functional.scaled_dot_product_attention(*[x.double()] * 3).dtype == torch.float64
    finally:
        mha.torch._ops.quick = original
    assert calls and (got - want).abs().max() < 1e-5
    assert torch.nn.functional.scaled_dot_product_attention is pytorch
    with pytest.raises(ZeroDivisionError), mha.torch.use():
        1 / 0
    used = mha.torch.use()
    assert torch.nn.functional.scaled_dot_product_attention is not pytorch
    used.restore()
    assert torch.nn.functional.scaled_dot_product_attention is pytorch


def test_use_ends_in_any_order():
    fast = torch.backends.mha.get_fastpath_enabled()
    first, second = mha.torch.use(), mha.torch.use()
    first.restore()
    first.restore()  # once more does nothing
    assert torch.nn.functional.scaled_dot_product_attention is not pytorch
    second.restore()
    assert torch.nn.functional.scaled_dot_product_attention is pytorch
    assert torch.backends.mha.get_fastpath_enabled() == fast


def test_use_reaches_inference():
    """PyTorch's encoder layers call another function of theirs for inference, unless it is disabled."""
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x, calls = torch.randn(2, 5, 16), []
    original, mha.torch._ops.quick = mha.torch._ops.quick, lambda *a: calls.append(a) or original(*a)
    try:
        with torch.no_grad(), mha.torch.use():
            got = layer(x)
            assert not torch.backends.mha.get_fastpath_enabled()
    finally:
        mha.torch._ops.quick = original
    assert calls and torch.backends.mha.get_fastpath_enabled()
    with torch.no_grad():
        assert (got - layer(x)).abs().max() < 1e-5


X = torch.zeros(1, 1, 3, 4)


@pytest.mark.parametrize(
    "name, value, kind",
    [
        *[(name, bad, kind) for name in ("query", "key", "value")
          for bad, kind in ((None, TypeError), (X.double(), TypeError), (X.long(), TypeError), (X[0, 0, 0], ValueError),
                            (X[:, :, :, :0], ValueError))],
        ("key", X[..., :3], ValueError),
        ("value", X[:, :, :2], ValueError),
        ("key", X.half(), TypeError),
        ("attn_mask", torch.zeros(3, 2), ValueError),
        ("attn_mask", torch.zeros(3, 3, dtype=torch.int64), TypeError),
        ("attn_mask", torch.zeros(1, 1, 1, 3, 3), ValueError),
        ("attn_mask", [[True]], TypeError),
        ("attn_mask", torch.zeros(3, 3).numpy(), TypeError),
        ("dropout_p", None, TypeError),
        ("dropout_p", "0.1", TypeError),
        ("dropout_p", 1.5, ValueError),
        ("dropout_p", -0.5, ValueError),
        ("scale", float("inf"), ValueError),
        ("scale", float("nan"), ValueError),
    ],
)  # fmt: skip
def test_errors(name, value, kind):
    with pytest.raises(kind, match=rf"^{name}: "):
        sdpa(**{"query": X, "key": X, "value": X, name: value})


@pytest.mark.parametrize("kind", ["bool", "added"])
def test_mask_and_causal(kind):
    """Both count, as in PyTorch for a mask without gradient."""
    mask = torch.rand(5, 7) < 0.7 if kind == "bool" else torch.randn(5, 7)
    compare(leaves((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)), mask, is_causal=True)
    if kind == "added":
        q, k, dout = (torch.randn(2, 3, n, 8) for n in (5, 7, 5))
        hidden = torch.ones(5, 7, dtype=torch.bool).triu(1)
        one, two = (mask.clone().requires_grad_() for _ in range(2))
        sdpa(q, k, k, one, is_causal=True).backward(dout)
        sdpa(q, k, k, two.masked_fill(hidden, -torch.inf)).backward(dout)
        assert one.grad.abs().max() > 0.1 and (one.grad - two.grad).abs().max() < 1e-6


@pytest.mark.parametrize("change", [{"query": X.double()}, {"key": X[..., :3]}, {"attn_mask": torch.zeros(3, 2)}, {"query": X[0, 0, 0]},
                                    {"dropout_p": 2.0}, {"attn_mask": torch.zeros(3, 3, dtype=torch.int64)}])  # fmt: skip
def test_errors_are_those_of_pytorch_too(change):
    for function in (pytorch, sdpa):
        with pytest.raises(RuntimeError):
            function(**{"query": X, "key": X, "value": X, **change})


# ---- tensors whose memory is not what it looks like


@pytest.mark.parametrize("shape", [(5, 5), (5, 7), (7, 5)])
@pytest.mark.parametrize("make", [causal_upper_left, causal_lower_right])
@pytest.mark.parametrize("rank", [3, 4, 5])
@pytest.mark.filterwarnings("ignore:Lower right")
def test_causal_biases(make, shape, rank):
    """They have no memory of their own: directly, and under use(), also for what PyTorch computes."""
    queries, keys = shape
    lead = (2, 1, 3)[5 - rank :]
    q, k, v = leaves((*lead, queries, 8), (*lead, keys, 8), (*lead, keys, 6))
    offset = keys - queries if make is causal_lower_right else 0
    visible = torch.ones(shape, dtype=torch.bool).tril(offset)
    exact = [double(x) for x in (q, k, v)]
    want = pytorch(*exact, visible)
    dout = torch.randn(want.shape)
    want.backward(dout.double())
    out = sdpa(q, k, v, make(*shape))
    out.backward(dout)
    assert type(out) is torch.Tensor and (out - want).abs().max() < 2e-6
    assert all((x.grad - y.grad).abs().max() < 4e-6 for x, y in zip((q, k, v), exact))
    with mha.torch.use():
        sdpa_in_use = torch.nn.functional.scaled_dot_product_attention
        assert (sdpa_in_use(q, k, v, attn_mask=make(*shape)) == out).all()
        assert (sdpa_in_use(*exact, make(*shape)) - want).abs().max() < 1e-12


def test_causal_biases_that_are_refused():
    with pytest.raises(ValueError, match="^attn_mask: "):
        sdpa(X, X, X, causal_upper_left(3, 3), is_causal=True)
    for make in (causal_upper_left, causal_lower_right):
        with pytest.raises(ValueError, match="^attn_mask: is a causal bias of"):
            sdpa(X, X, X, make(3, 4))
        for function in (mha.attention, mha.torch.attention):
            for name in ("mask", "bias"):
                with pytest.raises((TypeError, ValueError), match=f"^{name}: "):
                    function(X, X, X, **{name: make(3, 3)})
        with pytest.raises(TypeError, match="^attn_mask: "):
            mha.torch.MultiheadAttention(8, 2)(*[torch.zeros(3, 1, 8)] * 3, attn_mask=make(3, 3))


class Elsewhere(torch.Tensor):
    """Its numbers are not in its memory: it tells PyTorch's functions where they are."""

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), named=None):
        real = [x.numbers if isinstance(x, Elsewhere) else x for x in arguments]
        with torch._C.DisableTorchFunctionSubclass():
            return function(*real, **(named or {}))


def elsewhere(x):
    made = torch.full_like(x, torch.nan).as_subclass(Elsewhere)
    made.__dict__["numbers"] = x
    return made


def kinds(x):
    """Tensors with the numbers of x, or that have no numbers, as (what PyTorch computes with, the tensor)."""
    nested = [torch.nested.nested_tensor(list(x), layout=layout) for layout in (torch.strided, torch.jagged)]
    return {
        "subclass": x.as_subclass(type("Plain", (torch.Tensor,), {})),
        "elsewhere": elsewhere(x),
        "negated": torch._neg_view(-x),
        "conjugated": torch.complex(x, -x).conj().imag,
        "functional": torch._to_functional_tensor(x),
        "zeros": torch._efficientzerotensor(x.shape),
        "meta": x.to("meta"),
        "fake": FakeTensorMode().from_tensor(x),
        "two": TwoTensor(x, x.clone()),
        "sparse": x.to_sparse(),
        "mkldnn": x.to_mkldnn(),
        "quantized": torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
        "nested": nested[0],
        "jagged": nested[1],
        "complex": torch.complex(x, x),
        "double": x.double(),
    }


def unpacked(x):
    """A dense tensor with the numbers of a result; None for one that has none."""
    x = x.a if isinstance(x, TwoTensor) else x
    x = torch._from_functional_tensor(x) if torch._is_functional_tensor(x) else x
    if isinstance(x, FakeTensor) or x.is_meta:
        return None
    return torch.stack([y.as_subclass(torch.Tensor) for y in x.unbind()]) if x.is_nested else x.as_subclass(torch.Tensor)


#: In these PyTorch itself reads memory that is not there, or that mha has not been given.
WITHOUT_ANSWER = {"zeros", "meta"}


@pytest.mark.parametrize("place", ["query", "all", "attn_mask"])
@pytest.mark.parametrize("name", kinds(torch.ones(2, 2, 5, 5)))
@pytest.mark.filterwarnings("ignore")
def test_kinds_of_tensors(name, place):
    """mha computes what PyTorch computes, or it raises; under use() it computes whatever PyTorch computes."""
    x = torch.randn(2, 2, 5, 5)
    kind = kinds(x)[name]
    given = {"query": kind if place != "attn_mask" else x, "key": kind if place == "all" else x, "value": kind if place == "all" else x}
    if place == "attn_mask":
        given["attn_mask"] = kind

    def found(function):
        try:
            return function(*given.values())
        except Exception as error:
            return error

    want, got = found(pytorch), found(sdpa)
    with mha.torch.use():
        used = found(torch.nn.functional.scaled_dot_product_attention)
    if isinstance(want, Exception):
        assert isinstance(got, Exception) or name == "meta"
        assert type(used) is type(want)
        return
    assert not isinstance(used, Exception) and used.shape == want.shape if not want.is_nested else used.is_nested
    if name in WITHOUT_ANSWER:
        return
    for result in (used, got):
        if not isinstance(result, Exception) and unpacked(want) is not None:
            assert (unpacked(result) - unpacked(want)).abs().max() < 1e-5
