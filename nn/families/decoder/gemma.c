/* Gemma: Llama with gains less one and scaled embeddings. */
#include "families/lists.h"

const nn_key nn_gemma_keys[] = {
    {"num_key_value_heads", NN_INT, NN_D(blocks.kv_heads), "4", NULL},
    {"head_dim", NN_INT, NN_D(blocks.head_width), "256", NULL},
    {NULL, NN_ACTIVATION, NN_D(blocks.activation), "\"gelu_pytorch_tanh\"", NULL},
    {"hidden_activation", NN_ACTIVATION, NN_D(blocks.activation), "null", NULL},
    {NULL, NN_ROOT, NN_D(input.scale), "true", NULL},
    {"attention_bias", NN_TRUTH, NN_D(blocks.attention[0].in_bias), "false", NULL},
    {"attention_bias", NN_TRUTH, NN_D(blocks.attention[0].out_bias), "false", NULL},
    {"tie_word_embeddings", NN_TRUTH, NN_O(tied), "true", NULL},
    {0},
};

const nn_name nn_gemma_names[] = {
    {.name = "model.layers.{l}.input_layernorm.weight", .part = NN_NORM1, .plus_one = true},
    {.name = "model.layers.{l}.self_attn.q_norm.weight", .part = NN_Q_NORM, .plus_one = true},
    {.name = "model.layers.{l}.self_attn.k_norm.weight", .part = NN_K_NORM, .plus_one = true},
    {.name = "model.norm.weight", .part = NN_FINAL_NORM, .plus_one = true},
    {0},
};

static const nn_name names[] = {
    {.name = "model.layers.{l}.post_attention_layernorm.weight", .part = NN_NORM2, .plus_one = true},
    {0},
};

/* Files of version 4 have hidden_act, too, which counts only where hidden_activation is absent. */
static const nn_key keys[] = {
    {"num_key_value_heads", NN_INT, NN_D(blocks.kv_heads), "16", NULL},
    {"hidden_activation|hidden_act", NN_ACTIVATION, NN_D(blocks.activation), "null", NULL},
    {0},
};

const nn_family nn_family_gemma = {
    .type = "gemma",
    .keys = {nn_llama_keys, nn_gemma_keys, keys},
    .names = {names, nn_gemma_names, nn_llama_names, nn_lm_names},
    .rotary = {.theta = 10000},
    .heads = NN_DECODER_HEADS,
};
