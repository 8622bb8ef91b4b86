/* M2M-100 and NLLB: pre-norm, sinusoidal positions that begin after that of padding. */
#include "families/lists.h"

static const nn_key keys[] = {
    {NULL, NN_CHOICE, NN_E(input.position_kind), "2", NULL},
    {"activation_function", NN_ACTIVATION, NN_E(blocks.activation), "\"relu\"", NULL},
    {"scale_embedding", NN_ROOT, NN_E(input.scale), "true", NULL},
    {"pad_token_id", NN_INT, NN_E(input.padding), "1", NULL},
    {"pad_token_id", NN_INT, NN_E(input.first_position), "1", NULL},
    {NULL, NN_MORE, NN_E(input.first_position), "1", NULL},
    {"pad_token_id", NN_MORE, NN_E(input.positions), "1", NULL},
    {NULL, NN_MORE, NN_E(input.positions), "1", NULL},
    {NULL, NN_CHOICE, NN_D(input.position_kind), "2", NULL},
    {"activation_function", NN_ACTIVATION, NN_D(blocks.activation), "\"relu\"", NULL},
    {"scale_embedding", NN_ROOT, NN_D(input.scale), "true", NULL},
    {"pad_token_id", NN_INT, NN_D(input.padding), "1", NULL},
    {"pad_token_id", NN_INT, NN_D(input.first_position), "1", NULL},
    {NULL, NN_MORE, NN_D(input.first_position), "1", NULL},
    {"pad_token_id", NN_MORE, NN_D(input.positions), "1", NULL},
    {NULL, NN_MORE, NN_D(input.positions), "1", NULL},
    {0},
};

const nn_family nn_family_m2m_100 = {
    .type = "m2m_100",
    .keys = {nn_bart_keys, keys},
    .names = {nn_bart_names},
    .unused = nn_pair_unused,
    .heads = {{"ForConditionalGeneration", {NULL}, NULL, NULL}, {"MTModel", {NULL}, NULL, NULL}},
};
