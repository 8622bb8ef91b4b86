/* ERNIE 4.5: Llama whose rotary embedding turns neighbouring pairs, with biases everywhere or nowhere. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"num_key_value_heads", NN_INT, NN_D(blocks.kv_heads), "2", NULL},
    {"head_dim", NN_INT, NN_D(blocks.head_width), "128", NULL},
    {"rms_norm_eps", NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {"use_bias", NN_TRUTH, NN_D(blocks.attention[0].in_bias), "false", NULL},
    {"use_bias", NN_TRUTH, NN_D(blocks.attention[0].out_bias), "false", NULL},
    {"use_bias", NN_TRUTH, NN_D(blocks.mlp_bias), "false", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].rotary_interleaved), "true", NULL},
    {0},
};

const nn_family nn_family_ernie4_5 = {
    .type = "ernie4_5",
    .keys = {nn_llama_keys, keys, nn_tied_keys},
    .names = {nn_llama_names, nn_lm_names},
    .rotary = {.theta = 500000},
    .heads = NN_DECODER_HEADS,
};
