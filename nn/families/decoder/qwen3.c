/* Qwen 3: Llama with norms of queries and keys. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"num_key_value_heads", NN_INT, NN_D(blocks.kv_heads), "32", NULL},
    {"head_dim", NN_INT, NN_D(blocks.head_width), "128", NULL},
    {"rms_norm_eps", NN_FLOAT, NN_D(blocks.attention[0].qk_norm), "1e-6", NULL},
    {0},
};

const nn_family nn_family_qwen3 = {
    .type = "qwen3",
    .keys = {nn_llama_keys, nn_attention_bias_keys, keys, nn_untied_keys},
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
