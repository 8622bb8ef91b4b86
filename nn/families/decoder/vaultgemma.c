/* VaultGemma: Gemma 2 without the norms behind the branches. */
#include "families/lists.h"

static const nn_key keys[] = {{NULL, NN_CHOICE, NN_D(blocks.place), "0", NULL}, {0}}; /* NN_NORM_BEFORE */

const nn_family nn_family_vaultgemma = {
    .type = "vaultgemma",
    .keys = {nn_llama_keys, nn_gemma_keys, nn_gemma2_keys, keys},
    .names = {nn_gemma2_names, nn_gemma_names, nn_llama_names, nn_lm_names},
    .rotary = {.theta = 10000},
    .window = {.layers = NN_SLIDES_EVEN, .key = "sliding_window", .absent = "4096"},
    .heads = NN_DECODER_HEADS,
};
