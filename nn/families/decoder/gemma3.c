/* Gemma 3: Gemma 2 with norms of queries and keys, and a rotary embedding of its own for windows. */
#include "families/lists.h"

static const nn_key keys[] = {
    {NULL, NN_CHOICE, NN_D(blocks.place), "2", NULL}, /* NN_NORM_BOTH */
    {"query_pre_attn_scalar", NN_ROOT_UNDER, NN_D(blocks.attention[0].scale), "256", NULL},
    {"rms_norm_eps", NN_FLOAT, NN_D(blocks.attention[0].qk_norm), "1e-6", NULL},
    {"final_logit_softcapping", NN_FLOAT, NN_O(softcap), "null", NULL},
    {0},
};

const nn_family nn_family_gemma3 = {
    .type = "gemma3_text",
    .keys = {nn_llama_keys, nn_gemma_keys, keys},
    .names = {nn_gemma2_names, nn_gemma_names, nn_llama_names, nn_lm_names},
    .rotary = {.theta = 1000000, .local = 10000, .local_key = "rope_local_base_freq"},
    .window = {.layers = NN_SLIDES_BUT_EVERY,
               .key = "sliding_window",
               .absent = "4096",
               .number = "sliding_window_pattern|_sliding_window_pattern",
               .number_absent = "6"},
    .heads = NN_DECODER_HEADS,
};
