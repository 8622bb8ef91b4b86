"""Random small configurations of every family that mha opens. A row of FAMILIES is a name, the class of `transformers`,
the kind of its answers, and a function that draws the keys of config.json. Every key that changes the computation is
drawn; sizes are small, and widths are often not multiples of 8."""
from random import Random

ACTS = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "quick_gelu", "silu", "swish", "relu", "relu2", "tanh",
        "linear", "gelu_python", "gelu_python_tanh", "gelu_accurate")
ROPES = ("default", "linear", "dynamic", "yarn", "longrope", "llama3")
TOKENS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)


class Draw(Random):
    """Random choices. `version4`: only what version 4 of `transformers` could write in its config.json."""

    version4 = False

    def flag(self):
        return self.random() < 0.5

    def eps(self):
        return self.choice((1e-12, 1e-6, 1e-5, 1e-2))

    def factor(self, low=0.4, high=2.5):
        return round(self.uniform(low, high), 3)

    def heads(self, widths=(4, 6, 8, 10, 12)):
        """Query heads, key/value heads, width of a head."""
        h = self.choice((1, 2, 3, 4, 6))
        return h, self.choice([g for g in range(1, h + 1) if h % g == 0]), self.choice(widths)

    def kinds(self, layers):
        return [self.choice(("full_attention", "sliding_attention")) for _ in range(layers)]


