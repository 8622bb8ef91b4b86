/* Mistral: Llama with a window. */
#include "families/lists.h"

const nn_key nn_mistral_keys[] = {
    {"num_key_value_heads", NN_INT, NN_D(blocks.kv_heads), "8", NULL},
    {0},
};

const nn_family nn_family_mistral = {
    .type = "mistral",
    .keys = {nn_llama_keys, nn_mistral_keys, nn_untied_keys},
    .names = {nn_llama_names, nn_lm_names},
    .rotary = {.theta = 10000},
    .window = {.layers = NN_SLIDES_ALWAYS, .key = "sliding_window", .absent = "4096"},
    .heads = NN_DECODER_HEADS,
};
