/* OLMo 3: OLMo 2 with windows in three of four layers, whose rotary embedding is not scaled. */
#include "families/lists.h"

const nn_family nn_family_olmo3 = {
    .type = "olmo3",
    .keys = {nn_llama_keys, nn_attention_bias_keys, nn_olmo2_keys, nn_untied_keys},
    .names = {nn_olmo2_names, nn_llama_names, nn_lm_names},
    .rotary = {.theta = 500000, .local = 500000},
    .window = {.layers = NN_SLIDES_BUT_EVERY, .key = "sliding_window", .absent = "4096", .number_absent = "4"},
    .heads = NN_DECODER_HEADS,
};
