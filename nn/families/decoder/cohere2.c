/* Command R7B: Command R with windows in three of four layers; only these have a rotary embedding. */
#include "families/lists.h"

const nn_family nn_family_cohere2 = {
    .type = "cohere2",
    .keys = {nn_llama_keys, nn_attention_bias_keys, nn_cohere_keys, nn_tied_keys},
    .names = {nn_llama_names, nn_lm_names},
    .rotary = {.theta = 10000},
    .window = {.layers = NN_SLIDES_BUT_EVERY,
               .key = "sliding_window",
               .absent = "4096",
               .number = "sliding_window_pattern",
               .number_absent = "4",
               .turns = true,
               .needed = true},
    .heads = NN_DECODER_HEADS,
};
