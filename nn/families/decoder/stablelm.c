/* StableLM: Llama with layer norms, half rotated heads, and parallel branches in some. */
#include "families/lists.h"

static const nn_name names[] = {
    {.name = "model.layers.{l}.self_attn.q_layernorm.norms.{h}.weight", .part = NN_Q_NORM, .cut = NN_EACH},
    {.name = "model.layers.{l}.self_attn.k_layernorm.norms.{h}.weight", .part = NN_K_NORM, .cut = NN_EACH},
    {0},
};

static const nn_key keys[] = {
    {"num_key_value_heads", NN_INT, NN_D(blocks.kv_heads), "32", NULL},
    {NULL, NN_CHOICE, NN_D(blocks.norm), "0", NULL}, /* NN_LAYER_NORM */
    {"layer_norm_eps", NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.norm_bias), "true", NULL},
    {"use_qkv_bias", NN_TRUTH, NN_D(blocks.attention[0].in_bias), "false", NULL},
    {"use_parallel_residual", NN_TRUTH, NN_D(blocks.parallel), "false", NULL},
    {"use_parallel_residual", NN_TRUTH, NN_D(blocks.one_norm), "false", NULL},
    {"layer_norm_eps", NN_FLOAT, NN_D(blocks.attention[0].qk_norm), "1e-5", "qk_layernorm"},
    {NULL, NN_CHOICE, NN_D(blocks.attention[0].qk_norm_kind), "1", NULL}, /* MHA_NORM_LAYER */
    {NULL, NN_CHOICE, NN_D(blocks.attention[0].qk_norm_span), "1", NULL}, /* MHA_NORM_EACH_HEAD_OWN */
    {0},
};

const nn_family nn_family_stablelm = {
    .type = "stablelm",
    .keys = {nn_llama_keys, keys, nn_untied_keys},
    .names = {names, nn_llama_names, nn_lm_names},
    .rotary = {.theta = 10000, .part = 0.25},
    .heads = NN_DECODER_HEADS,
};
