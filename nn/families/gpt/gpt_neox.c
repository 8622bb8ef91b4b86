/* GPT-NeoX: parallel branches with two norms; queries, keys and values head by head. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"vocab_size", NN_INT, NN_D(input.vocabulary), NULL, NULL},
    {"hidden_size", NN_INT, NN_D(blocks.width), NULL, NULL},
    {"num_hidden_layers", NN_INT, NN_D(blocks.depth), NULL, NULL},
    {"num_attention_heads", NN_INT, NN_D(blocks.heads), NULL, NULL},
    {"intermediate_size", NN_INT, NN_D(blocks.mlp), NULL, NULL},
    {"hidden_act", NN_ACTIVATION, NN_D(blocks.activation), "\"gelu\"", NULL},
    {"layer_norm_eps", NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {"attention_bias", NN_TRUTH, NN_D(blocks.attention[0].in_bias), "true", NULL},
    {"attention_bias", NN_TRUTH, NN_D(blocks.attention[0].out_bias), "true", NULL},
    {"use_parallel_residual", NN_TRUTH, NN_D(blocks.parallel), "true", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.causal), "true", NULL},
    {"vocab_size", NN_INT, NN_O(classes), NULL, NULL},
    {"tie_word_embeddings", NN_TRUTH, NN_O(tied), "false", NULL},
    {0},
};

static const nn_name names[] = {
    {.name = "gpt_neox.embed_in.weight", .part = NN_TOKENS},
    {.name = "gpt_neox.layers.{l}.input_layernorm.weight", .part = NN_NORM1},
    {.name = "gpt_neox.layers.{l}.input_layernorm.bias", .part = NN_NORM1_BIAS},
    {.name = "gpt_neox.layers.{l}.attention.query_key_value.weight", .part = NN_Q, .cut = NN_HEADS_Q},
    {.name = "gpt_neox.layers.{l}.attention.query_key_value.weight", .part = NN_K, .cut = NN_HEADS_K},
    {.name = "gpt_neox.layers.{l}.attention.query_key_value.weight", .part = NN_V, .cut = NN_HEADS_V},
    {.name = "gpt_neox.layers.{l}.attention.query_key_value.bias", .part = NN_Q_BIAS, .cut = NN_HEADS_Q},
    {.name = "gpt_neox.layers.{l}.attention.query_key_value.bias", .part = NN_K_BIAS, .cut = NN_HEADS_K},
    {.name = "gpt_neox.layers.{l}.attention.query_key_value.bias", .part = NN_V_BIAS, .cut = NN_HEADS_V},
    {.name = "gpt_neox.layers.{l}.attention.dense.weight", .part = NN_PROJ},
    {.name = "gpt_neox.layers.{l}.attention.dense.bias", .part = NN_PROJ_BIAS},
    {.name = "gpt_neox.layers.{l}.post_attention_layernorm.weight", .part = NN_NORM2},
    {.name = "gpt_neox.layers.{l}.post_attention_layernorm.bias", .part = NN_NORM2_BIAS},
    {.name = "gpt_neox.layers.{l}.mlp.dense_h_to_4h.weight", .part = NN_FC1},
    {.name = "gpt_neox.layers.{l}.mlp.dense_h_to_4h.bias", .part = NN_FC1_BIAS},
    {.name = "gpt_neox.layers.{l}.mlp.dense_4h_to_h.weight", .part = NN_FC2},
    {.name = "gpt_neox.layers.{l}.mlp.dense_4h_to_h.bias", .part = NN_FC2_BIAS},
    {.name = "gpt_neox.final_layer_norm.weight", .part = NN_FINAL_NORM},
    {.name = "gpt_neox.final_layer_norm.bias", .part = NN_FINAL_NORM_BIAS},
    {.name = "embed_out.weight", .part = NN_OUTPUT},
    {.name = "lm_head.weight", .part = NN_OUTPUT},
    {0},
};

static const char *const unused[] = {".attention.bias", NULL};

const nn_family nn_family_gpt_neox = {
    .type = "gpt_neox",
    .keys = {keys},
    .names = {names},
    .rotary = {.theta = 10000, .theta_key = "rotary_emb_base", .part = 0.25, .part_key = "rotary_pct"},
    .prefix = "gpt_neox.",
    .unused = unused,
    .heads = NN_DECODER_HEADS,
};
