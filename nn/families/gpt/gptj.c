/* GPT-J: parallel branches with one norm, and a rotary embedding of neighbouring pairs in a part of each head. */
#include "families/lists.h"

const nn_key nn_gptj_keys[] = {
    {"vocab_size", NN_INT, NN_D(input.vocabulary), NULL, NULL},
    {"n_embd|hidden_size", NN_INT, NN_D(blocks.width), NULL, NULL},
    {"n_layer|num_hidden_layers", NN_INT, NN_D(blocks.depth), NULL, NULL},
    {"n_head|num_attention_heads", NN_INT, NN_D(blocks.heads), NULL, NULL},
    {NULL, NN_TIMES, NN_D(blocks.mlp), "4", NULL},
    {"n_inner", NN_INT, NN_D(blocks.mlp), "null", NULL},
    {"activation_function", NN_ACTIVATION, NN_D(blocks.activation), "\"gelu_new\"", NULL},
    {"layer_norm_epsilon", NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].in_bias), "false", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].out_bias), "false", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].rotary_interleaved), "true", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.parallel), "true", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.one_norm), "true", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.causal), "true", NULL},
    {"vocab_size", NN_INT, NN_O(classes), NULL, NULL},
    {NULL, NN_TRUTH, NN_O(bias), "true", NULL},
    {"tie_word_embeddings", NN_TRUTH, NN_O(tied), "false", NULL},
    {0},
};

const nn_name nn_gptj_names[] = {
    {.name = "transformer.wte.weight", .part = NN_TOKENS},
    {.name = "transformer.h.{l}.ln_1.weight", .part = NN_NORM1},
    {.name = "transformer.h.{l}.ln_1.bias", .part = NN_NORM1_BIAS},
    {.name = "transformer.h.{l}.attn.q_proj.weight", .part = NN_Q},
    {.name = "transformer.h.{l}.attn.k_proj.weight", .part = NN_K},
    {.name = "transformer.h.{l}.attn.v_proj.weight", .part = NN_V},
    {.name = "transformer.h.{l}.attn.out_proj.weight", .part = NN_PROJ},
    {.name = "transformer.h.{l}.mlp.fc_in.weight", .part = NN_FC1},
    {.name = "transformer.h.{l}.mlp.fc_in.bias", .part = NN_FC1_BIAS},
    {.name = "transformer.h.{l}.mlp.fc_out.weight", .part = NN_FC2},
    {.name = "transformer.h.{l}.mlp.fc_out.bias", .part = NN_FC2_BIAS},
    {.name = "transformer.ln_f.weight", .part = NN_FINAL_NORM},
    {.name = "transformer.ln_f.bias", .part = NN_FINAL_NORM_BIAS},
    {0},
};

/* Masks and tables of positions in older files. */
const char *const nn_gptj_unused[] = {".attn.bias", ".attn.embed_positions", ".attn.causal_mask", NULL};

const nn_family nn_family_gptj = {
    .type = "gptj",
    .keys = {nn_gptj_keys},
    .names = {nn_gptj_names, nn_lm_names},
    .rotary = {.theta = 10000, .width_key = "rotary_dim", .width = 64},
    .prefix = "transformer.",
    .unused = nn_gptj_unused,
    .heads = NN_DECODER_HEADS,
};