def rope(r, d, maximum, kinds=ROPES, nested=False):
    """Parameters of a rotary embedding over `d` dimensions of a model with `maximum` positions. `nested`: as one of
    several per layer type."""
    kind = r.choice(kinds)
    p = dict(rope_type=kind, rope_theta=r.choice((10000.0, 500000.0, 1234.5, 100.0)))
    if kind in ("linear", "dynamic", "yarn", "llama3"):
        p["factor"] = r.choice((1.5, 2.0, 4.0, 8.0))
    if kind in ("yarn", "llama3"):
        p["original_max_position_embeddings"] = r.choice((8, 32, 4096))
    if kind == "llama3":
        p.update(low_freq_factor=r.choice((1.0, 0.5)), high_freq_factor=r.choice((2.0, 4.0)))
    if kind == "yarn":
        if r.flag():
            p["attention_factor"] = r.factor(0.8, 1.3)
        elif r.flag():
            p.update(mscale=r.factor(), mscale_all_dim=r.factor())
        if r.flag():
            p.update(beta_fast=r.choice((32.0, 4.0)), beta_slow=r.choice((1.0, 0.5)))
        if r.flag() and not nested:
            p["truncate"] = r.flag()
    if kind == "longrope":
        # Both prompts lie beyond 8 positions, and all texts within 64: in between, a result depends on the batch.
        p["original_max_position_embeddings"] = r.choice((8, 64))
        for name in ("short_factor", "long_factor"):
            p[name] = [r.factor(1, 6) for _ in range(d // 2)]
        if r.flag():
            p["factor"] = r.factor(1, 9)
        if r.flag():
            p["attention_factor"] = r.factor(0.8, 1.3)
    return p


# ---- Decoders ------------------------------------------------------------------------------------------------------


def llama(r, kinds=ROPES, free=True, act="hidden_act", **more):
    """The keys that most decoders share. `free`: the width of a head is a key of its own."""
    h, g, d = r.heads()
    maximum = 8 if kinds == ("dynamic",) and r.flag() else r.choice((48, 128))
    keys = dict(
        TOKENS, vocab_size=r.randint(60, 140), hidden_size=h * (r.randint(5, 12) if free else d),
        intermediate_size=r.randint(20, 60), num_hidden_layers=r.randint(1, 3), num_attention_heads=h,
        num_key_value_heads=g, max_position_embeddings=maximum, tie_word_embeddings=r.flag(),
        rope_parameters=rope(r, d, maximum, kinds),
    )
    keys[act] = r.choice(ACTS)
    if free:
        keys["head_dim"] = d
    return keys | more


def llama_full(r, kinds=ROPES):
    return llama(r, kinds, rms_norm_eps=r.eps(), attention_bias=r.flag(), mlp_bias=r.flag())


def windowed(r, keys, every_layer=False):
    """Adds the windows of Qwen: by `layer_types`, or from `max_window_layers` on."""
    layers = keys["num_hidden_layers"]
    keys.update(use_sliding_window=r.flag(), sliding_window=r.randint(2, 6), max_window_layers=r.randint(0, layers))
    if keys["use_sliding_window"] and r.flag() and not r.version4:
        keys["layer_types"] = r.kinds(layers)
    return keys


def gemma(r, **more):
    return llama(r, rms_norm_eps=r.eps(), attention_bias=r.flag(), **more)


def gemma2(r):
    keys = gemma(r, act="hidden_activation", query_pre_attn_scalar=r.randint(4, 40), sliding_window=r.randint(2, 6),
                 attn_logit_softcapping=r.choice((None, 5.0, 1.5)), final_logit_softcapping=r.choice((None, 3.0, 30.0)))
    if not r.version4:
        keys["layer_types"] = r.kinds(keys["num_hidden_layers"])
    return keys


def gemma3(r):
    keys = gemma2(r)
    d, maximum = keys["head_dim"], keys["max_position_embeddings"]
    full = rope(r, d, maximum, ("default", "linear", "yarn", "llama3"), nested=True)
    local = rope(r, d, maximum, ("default",) if r.version4 else ("default", "linear"), nested=True)
    keys["rope_parameters"] = dict(full_attention=full, sliding_attention=local)
    keys["num_hidden_layers"] = r.randint(2, 4)
    keys.pop("layer_types", None)
    if r.version4 or r.flag():
        keys["sliding_window_pattern"] = r.choice((2, 3, 6))
    else:
        keys["layer_types"] = r.kinds(keys["num_hidden_layers"])
    return keys


def smollm3(r):
    keys = llama(r, free=False, rms_norm_eps=r.eps(), attention_bias=r.flag(), mlp_bias=r.flag())
    layers = keys["num_hidden_layers"] = r.randint(2, 4)
    keys.update(no_rope_layer_interval=r.choice((2, 3)), use_sliding_window=r.flag(), sliding_window=r.randint(2, 6))
    if r.flag():
        keys["no_rope_layers"] = [r.randint(0, 1) for _ in range(layers)]
    if keys["use_sliding_window"] and r.flag():
        keys["layer_types"] = r.kinds(layers)
    return keys


def partial(r, keys, kinds):
    """Rotates a part of each head: `keys` get a wider head and `partial_rotary_factor`."""
    h = keys["num_attention_heads"]
    d, share = r.choice(((8, 0.5), (8, 0.75), (8, 1.0), (12, 0.5), (16, 0.25), (16, 0.375)))
    keys["hidden_size"] = h * d
    keys["rope_parameters"] = rope(r, int(d * share), keys["max_position_embeddings"], kinds)
    keys["rope_parameters"]["partial_rotary_factor"] = share
    return keys


def phi3(r):
    keys = partial(r, llama(r, free=False, rms_norm_eps=r.eps(), sliding_window=r.choice((None, 4))),
                   ("default", "longrope"))
    keys["original_max_position_embeddings"] = r.choice((8, 64))
    return keys


def gpt2(r):
    h, _, d = r.heads((3, 5, 8, 11))
    return dict(TOKENS, vocab_size=r.randint(60, 140), n_positions=r.randint(25, 50), n_embd=h * d, n_head=h,
                n_layer=r.randint(1, 3), n_inner=r.choice((None, r.randint(20, 60))), activation_function=r.choice(ACTS),
                layer_norm_epsilon=r.eps(), scale_attn_weights=r.flag(), scale_attn_by_inverse_layer_idx=r.flag(),
                tie_word_embeddings=r.flag())


def opt(r, narrow=True):
    h, _, d = r.heads((3, 5, 8, 11))
    return dict(TOKENS, vocab_size=r.randint(60, 140), hidden_size=h * d, num_attention_heads=h, ffn_dim=r.randint(20, 60),
                num_hidden_layers=r.randint(1, 3), max_position_embeddings=r.randint(25, 50),
                do_layer_norm_before=r.flag(), _remove_final_layer_norm=r.flag(), enable_bias=r.flag(),
                word_embed_proj_dim=r.choice((h * d, r.randint(5, 30) if narrow else h * d)), activation_function=r.choice(ACTS),
                layer_norm_elementwise_affine=r.flag(), tie_word_embeddings=r.flag())


def bloom(r):
    h = r.choice((1, 2, 3, 4, 5, 6, 7, 8, 12))
    return dict(TOKENS, vocab_size=r.randint(60, 140), hidden_size=h * r.choice((3, 5, 8)), n_head=h,
                n_layer=r.randint(1, 3), layer_norm_epsilon=r.eps(), apply_residual_connection_post_layernorm=r.flag(),
                tie_word_embeddings=r.flag())


# What the library takes if the file says nothing, or null.
GPT_OSS_ROPE = dict(rope_type="yarn", rope_theta=150000.0, factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                    original_max_position_embeddings=4096)


def gpt_oss(r):
    keys = llama(r, rms_norm_eps=r.eps(), attention_bias=r.flag(), sliding_window=r.randint(2, 6), **experts(r))
    if r.flag():
        keys["rope_parameters"] = dict(GPT_OSS_ROPE)
    if r.flag():
        keys["layer_types"] = r.kinds(keys["num_hidden_layers"])
    return keys


def experts(r):
    n = r.randint(2, 6)
    return dict(num_local_experts=n, num_experts_per_tok=r.randint(1, min(n, 4)))


def types(r, keys, always=False):
    """Adds a window, and in half of the configurations the layers that have it."""
    keys.update(sliding_window=r.randint(2, 6), num_hidden_layers=r.randint(2, 5))
    if (always or r.flag()) and not r.version4:
        keys["layer_types"] = r.kinds(keys["num_hidden_layers"])
    return keys


def olmo3(r):
    keys = types(r, llama(r, free=False, rms_norm_eps=r.eps(), attention_bias=r.flag()))
    d, maximum = keys["hidden_size"] // keys["num_attention_heads"], keys["max_position_embeddings"]
    full = rope(r, d, maximum, ("default", "linear", "yarn", "llama3"), nested=True)
    local = dict(rope_type="default", rope_theta=500000.0) if r.version4 else rope(r, d, maximum, ("default", "linear"), nested=True)
    return keys | dict(rope_parameters=dict(full_attention=full, sliding_attention=local))


def exaone4(r):
    keys = types(r, llama(r, rms_norm_eps=r.eps()), always=True)
    if not r.version4 and r.flag():
        keys.update(sliding_window=None, layer_types=["full_attention"] * keys["num_hidden_layers"])
    elif r.flag():
        keys["sliding_window_pattern"] = r.choice((2, 3))
    return keys


def cohere2(r):
    keys = types(r, llama(r, free=False, layer_norm_eps=r.eps(), attention_bias=r.flag(), logit_scale=r.factor()))
    if "layer_types" not in keys and r.flag():
        keys["sliding_window_pattern"] = r.choice((2, 3))
    return keys


def ministral(r):
    keys = types(r, llama(r, rms_norm_eps=r.eps()))
    if r.flag():
        keys.pop("layer_types", None)
    return keys


def ministral3(r):
    keys = llama(r, ("yarn",), rms_norm_eps=r.eps(), sliding_window=r.choice((None, 3)))
    keys["rope_parameters"].update(original_max_position_embeddings=r.choice((32, 4096)), llama_4_scaling_beta=r.factor(0.1, 1))
    return keys


def partial_free(r, keys):
    """As `partial`, where the width of a head is a key of its own."""
    width = keys["hidden_size"]
    keys = partial(r, keys, ("default", "linear", "yarn", "llama3"))
    return keys | dict(head_dim=keys["hidden_size"] // keys["num_attention_heads"], hidden_size=width)


def helium(r):
    keys = llama(r, free=False, rms_norm_eps=r.eps(), attention_bias=r.flag(), mlp_bias=r.flag())
    return keys | dict(head_dim=keys["hidden_size"] // keys["num_attention_heads"])


def falcon(r):
    h, g, d = r.heads()
    alibi = r.flag()
    if alibi:  # slopes that bfloat16 has
        h, g = r.choice(((1, 1), (2, 1), (4, 2), (6, 3), (8, 2), (8, 8)))
    keys = dict(TOKENS, vocab_size=r.randint(60, 140), hidden_size=h * d, num_hidden_layers=r.randint(1, 3),
                num_attention_heads=h, ffn_hidden_size=r.choice((None, r.randint(20, 60))), activation=r.choice(ACTS),
                layer_norm_epsilon=r.eps(), bias=r.flag(), alibi=alibi, max_position_embeddings=64, tie_word_embeddings=r.flag(),
                multi_query=r.flag(), parallel_attn=r.flag(), new_decoder_architecture=r.flag())
    if keys["new_decoder_architecture"]:
        keys.update(parallel_attn=True, num_kv_heads=g, num_ln_in_parallel_attn=r.choice((None, 1, 2)))
    if not alibi:
        keys["rope_parameters"] = rope(r, d, 64, ("default", "linear", "yarn", "llama3"))
    return keys


def gptj(r):
    h, _, d = r.heads((4, 6, 8, 10, 12))
    h = 4 * h
    return dict(TOKENS, vocab_size=r.randint(60, 140), n_positions=r.randint(25, 50), n_embd=h * d, n_head=h, n_layer=r.randint(1, 3),
                rotary_dim=2 * r.randint(1, d // 2), n_inner=r.choice((None, r.randint(20, 60))), activation_function=r.choice(ACTS),
                layer_norm_epsilon=r.eps(), tie_word_embeddings=r.flag())


def gpt_neo(r):
    h, _, d = r.heads((3, 5, 8, 11))
    kinds = [[[r.choice(("global", "local")) for _ in range(r.randint(1, 2))], r.randint(1, 2)] for _ in range(r.randint(1, 2))]
    return dict(TOKENS, vocab_size=r.randint(60, 140), max_position_embeddings=r.randint(25, 50), hidden_size=h * d, num_heads=h,
                num_layers=sum(len(names) * times for names, times in kinds), attention_types=kinds,
                intermediate_size=r.choice((None, r.randint(20, 60))), window_size=r.randint(2, 6), activation_function=r.choice(ACTS),
                layer_norm_epsilon=r.eps(), tie_word_embeddings=r.flag())


def gpt_bigcode(r):
    keys = gpt2(r)
    del keys["scale_attn_by_inverse_layer_idx"]
    return keys | dict(multi_query=r.flag())


def openai_gpt(r):
    keys = gpt2(r)
    for name in ("activation_function", "scale_attn_weights", "scale_attn_by_inverse_layer_idx", "n_inner"):
        del keys[name]
    return keys | dict(afn=r.choice(("gelu", "relu", "silu", "swish")))


def mpt(r):
    h = r.choice((1, 2, 3, 4, 5, 6, 7, 8, 12))
    return dict(TOKENS, vocab_size=r.randint(60, 140), d_model=h * r.choice((3, 5, 8)), n_heads=h, n_layers=r.randint(1, 3),
                max_seq_len=64, layer_norm_epsilon=r.eps(), attn_config=dict(softmax_scale=r.choice((None, r.factor(0.1, 1)))),
                tie_word_embeddings=r.flag())


def xglm(r):
    h, _, d = r.heads((4, 6, 8, 12))
    return dict(TOKENS, vocab_size=r.randint(60, 140), max_position_embeddings=r.randint(25, 50), d_model=h * d, attention_heads=h,
                ffn_dim=r.randint(20, 60), num_layers=r.randint(1, 3), activation_function=r.choice(ACTS), scale_embedding=r.flag(),
                tie_word_embeddings=r.flag())


def biogpt(r):
    h, _, d = r.heads((3, 5, 8, 11))
    return dict(TOKENS, vocab_size=r.randint(60, 140), max_position_embeddings=r.randint(25, 50), hidden_size=h * d,
                num_attention_heads=h, intermediate_size=r.randint(20, 60), num_hidden_layers=r.randint(1, 3), hidden_act=r.choice(ACTS),
                layer_norm_eps=r.eps(), scale_embedding=r.flag(), tie_word_embeddings=r.flag())


# ---- Encoders ------------------------------------------------------------------------------------------------------


def bert(r, **more):
    h, _, d = r.heads((3, 5, 8, 11))
    return dict(vocab_size=r.randint(60, 140), hidden_size=h * d, num_attention_heads=h, num_hidden_layers=r.randint(1, 3),
                intermediate_size=r.randint(20, 60), hidden_act=r.choice(ACTS), max_position_embeddings=r.randint(24, 64),
                type_vocab_size=r.randint(1, 3), layer_norm_eps=r.eps(), pad_token_id=r.randint(0, 2),
                tie_word_embeddings=r.flag(), id2label={i: f"LABEL_{i}" for i in range(r.randint(1, 5))}) | more


def albert(r):
    keys = bert(r, embedding_size=r.randint(5, 30), inner_group_num=r.randint(1, 2))
    keys["num_hidden_layers"] = r.randint(2, 5)
    return keys | dict(num_hidden_groups=r.randint(1, keys["num_hidden_layers"]))


def electra(r):
    keys = bert(r)
    return keys | dict(embedding_size=r.choice((keys["hidden_size"], r.randint(5, 30))))


def distilbert(r):
    keys = bert(r)
    return dict(dim=keys.pop("hidden_size"), n_heads=keys.pop("num_attention_heads"), n_layers=keys.pop("num_hidden_layers"),
                hidden_dim=keys.pop("intermediate_size"), activation=keys.pop("hidden_act"),
                sinusoidal_pos_embds=r.flag(), **{k: keys[k] for k in keys if k not in ("type_vocab_size", "layer_norm_eps")})


def modernbert(r):
    keys = bert(r, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2, pad_token_id=0)
    h, _, d = r.heads()
    layers = r.randint(2, 4)
    for name in ("hidden_act", "layer_norm_eps", "type_vocab_size"):
        del keys[name]
    kinds = ("default",) if r.version4 else ("default", "linear", "yarn", "llama3")
    keys.update(
        hidden_size=h * d, num_attention_heads=h, num_hidden_layers=layers, hidden_activation=r.choice(ACTS),
        norm_eps=r.eps(), norm_bias=r.flag(), attention_bias=r.flag(), mlp_bias=r.flag(), decoder_bias=r.flag(),
        classifier_bias=r.flag(), classifier_activation=r.choice(ACTS), classifier_pooling=r.choice(("cls", "mean")),
        local_attention=r.randint(2, 10), global_attn_every_n_layers=r.randint(1, 3),
        rope_parameters={k: rope(r, d, 64, kinds, nested=True) for k in ("full_attention", "sliding_attention")},
    )
    if r.flag() and not r.version4:
        keys["layer_types"] = r.kinds(layers)
    return keys


def span(draw):
    """With the two classes of question answering: the start and the end."""
    return lambda r: draw(r) | dict(id2label={0: "LABEL_0", 1: "LABEL_1"})


def classified(draw):
    return lambda r: draw(r) | dict(id2label={i: f"LABEL_{i}" for i in range(r.randint(1, 5))})


# ---- Encoder-decoders ----------------------------------------------------------------------------------------------


def bart(r, widths=(3, 5, 8, 11), **more):
    h, g, d = r.heads(widths)
    pad, start = r.sample((0, 1, 2), 2)
    return dict(vocab_size=r.randint(60, 140), d_model=h * d, max_position_embeddings=r.randint(24, 64),
                encoder_layers=r.randint(1, 3), encoder_attention_heads=h, encoder_ffn_dim=r.randint(20, 60),
                decoder_layers=r.randint(1, 3), decoder_attention_heads=g, decoder_ffn_dim=r.randint(20, 60),
                activation_function=r.choice(ACTS), scale_embedding=r.flag(), bos_token_id=1, eos_token_id=2,
                pad_token_id=pad, decoder_start_token_id=start, tie_word_embeddings=r.flag()) | more


def forced(r):
    return dict(forced_eos_token_id=r.choice((None, 2)))


def marian(r):
    keys = bart(r, **forced(r), share_encoder_decoder_embeddings=r.flag())
    if not keys["share_encoder_decoder_embeddings"]:
        keys["decoder_vocab_size"] = r.randint(60, 140)
    return keys


def t5(r):
    h, _, _ = r.heads()
    buckets = 2 * r.choice((2, 3, 4, 5, 7, 16))  # half of them, in the encoder a quarter, are for single distances
    distance = r.choice([n for n in range(5, 41) if n not in (buckets // 2, buckets // 4)])
    return dict(vocab_size=r.randint(60, 140), d_model=r.randint(12, 40), d_kv=r.choice((3, 5, 8, 11)), d_ff=r.randint(20, 60),
                num_layers=r.randint(1, 3), num_decoder_layers=r.randint(1, 3), num_heads=h,
                relative_attention_num_buckets=buckets, relative_attention_max_distance=distance,
                layer_norm_epsilon=r.eps(), feed_forward_proj=r.choice(("", "gated-")) + r.choice(("relu", "gelu", "silu")),
                tie_word_embeddings=r.flag(), pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)


def whisper(r):
    h, g, d = r.heads((4, 6, 10))
    keys = bart(r, begin_suppress_tokens=None, suppress_tokens=None, num_mel_bins=r.randint(5, 20))
    del keys["max_position_embeddings"]
    return keys | dict(d_model=h * d, encoder_attention_heads=h, decoder_attention_heads=g,
                       max_source_positions=r.randint(10, 20), max_target_positions=r.randint(24, 40))


# ---- Vision --------------------------------------------------------------------------------------------------------


def vit(r, square=False, **more):
    keys = bert(r)
    patch = r.choice((2, 3, 4))
    patches = r.choice((patch, [patch, patch]))
    size = [patch * r.randint(2, 5), patch * r.randint(2, 5)]
    return dict({k: keys[k] for k in ("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size",
                                      "hidden_act", "layer_norm_eps", "id2label")},
                image_size=size[0] if square or r.flag() else size, patch_size=patches, num_channels=r.randint(1, 4),
                qkv_bias=r.flag()) | more


def dinov2(r):
    keys = vit(r, square=True, mlp_ratio=r.randint(1, 4), use_swiglu_ffn=r.flag(), use_mask_token=r.flag())
    del keys["intermediate_size"]
    return keys


CAUSAL = {
    "gpt2": ("GPT2LMHeadModel", gpt2),
    "gpt_neox": ("GPTNeoXForCausalLM", lambda r: partial(r, llama(
        r, free=False, layer_norm_eps=r.eps(), use_parallel_residual=r.flag(), attention_bias=r.flag()),
        ("default", "linear", "yarn", "llama3"))),
    "opt": ("OPTForCausalLM", opt),
    "bloom": ("BloomForCausalLM", bloom),
    "llama": ("LlamaForCausalLM", llama_full),
    "mistral": ("MistralForCausalLM", lambda r: llama(r, rms_norm_eps=r.eps(), sliding_window=r.choice((None, 3, 5)))),
    "qwen2": ("Qwen2ForCausalLM", lambda r: windowed(r, llama(r, free=False, rms_norm_eps=r.eps()))),
    "qwen3": ("Qwen3ForCausalLM", lambda r: windowed(r, llama(r, rms_norm_eps=r.eps(), attention_bias=r.flag()))),
    "gemma": ("GemmaForCausalLM", gemma),
    "gemma2": ("Gemma2ForCausalLM", gemma2),
    "gemma3": ("Gemma3ForCausalLM", gemma3),
    "olmo2": ("Olmo2ForCausalLM", lambda r: llama(r, free=False, rms_norm_eps=r.eps(), attention_bias=r.flag())),
    "phi": ("PhiForCausalLM", lambda r: partial(r, llama(r, free=False, layer_norm_eps=r.eps(), qk_layernorm=r.flag()),
                                                ("default", "linear", "yarn", "llama3"))),
    "phi3": ("Phi3ForCausalLM", phi3),
    "stablelm": ("StableLmForCausalLM", lambda r: partial(r, llama(
        r, free=False, layer_norm_eps=r.eps(), qk_layernorm=r.flag(), use_qkv_bias=r.flag(),
        use_parallel_residual=r.flag()), ("default", "linear", "yarn", "llama3"))),
    "starcoder2": ("Starcoder2ForCausalLM", lambda r: llama(
        r, free=False, norm_epsilon=r.eps(), use_bias=r.flag(), sliding_window=r.choice((None, 3, 5)))),
    "granite": ("GraniteForCausalLM", lambda r: llama(
        r, free=False, rms_norm_eps=r.eps(), attention_bias=r.flag(), mlp_bias=r.flag(),
        embedding_multiplier=r.factor(), logits_scaling=r.factor(), residual_multiplier=r.factor(),
        attention_multiplier=r.factor(0.1, 1))),
    "cohere": ("CohereForCausalLM", lambda r: llama(
        r, free=False, layer_norm_eps=r.eps(), attention_bias=r.flag(), use_qk_norm=r.flag(), logit_scale=r.factor())),
    "smollm3": ("SmolLM3ForCausalLM", smollm3),
    "mixtral": ("MixtralForCausalLM", lambda r: llama(
        r, rms_norm_eps=r.eps(), sliding_window=r.choice((None, 3, 5)), **experts(r))),
    "gpt_oss": ("GptOssForCausalLM", gpt_oss),
    "falcon": ("FalconForCausalLM", falcon),
    "gptj": ("GPTJForCausalLM", gptj),
    "codegen": ("CodeGenForCausalLM", gptj),
    "gpt_neo": ("GPTNeoForCausalLM", gpt_neo),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", gpt_bigcode),
    "openai_gpt": ("OpenAIGPTLMHeadModel", openai_gpt),
    "mpt": ("MptForCausalLM", mpt),
    "olmo": ("OlmoForCausalLM", lambda r: llama(r, free=False, attention_bias=r.flag())),
    "olmo3": ("Olmo3ForCausalLM", olmo3),
    "cohere2": ("Cohere2ForCausalLM", cohere2),
    "nemotron": ("NemotronForCausalLM", lambda r: partial_free(r, llama(
        r, norm_eps=r.eps(), attention_bias=r.flag(), mlp_bias=r.flag()))),
    "arcee": ("ArceeForCausalLM", llama_full),
    "glm": ("GlmForCausalLM", lambda r: partial_free(r, llama(r, rms_norm_eps=r.eps(), attention_bias=r.flag()))),
    "glm4": ("Glm4ForCausalLM", lambda r: partial_free(r, llama(r, rms_norm_eps=r.eps(), attention_bias=r.flag()))),
    "helium": ("HeliumForCausalLM", helium),
    "ernie4_5": ("Ernie4_5ForCausalLM", lambda r: llama(r, rms_norm_eps=r.eps(), use_bias=r.flag())),
    "seed_oss": ("SeedOssForCausalLM", lambda r: llama(
        r, rms_norm_eps=r.eps(), attention_bias=r.flag(), attention_out_bias=r.flag(), mlp_bias=r.flag())),
    "ministral": ("MinistralForCausalLM", ministral),
    "ministral3": ("Ministral3ForCausalLM", ministral3),
    "exaone4": ("Exaone4ForCausalLM", exaone4),
    "vaultgemma": ("VaultGemmaForCausalLM", gemma2),
    "cwm": ("CwmForCausalLM", lambda r: types(r, llama(r, rms_norm_eps=r.eps(), mlp_bias=r.flag()))),
    "biogpt": ("BioGptForCausalLM", biogpt),
    "xglm": ("XGLMForCausalLM", xglm),
    "persimmon": ("PersimmonForCausalLM", lambda r: partial(r, llama(r, free=False, layer_norm_eps=r.eps(), qk_layernorm=r.flag()),
                                                            ("default", "linear", "yarn", "llama3"))),
} | {f"llama_{kind}": ("LlamaForCausalLM", lambda r, kind=kind: llama_full(r, (kind,))) for kind in ROPES}

BERTS = dict(bert=("Bert", bert), roberta=("Roberta", bert), xlm_roberta=("XLMRoberta", bert), camembert=("Camembert", bert), distilbert=("DistilBert", distilbert),
             albert=("Albert", albert), electra=("Electra", electra), modernbert=("ModernBert", modernbert))

PAIRS = {
    "t5": ("T5ForConditionalGeneration", t5),
    "mt5": ("MT5ForConditionalGeneration", t5),
    "bart": ("BartForConditionalGeneration", lambda r: bart(r, **forced(r))),
    "mbart": ("MBartForConditionalGeneration", lambda r: bart(r, **forced(r))),
    "plbart": ("PLBartForConditionalGeneration", lambda r: bart(r, **forced(r))),
    "marian": ("MarianMTModel", marian),
    "m2m_100": ("M2M100ForConditionalGeneration", lambda r: bart(r, (4, 5, 8, 11))),
    "pegasus": ("PegasusForConditionalGeneration", lambda r: bart(r, **forced(r))),
    "whisper": ("WhisperForConditionalGeneration", whisper),
}

IMAGES = {
    "vit": ("ViTForImageClassification", vit),
    "deit": ("DeiTForImageClassification", vit),
    "deit_teacher": ("DeiTForImageClassificationWithTeacher", vit),
    "dinov2": ("Dinov2ForImageClassification", dinov2),
}

# Models without a head, whose answers are the rows of their last block.
SUFFIXES = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "MTModel", "ForImageClassification")


def bare(model):
    for head in SUFFIXES:
        model = model.removesuffix(head)
    return {"Gemma3": "Gemma3Text"}.get(model, model) + "Model"


BASES = {
    **{f"{name}_base": (bare(model), "base", draw) for name, (model, draw) in CAUSAL.items()},
    "opt_base": ("OPTModel", "base", lambda r: opt(r, narrow=False)),  # rows of another width are refused
    **{f"{name}_base": (f"{model}Model", "base", draw) for name, (model, draw) in BERTS.items()},
    "t5_encoder": ("T5EncoderModel", "base", t5),
    "mt5_encoder": ("MT5EncoderModel", "base", t5),
    **{f"{name}_base": (bare(model), "base_pair", draw) for name, (model, draw) in PAIRS.items()},
    **{f"{name}_base": (bare(model), "base_image", draw) for name, (model, draw) in IMAGES.items() if name != "deit_teacher"},
}

# Decoders with another head than that of a language model, but for those that the library lacks.
LACKING = {
    "ForSequenceClassification": "granite cohere codegen gemma3 cohere2 ernie4_5 vaultgemma cwm xglm",
    "ForTokenClassification": "opt gemma3 olmo2 granite cohere gptj codegen openai_gpt olmo olmo3 cohere2 ernie4_5 vaultgemma cwm xglm",
    "ForQuestionAnswering": "gemma gemma2 gemma3 olmo2 phi phi3 stablelm starcoder2 granite cohere gpt_oss codegen gpt_bigcode "
                            "openai_gpt olmo olmo3 cohere2 glm glm4 helium ernie4_5 vaultgemma cwm biogpt xglm persimmon",
}


def labelled(draw):
    return lambda r: draw(r) | dict(id2label={i: f"LABEL_{i}" for i in range(r.randint(1, 5))})


HEADS = {
    f"{name}{word}": (bare(model).removesuffix("Model").removesuffix("Text") + head, "encoder",
                      draw if head == "ForQuestionAnswering" else labelled(draw))
    for head, word in (("ForSequenceClassification", "_score"), ("ForTokenClassification", "_tokens"), ("ForQuestionAnswering", "_answers"))
    for name, (model, draw) in (CAUSAL | {"opt": ("OPTForCausalLM", lambda r: opt(r, narrow=False))}).items()
    if name not in LACKING[head].split() and not name.startswith("llama_")
}

def wrapped(draw, kind, vision):
    """The keys of a checkpoint that reads pictures, too: `kind` is the model_type of its text model."""
    def keys(r):
        text = draw(r)
        pictures = dict(hidden_size=16, intermediate_size=20, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)
        return dict(text_config=text | dict(model_type=kind), vision_config=pictures | vision)
    return keys


def qwen2_vl(r):
    keys = llama(r, ("default",), free=False, rms_norm_eps=r.eps())
    width = keys["hidden_size"] // keys["num_attention_heads"]
    keys["rope_parameters"]["mrope_section"] = [width // 2 - 2 * (width // 6), width // 6, width // 6]
    return keys


GLANCE = dict(depth=1, embed_dim=16, num_heads=2, hidden_size=24, out_hidden_size=24, patch_size=14)
WRAPPED = {
    "gemma3_text_of": ("Gemma3ForConditionalGeneration", wrapped(gemma3, "gemma3_text", {})),
    "mistral3_text_of": ("Mistral3ForConditionalGeneration", wrapped(
        CAUSAL["mistral"][1], "mistral", dict(model_type="pixtral", head_dim=8))),
    "ministral3_text_of": ("Mistral3ForConditionalGeneration", wrapped(
        ministral3, "ministral3", dict(model_type="pixtral", head_dim=8))),
    "llava_text_of": ("LlavaForConditionalGeneration", wrapped(llama_full, "llama", dict(model_type="clip_vision_model"))),
    "qwen2_vl_text_of": ("Qwen2VLForConditionalGeneration", wrapped(qwen2_vl, "qwen2_vl_text", GLANCE)),
    "qwen2_5_vl_text_of": ("Qwen2_5_VLForConditionalGeneration", wrapped(qwen2_vl, "qwen2_5_vl_text", GLANCE)),
}

# Name: (class, kind of answers, drawing of a configuration).
FAMILIES = {
    **{name: (model, "decoder", draw) for name, (model, draw) in CAUSAL.items()},
    **{name: (model, "decoder", draw) for name, (model, draw) in WRAPPED.items()},
    **{name: (f"{model}ForMaskedLM", "encoder", draw) for name, (model, draw) in BERTS.items()},
    **{f"{name}_classifier": (f"{model}ForSequenceClassification", "encoder", draw) for name, (model, draw) in BERTS.items()},
    **{f"{name}_tokens": (f"{model}ForTokenClassification", "encoder", draw) for name, (model, draw) in BERTS.items()},
    **{f"{name}_span": (f"{model}ForQuestionAnswering", "encoder", span(draw)) for name, (model, draw) in BERTS.items()},
    "bart_classifier": ("BartForSequenceClassification", "pair_head", classified(bart)),
    "bart_span": ("BartForQuestionAnswering", "pair_head", bart),
    **{name: (model, "pair", draw) for name, (model, draw) in PAIRS.items()},
    **{name: (model, "image", draw) for name, (model, draw) in IMAGES.items()},
    **BASES,
    **HEADS,
}
