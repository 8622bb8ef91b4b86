/* Mixtral: Mistral with a mixture of experts. */
#include "families/lists.h"

static const nn_name names[] = {
    {.name = "model.layers.{l}.block_sparse_moe.gate.weight", .part = NN_ROUTER},
    {.name = "model.layers.{l}.block_sparse_moe.experts.{e}.w1.weight", .part = NN_GATE},
    {.name = "model.layers.{l}.block_sparse_moe.experts.{e}.w3.weight", .part = NN_FC1},
    {.name = "model.layers.{l}.block_sparse_moe.experts.{e}.w2.weight", .part = NN_FC2},
    {0},
};

static const nn_key keys[] = {
    {"num_key_value_heads", NN_INT, NN_D(blocks.kv_heads), "8", NULL},
    {"rms_norm_eps", NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {"num_local_experts", NN_INT, NN_D(blocks.experts), "8", NULL},
    {"num_experts_per_tok", NN_INT, NN_D(blocks.experts_used), "2", NULL},
    {0},
};

const nn_family nn_family_mixtral = {
    .type = "mixtral",
    .keys = {nn_llama_keys, keys, nn_untied_keys},
    .names = {names, nn_llama_names, nn_lm_names},
    .rotary = {.theta = 1000000},
    .window = {.layers = NN_SLIDES_ALWAYS, .key = "sliding_window", .absent = "null"},
    .heads = NN_DECODER_HEADS,
};
