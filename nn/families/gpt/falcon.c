/* Falcon: parallel branches with one norm or two, or none of that; heads of queries share one head of keys and values, or
 * lie in runs, each with its own; rotary or ALiBi. `transformers` rounds slopes of ALiBi, and their products with positions,
 * to bfloat16; here they are exact. */
#include "families/lists.h"

const nn_key nn_falcon_keys[] = {
    {"vocab_size", NN_INT, NN_D(input.vocabulary), NULL, NULL},
    {"n_embed|hidden_size", NN_INT, NN_D(blocks.width), NULL, NULL},
    {"n_layer|num_hidden_layers", NN_INT, NN_D(blocks.depth), NULL, NULL},
    {"n_head|num_attention_heads", NN_INT, NN_D(blocks.heads), NULL, NULL},
    {NULL, NN_TIMES, NN_D(blocks.mlp), "4", NULL},
    {"layer_norm_epsilon", NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.causal), "true", NULL},
    {"vocab_size", NN_INT, NN_O(classes), NULL, NULL},
    {"tie_word_embeddings", NN_TRUTH, NN_O(tied), "true", NULL},
    {0},
};

static const nn_key keys[] = {
    {NULL, NN_INT, NN_D(blocks.kv_heads), "1", NULL},
    {"n_head|num_attention_heads", NN_INT, NN_D(blocks.kv_heads), NULL, "!multi_query"},
    {"n_head_kv|num_kv_heads", NN_INT, NN_D(blocks.kv_heads), "=n_head|num_attention_heads",
     "new_decoder_architecture"},
    {"ffn_hidden_size", NN_INT, NN_D(blocks.mlp), "null", NULL},
    {"activation", NN_ACTIVATION, NN_D(blocks.activation), "\"gelu\"", NULL},
    {"bias", NN_TRUTH, NN_D(blocks.attention[0].in_bias), "false", NULL},
    {"bias", NN_TRUTH, NN_D(blocks.attention[0].out_bias), "false", NULL},
    {"bias", NN_TRUTH, NN_D(blocks.mlp_bias), "false", NULL},
    {"parallel_attn", NN_TRUTH, NN_D(blocks.parallel), "true", NULL},
    {"parallel_attn", NN_TRUTH, NN_D(blocks.one_norm), "true", NULL},
    {"parallel_attn", NN_ONLY, 0, "true", "new_decoder_architecture"},
    {NULL, NN_TRUTH, NN_D(blocks.one_norm), "false", "new_decoder_architecture"},
    {NULL, NN_TRUTH, NN_D(blocks.one_norm), "true", "num_ln_in_parallel_attn=1"},
    {"alibi", NN_TRUTH, NN_D(blocks.attention[0].alibi), "false", NULL},
    {"alibi", NN_TRUTH, NN_D(blocks.attention[0].alibi_scaled), "false", NULL},
    {0},
};

const nn_name nn_falcon_names[] = {
    {.name = "transformer.word_embeddings.weight", .part = NN_TOKENS},
    {.name = "transformer.h.{l}.input_layernorm.weight", .part = NN_NORM1},
    {.name = "transformer.h.{l}.input_layernorm.bias", .part = NN_NORM1_BIAS},
    {.name = "transformer.h.{l}.ln_attn.weight", .part = NN_NORM1},
    {.name = "transformer.h.{l}.ln_attn.bias", .part = NN_NORM1_BIAS},
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
    {.name = "transformer.h.{l}.ln_mlp.weight", .part = NN_NORM2},
    {.name = "transformer.h.{l}.ln_mlp.bias", .part = NN_NORM2_BIAS},
    {.name = "transformer.h.{l}.mlp.dense_h_to_4h.weight", .part = NN_FC1},
    {.name = "transformer.h.{l}.mlp.dense_h_to_4h.bias", .part = NN_FC1_BIAS},
    {.name = "transformer.h.{l}.mlp.dense_4h_to_h.weight", .part = NN_FC2},
    {.name = "transformer.h.{l}.mlp.dense_4h_to_h.bias", .part = NN_FC2_BIAS},
    {.name = "transformer.ln_f.weight", .part = NN_FINAL_NORM},
    {.name = "transformer.ln_f.bias", .part = NN_FINAL_NORM_BIAS},
    {0},
};

const nn_family nn_family_falcon = {
    .type = "falcon",
    .keys = {nn_falcon_keys, keys},
    .names = {nn_falcon_names, nn_lm_names},
    .rotary = {.theta = 10000, .unless = "alibi"},
    .prefix = "transformer.",
    .heads = NN_DECODER_HEADS,
};
