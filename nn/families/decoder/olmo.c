/* OLMo: Llama with layer norms that have no parameters. */
#include "families/lists.h"

static const nn_name names[] = {
    {.name = "model.layers.{l}.input_layernorm.weight", .part = NN_NORM1, .missing = NN_ONES},
    {.name = "model.layers.{l}.post_attention_layernorm.weight", .part = NN_NORM2, .missing = NN_ONES},
    {.name = "model.norm.weight", .part = NN_FINAL_NORM, .missing = NN_ONES},
    {0},
};

static const nn_key keys[] = {
    {NULL, NN_CHOICE, NN_D(blocks.norm), "0", NULL}, /* NN_LAYER_NORM */
    {NULL, NN_TRUTH, NN_D(blocks.norm_bias), "false", NULL},
    {NULL, NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {0},
};

const nn_family nn_family_olmo = {
    .type = "olmo",
    .keys = {nn_llama_keys, nn_attention_bias_keys, keys, nn_untied_keys},
    .names = {nn_llama_names, names, nn_lm_names},
    .rotary = {.theta = 10000},
    .heads = NN_DECODER_HEADS,
};
