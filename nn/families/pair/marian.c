/* Marian: BART with sinusoidal positions and without a norm of the embeddings. */
#include "families/lists.h"

static const nn_key keys[] = {
    {NULL, NN_CHOICE, NN_E(input.position_kind), "3", NULL},
    {NULL, NN_CHOICE, NN_E(blocks.place), "1", NULL},
    {NULL, NN_TRUTH, NN_E(blocks.final_norm), "false", NULL},
    {NULL, NN_CHOICE, NN_D(input.position_kind), "3", NULL},
    {NULL, NN_CHOICE, NN_D(blocks.place), "1", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.final_norm), "false", NULL},
    {"decoder_vocab_size", NN_INT, NN_D(input.vocabulary), "=vocab_size", NULL},
    {"decoder_vocab_size", NN_INT, NN_O(classes), "=vocab_size", NULL},
    {NULL, NN_TRUTH, NN_O(bias), "true", NULL},
    {0},
};

const nn_family nn_family_marian = {
    .type = "marian",
    .keys = {nn_bart_keys, keys},
    .names = {nn_bart_names},
    .unused = nn_pair_unused,
    .heads = {{"ForConditionalGeneration", {NULL}, NULL, NULL}, {"MTModel", {NULL}, NULL, NULL}},
};
