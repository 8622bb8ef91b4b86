/* EXAONE 4: Llama with norms behind the branches and of queries and keys; where layers have windows, those without have no
 * rotary embedding. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"num_key_value_heads", NN_INT, NN_D(blocks.kv_heads), "32", NULL},
    {"rms_norm_eps", NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {"rms_norm_eps", NN_FLOAT, NN_D(blocks.attention[0].qk_norm), "1e-5", NULL},
    {NULL, NN_CHOICE, NN_D(blocks.place), "3", NULL}, /* NN_NORM_AFTER */
    {0},
};

const nn_family nn_family_exaone4 = {
    .type = "exaone4",
    .keys = {nn_llama_keys, keys, nn_untied_keys},
    .names = {nn_olmo2_names, nn_llama_names, nn_lm_names},
    .rotary = {.theta = 10000},
    .window = {.layers = NN_SLIDES_BUT_EVERY,
               .key = "sliding_window",
               .absent = "4096",
               .number = "sliding_window_pattern",
               .number_absent = "4",
               .turns = true},
    .heads = NN_DECODER_HEADS,
};
