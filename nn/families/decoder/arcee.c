/* Arcee: Llama with a plain MLP and squared ReLU. */
#include "families/lists.h"

static const nn_key keys[] = {
    {NULL, NN_TRUTH, NN_D(blocks.gated), "false", NULL},
    {"hidden_act", NN_ACTIVATION, NN_D(blocks.activation), "\"relu2\"", NULL},
    {"rms_norm_eps", NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {0},
};

const nn_family nn_family_arcee = {
    .type = "arcee",
    .keys = {nn_llama_keys, nn_mlp_bias_keys, keys, nn_untied_keys},
    .names = {nn_llama_names, nn_lm_names},
    .rotary = {.theta = 10000},
    .heads = NN_DECODER_HEADS,
};
