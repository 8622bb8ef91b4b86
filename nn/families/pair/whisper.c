/* Whisper: an encoder of audio frames and a decoder of text; keys have no bias. */
#include "families/lists.h"

static const nn_key keys[] = {
    {NULL, NN_CHOICE, NN_E(input.kind), "2", NULL}, /* NN_INPUT_FRAMES */
    {"num_mel_bins", NN_INT, NN_E(input.bins), "80", NULL},
    {"max_source_positions", NN_INT, NN_E(input.positions), "1500", NULL},
    {"max_target_positions", NN_INT, NN_D(input.positions), "448", NULL},
    {NULL, NN_CHOICE, NN_E(input.position_kind), "1", NULL}, /* NN_POSITIONS_LEARNED */
    {NULL, NN_CHOICE, NN_D(input.position_kind), "1", NULL},
    {NULL, NN_FLOAT, NN_E(input.scale), "1", NULL},
    {NULL, NN_FLOAT, NN_D(input.scale), "1", NULL},
    {0},
};

static const nn_name names[] = {
    {.name = "model.encoder.conv1.weight", .part = NN_CONV1, .encoder = true},
    {.name = "model.encoder.conv1.bias", .part = NN_CONV1_BIAS, .encoder = true},
    {.name = "model.encoder.conv2.weight", .part = NN_CONV2, .encoder = true},
    {.name = "model.encoder.conv2.bias", .part = NN_CONV2_BIAS, .encoder = true},
    {0},
};

const nn_family nn_family_whisper = {
    .type = "whisper",
    .keys = {nn_bart_keys, keys},
    .names = {names, nn_bart_names},
    .unused = nn_pair_unused,
    .heads = {{"ForConditionalGeneration", {NULL}, NULL, NULL}, {"MTModel", {NULL}, NULL, NULL}},
};
