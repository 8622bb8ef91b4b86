/* Phi: parallel branches with one norm, half rotated heads, biases everywhere. */
#include "families/lists.h"

static const nn_name names[] = {
    {.name = "model.layers.{l}.self_attn.dense.weight", .part = NN_PROJ},
    {.name = "model.layers.{l}.self_attn.dense.bias", .part = NN_PROJ_BIAS},
    {.name = "model.layers.{l}.self_attn.q_layernorm.weight", .part = NN_Q_NORM},
    {.name = "model.layers.{l}.self_attn.k_layernorm.weight", .part = NN_K_NORM},
    {.name = "model.layers.{l}.self_attn.q_layernorm.bias", .part = NN_Q_NORM_BIAS},
    {.name = "model.layers.{l}.self_attn.k_layernorm.bias", .part = NN_K_NORM_BIAS},
    {.name = "model.layers.{l}.mlp.fc1.weight", .part = NN_FC1},
    {.name = "model.layers.{l}.mlp.fc1.bias", .part = NN_FC1_BIAS},
    {.name = "model.layers.{l}.mlp.fc2.weight", .part = NN_FC2},
    {.name = "model.layers.{l}.mlp.fc2.bias", .part = NN_FC2_BIAS},
    {.name = "model.final_layernorm.weight", .part = NN_FINAL_NORM},
    {.name = "model.final_layernorm.bias", .part = NN_FINAL_NORM_BIAS},
    {0},
};

static const nn_key keys[] = {
    {NULL, NN_CHOICE, NN_D(blocks.norm), "0", NULL}, /* NN_LAYER_NORM */
    {"layer_norm_eps", NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.norm_bias), "true", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.gated), "false", NULL},
    {"hidden_act", NN_ACTIVATION, NN_D(blocks.activation), "\"gelu_new\"", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].in_bias), "true", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].out_bias), "true", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.mlp_bias), "true", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.parallel), "true", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.one_norm), "true", NULL},
    {"layer_norm_eps", NN_FLOAT, NN_D(blocks.attention[0].qk_norm), "1e-5", "qk_layernorm"},
    {NULL, NN_CHOICE, NN_D(blocks.attention[0].qk_norm_kind), "1", NULL}, /* MHA_NORM_LAYER */
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].qk_norm_bias), "true", NULL},
    {NULL, NN_TRUTH, NN_O(bias), "true", NULL},
    {0},
};

const nn_family nn_family_phi = {
    .type = "phi",
    .keys = {nn_llama_keys, keys, nn_untied_keys},
    .names = {names, nn_llama_names, nn_lm_names},
    .rotary = {.theta = 10000, .part = 0.5},
    .heads = NN_DECODER_HEADS,
};
