/* GPT-Neo: GPT-2 with windows in some layers and scores that are not scaled. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"vocab_size", NN_INT, NN_D(input.vocabulary), NULL, NULL},
    {"hidden_size", NN_INT, NN_D(blocks.width), NULL, NULL},
    {"num_layers|num_hidden_layers", NN_INT, NN_D(blocks.depth), NULL, NULL},
    {"num_heads|num_attention_heads", NN_INT, NN_D(blocks.heads), NULL, NULL},
    {NULL, NN_TIMES, NN_D(blocks.mlp), "4", NULL},
    {"intermediate_size", NN_INT, NN_D(blocks.mlp), "null", NULL},
    {"max_position_embeddings", NN_INT, NN_D(input.positions), "2048", NULL},
    {NULL, NN_CHOICE, NN_D(input.position_kind), "1", NULL}, /* NN_POSITIONS_LEARNED */
    {"activation_function", NN_ACTIVATION, NN_D(blocks.activation), "\"gelu_new\"", NULL},
    {"layer_norm_epsilon", NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {NULL, NN_FLOAT, NN_D(blocks.attention[0].scale), "1", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].in_bias), "false", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.causal), "true", NULL},
    {"vocab_size", NN_INT, NN_O(classes), NULL, NULL},
    {"tie_word_embeddings", NN_TRUTH, NN_O(tied), "true", NULL},
    {0},
};

static const nn_name names[] = {
    {.name = "transformer.wte.weight", .part = NN_TOKENS},
    {.name = "transformer.wpe.weight", .part = NN_POSITIONS},
    {.name = "transformer.h.{l}.ln_1.weight", .part = NN_NORM1},
    {.name = "transformer.h.{l}.ln_1.bias", .part = NN_NORM1_BIAS},
    {.name = "transformer.h.{l}.attn.attention.q_proj.weight", .part = NN_Q},
    {.name = "transformer.h.{l}.attn.attention.k_proj.weight", .part = NN_K},
    {.name = "transformer.h.{l}.attn.attention.v_proj.weight", .part = NN_V},
    {.name = "transformer.h.{l}.attn.attention.out_proj.weight", .part = NN_PROJ},
    {.name = "transformer.h.{l}.attn.attention.out_proj.bias", .part = NN_PROJ_BIAS},
    {.name = "transformer.h.{l}.ln_2.weight", .part = NN_NORM2},
    {.name = "transformer.h.{l}.ln_2.bias", .part = NN_NORM2_BIAS},
    {.name = "transformer.h.{l}.mlp.c_fc.weight", .part = NN_FC1},
    {.name = "transformer.h.{l}.mlp.c_fc.bias", .part = NN_FC1_BIAS},
    {.name = "transformer.h.{l}.mlp.c_proj.weight", .part = NN_FC2},
    {.name = "transformer.h.{l}.mlp.c_proj.bias", .part = NN_FC2_BIAS},
    {.name = "transformer.ln_f.weight", .part = NN_FINAL_NORM},
    {.name = "transformer.ln_f.bias", .part = NN_FINAL_NORM_BIAS},
    {0},
};

static const char *const unused[] = {".attn.attention.bias", NULL};

const nn_family nn_family_gpt_neo = {
    .type = "gpt_neo",
    .keys = {keys},
    .names = {names, nn_lm_names},
    .window = {.layers = NN_SLIDES_LOCAL, .key = "window_size", .absent = "256"},
    .prefix = "transformer.",
    .unused = unused,
    .heads = NN_DECODER_HEADS,
};
