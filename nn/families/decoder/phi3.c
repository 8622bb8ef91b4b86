/* Phi 3: Llama with fused products and LongRoPE. */
#include "families/lists.h"

static const nn_name names[] = {
    {.name = "model.layers.{l}.self_attn.qkv_proj.weight", .part = NN_Q, .cut = NN_ROWS_Q},
    {.name = "model.layers.{l}.self_attn.qkv_proj.weight", .part = NN_K, .cut = NN_ROWS_K},
    {.name = "model.layers.{l}.self_attn.qkv_proj.weight", .part = NN_V, .cut = NN_ROWS_V},
    {.name = "model.layers.{l}.mlp.gate_up_proj.weight", .part = NN_GATE, .cut = NN_FIRST_ROWS},
    {.name = "model.layers.{l}.mlp.gate_up_proj.weight", .part = NN_FC1, .cut = NN_LAST_ROWS},
    {0},
};

static const nn_key keys[] = {
    {"rms_norm_eps", NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {0},
};

const nn_family nn_family_phi3 = {
    .type = "phi3",
    .keys = {nn_llama_keys, keys, nn_untied_keys},
    .names = {names, nn_llama_names, nn_lm_names},
    .rotary = {.theta = 10000, .part = 1, .restart = true},
    .window = {.layers = NN_SLIDES_ALWAYS, .key = "sliding_window", .absent = "null"},
    .heads = NN_DECODER_HEADS,
};
