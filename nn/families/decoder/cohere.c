/* Command R: parallel branches with one norm, interleaved rotary embedding, scaled logits. */
#include "families/lists.h"

const nn_key nn_cohere_keys[] = {
    {NULL, NN_CHOICE, NN_D(blocks.norm), "0", NULL}, /* NN_LAYER_NORM */
    {"layer_norm_eps", NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.norm_bias), "false", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.parallel), "true", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.one_norm), "true", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].rotary_interleaved), "true", NULL},
    {"layer_norm_eps", NN_FLOAT, NN_D(blocks.attention[0].qk_norm), "1e-5", "use_qk_norm"},
    {NULL, NN_CHOICE, NN_D(blocks.attention[0].qk_norm_kind), "1", NULL}, /* MHA_NORM_LAYER */
    {NULL, NN_CHOICE, NN_D(blocks.attention[0].qk_norm_span), "1", NULL}, /* MHA_NORM_EACH_HEAD_OWN */
    {"logit_scale", NN_FLOAT, NN_O(scale), "0.0625", NULL},
    {0},
};

const nn_family nn_family_cohere = {
    .type = "cohere",
    .keys = {nn_llama_keys, nn_attention_bias_keys, nn_cohere_keys, nn_tied_keys},
    .names = {nn_llama_names, nn_lm_names},
    .rotary = {.theta = 500000},
    .heads = NN_DECODER_HEADS,
};
