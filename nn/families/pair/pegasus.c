/* PEGASUS: pre-norm, sinusoidal positions. */
#include "families/lists.h"

static const nn_key keys[] = {
    {NULL, NN_CHOICE, NN_E(input.position_kind), "3", NULL},
    {NULL, NN_CHOICE, NN_D(input.position_kind), "3", NULL},
    {NULL, NN_TRUTH, NN_O(bias), "true", NULL},
    {0},
};

const nn_family nn_family_pegasus = {
    .type = "pegasus",
    .keys = {nn_bart_keys, keys},
    .names = {nn_bart_names},
    .unused = nn_pair_unused,
    .heads = {{"ForConditionalGeneration", {NULL}, NULL, NULL}, {"MTModel", {NULL}, NULL, NULL}},
};
