"""mha.torch under torch.compile, torch.export, torch.func and torch.vmap, and its operators."""

import copy
import shutil

import pytest

torch = pytest.importorskip("torch")
import mha.torch  # noqa: E402
from mha.torch._weights import attention_weights  # noqa: E402

sdpa = mha.torch.scaled_dot_product_attention
pytorch = torch.nn.functional.scaled_dot_product_attention
BACKENDS = ["aot_eager", *(["inductor"] if shutil.which("g++") or shutil.which("clang++") else [])]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)
    torch.compiler.reset()


def leaves(*shapes, dtype=torch.float32):
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


def test_operators():
    tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static",
             "test_aot_dispatch_dynamic")  # fmt: skip
    q, k, v, bias, sinks = leaves((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 6), (3, 5), (2,))
    for mask, sink, cap in ((None, None, None), (bias, None, 5.0), (torch.rand(3, 5) < 0.5, sinks, None)):
        rest = (sink, False, None, cap, 0.0, 0)
        torch.library.opcheck(torch.ops.mha.attention.default, (q, k, v, mask, *rest), test_utils=tests)
        for mean in (False, True):
            arguments = (q, k, v, mask, *rest, mean)
            torch.library.opcheck(torch.ops.mha.attention_weights.default, arguments, test_utils=tests)
    inputs = [x.detach() for x in (q, k, v, bias, sinks)]
    options = (False, None, None, 0.0, 0)
    out, softmax = torch.ops.mha.attention(*inputs, *options)
    arguments = (*inputs, *options, out, softmax, out, True, True)
    torch.library.opcheck(torch.ops.mha.attention_backward.default, arguments, test_utils=("test_schema", "test_faketensor"))


def test_operator_has_the_bits_of_eager_calls():
    one, two = leaves((1, 2, 3, 4)), leaves((1, 2, 3, 4))
    two[0].data.copy_(one[0])
    eager = sdpa(one[0], one[0], one[0], is_causal=True)
    op = torch.ops.mha.attention(two[0], two[0], two[0], None, None, True, None, None, 0.0, 0)[0]
    assert (eager == op).all()
    eager.sum().backward(), op.sum().backward()
    assert (one[0].grad == two[0].grad).all()


@pytest.mark.filterwarnings("ignore:Input")  # that it is float32
def test_gradcheck_with_softcap_sinks_and_weights():
    inputs = leaves((1, 2, 3, 4), (1, 1, 4, 4), (1, 1, 4, 4), (3, 4), (2,))

    def results(q, k, v, bias, sinks):
        out, _, weights = torch.ops.mha.attention_weights(q, k, v, bias, sinks, False, None, 1.5, 0.0, 0, False)
        return out, weights

    def eager(q, k, v, bias, sinks):
        return mha.torch._ops.attention(q, k, v, bias, sinks, False, None, 1.5, 0.0, 0)

    for function in (results, eager):
        torch.autograd.gradcheck(function, inputs, eps=1e-2, atol=1e-3, rtol=1e-2, nondet_tol=0)


class Net(torch.nn.Module):
    def forward(self, q, mask):
        return sdpa(q * 2, q, q + 1, mask).sum()


@pytest.mark.parametrize("backend", BACKENDS)
def test_compile(backend):
    q, mask = torch.randn(2, 2, 5, 8, requires_grad=True), torch.randn(5, 5, requires_grad=True)
    net = Net()
    net(q, mask).backward()
    want = net(q, mask), q.grad.clone(), mask.grad.clone()
    q.grad = mask.grad = None
    got = torch.compile(net, backend=backend, fullgraph=True)(q, mask)
    got.backward()
    assert (got - want[0]).abs() < 1e-4 and (q.grad - want[1]).abs().max() < 1e-5
    assert (mask.grad - want[2]).abs().max() < 1e-5


def test_compile_with_any_length():
    compiled = torch.compile(lambda q: sdpa(q, q, q, is_causal=True), backend="aot_eager", fullgraph=True, dynamic=True)
    for length in (5, 9, 16):
        q = torch.randn(2, 2, length, 8)
        assert (compiled(q) == sdpa(q, q, q, is_causal=True)).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_compile_module(backend):
    layer = mha.torch.MultiheadAttention(16, 4, batch_first=True)
    compiled = torch.compile(copy.deepcopy(layer), backend=backend, fullgraph=True)
    x, padding = torch.randn(2, 5, 16), torch.arange(5) >= torch.tensor([[5], [3]])
    for module in (layer, compiled):
        out, weights = module(x, x, x, key_padding_mask=padding)
        (out.square().sum() + weights.square().sum()).backward()
    (out, weights), (got, got_weights) = layer(x, x, x), compiled(x, x, x)
    assert (got - out).abs().max() < 1e-5 and (weights - got_weights).abs().max() < 1e-5
    for a, b in zip(layer.parameters(), compiled.parameters(), strict=True):
        assert (a.grad - b.grad).abs().max() < 1e-4


