"""attn_implementation="mha" beside eager attention in every family of text models of transformers, or refused.

A family is built from its own configuration class with small sizes, so that new families need no words here. Models of pictures and
sound, and those that consist of other models, are built from the same blocks, and ask the same question when they are built.
MHA_SAMPLE takes one family in so many.
"""

import inspect
import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES  # noqa: E402

import mha.torch  # noqa: E402
from mha.torch import _transformers  # noqa: E402

SAMPLE = int(os.environ.get("MHA_SAMPLE", 1))
WORDS, LAYERS, HEADS = 99, 2, 4
#: Sizes by the names that configurations give them.
SMALL = {
    name: size
    for size, names in {
        64: "hidden_size d_model n_embd dim embed_dim embedding_size emb_dim word_embed_proj_dim attention_hidden_size dim_model "
        "max_position_embeddings n_positions n_ctx max_source_positions max_target_positions",
        HEADS: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads attention_heads",
        2: "num_key_value_heads num_kv_heads num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers "
        "num_decoder_layers num_encoder_layers num_hidden_groups",
        16: "head_dim d_kv kv_channels rotary_dim qk_rope_head_dim qk_nope_head_dim v_head_dim q_lora_rank kv_lora_rank qk_head_dim "
        "attention_head_size global_head_dim",
        48: "intermediate_size ffn_dim d_ff n_inner encoder_ffn_dim decoder_ffn_dim ffn_hidden_size moe_intermediate_size "
        "shared_expert_intermediate_size mlp_dim d_inner",
        WORDS: "vocab_size",
    }.items()
    for name in names.split()
}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
HEAD = {"head_dim": 16}
EXPERTS = {"n_routed_experts": 4, "num_experts_per_tok": 2}
#: What some families need beside that, because it is None or depends on other sizes.
MORE = {
    "deepseek_v2": EXPERTS,
    "glm4v_moe_text": {"head_dim": 128},
    "glm_image_text": {"head_dim": 64},
    "glm_ocr_text": {"head_dim": 64},
    "hunyuan_v1_dense": HEAD,
    "hunyuan_v1_moe": HEAD,
    "ministral": HEAD,
    "nemotron": {"num_key_value_heads": 2},
    "xmod": {"default_language": "en_XX"},
}
OTHER_SIZES = "its sizes depend on one another in its own way"
SLOW = "takes seconds"
#: Families that these sizes do not build, with the reason.
LEFT_OUT = {
    "bamba": SLOW,
    "cohere_compass_text": OTHER_SIZES,
    "cosmos3_edge_text": OTHER_SIZES,
    "dots1": OTHER_SIZES,
    "falcon_h1": SLOW,
    "gemma3n_text": SLOW,
    "glm4v_text": OTHER_SIZES,
    "glm5_next_text": OTHER_SIZES,
    "granitemoehybrid": SLOW,
    "hunyuan_vl_text": OTHER_SIZES,
    "kimi_linear": SLOW,
    "layoutlmv2": "needs the package detectron2",
    "lfm2_moe": OTHER_SIZES,
    "longcat_flash": SLOW,
    "mistral4": OTHER_SIZES,
    "nemotron_h": SLOW,
    "qwen2_5_vl_text": OTHER_SIZES,
    "qwen2_vl_text": OTHER_SIZES,
    "qwen4_exp_text": OTHER_SIZES,
    "udop": "needs pictures",
    "zamba": OTHER_SIZES,
    "zamba2": OTHER_SIZES,
}


def small(config):
    """The arguments of a small configuration of the same family."""
    given, new = config.to_dict(), {}
    for name, value in given.items():
        if isinstance(value, list) and "types" in name and all(isinstance(x, str) for x in value) and len(value) > LAYERS:
            new[name] = [value[0], next((x for x in value if x != value[0]), value[0])]
        elif isinstance(value, int) and not isinstance(value, bool) and name in SMALL:
            new[name] = SMALL[name]
        elif name.endswith("token_id") and isinstance(value, (int, list)):
            new[name] = TOKENS.get(name, 3)
    if "num_key_value_heads" in new and given["num_key_value_heads"] == given.get("num_attention_heads"):
        new["num_key_value_heads"] = HEADS
    return new


