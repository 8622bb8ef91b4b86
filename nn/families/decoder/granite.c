/* Granite: Llama with multipliers. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"embedding_multiplier", NN_FLOAT, NN_D(input.scale), "1", NULL},
    {"attention_multiplier", NN_FLOAT, NN_D(blocks.attention[0].scale), "1", NULL},
    {"residual_multiplier", NN_FLOAT, NN_D(blocks.residual), "1", NULL},
    {"logits_scaling", NN_INVERSE, NN_O(scale), "1", NULL},
    {0},
};

const nn_family nn_family_granite = {
    .type = "granite",
    .keys = {nn_llama_keys, nn_mlp_bias_keys, keys, nn_untied_keys},
    .names = {nn_llama_names, nn_lm_names},
    .rotary = {.theta = 10000},
    .heads = NN_DECODER_HEADS,
};
