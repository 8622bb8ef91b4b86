/* MPT: ALiBi, layer norms without biases, no biases at all. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"vocab_size", NN_INT, NN_D(input.vocabulary), NULL, NULL},
    {"d_model|hidden_size", NN_INT, NN_D(blocks.width), NULL, NULL},
    {"n_layers|num_hidden_layers", NN_INT, NN_D(blocks.depth), NULL, NULL},
    {"n_heads|num_attention_heads", NN_INT, NN_D(blocks.heads), NULL, NULL},
    {NULL, NN_TIMES, NN_D(blocks.mlp), "4", NULL},
    {"layer_norm_epsilon", NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.norm_bias), "false", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.mlp_bias), "false", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].in_bias), "false", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].out_bias), "false", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].alibi), "true", NULL},
    {"attn_config.softmax_scale", NN_FLOAT, NN_D(blocks.attention[0].scale), "null", NULL},
    {"attn_config.alibi", NN_ONLY, 0, "true", NULL},
    {"attn_config.alibi_bias_max", NN_ONLY, 0, "8", NULL},
    {"attn_config.attn_type", NN_ONLY, 0, "multihead_attention", NULL},
    {"attn_config.clip_qkv", NN_ONLY, 0, "null", NULL},
    {"attn_config.prefix_lm", NN_ONLY, 0, "false", NULL},
    {"attn_config.qk_ln", NN_ONLY, 0, "false", NULL},
    {"expansion_ratio", NN_ONLY, 0, "4", NULL},
    {"logit_scale", NN_ONLY, 0, "null", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.causal), "true", NULL},
    {"vocab_size", NN_INT, NN_O(classes), NULL, NULL},
    {"tie_word_embeddings", NN_TRUTH, NN_O(tied), "true", NULL},
    {0},
};

static const nn_name names[] = {
    {.name = "transformer.wte.weight", .part = NN_TOKENS},
    {.name = "transformer.blocks.{l}.norm_1.weight", .part = NN_NORM1},
    {.name = "transformer.blocks.{l}.attn.Wqkv.weight", .part = NN_Q, .cut = NN_ROWS_Q},
    {.name = "transformer.blocks.{l}.attn.Wqkv.weight", .part = NN_K, .cut = NN_ROWS_K},
    {.name = "transformer.blocks.{l}.attn.Wqkv.weight", .part = NN_V, .cut = NN_ROWS_V},
    {.name = "transformer.blocks.{l}.attn.out_proj.weight", .part = NN_PROJ},
    {.name = "transformer.blocks.{l}.norm_2.weight", .part = NN_NORM2},
    {.name = "transformer.blocks.{l}.ffn.up_proj.weight", .part = NN_FC1},
    {.name = "transformer.blocks.{l}.ffn.down_proj.weight", .part = NN_FC2},
    {.name = "transformer.norm_f.weight", .part = NN_FINAL_NORM},
    {0},
};

const nn_family nn_family_mpt = {
    .type = "mpt",
    .keys = {keys},
    .names = {names, nn_lm_names},
    .prefix = "transformer.",
    .heads = NN_DECODER_HEADS,
};
