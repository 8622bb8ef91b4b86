/* CodeGen: GPT-J whose queries, values and keys lie in four quarters. */
#include "families/lists.h"

static const nn_name names[] = {
    {.name = "transformer.h.{l}.attn.qkv_proj.weight", .part = NN_Q, .cut = NN_QUARTERS_Q},
    {.name = "transformer.h.{l}.attn.qkv_proj.weight", .part = NN_K, .cut = NN_QUARTERS_K},
    {.name = "transformer.h.{l}.attn.qkv_proj.weight", .part = NN_V, .cut = NN_QUARTERS_V},
    {0},
};

const nn_family nn_family_codegen = {
    .type = "codegen",
    .keys = {nn_gptj_keys},
    .names = {names, nn_gptj_names, nn_lm_names},
    .rotary = {.theta = 10000, .width_key = "rotary_dim", .width = 64},
    .prefix = "transformer.",
    .unused = nn_gptj_unused,
    .heads = NN_DECODER_HEADS,
};
