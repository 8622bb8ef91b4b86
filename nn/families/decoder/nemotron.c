/* Nemotron: layer norms with gains less one, squared ReLU, half rotated heads. */
#include "families/lists.h"

static const nn_name names[] = {
    {.name = "model.layers.{l}.input_layernorm.weight", .part = NN_NORM1, .plus_one = true},
    {.name = "model.layers.{l}.post_attention_layernorm.weight", .part = NN_NORM2, .plus_one = true},
    {.name = "model.norm.weight", .part = NN_FINAL_NORM, .plus_one = true},
    {0},
};

static const nn_key keys[] = {
    {NULL, NN_CHOICE, NN_D(blocks.norm), "0", NULL}, /* NN_LAYER_NORM */
    {"norm_eps", NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.gated), "false", NULL},
    {"hidden_act", NN_ACTIVATION, NN_D(blocks.activation), "\"relu2\"", NULL},
    {0},
};

const nn_family nn_family_nemotron = {
    .type = "nemotron",
    .keys = {nn_llama_keys, nn_mlp_bias_keys, keys, nn_untied_keys},
    .names = {names, nn_llama_names, nn_lm_names},
    .rotary = {.theta = 10000, .part = 0.5},
    .heads = NN_DECODER_HEADS,
};
