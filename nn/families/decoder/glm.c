/* GLM-4: half rotated heads, in neighbouring pairs, and a fused gated MLP. */
#include "families/lists.h"

const nn_key nn_glm_keys[] = {
    {"num_key_value_heads", NN_INT, NN_D(blocks.kv_heads), "2", NULL},
    {"head_dim", NN_INT, NN_D(blocks.head_width), "128", NULL},
    {"attention_bias", NN_TRUTH, NN_D(blocks.attention[0].in_bias), "true", NULL},
    {"rms_norm_eps", NN_FLOAT, NN_D(blocks.epsilon), "1.5625e-7", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].rotary_interleaved), "true", NULL},
    {0},
};

const nn_name nn_gate_up_names[] = {
    {.name = "model.layers.{l}.mlp.gate_up_proj.weight", .part = NN_GATE, .cut = NN_FIRST_ROWS},
    {.name = "model.layers.{l}.mlp.gate_up_proj.weight", .part = NN_FC1, .cut = NN_LAST_ROWS},
    {0},
};

const nn_family nn_family_glm = {
    .type = "glm",
    .keys = {nn_llama_keys, nn_glm_keys, nn_untied_keys},
    .names = {nn_gate_up_names, nn_llama_names, nn_lm_names},
    .rotary = {.theta = 10000, .part = 0.5},
    .heads = NN_DECODER_HEADS,
};
