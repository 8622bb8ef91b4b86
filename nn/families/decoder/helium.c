/* Helium: Llama whose rotary embedding turns neighbouring pairs. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"num_key_value_heads", NN_INT, NN_D(blocks.kv_heads), "20", NULL},
    {"head_dim", NN_INT, NN_D(blocks.head_width), "128", NULL},
    {"rms_norm_eps", NN_FLOAT, NN_D(blocks.epsilon), "1e-8", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].out_bias), "false", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].rotary_interleaved), "true", NULL},
    {0},
};

const nn_family nn_family_helium = {
    .type = "helium",
    .keys = {nn_llama_keys, nn_mlp_bias_keys, keys, nn_untied_keys},
    .names = {nn_llama_names, nn_lm_names},
    .rotary = {.theta = 100000},
    .heads = NN_DECODER_HEADS,
};
