"""mha.torch.MultiheadAttention and attn_implementation="mha" beside the modules they replace."""

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


def test_encoder_layer_and_compile():
    layer = torch.nn.TransformerEncoderLayer(M, H, 32, dropout=0.0, batch_first=True)
    x = torch.randn(B, TQ, M)
    want = layer(x)
    ours = mha.torch.MultiheadAttention(M, H, batch_first=True)
    ours.load_state_dict(layer.self_attn.state_dict())
    layer.self_attn = ours
    assert (layer(x) - want).abs().max() < 1e-5
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    (got, weights), (out, plain) = compiled(x, x, x), ours(x, x, x)
    assert (got - out).abs().max() < 1e-6 and (weights - plain).abs().max() < 1e-6


def test_autocast_and_half():
    _, ours = both(batch_first=True)
    x = torch.randn(B, TQ, M)
    want = ours(x, x, x)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (ours(x, x, x)[0] - want).abs().max() < 0.1
    half = copy.deepcopy(ours).bfloat16()
    out, weights = half(*[x.bfloat16()] * 3)
    assert out.dtype == weights.dtype == torch.bfloat16 and (out - want).abs().max() < 0.1


@pytest.mark.parametrize(
    "change, name",
    [
        ({"query": None}, "query"),
        ({"key": torch.zeros(TK, M)}, "key"),
        ({"attn_mask": torch.zeros(TQ, TK + 1)}, "attn_mask"),
        ({"attn_mask": torch.zeros(TQ, TK, dtype=torch.int64)}, "attn_mask"),
        ({"key_padding_mask": torch.zeros(TK, B)}, "key_padding_mask"),
        ({"is_causal": True}, "attn_mask"),
    ],
)
def test_errors(change, name):
    given = dict(zip(("query", "key", "value"), inputs()))
    with pytest.raises((TypeError, ValueError, RuntimeError), match=rf"^{name}: "):
        both()[1](**{**given, **change})


def pair(cls, config):
    theirs = cls(config).eval()
    ours = copy.deepcopy(theirs)
    ours.set_attn_implementation("mha")
    theirs.set_attn_implementation("eager")
    return theirs, ours


def small_models():
    import transformers as t

    sizes = {"vocab_size": 99, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    wide = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, **sizes}
    yield t.GPT2LMHeadModel, t.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=32, **sizes)
    yield t.LlamaForCausalLM, t.LlamaConfig(num_key_value_heads=2, **wide)
    yield t.MistralForCausalLM, t.MistralConfig(num_key_value_heads=2, sliding_window=3, head_dim=8, **wide)
    yield t.BertModel, t.BertConfig(**wide)


@pytest.mark.parametrize("which", range(4))
def test_transformers(which):
    pytest.importorskip("transformers")
    assert mha.torch.register_transformers()
    theirs, ours = pair(*list(small_models())[which])
    ids = torch.randint(3, 99, (2, 9))
    mask = (torch.arange(9) < torch.tensor([[9], [6]])).long()
    want = theirs(input_ids=ids, attention_mask=mask, output_attentions=True)
    got = ours(input_ids=ids, attention_mask=mask, output_attentions=True)
    plain = ours(input_ids=ids, attention_mask=mask)
    real = mask.bool()
    assert (want[0] - got[0])[real].abs().max() < 1e-5 and (want[0] - plain[0])[real].abs().max() < 1e-5
    assert plain.attentions is None or not len(plain.attentions)
    for a, b in zip(want.attentions, got.attentions, strict=True):
        assert (a - b).transpose(1, 2)[real].abs().max() < 1e-5
    if which < 3:
        generate = {"attention_mask": mask[:1], "max_new_tokens": 6, "do_sample": False}
        assert (theirs.generate(ids[:1], **generate) == ours.generate(ids[:1], **generate)).all()


def test_transformers_refuses_what_it_cannot_do():
    q = torch.zeros(1, 1, 2, 4)
    for name in ("softcap", "s_aux"):
        with pytest.raises(ValueError, match=f"^{name}: "):
            mha.torch._transformers.attention_forward(torch.nn.Module(), q, q, q, None, **{name: 1.0})
