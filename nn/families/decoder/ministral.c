/* Ministral: Mistral with windows in some layers. */
#include "families/lists.h"

const nn_family nn_family_ministral = {
    .type = "ministral",
    .keys = {nn_llama_keys, nn_mistral_keys, nn_untied_keys},
    .names = {nn_llama_names, nn_lm_names},
    .rotary = {.theta = 10000},
    .window = {.layers = NN_SLIDES_ALL, .key = "sliding_window", .absent = "4096"},
    .heads = NN_DECODER_HEADS,
};
