/* GLM-4-0414: GLM-4 with norms before and behind the branches. */
#include "families/lists.h"

static const nn_name names[] = {
    {.name = "model.layers.{l}.post_self_attn_layernorm.weight", .part = NN_NORM1_OUT},
    {.name = "model.layers.{l}.post_mlp_layernorm.weight", .part = NN_NORM2_OUT},
    {0},
};

static const nn_key keys[] = {{NULL, NN_CHOICE, NN_D(blocks.place), "2", NULL}, {0}}; /* NN_NORM_BOTH */

const nn_family nn_family_glm4 = {
    .type = "glm4",
    .keys = {nn_llama_keys, nn_glm_keys, keys, nn_untied_keys},
    .names = {names, nn_gate_up_names, nn_llama_names, nn_lm_names},
    .rotary = {.theta = 10000, .part = 0.5},
    .heads = NN_DECODER_HEADS,
};
