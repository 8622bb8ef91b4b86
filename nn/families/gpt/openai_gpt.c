/* GPT, the first: GPT-2 with its norms behind the sums. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"n_positions|max_position_embeddings", NN_INT, NN_D(input.positions), "512", NULL},
    {"n_inner", NN_ONLY, 0, "null", NULL},
    {NULL, NN_ACTIVATION, NN_D(blocks.activation), "\"gelu_new\"", NULL},
    {NULL, NN_ACTIVATION, NN_D(blocks.activation), "\"relu\"", "afn=relu"},
    {NULL, NN_ACTIVATION, NN_D(blocks.activation), "\"silu\"", "afn=silu"},
    {NULL, NN_ACTIVATION, NN_D(blocks.activation), "\"silu\"", "afn=swish"},
    {NULL, NN_CHOICE, NN_D(blocks.place), "1", NULL}, /* NN_NORM_BEHIND */
    {NULL, NN_TRUTH, NN_D(blocks.final_norm), "false", NULL},
    {0},
};

static const nn_name names[] = {
    {.name = "transformer.tokens_embed.weight", .part = NN_TOKENS},
    {.name = "transformer.positions_embed.weight", .part = NN_POSITIONS},
    {0},
};

static const char *const unused[] = {".attn.bias", NULL};

const nn_family nn_family_openai_gpt = {
    .type = "openai-gpt",
    .keys = {nn_gpt2_keys, keys},
    .names = {names, nn_gpt2_names, nn_lm_names},
    .prefix = "transformer.",
    .unused = unused,
    .heads = {{"LMHeadModel", {NULL}, NULL, NULL},
              {"ForSequenceClassification", {nn_score_keys}, nn_score_names, NULL}},
};
