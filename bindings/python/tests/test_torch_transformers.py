"""attn_implementation="mha" beside the eager attention of transformers, and statistics of heads while a model runs."""

import copy
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
t = pytest.importorskip("transformers")
import mha  # noqa: E402
import mha.torch  # noqa: E402

SIZES = {"vocab_size": 99, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
WIDE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, **SIZES}
SHARED = {"num_key_value_heads": 2, "head_dim": 8, **WIDE}  # two query heads for each key
LOCAL = {"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]}
PAIR = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, **SIZES}  # fmt: skip
FAMILIES = {
    "gpt2": lambda: t.GPT2LMHeadModel(t.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=32, **SIZES)),
    "gpt_neox": lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**WIDE)),
    "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**SHARED)),
    "mistral": lambda: t.MistralForCausalLM(t.MistralConfig(sliding_window=3, **SHARED)),
    "qwen2": lambda: t.Qwen2ForCausalLM(t.Qwen2Config(use_sliding_window=True, **LOCAL, **SHARED)),
    "gemma2": lambda: t.Gemma2ForCausalLM(t.Gemma2Config(attn_logit_softcapping=0.3, query_pre_attn_scalar=2, **LOCAL, **SHARED)),
    "gemma3": lambda: t.Gemma3ForCausalLM(t.Gemma3TextConfig(**LOCAL, **SHARED)),
    "gpt_oss": lambda: t.GptOssForCausalLM(t.GptOssConfig(num_local_experts=2, num_experts_per_tok=1, **LOCAL, **SHARED)),
    "bert": lambda: t.BertModel(t.BertConfig(**WIDE)),
    "modernbert": lambda: t.ModernBertModel(t.ModernBertConfig(local_attention=4, **WIDE)),
    "bart": lambda: t.BartModel(t.BartConfig(**PAIR)),
}
GENERATIVE = [name for name in FAMILIES if name not in ("bert", "modernbert", "bart")]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(5)


@pytest.mark.parametrize("order", ["mha.torch, transformers", "transformers, mha.torch"])
def test_the_name_is_known_in_every_order_of_imports(order):
    code = f"""
import {order}
from transformers import LlamaConfig, LlamaModel
sizes = dict(vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
assert LlamaModel(LlamaConfig(attn_implementation="mha", **sizes)).config._attn_implementation == "mha"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_missing_transformers_is_no_error():
    code = """
import sys
sys.modules["transformers"] = None
import mha.torch
try:
    import transformers.modeling_utils
except ImportError:
    print("none")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "none\n", done.stderr


def pair(name):
    """The model with eager attention and with mha, with parameters of a size that tells heads and keys apart."""
    theirs = FAMILIES[name]().eval()
    for p in theirs.parameters():
        torch.nn.init.normal_(p, std=0.3)
    ours = copy.deepcopy(theirs)
    theirs.set_attn_implementation("eager")
    ours.set_attn_implementation("mha")
    return theirs, ours


def batch():
    """Two texts, one of them padded at its end."""
    mask = (torch.arange(9) < torch.tensor([[9], [6]])).long()
    return {"input_ids": torch.randint(3, 99, (2, 9)), "attention_mask": mask}


def all_weights(output):
    names = [name for name in output if name.endswith("attentions")]
    assert names
    return [(name, weights) for name in names for weights in output[name]]


@pytest.mark.parametrize("name", FAMILIES)
def test_results_and_weights(name):
    theirs, ours = pair(name)
    given = batch()
    real = given["attention_mask"].bool()
    want, got = (model(**given, output_attentions=True, return_dict=True) for model in (theirs, ours))
    plain = ours(**given)
    assert (want[0] - got[0])[real].abs().max() < 2e-4 and (plain[0] - got[0])[real].abs().max() < 2e-4
    assert not any(plain.get(key) for key in plain if key.endswith("attentions"))
    for (kind, a), (_, b) in zip(all_weights(want), all_weights(got), strict=True):
        assert a.shape == b.shape and b.dim() == 4
        assert (a - b).transpose(1, 2)[real].abs().max() < 1e-5, kind


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients(name):
    theirs, ours = pair(name)
    given = batch()
    real = given["attention_mask"].bool()
    for model in (theirs, ours):
        out = model(**given)[0][real]
        (out * torch.linspace(-1, 1, out.numel()).view_as(out)).mean().backward()
    for (key, a), b in zip(theirs.named_parameters(), ours.parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), key
        if a.grad is not None:
            assert (a.grad - b.grad).abs().max() <= 1e-5 + 1e-3 * a.grad.abs().max(), key


@pytest.mark.parametrize("name", GENERATIVE)
def test_generation(name):
    theirs, ours = pair(name)
    ids = torch.randint(3, 99, (2, 5))
    left = torch.tensor([[1] * 5, [0, 0, 1, 1, 1]])  # padding in front, as generation wants it
    options = {"attention_mask": left, "max_new_tokens": 8, "do_sample": False}
    assert (theirs.generate(ids, **options) == ours.generate(ids, **options)).all()


