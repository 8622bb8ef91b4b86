/* GPT-2: learned positions; weights are (in,out). */
#include "families/lists.h"

const nn_key nn_gpt2_keys[] = {
    {"vocab_size", NN_INT, NN_D(input.vocabulary), NULL, NULL},
    {"n_embd|hidden_size", NN_INT, NN_D(blocks.width), NULL, NULL},
    {"n_layer|num_hidden_layers", NN_INT, NN_D(blocks.depth), NULL, NULL},
    {"n_head|num_attention_heads", NN_INT, NN_D(blocks.heads), NULL, NULL},
    {NULL, NN_TIMES, NN_D(blocks.mlp), "4", NULL},
    {"n_inner", NN_INT, NN_D(blocks.mlp), "null", NULL},
    {"n_positions|max_position_embeddings", NN_INT, NN_D(input.positions), "1024", NULL},
    {NULL, NN_CHOICE, NN_D(input.position_kind), "1", NULL}, /* NN_POSITIONS_LEARNED */
    {"activation_function", NN_ACTIVATION, NN_D(blocks.activation), "\"gelu_new\"", NULL},
    {"layer_norm_epsilon", NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {"scale_attn_by_inverse_layer_idx", NN_TRUTH, NN_D(blocks.attention[0].scale_by_block), "false", NULL},
    {NULL, NN_FLOAT, NN_D(blocks.attention[0].scale), "1", "!scale_attn_weights"},
    {NULL, NN_TRUTH, NN_D(blocks.causal), "true", NULL},
    {"vocab_size", NN_INT, NN_O(classes), NULL, NULL},
    {"tie_word_embeddings", NN_TRUTH, NN_O(tied), "true", NULL},
    {0},
};

const nn_name nn_gpt2_names[] = {
    {.name = "transformer.wte.weight", .part = NN_TOKENS},
    {.name = "transformer.wpe.weight", .part = NN_POSITIONS},
    {.name = "transformer.h.{l}.ln_1.weight", .part = NN_NORM1},
    {.name = "transformer.h.{l}.ln_1.bias", .part = NN_NORM1_BIAS},
    {.name = "transformer.h.{l}.attn.c_attn.weight", .part = NN_Q, .cut = NN_COLUMNS_Q},
    {.name = "transformer.h.{l}.attn.c_attn.weight", .part = NN_K, .cut = NN_COLUMNS_K},
    {.name = "transformer.h.{l}.attn.c_attn.weight", .part = NN_V, .cut = NN_COLUMNS_V},
    {.name = "transformer.h.{l}.attn.c_attn.bias", .part = NN_Q_BIAS, .cut = NN_ROWS_Q},
    {.name = "transformer.h.{l}.attn.c_attn.bias", .part = NN_K_BIAS, .cut = NN_ROWS_K},
    {.name = "transformer.h.{l}.attn.c_attn.bias", .part = NN_V_BIAS, .cut = NN_ROWS_V},
    {.name = "transformer.h.{l}.attn.c_proj.weight", .part = NN_PROJ, .cut = NN_SWAPPED},
    {.name = "transformer.h.{l}.attn.c_proj.bias", .part = NN_PROJ_BIAS},
    {.name = "transformer.h.{l}.ln_2.weight", .part = NN_NORM2},
    {.name = "transformer.h.{l}.ln_2.bias", .part = NN_NORM2_BIAS},
    {.name = "transformer.h.{l}.mlp.c_fc.weight", .part = NN_FC1, .cut = NN_SWAPPED},
    {.name = "transformer.h.{l}.mlp.c_fc.bias", .part = NN_FC1_BIAS},
    {.name = "transformer.h.{l}.mlp.c_proj.weight", .part = NN_FC2, .cut = NN_SWAPPED},
    {.name = "transformer.h.{l}.mlp.c_proj.bias", .part = NN_FC2_BIAS},
    {.name = "transformer.ln_f.weight", .part = NN_FINAL_NORM},
    {.name = "transformer.ln_f.bias", .part = NN_FINAL_NORM_BIAS},
    {0},
};

static const char *const unused[] = {".attn.bias", NULL};

const nn_family nn_family_gpt2 = {
    .type = "gpt2",
    .keys = {nn_gpt2_keys},
    .names = {nn_gpt2_names, nn_lm_names},
    .prefix = "transformer.",
    .unused = unused,
    .heads = {{"LMHeadModel", {NULL}, NULL, NULL},
              {"ForSequenceClassification", {nn_score_keys}, nn_score_names, NULL},
              {"ForTokenClassification", {nn_each_token_keys, nn_named_keys}, nn_each_token_names, NULL},
              {"ForQuestionAnswering", {nn_each_token_keys, nn_answer_keys}, nn_answer_names, NULL}},
};
