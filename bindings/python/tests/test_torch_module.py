"""mha.torch.MultiheadAttention beside the module that it replaces."""

import copy
import doctest
import importlib
import itertools

import pytest

torch = pytest.importorskip("torch")
import mha.torch  # noqa: E402

M, H, B, TQ, TK = 16, 4, 2, 5, 7


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(5)


@pytest.mark.parametrize("name", ["mha.torch._module"])
def test_doctests(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def both(**options):
    """PyTorch's module in float64 and ours, with the same parameters."""
    theirs = torch.nn.MultiheadAttention(M, H, **options)
    ours = mha.torch.MultiheadAttention(M, H, **options)
    for p in theirs.parameters():
        torch.nn.init.normal_(p, std=0.4)
    assert ours.load_state_dict(theirs.state_dict()) and list(ours.state_dict()) == list(theirs.state_dict())
    return theirs.double(), ours


def compare(theirs, ours, inputs, use_weights=False, **options):
    """Results, weights, and the gradients of inputs, parameters and masks."""
    masks = {name: mask for name, mask in options.items() if isinstance(mask, torch.Tensor)}
    plain = {name: value for name, value in options.items() if name not in masks}
    results = []
    for module, dtype in ((theirs, torch.float64), (ours, torch.float32)):
        leaves = [x.to(dtype).detach().requires_grad_() for x in inputs]
        cast = {n: m.detach().to(dtype).requires_grad_() if m.is_floating_point() else m for n, m in masks.items()}
        out, weights = module(*leaves, **cast, **plain)
        loss = (out * torch.linspace(-1, 1, out.numel(), dtype=dtype).view_as(out)).sum()
        if use_weights:
            loss = loss + (weights * torch.linspace(-1, 2, weights.numel(), dtype=dtype).view_as(weights)).sum()
        module.zero_grad()
        loss.backward()
        gradients = [x.grad for x in (*leaves, *module.parameters())]
        gradients += [m.grad for n, m in cast.items() if m.is_floating_point() and n == "attn_mask"]
        results.append((out, weights, *gradients))
    for want, got in zip(*results):
        assert (want is None) == (got is None)
        assert want is None or (got.shape == want.shape and (got - want).abs().max() < 5e-5)


def inputs(batch_first=False, batched=True, kdim=M, vdim=M):
    shapes = [(TQ, B, M), (TK, B, kdim), (TK, B, vdim)]
    drawn = [torch.randn(shape) for shape in shapes]
    if not batched:
        return [x[:, 0] for x in drawn]
    return [x.transpose(0, 1) for x in drawn] if batch_first else drawn


@pytest.mark.parametrize("batch_first, batched", [(False, True), (True, True), (False, False)])
@pytest.mark.parametrize("need_weights, average", [(False, True), (True, True), (True, False)])
def test_layouts(batch_first, batched, need_weights, average):
    compare(*both(batch_first=batch_first), inputs(batch_first, batched), need_weights=need_weights,
            average_attn_weights=average)  # fmt: skip


@pytest.mark.parametrize("options", [{"bias": False}, {"add_bias_kv": True}, {"add_zero_attn": True},
                                     {"add_bias_kv": True, "add_zero_attn": True}, {"kdim": 6, "vdim": 10}])  # fmt: skip
@pytest.mark.parametrize("masked", [False, True])
def test_options(options, masked):
    given = inputs(kdim=options.get("kdim", M), vdim=options.get("vdim", M))
    hidden = torch.rand(TQ, TK) < 0.4
    hidden[:, 0] = False  # PyTorch gives NaN to rows that see no key
    masks = {"attn_mask": hidden, "key_padding_mask": torch.arange(TK) >= torch.tensor([[5], [7]])}
    for need_weights in (False, True):
        compare(*both(**options), given, need_weights=need_weights, **(masks if masked else {}))


def test_masks():
    def drawn(shape):
        hidden = torch.rand(shape) < 0.4
        hidden[..., 0] = False
        return {"bool": hidden, "float": torch.randn(shape), None: None}

    for attn, padding in itertools.product(("bool", "float", None), repeat=2):
        for shape in ((TQ, TK), (B * H, TQ, TK)):
            masks = {"attn_mask": drawn(shape)[attn], "key_padding_mask": drawn((B, TK))[padding]}
            masks = {name: mask for name, mask in masks.items() if mask is not None}
            if attn and padding and attn != padding:
                continue  # deprecated by PyTorch
            compare(*both(), inputs(), need_weights=False, **masks)


def test_self_attention_and_causal_hint():
    theirs, ours = both(batch_first=True)
    x = torch.randn(B, TQ, M)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(TQ)
    for need_weights in (False, True):
        want, weights = theirs(*[x.double()] * 3, attn_mask=mask.double(), is_causal=True, need_weights=need_weights)
        got, got_weights = ours(x, x, x, attn_mask=mask, is_causal=True, need_weights=need_weights)
        assert (want - got).abs().max() < 1e-5
        assert weights is None or (weights - got_weights).abs().max() < 1e-5


@pytest.mark.parametrize("average", [True, False])
def test_gradient_of_weights(average):
    mask = torch.randn(B * H, TQ, TK)
    compare(*both(), inputs(), use_weights=True, average_attn_weights=average, attn_mask=mask)


def test_dropout():
    _, ours = both(dropout=0.5, batch_first=True)
    x = torch.randn(1, 64, M)
    ours.train()
    weights = ours(x, x, x, average_attn_weights=False)[1]
    assert 0.4 < (weights == 0).float().mean() < 0.6
    ours.eval()
    assert (ours(x, x, x, average_attn_weights=False)[1] > 0).all()


def test_dead_rows_are_zeros():
    _, ours = both(batch_first=True)
    x = torch.randn(1, TQ, M)
    out, weights = ours(x, x, x, key_padding_mask=torch.ones(1, TQ, dtype=torch.bool))
    assert (out == ours.out_proj.bias).all() and (weights == 0).all()


def test_encoder_layer():
    layer = torch.nn.TransformerEncoderLayer(M, H, 32, dropout=0.0, batch_first=True)
    x = torch.randn(B, TQ, M)
    want = layer(x)
    ours = mha.torch.MultiheadAttention(M, H, batch_first=True)
    ours.load_state_dict(layer.self_attn.state_dict())
    layer.self_attn = ours
    assert (layer(x) - want).abs().max() < 1e-5


def test_autocast_and_half():
    _, ours = both(batch_first=True)
    x = torch.randn(B, TQ, M)
    want = ours(x, x, x)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (ours(x, x, x)[0] - want).abs().max() < 0.1
    half = copy.deepcopy(ours).bfloat16()
    out, weights = half(*[x.bfloat16()] * 3)
    assert out.dtype == weights.dtype == torch.bfloat16 and (out - want).abs().max() < 0.1


def test_what_pytorch_computes():
    """float64 and nested tensors go to PyTorch's own code."""
    theirs, ours = both(batch_first=True)
    theirs.eval(), ours.double().eval()
    x = torch.randn(B, TQ, M, dtype=torch.float64)
    for need_weights in (True, False):
        want, got = (module(x, x, x, need_weights=need_weights) for module in (theirs, ours))
        assert (want[0] == got[0]).all() and (not need_weights or (want[1] == got[1]).all())
    with torch.no_grad():
        nested = torch.nested.nested_tensor(list(x.float()))
        want, got = (module.float()(nested, nested, nested)[0] for module in (theirs, ours))
        assert got.is_nested and all((a == b).all() for a, b in zip(want.unbind(), got.unbind()))


@pytest.mark.parametrize(
    "change, kind, text",
    [
        ({"query": None}, TypeError, "^query: must be a tensor"),
        ({"query": torch.zeros(M)}, AssertionError, "1-D query"),
        ({"query": torch.zeros(TQ, B, M + 1)}, AssertionError, "^query: has shape"),
        ({"key": torch.zeros(TK, M)}, AssertionError, "`key` and `value` to be 3-D but found 2-D and 3-D"),
        ({"key": torch.zeros(TK, B + 1, M)}, AssertionError, "^key: has shape"),
        ({"value": torch.zeros(TK + 1, B, M)}, AssertionError, "^value: has shape"),
        ({"attn_mask": torch.zeros(TK)}, AssertionError, "`attn_mask`"),
        ({"attn_mask": torch.zeros(TQ, TK + 1)}, RuntimeError, "^attn_mask: has shape"),
        ({"attn_mask": torch.zeros(B * H + 1, TQ, TK)}, RuntimeError, "^attn_mask: has shape"),
        ({"attn_mask": torch.zeros(TQ, TK, dtype=torch.int64)}, TypeError, "^attn_mask: is torch.int64"),
        ({"key_padding_mask": torch.zeros(TK)}, AssertionError, "`key_padding_mask`"),
        ({"key_padding_mask": torch.zeros(TK, B)}, AssertionError, "^key_padding_mask: has shape"),
        ({"key_padding_mask": [[True]]}, TypeError, "^key_padding_mask: must be a tensor"),
        ({"attn_mask": torch.zeros(TQ, TK).numpy()}, TypeError, "^attn_mask: must be a tensor"),
        ({"is_causal": True}, RuntimeError, "^attn_mask: must be given"),
    ],
)
def test_errors(change, kind, text):
    """Those of PyTorch's module; what is wrong with shapes is a ValueError as well."""
    given = dict(zip(("query", "key", "value"), inputs()))
    with pytest.raises(kind, match=text) as caught:
        both()[1](**{**given, **change})
    assert "shape" not in text or isinstance(caught.value, ValueError)