def test_autocast():
    theirs, ours = pair("gpt_oss")
    given = batch()
    want = ours(**given)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = ours(**given)[0]
    assert (got - want).abs().max() < 0.1 * want.abs().max()


def test_half():
    _, ours = pair("gpt_oss")
    given = batch()
    want = ours(**given)[0]
    got = ours.bfloat16()(**given)[0]
    assert got.dtype == torch.bfloat16 and (got - want).abs().max() < 0.2 * want.abs().max()


def test_dropout():
    _, ours = pair("llama")
    ours.train()
    ours.config.attention_dropout = 0.5
    for layer in ours.model.layers:
        layer.self_attn.attention_dropout = 0.5
    weights = ours(**batch(), output_attentions=True).attentions[0]
    visible = torch.ones(9, 9, dtype=torch.bool).tril()
    assert 0.3 < (weights[0][:, visible] == 0).float().mean() < 0.7


def test_compile():
    _, ours = pair("llama")
    given = batch()
    torch.compiler.reset()
    compiled = torch.compile(ours, backend="aot_eager")
    assert (compiled(**given).logits - ours(**given).logits).abs().max() < 1e-4


# ---- statistics


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_oss", "bart"])
def test_statistics_of_a_model(name):
    """They are those of the weights that the model returns."""
    _, ours = pair(name)
    given = batch()
    weights = [x.detach() for _, x in all_weights(ours(**given, output_attentions=True, return_dict=True))]
    with mha.torch.statistics(ours, top=1) as heads:
        ours(**given)
    assert len(heads) == len(heads.calls) == len(weights)
    modules = dict(ours.named_modules())
    for key, found in heads.items():
        assert "Attention" in type(modules[key]).__name__
        fits = [p for p in weights if (found.received - p.sum(2)).abs().max() < 1e-5]
        assert len(fits) == 1, key
        assert (found.entropy + torch.special.xlogy(fits[0], fits[0]).sum(-1)).abs().max() < 1e-5
        largest, keys = fits[0].max(-1)
        assert (found.largest - largest).abs().max() < 1e-6
        assert (found.top_keys[..., 0] == torch.where(largest > 0, keys, -1)).all()


def test_statistics_of_each_step():
    _, ours = pair("llama")
    with mha.torch.statistics(ours, ("entropy",)) as heads:
        ours.generate(torch.randint(3, 99, (1, 5)), max_new_tokens=3, min_new_tokens=3, do_sample=False)
    assert [name for name, _ in heads.calls] == ["model.layers.0.self_attn", "model.layers.1.self_attn"] * 3
    assert [s.entropy.shape[2] for _, s in heads.calls] == [5, 5, 1, 1, 1, 1]
    assert heads.calls[0][1].effective is None and heads.mean("entropy").shape == (2, 4)


def test_statistics_change_nothing():
    _, ours = pair("gpt2")
    given = batch()
    want = ours(**given)[0]
    want.sum().backward()
    gradients = [p.grad.clone() for p in ours.parameters()]
    ours.zero_grad()
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in ours.modules()]
    with mha.torch.statistics(ours) as heads:
        got = ours(**given)[0]
        got.sum().backward()
    assert len(heads) == 2 and (want == got).all()
    assert all((a == p.grad).all() for a, p in zip(gradients, ours.parameters()))
    assert hooks == [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in ours.modules()]
    ours(**given)
    assert len(heads.calls) == 2  # none after the block


def test_statistics_of_modules_and_functions():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one = mha.torch.MultiheadAttention(16, 4, batch_first=True)
            self.two = torch.nn.MultiheadAttention(16, 4, batch_first=True)

        def forward(self, x):
            x = self.one(x, x, x)[0]
            x = self.two(x, x, x, need_weights=False)[0]
            q = x[:, None]
            return mha.torch.scaled_dot_product_attention(q, q, q, is_causal=True)

    net, x = Net(), torch.randn(2, 5, 16)
    with mha.torch.use(), mha.torch.statistics(net, heatmap=(2, 2)) as heads:
        net(x)
    assert list(heads) == ["one", "two", ""] and heads["two"].heatmap.shape == (2, 4, 2, 2)
    assert (heads[""].effective[0, 0, 0] - 1).abs() < 1e-6  # the first row of causal attention sees itself
    net(x)
    assert len(heads.calls) == 3


def test_statistics_that_are_refused():
    model = torch.nn.Linear(1, 1)
    with pytest.raises(TypeError, match="^model: "):
        mha.torch.statistics(None)
    with mha.torch.statistics(model), pytest.raises(RuntimeError, match="another"), mha.torch.statistics(model):
        pass
    with pytest.raises(ZeroDivisionError), mha.torch.statistics(model):
        1 / 0
    assert mha.torch._ops.watcher is None
