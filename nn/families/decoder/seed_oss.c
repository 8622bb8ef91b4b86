/* Seed-OSS: Llama with biases of queries, keys and values. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"num_key_value_heads", NN_INT, NN_D(blocks.kv_heads), "8", NULL},
    {"head_dim", NN_INT, NN_D(blocks.head_width), "128", NULL},
    {"attention_bias", NN_TRUTH, NN_D(blocks.attention[0].in_bias), "true", NULL},
    {"attention_out_bias", NN_TRUTH, NN_D(blocks.attention[0].out_bias), "false", NULL},
    {0},
};

const nn_family nn_family_seed_oss = {
    .type = "seed_oss",
    .keys = {nn_llama_keys, nn_mlp_bias_keys, keys, nn_untied_keys},
    .names = {nn_llama_names, nn_lm_names},
    .rotary = {.theta = 10000},
    .heads = NN_DECODER_HEADS,
};
