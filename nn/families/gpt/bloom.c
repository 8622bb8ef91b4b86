/* BLOOM: ALiBi, a norm of the embeddings; queries, keys and values head by head. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"vocab_size", NN_INT, NN_D(input.vocabulary), NULL, NULL},
    {"n_embed|hidden_size", NN_INT, NN_D(blocks.width), NULL, NULL},
    {"n_layer|num_hidden_layers", NN_INT, NN_D(blocks.depth), NULL, NULL},
    {"n_head|num_attention_heads", NN_INT, NN_D(blocks.heads), NULL, NULL},
    {NULL, NN_TIMES, NN_D(blocks.mlp), "4", NULL},
    {NULL, NN_ACTIVATION, NN_D(blocks.activation), "\"gelu_new\"", NULL},
    {"layer_norm_epsilon", NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {"apply_residual_connection_post_layernorm", NN_TRUTH, NN_D(blocks.from_norm), "false", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].alibi), "true", NULL},
    {NULL, NN_TRUTH, NN_D(input.norm), "true", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.causal), "true", NULL},
    {"pretraining_tp", NN_ONLY, 0, "1", "slow_but_exact"},
    {"vocab_size", NN_INT, NN_O(classes), NULL, NULL},
    {"tie_word_embeddings", NN_TRUTH, NN_O(tied), "true", NULL},
    {0},
};

static const nn_name names[] = {
    {.name = "transformer.word_embeddings.weight", .part = NN_TOKENS},
    {.name = "transformer.word_embeddings_layernorm.weight", .part = NN_INPUT_NORM},
    {.name = "transformer.word_embeddings_layernorm.bias", .part = NN_INPUT_NORM_BIAS},
    {.name = "transformer.h.{l}.input_layernorm.weight", .part = NN_NORM1},
    {.name = "transformer.h.{l}.input_layernorm.bias", .part = NN_NORM1_BIAS},
    {.name = "transformer.h.{l}.self_attention.query_key_value.weight", .part = NN_Q, .cut = NN_HEADS_Q},
    {.name = "transformer.h.{l}.self_attention.query_key_value.weight", .part = NN_K, .cut = NN_HEADS_K},
    {.name = "transformer.h.{l}.self_attention.query_key_value.weight", .part = NN_V, .cut = NN_HEADS_V},
    {.name = "transformer.h.{l}.self_attention.query_key_value.bias", .part = NN_Q_BIAS, .cut = NN_HEADS_Q},
    {.name = "transformer.h.{l}.self_attention.query_key_value.bias", .part = NN_K_BIAS, .cut = NN_HEADS_K},
    {.name = "transformer.h.{l}.self_attention.query_key_value.bias", .part = NN_V_BIAS, .cut = NN_HEADS_V},
    {.name = "transformer.h.{l}.self_attention.dense.weight", .part = NN_PROJ},
    {.name = "transformer.h.{l}.self_attention.dense.bias", .part = NN_PROJ_BIAS},
    {.name = "transformer.h.{l}.post_attention_layernorm.weight", .part = NN_NORM2},
    {.name = "transformer.h.{l}.post_attention_layernorm.bias", .part = NN_NORM2_BIAS},
    {.name = "transformer.h.{l}.mlp.dense_h_to_4h.weight", .part = NN_FC1},
    {.name = "transformer.h.{l}.mlp.dense_h_to_4h.bias", .part = NN_FC1_BIAS},
    {.name = "transformer.h.{l}.mlp.dense_4h_to_h.weight", .part = NN_FC2},
    {.name = "transformer.h.{l}.mlp.dense_4h_to_h.bias", .part = NN_FC2_BIAS},
    {.name = "transformer.ln_f.weight", .part = NN_FINAL_NORM},
    {.name = "transformer.ln_f.bias", .part = NN_FINAL_NORM_BIAS},
    {0},
};

const nn_family nn_family_bloom = {
    .type = "bloom",
    .keys = {keys},
    .names = {names, nn_lm_names},
    .prefix = "transformer.",
    .heads = NN_DECODER_HEADS,
};
