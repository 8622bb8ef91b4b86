/* Persimmon: squared ReLU, half rotated heads, norms of queries and keys; these and values lie head by head. */
#include "families/lists.h"

static const nn_key keys[] = {
    {NULL, NN_CHOICE, NN_D(blocks.norm), "0", NULL}, /* NN_LAYER_NORM */
    {"layer_norm_eps", NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.norm_bias), "true", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.gated), "false", NULL},
    {NULL, NN_INT, NN_D(blocks.kv_heads), "0", NULL},
    {"hidden_act", NN_ACTIVATION, NN_D(blocks.activation), "\"relu2\"", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.mlp_bias), "true", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].in_bias), "true", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].out_bias), "true", NULL},
    {"layer_norm_eps", NN_FLOAT, NN_D(blocks.attention[0].qk_norm), "1e-5", NULL},
    {NULL, NN_FLOAT, NN_D(blocks.attention[0].qk_norm), "0", "!qk_layernorm"},
    {NULL, NN_CHOICE, NN_D(blocks.attention[0].qk_norm_kind), "1", NULL}, /* MHA_NORM_LAYER */
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].qk_norm_bias), "true", NULL},
    {0},
};

static const nn_name names[] = {
    {.name = "model.layers.{l}.self_attn.query_key_value.weight", .part = NN_Q, .cut = NN_HEADS_Q},
    {.name = "model.layers.{l}.self_attn.query_key_value.weight", .part = NN_K, .cut = NN_HEADS_K},
    {.name = "model.layers.{l}.self_attn.query_key_value.weight", .part = NN_V, .cut = NN_HEADS_V},
    {.name = "model.layers.{l}.self_attn.query_key_value.bias", .part = NN_Q_BIAS, .cut = NN_HEADS_Q},
    {.name = "model.layers.{l}.self_attn.query_key_value.bias", .part = NN_K_BIAS, .cut = NN_HEADS_K},
    {.name = "model.layers.{l}.self_attn.query_key_value.bias", .part = NN_V_BIAS, .cut = NN_HEADS_V},
    {.name = "model.layers.{l}.self_attn.dense.weight", .part = NN_PROJ},
    {.name = "model.layers.{l}.self_attn.dense.bias", .part = NN_PROJ_BIAS},
    {.name = "model.layers.{l}.self_attn.q_layernorm.weight", .part = NN_Q_NORM},
    {.name = "model.layers.{l}.self_attn.k_layernorm.weight", .part = NN_K_NORM},
    {.name = "model.layers.{l}.self_attn.q_layernorm.bias", .part = NN_Q_NORM_BIAS},
    {.name = "model.layers.{l}.self_attn.k_layernorm.bias", .part = NN_K_NORM_BIAS},
    {.name = "model.layers.{l}.mlp.dense_h_to_4h.weight", .part = NN_FC1},
    {.name = "model.layers.{l}.mlp.dense_h_to_4h.bias", .part = NN_FC1_BIAS},
    {.name = "model.layers.{l}.mlp.dense_4h_to_h.weight", .part = NN_FC2},
    {.name = "model.layers.{l}.mlp.dense_4h_to_h.bias", .part = NN_FC2_BIAS},
    {.name = "model.final_layernorm.weight", .part = NN_FINAL_NORM},
    {.name = "model.final_layernorm.bias", .part = NN_FINAL_NORM_BIAS},
    {0},
};

const nn_family nn_family_persimmon = {
    .type = "persimmon",
    .keys = {nn_llama_keys, keys, nn_untied_keys},
    .names = {names, nn_llama_names, nn_lm_names},
    .rotary = {.theta = 10000, .part = 0.5},
    .heads = NN_DECODER_HEADS,
};
