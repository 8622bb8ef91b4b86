/* CWM: Llama with windows in three of four layers. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"num_key_value_heads", NN_INT, NN_D(blocks.kv_heads), "8", NULL},
    {"head_dim", NN_INT, NN_D(blocks.head_width), "128", NULL},
    {"rms_norm_eps", NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {"mlp_bias", NN_TRUTH, NN_D(blocks.mlp_bias), "false", NULL},
    {0},
};

const nn_family nn_family_cwm = {
    .type = "cwm",
    .keys = {nn_llama_keys, keys, nn_untied_keys},
    .names = {nn_llama_names, nn_lm_names},
    .rotary = {.theta = 1000000,
               .unsaid = "{\"rope_type\":\"llama3\",\"rope_theta\":1000000,\"factor\":16,\"low_freq_factor\":1,"
                         "\"high_freq_factor\":4,\"original_max_position_embeddings\":8192}"},
    .window = {.layers = NN_SLIDES_BUT_FIRST_OF, .key = "sliding_window", .absent = "8192", .number_absent = "4"},
    .heads = NN_DECODER_HEADS,
};