def class_of(family):
    names = MODEL_MAPPING_NAMES[family]
    return getattr(transformers, names if isinstance(names, str) else names[0], None)


def is_text(family):
    """A model that reads tokens, and does not consist of other models."""
    config, model = transformers.CONFIG_MAPPING[family], class_of(family)
    return (
        isinstance(model, type)
        and issubclass(model, transformers.PreTrainedModel)
        and not getattr(config, "sub_configs", None)
        and model.main_input_name == "input_ids"
        and "input_ids" in inspect.signature(model.forward).parameters
    )


def build(family, implementation):
    """A small model with large random weights, so that every key matters."""
    kind = transformers.CONFIG_MAPPING[family]
    config = kind(**{**small(kind()), **MORE.get(family, {})})
    config._attn_implementation, config.use_cache = implementation, False
    torch.manual_seed(5)
    model = class_of(family)(config).eval()
    generator = torch.Generator().manual_seed(1)
    for p in model.parameters():
        if p.dim() > 1:
            p.data.normal_(std=p[0].numel() ** -0.5, generator=generator)
    return model


def inputs(model, padded):
    given = {"input_ids": torch.arange(18).view(2, 9) * 7 % (WORDS - 5) + 5}
    parameters = inspect.signature(model.forward).parameters
    if getattr(model.config, "is_encoder_decoder", False) and "decoder_input_ids" in parameters:
        given["decoder_input_ids"] = given["input_ids"][:, :6]
    if "bbox" in parameters:
        given["bbox"] = torch.tensor([5, 7, 20, 30]).expand(2, 9, 4)
    if padded:
        given["attention_mask"] = (torch.arange(9) < torch.tensor([[9], [6]])).long()
    return given


def difference(family):
    """The largest difference of the results with eager attention and with mha, as a part of the largest result: with the masks that
    the model has by itself, and with padding."""
    models, found = [build(family, name) for name in ("eager", "mha")], []
    for padded in (False, True):
        with torch.no_grad():
            want, got = (model(**inputs(model, padded))[0] for model in models)
        if padded and want.shape[:2] == (2, 9):
            want, got = (x[torch.arange(9) < torch.tensor([[9], [6]])] for x in (want, got))
        found.append(float((want - got).abs().max() / want.abs().max()))
    return max(found)


def refuses(family):
    model = object.__new__(class_of(family))
    model.__dict__["config"] = transformers.CONFIG_MAPPING[family]()
    try:
        _transformers._check(model)
    except ValueError:
        return True
    return False


def test_every_family():
    wrong, compared, refused = [], 0, 0
    for family in sorted(MODEL_MAPPING_NAMES):
        if sum(family.encode()) % SAMPLE or family in LEFT_OUT or not is_text(family):
            continue
        if refuses(family):
            refused += 1
            config = transformers.CONFIG_MAPPING[family]()
            config._attn_implementation = "mha"
            with pytest.raises(ValueError, match='^attn_implementation: .* cannot use "mha"'):
                class_of(family)(config)
            continue
        compared += 1
        try:
            found = difference(family)
        except Exception as error:  # names the family
            wrong.append(f"{family}: {error!r:.300}")
            continue
        if not found < 1e-4:
            wrong.append(f"{family}: {found:.1e} of the largest result")
    assert not wrong, "\n".join(wrong)
    assert compared * SAMPLE > 100 and refused * SAMPLE > 20, (compared, refused)


@pytest.mark.parametrize("family", ["bloom", "roformer", "xglm"])
def test_lost_masks_are_seen(family, monkeypatch):
    """The comparison finds what the refusal prevents."""
    assert refuses(family)
    monkeypatch.setattr(_transformers, "_check", lambda model: None)
    assert difference(family) > 1e-2
