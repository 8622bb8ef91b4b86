/* mBART, which is BART with pre-norm blocks, and PLBart, which is BART for programs. */
#include "families/lists.h"

static const nn_key mbart_keys[] = {
    {NULL, NN_MORE, NN_E(input.positions), "2", NULL},
    {NULL, NN_INT, NN_E(input.first_position), "2", NULL},
    {NULL, NN_CHOICE, NN_E(input.position_kind), "1", NULL}, /* NN_POSITIONS_LEARNED */
    {NULL, NN_TRUTH, NN_E(input.norm), "true", NULL},
    {NULL, NN_MORE, NN_D(input.positions), "2", NULL},
    {NULL, NN_INT, NN_D(input.first_position), "2", NULL},
    {NULL, NN_CHOICE, NN_D(input.position_kind), "1", NULL},
    {NULL, NN_TRUTH, NN_D(input.norm), "true", NULL},
    {NULL, NN_TRUTH, NN_O(bias), "true", NULL},
    {0},
};

static const nn_key plbart_keys[] = {
    {"scale_embedding", NN_ROOT, NN_E(input.scale), "true", NULL},
    {NULL, NN_CHOICE, NN_E(blocks.place), "1", NULL}, /* NN_NORM_BEHIND */
    {NULL, NN_TRUTH, NN_E(blocks.final_norm), "false", NULL},
    {"scale_embedding", NN_ROOT, NN_D(input.scale), "true", NULL},
    {NULL, NN_CHOICE, NN_D(blocks.place), "1", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.final_norm), "false", NULL},
    {0},
};

const nn_family nn_family_mbart = {
    .type = "mbart",
    .keys = {nn_bart_keys, mbart_keys},
    .names = {nn_bart_names},
    .unused = nn_pair_unused,
    .heads = {{"ForConditionalGeneration", {NULL}, NULL, NULL}},
};

const nn_family nn_family_plbart = {
    .type = "plbart",
    .keys = {nn_bart_keys, mbart_keys, plbart_keys},
    .names = {nn_bart_names},
    .unused = nn_pair_unused,
    .heads = {{"ForConditionalGeneration", {NULL}, NULL, NULL}},
};