def test_compile_under_autocast():
    compiled = torch.compile(lambda q: sdpa(q, q, q), backend="aot_eager", fullgraph=True)
    q = torch.randn(1, 2, 5, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (compiled(q) == sdpa(q, q, q)).all() and compiled(q).dtype == torch.bfloat16


def test_compile_with_dropout():
    compiled = torch.compile(lambda q, v: sdpa(q, q, v, dropout_p=0.5), backend="aot_eager")
    q, eye = torch.randn(1, 2, 64, 8), torch.eye(64).expand(1, 2, 64, 64)
    one, two = compiled(q, eye), compiled(q, eye)
    assert (one != two).any() and 0.4 < (one == 0).float().mean() < 0.6


def test_export():
    q, mask = torch.randn(2, 2, 5, 8), torch.randn(5, 5)
    exported = torch.export.export(Net(), (q, mask))
    assert any("mha.attention" in str(node.target) for node in exported.graph.nodes)
    assert (exported.module()(q, mask) - Net()(q, mask)).abs() < 1e-4
    decomposed = exported.run_decompositions()
    assert (decomposed.module()(q, mask) - Net()(q, mask)).abs() < 1e-4


def test_export_module_with_any_length(tmp_path):
    layer = mha.torch.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    length = torch.export.Dim("length", min=2, max=64)
    exported = torch.export.export(layer, (x, x, x), dynamic_shapes=({1: length},) * 3)
    torch.export.save(exported, tmp_path / "layer.pt2")
    again = torch.export.load(tmp_path / "layer.pt2").module()
    for count in (5, 11):
        x = torch.randn(2, count, 16)
        for want, got in zip(layer(x, x, x), again(x, x, x), strict=True):
            assert (want - got).abs().max() < 1e-6


def test_functional_gradients():
    q = torch.randn(2, 2, 5, 8)
    want = torch.autograd.grad(pytorch(p := q.double().requires_grad_(), p, p).sum(), p)[0]
    assert (torch.func.grad(lambda x: sdpa(x, x, x).sum())(q) - want).abs().max() < 1e-5


@pytest.mark.parametrize("weights", [False, True])
def test_functional_second_derivatives_are_refused(weights):
    def loss(q):
        if weights:
            return attention_weights(q, q, q, None, None, False, None, None, 0.0, 0, False)[0].square().sum()
        return sdpa(q, q, q).square().sum()

    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.func.grad(lambda q: torch.func.grad(loss)(q).sum())(torch.randn(1, 2, 3, 4))


def test_functional_call_of_a_module():
    layer = mha.torch.MultiheadAttention(16, 4, batch_first=True)
    x, parameters = torch.randn(2, 5, 16), {name: p.detach() for name, p in layer.named_parameters()}

    def loss(parameters):
        out, weights = torch.func.functional_call(layer, parameters, (x, x, x))
        return out.square().sum() + weights.square().sum()

    loss(dict(layer.named_parameters())).backward()
    got = torch.func.grad(loss)(parameters)
    for name, p in layer.named_parameters():
        assert (got[name] - p.grad).abs().max() < 1e-4


CASES = {  # the axis of each that is mapped
    "all": (0, 0, 0, 0),
    "inner axes": (1, 2, 1, 1),
    "queries": (0, None, None, None),
    "all but the mask": (0, 0, 0, None),
    "the mask": (None, None, None, 0),
}


@pytest.mark.parametrize("axes", CASES.values(), ids=CASES)
@pytest.mark.parametrize("bias", [(5, 7), (1, 5, 7), (3, 5, 7), (2, 1, 5, 7)])
def test_vmap(axes, bias):
    shapes = [(2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8), bias]
    inputs = [torch.randn(s if a is None else (*s[:a], 4, *s[a:])) for s, a in zip(shapes, axes)]
    exact = [x.double() for x in inputs]
    got, want = torch.vmap(sdpa, axes)(*inputs), torch.vmap(pytorch, axes)(*exact)
    assert got.shape == want.shape and (got - want).abs().max() < 5e-6
    # Gradients sample by sample, that of the mask included.
    dout = torch.randn(2, 3, 5, 8)
    ours, theirs = (
        torch.vmap(torch.func.grad(lambda *a: (f(*a) * dout).sum(), (0, 1, 2, 3)), axes)(*x)
        for f, x in ((sdpa, inputs), (pytorch, exact))
    )
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape and (a - b).abs().max() < 1e-5


def test_vmap_of_sinks_and_weights():
    q, k, sinks = torch.randn(4, 2, 6, 5, 8), torch.randn(4, 2, 3, 7, 8), torch.randn(4, 6)

    def results(q, k, sinks, mean):
        return attention_weights(q, k, k, None, sinks, False, None, 2.0, 0.0, 0, mean)

    for mean in (False, True):
        got = torch.vmap(results, (0, 0, 0, None))(q, k, sinks, mean)
        want = [torch.stack(x) for x in zip(*(results(a, b, c, mean) for a, b, c in zip(q, k, sinks)))]
        for a, b in zip(got, want, strict=True):
            assert a.shape == b.shape and (a - b).abs().max() < 1e-6

    def loss(sinks, q, k):
        out, weights = results(q, k, sinks, False)
        return out.sum() + weights.square().sum()

    want = []
    for a, b, c in zip(sinks.clone().requires_grad_().unbind(), q, k):
        want.append(torch.autograd.grad(loss(a, b, c), a)[0])
    assert (torch.vmap(torch.func.grad(loss))(sinks, q, k) - torch.stack(want)).abs().max() < 1e-5


def test_checkpointing():
    q = torch.randn(1, 2, 5, 8, requires_grad=True)
    sdpa(q, q, q).sum().backward()
    want, q.grad = q.grad, None
    torch.utils.checkpoint.checkpoint(lambda x: sdpa(x, x, x).sum(), q, use_reentrant=False).backward()
    assert (q.grad == want).all()
