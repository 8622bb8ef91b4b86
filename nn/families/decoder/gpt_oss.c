/* gpt-oss: a mixture of experts with clamped gates, sinks, and windows in every other layer. */
#include "families/lists.h"

static const nn_name names[] = {
    {.name = "model.layers.{l}.mlp.router.weight", .part = NN_ROUTER},
    {.name = "model.layers.{l}.mlp.router.bias", .part = NN_ROUTER_BIAS},
    {.name = "model.layers.{l}.mlp.experts.gate_up_proj", .part = NN_GATE, .cut = NN_EVEN},
    {.name = "model.layers.{l}.mlp.experts.gate_up_proj", .part = NN_FC1, .cut = NN_ODD},
    {.name = "model.layers.{l}.mlp.experts.gate_up_proj_bias", .part = NN_GATE_BIAS, .cut = NN_EVEN},
    {.name = "model.layers.{l}.mlp.experts.gate_up_proj_bias", .part = NN_FC1_BIAS, .cut = NN_ODD},
    {.name = "model.layers.{l}.mlp.experts.down_proj", .part = NN_FC2, .cut = NN_EXPERT},
    {.name = "model.layers.{l}.mlp.experts.down_proj_bias", .part = NN_FC2_BIAS, .cut = NN_EXPERT},
    {0},
};

static const nn_key keys[] = {
    {"num_key_value_heads", NN_INT, NN_D(blocks.kv_heads), "8", NULL},
    {"head_dim", NN_INT, NN_D(blocks.head_width), "64", NULL},
    {"rms_norm_eps", NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {"attention_bias", NN_TRUTH, NN_D(blocks.attention[0].in_bias), "true", NULL},
    {"attention_bias", NN_TRUTH, NN_D(blocks.attention[0].out_bias), "true", NULL},
    {"num_local_experts|num_experts", NN_INT, NN_D(blocks.experts), "128", NULL},
    {"num_experts_per_tok|experts_per_token", NN_INT, NN_D(blocks.experts_used), "4", NULL},
    {NULL, NN_ACTIVATION, NN_D(blocks.activation), "\"quick_gelu\"", NULL},
    {"swiglu_limit", NN_FLOAT, NN_D(blocks.clamp), "7", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.expert_bias), "true", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.mlp_bias), "true", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].sinks), "true", NULL},
    {0},
};

const nn_family nn_family_gpt_oss = {
    .type = "gpt_oss",
    .keys = {nn_llama_keys, keys, nn_untied_keys},
    .names = {names, nn_llama_names, nn_lm_names},
    .rotary = {.theta = 150000,
               .unsaid = "{\"rope_type\":\"yarn\",\"factor\":32,\"beta_fast\":32,\"beta_slow\":1,\"truncate\":false,"
                         "\"original_max_position_embeddings\":4096}"},
    .window = {.layers = NN_SLIDES_EVEN, .key = "sliding_window", .absent = "128"},
    .heads = NN_DECODER_HEADS,
};
