/* Gemma 2: norms before and behind the branches, caps, and windows in every other layer. */
#include "families/lists.h"

const nn_name nn_gemma2_names[] = {
    {.name = "model.layers.{l}.post_attention_layernorm.weight", .part = NN_NORM1_OUT, .plus_one = true},
    {.name = "model.layers.{l}.pre_feedforward_layernorm.weight", .part = NN_NORM2, .plus_one = true},
    {.name = "model.layers.{l}.post_feedforward_layernorm.weight", .part = NN_NORM2_OUT, .plus_one = true},
    {0},
};

const nn_key nn_gemma2_keys[] = {
    {NULL, NN_CHOICE, NN_D(blocks.place), "2", NULL}, /* NN_NORM_BOTH */
    {"query_pre_attn_scalar", NN_ROOT_UNDER, NN_D(blocks.attention[0].scale), "256", NULL},
    {"attn_logit_softcapping", NN_FLOAT, NN_D(blocks.attention[0].softcap), "50", NULL},
    {"final_logit_softcapping", NN_FLOAT, NN_O(softcap), "30", NULL},
    {0},
};

const nn_family nn_family_gemma2 = {
    .type = "gemma2",
    .keys = {nn_llama_keys, nn_gemma_keys, nn_gemma2_keys},
    .names = {nn_gemma2_names, nn_gemma_names, nn_llama_names, nn_lm_names},
    .rotary = {.theta = 10000},
    .window = {.layers = NN_SLIDES_EVEN, .key = "sliding_window", .absent = "4096"},
    .heads = NN_DECODER_HEADS,
};
