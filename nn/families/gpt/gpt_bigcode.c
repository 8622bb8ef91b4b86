/* GPT-BigCode (StarCoder, SantaCoder): GPT-2 whose queries share one head of keys and values, or lie head by head. */
#include "families/lists.h"

static const nn_key keys[] = {
    {NULL, NN_INT, NN_D(blocks.kv_heads), "1", NULL},
    {"n_head|num_attention_heads", NN_INT, NN_D(blocks.kv_heads), NULL, "!multi_query"},
    {"activation_function", NN_ACTIVATION, NN_D(blocks.activation), "\"gelu_pytorch_tanh\"", NULL},
    {0},
};

static const nn_name names[] = {
    {.name = "transformer.h.{l}.attn.c_attn.weight", .part = NN_Q, .cut = NN_HEADS_Q},
    {.name = "transformer.h.{l}.attn.c_attn.weight", .part = NN_K, .cut = NN_HEADS_K},
    {.name = "transformer.h.{l}.attn.c_attn.weight", .part = NN_V, .cut = NN_HEADS_V},
    {.name = "transformer.h.{l}.attn.c_attn.bias", .part = NN_Q_BIAS, .cut = NN_HEADS_Q},
    {.name = "transformer.h.{l}.attn.c_attn.bias", .part = NN_K_BIAS, .cut = NN_HEADS_K},
    {.name = "transformer.h.{l}.attn.c_attn.bias", .part = NN_V_BIAS, .cut = NN_HEADS_V},
    {.name = "transformer.h.{l}.attn.c_proj.weight", .part = NN_PROJ},
    {.name = "transformer.h.{l}.mlp.c_fc.weight", .part = NN_FC1},
    {.name = "transformer.h.{l}.mlp.c_proj.weight", .part = NN_FC2},
    {0},
};

static const char *const unused[] = {".attn.bias", NULL};

const nn_family nn_family_gpt_bigcode = {
    .type = "gpt_bigcode",
    .keys = {nn_gpt2_keys, keys},
    .names = {names, nn_gpt2_names, nn_lm_names},
    .prefix = "transformer.",
    .unused = unused,
    .heads = NN_DECODER_HEADS,
};
