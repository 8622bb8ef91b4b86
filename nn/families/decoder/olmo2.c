/* OLMo 2: Llama with norms behind the branches, and one over all queries or keys of a position. */
#include "families/lists.h"

const nn_name nn_olmo2_names[] = {
    {.name = "model.layers.{l}.post_attention_layernorm.weight", .part = NN_NORM1},
    {.name = "model.layers.{l}.post_feedforward_layernorm.weight", .part = NN_NORM2},
    {0},
};

const nn_key nn_olmo2_keys[] = {
    {"rms_norm_eps", NN_FLOAT, NN_D(blocks.attention[0].qk_norm), "1e-5", NULL},
    {"rms_norm_eps", NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {NULL, NN_CHOICE, NN_D(blocks.attention[0].qk_norm_span), "2", NULL}, /* MHA_NORM_ALL_HEADS */
    {NULL, NN_CHOICE, NN_D(blocks.place), "3", NULL},                     /* NN_NORM_AFTER */
    {0},
};

const nn_family nn_family_olmo2 = {
    .type = "olmo2",
    .keys = {nn_llama_keys, nn_attention_bias_keys, nn_olmo2_keys, nn_untied_keys},
    .names = {nn_olmo2_names, nn_llama_names, nn_lm_names},
    .rotary = {.theta = 10000},
    .heads = NN_DECODER_HEADS,
};
