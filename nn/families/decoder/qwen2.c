/* Qwen 2: Llama with biases of queries, keys and values. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"num_key_value_heads", NN_INT, NN_D(blocks.kv_heads), "32", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].in_bias), "true", NULL},
    {0},
};

const nn_family nn_family_qwen2 = {
    .type = "qwen2",
    .keys = {nn_llama_keys, keys, nn_untied_keys},
    .names = {nn_llama_names, nn_lm_names},
    .rotary = {.theta = 10000},
    .window = {.layers = NN_SLIDES_FROM,
               .key = "sliding_window",
               .absent = "4096",
               .when = "use_sliding_window",
               .number = "max_window_layers",
               .number_absent = "28"},
    .heads = NN_DECODER_HEADS,
};
