/* BLOOM: ALiBi, a norm of the embeddings; queries, keys and values head by head, as in Falcon. */
#include "families/lists.h"

static const nn_key keys[] = {
    {NULL, NN_ACTIVATION, NN_D(blocks.activation), "\"gelu_new\"", NULL},
    {"apply_residual_connection_post_layernorm", NN_TRUTH, NN_D(blocks.from_norm), "false", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].alibi), "true", NULL},
    {NULL, NN_TRUTH, NN_D(input.norm), "true", NULL},
    {"pretraining_tp", NN_ONLY, 0, "1", "slow_but_exact"},
    {0},
};

static const nn_name names[] = {
    {.name = "transformer.word_embeddings_layernorm.weight", .part = NN_INPUT_NORM},
    {.name = "transformer.word_embeddings_layernorm.bias", .part = NN_INPUT_NORM_BIAS},
    {0},
};

const nn_family nn_family_bloom = {
    .type = "bloom",
    .keys = {nn_falcon_keys, keys},
    .names = {names, nn_falcon_names, nn_lm_names},
    .prefix = "transformer.",
    .heads = NN_DECODER_HEADS,
};
