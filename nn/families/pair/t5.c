/* T5: relative positions, RMS norms, scores that are not scaled, no biases; and mT5, its multilingual kind. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"vocab_size", NN_INT, NN_E(input.vocabulary), NULL, NULL},
    {"d_model", NN_INT, NN_E(blocks.width), NULL, NULL},
    {"num_layers", NN_INT, NN_E(blocks.depth), NULL, NULL},
    {"num_heads", NN_INT, NN_E(blocks.heads), NULL, NULL},
    {"d_kv", NN_INT, NN_E(blocks.head_width), NULL, NULL},
    {"d_ff", NN_INT, NN_E(blocks.mlp), NULL, NULL},
    {"feed_forward_proj", NN_GATED, NN_E(blocks), "\"relu\"", NULL},
    {"layer_norm_epsilon", NN_FLOAT, NN_E(blocks.epsilon), "1e-6", NULL},
    {"relative_attention_num_buckets", NN_INT, NN_E(blocks.attention[0].relative_buckets), "32", NULL},
    {"relative_attention_max_distance", NN_INT, NN_E(blocks.attention[0].relative_distance), "128", NULL},
    {NULL, NN_FLOAT, NN_E(blocks.attention[0].scale), "1", NULL},
    {NULL, NN_CHOICE, NN_E(blocks.norm), "1", NULL},
    {NULL, NN_TRUTH, NN_E(blocks.mlp_bias), "false", NULL},
    {NULL, NN_TRUTH, NN_E(blocks.attention[0].in_bias), "false", NULL},
    {NULL, NN_TRUTH, NN_E(blocks.attention[0].out_bias), "false", NULL},
    {"vocab_size", NN_INT, NN_D(input.vocabulary), NULL, NULL},
    {"d_model", NN_INT, NN_D(blocks.width), NULL, NULL},
    {"num_decoder_layers", NN_INT, NN_D(blocks.depth), "=num_layers", NULL},
    {"num_heads", NN_INT, NN_D(blocks.heads), NULL, NULL},
    {"d_kv", NN_INT, NN_D(blocks.head_width), NULL, NULL},
    {"d_ff", NN_INT, NN_D(blocks.mlp), NULL, NULL},
    {"feed_forward_proj", NN_GATED, NN_D(blocks), "\"relu\"", NULL},
    {"layer_norm_epsilon", NN_FLOAT, NN_D(blocks.epsilon), "1e-6", NULL},
    {"relative_attention_num_buckets", NN_INT, NN_D(blocks.attention[0].relative_buckets), "32", NULL},
    {"relative_attention_max_distance", NN_INT, NN_D(blocks.attention[0].relative_distance), "128", NULL},
    {NULL, NN_FLOAT, NN_D(blocks.attention[0].scale), "1", NULL},
    {NULL, NN_CHOICE, NN_D(blocks.norm), "1", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.mlp_bias), "false", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].in_bias), "false", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].out_bias), "false", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.causal), "true", NULL},
    {"vocab_size", NN_INT, NN_O(classes), NULL, NULL},
    {"tie_word_embeddings", NN_TRUTH, NN_O(tied), "true", NULL},
    {"scale_decoder_outputs|tie_word_embeddings", NN_UNDER_ROOT, NN_O(scale), "true", NULL},
    {0},
};

static const nn_name names[] = {
    {.name = "encoder.embed_tokens.weight", .part = NN_TOKENS, .encoder = true},
    {.name = "shared.weight", .part = NN_TOKENS, .encoder = true},
    {.name = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
     .part = NN_RELATIVE,
     .encoder = true},
    {.name = "encoder.block.{l}.layer.0.SelfAttention.q.weight", .part = NN_Q, .encoder = true},
    {.name = "encoder.block.{l}.layer.0.SelfAttention.k.weight", .part = NN_K, .encoder = true},
    {.name = "encoder.block.{l}.layer.0.SelfAttention.v.weight", .part = NN_V, .encoder = true},
    {.name = "encoder.block.{l}.layer.0.SelfAttention.o.weight", .part = NN_PROJ, .encoder = true},
    {.name = "encoder.block.{l}.layer.0.layer_norm.weight", .part = NN_NORM1, .encoder = true},
    {.name = "encoder.block.{l}.layer.1.DenseReluDense.wi.weight", .part = NN_FC1, .encoder = true},
    {.name = "encoder.block.{l}.layer.1.DenseReluDense.wi_0.weight", .part = NN_GATE, .encoder = true},
    {.name = "encoder.block.{l}.layer.1.DenseReluDense.wi_1.weight", .part = NN_FC1, .encoder = true},
    {.name = "encoder.block.{l}.layer.1.DenseReluDense.wo.weight", .part = NN_FC2, .encoder = true},
    {.name = "encoder.block.{l}.layer.1.layer_norm.weight", .part = NN_NORM2, .encoder = true},
    {.name = "encoder.final_layer_norm.weight", .part = NN_FINAL_NORM, .encoder = true},
    {.name = "decoder.embed_tokens.weight", .part = NN_TOKENS},
    {.name = "shared.weight", .part = NN_TOKENS},
    {.name = "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", .part = NN_RELATIVE},
    {.name = "decoder.block.{l}.layer.0.SelfAttention.q.weight", .part = NN_Q},
    {.name = "decoder.block.{l}.layer.0.SelfAttention.k.weight", .part = NN_K},
    {.name = "decoder.block.{l}.layer.0.SelfAttention.v.weight", .part = NN_V},
    {.name = "decoder.block.{l}.layer.0.SelfAttention.o.weight", .part = NN_PROJ},
    {.name = "decoder.block.{l}.layer.0.layer_norm.weight", .part = NN_NORM1},
    {.name = "decoder.block.{l}.layer.1.EncDecAttention.q.weight", .part = NN_CROSS_Q},
    {.name = "decoder.block.{l}.layer.1.EncDecAttention.k.weight", .part = NN_CROSS_K},
    {.name = "decoder.block.{l}.layer.1.EncDecAttention.v.weight", .part = NN_CROSS_V},
    {.name = "decoder.block.{l}.layer.1.EncDecAttention.o.weight", .part = NN_CROSS_PROJ},
    {.name = "decoder.block.{l}.layer.1.layer_norm.weight", .part = NN_CROSS_NORM},
    {.name = "decoder.block.{l}.layer.2.DenseReluDense.wi.weight", .part = NN_FC1},
    {.name = "decoder.block.{l}.layer.2.DenseReluDense.wi_0.weight", .part = NN_GATE},
    {.name = "decoder.block.{l}.layer.2.DenseReluDense.wi_1.weight", .part = NN_FC1},
    {.name = "decoder.block.{l}.layer.2.DenseReluDense.wo.weight", .part = NN_FC2},
    {.name = "decoder.block.{l}.layer.2.layer_norm.weight", .part = NN_NORM2},
    {.name = "decoder.final_layer_norm.weight", .part = NN_FINAL_NORM},
    {.name = "lm_head.weight", .part = NN_OUTPUT},
    {0},
};

/* Some old files have relative positions of cross-attention, which are not used. */
static const char *const unused[] = {"shared.weight", "embed_tokens.weight", "lm_head.weight",
                                     "EncDecAttention.relative_attention_bias.weight", NULL};

