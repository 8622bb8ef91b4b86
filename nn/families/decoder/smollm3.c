/* SmolLM 3: Llama in which some layers have no rotary embedding. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"num_key_value_heads", NN_INT, NN_D(blocks.kv_heads), "4", NULL},
    {0},
};

const nn_family nn_family_smollm3 = {
    .type = "smollm3",
    .keys = {nn_llama_keys, nn_mlp_bias_keys, keys, nn_tied_keys},
    .names = {nn_llama_names, nn_lm_names},
    .rotary = {.theta = 2000000, .skips = "no_rope_layers", .skip_every = "no_rope_layer_interval"},
    .window = {.layers = NN_SLIDES_UNTURNED, .key = "sliding_window", .absent = "null", .when = "use_sliding_window"},
    .heads = NN_DECODER_HEADS,
};
