/* StarCoder 2: layer norms, a plain MLP and a window. */
#include "families/lists.h"

static const nn_name names[] = {
    {.name = "model.layers.{l}.mlp.c_fc.weight", .part = NN_FC1},
    {.name = "model.layers.{l}.mlp.c_fc.bias", .part = NN_FC1_BIAS},
    {.name = "model.layers.{l}.mlp.c_proj.weight", .part = NN_FC2},
    {.name = "model.layers.{l}.mlp.c_proj.bias", .part = NN_FC2_BIAS},
    {0},
};

static const nn_key keys[] = {
    {"num_key_value_heads", NN_INT, NN_D(blocks.kv_heads), "2", NULL},
    {NULL, NN_CHOICE, NN_D(blocks.norm), "0", NULL}, /* NN_LAYER_NORM */
    {"norm_epsilon", NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.norm_bias), "true", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.gated), "false", NULL},
    {"hidden_act", NN_ACTIVATION, NN_D(blocks.activation), "\"gelu_pytorch_tanh\"", NULL},
    {"use_bias", NN_TRUTH, NN_D(blocks.attention[0].in_bias), "true", NULL},
    {"use_bias", NN_TRUTH, NN_D(blocks.attention[0].out_bias), "true", NULL},
    {"use_bias", NN_TRUTH, NN_D(blocks.mlp_bias), "true", NULL},
    {0},
};

const nn_family nn_family_starcoder2 = {
    .type = "starcoder2",
    .keys = {nn_llama_keys, keys, nn_tied_keys},
    .names = {names, nn_llama_names, nn_lm_names},
    .rotary = {.theta = 10000},
    .window = {.layers = NN_SLIDES_ALWAYS, .key = "sliding_window", .absent = "null"},
    .heads = NN_DECODER_HEADS,
};