/* The encoder alone: its rows are the result. */
static const nn_key encoder_keys[] = {
    {NULL, NN_INT, NN_D(blocks.depth), "0", NULL},
    {NULL, NN_INT, NN_O(classes), "0", NULL},
    {NULL, NN_TRUTH, NN_O(tied), "false", NULL},
    {NULL, NN_FLOAT, NN_O(scale), "1", NULL},
    {0},
};

/* mT5's blocks are gated if the file does not say otherwise, and its logits are not scaled. */
static const nn_key mt5_keys[] = {
    {"feed_forward_proj", NN_GATED, NN_E(blocks), "\"gated-gelu\"", NULL},
    {"feed_forward_proj", NN_GATED, NN_D(blocks), "\"gated-gelu\"", NULL},
    {NULL, NN_FLOAT, NN_O(scale), "1", NULL},
    {0},
};

const nn_family nn_family_t5 = {
    .type = "t5",
    .keys = {keys},
    .names = {names},
    .own_head = true,
    .unused = unused,
    .heads = {{"ForConditionalGeneration", {NULL}, NULL, NULL}, {"EncoderModel", {encoder_keys}, NULL, NULL}},
};

const nn_family nn_family_mt5 = {
    .type = "mt5",
    .keys = {keys, mt5_keys},
    .names = {names},
    .own_head = true,
    .unused = unused,
    .heads = {{"ForConditionalGeneration", {NULL}, NULL, NULL}, {"EncoderModel", {encoder_keys}, NULL, NULL}},
};
