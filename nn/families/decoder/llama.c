/* Llama, and what most decoders after it share. */
#include "families/lists.h"

const nn_key nn_llama_keys[] = {
    {"vocab_size", NN_INT, NN_D(input.vocabulary), NULL, NULL},
    {"hidden_size", NN_INT, NN_D(blocks.width), NULL, NULL},
    {"num_hidden_layers", NN_INT, NN_D(blocks.depth), NULL, NULL},
    {"num_attention_heads", NN_INT, NN_D(blocks.heads), NULL, NULL},
    {"num_key_value_heads", NN_INT, NN_D(blocks.kv_heads), "=num_attention_heads", NULL},
    {"head_dim", NN_INT, NN_D(blocks.head_width), "null", NULL},
    {"intermediate_size", NN_INT, NN_D(blocks.mlp), NULL, NULL},
    {"hidden_act", NN_ACTIVATION, NN_D(blocks.activation), "\"silu\"", NULL},
    {"rms_norm_eps", NN_FLOAT, NN_D(blocks.epsilon), "1e-6", NULL},
    {NULL, NN_CHOICE, NN_D(blocks.norm), "1", NULL}, /* NN_RMS_NORM */
    {NULL, NN_TRUTH, NN_D(blocks.gated), "true", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.causal), "true", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.mlp_bias), "false", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].in_bias), "false", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.attention[0].out_bias), "false", NULL},
    {"vocab_size", NN_INT, NN_O(classes), NULL, NULL},
    {0},
};

const nn_key nn_attention_bias_keys[] = {
    {"attention_bias", NN_TRUTH, NN_D(blocks.attention[0].in_bias), "false", NULL},
    {"attention_bias", NN_TRUTH, NN_D(blocks.attention[0].out_bias), "false", NULL},
    {0},
};

const nn_key nn_mlp_bias_keys[] = {
    {"mlp_bias", NN_TRUTH, NN_D(blocks.mlp_bias), "false", NULL},
    {"attention_bias", NN_TRUTH, NN_D(blocks.attention[0].in_bias), "false", NULL},
    {"attention_bias", NN_TRUTH, NN_D(blocks.attention[0].out_bias), "false", NULL},
    {0},
};

const nn_key nn_tied_keys[] = {{"tie_word_embeddings", NN_TRUTH, NN_O(tied), "true", NULL}, {0}};
const nn_key nn_untied_keys[] = {{"tie_word_embeddings", NN_TRUTH, NN_O(tied), "false", NULL}, {0}};

const nn_name nn_llama_names[] = {
    {.name = "model.embed_tokens.weight", .part = NN_TOKENS},
    {.name = "model.layers.{l}.input_layernorm.weight", .part = NN_NORM1},
    {.name = "model.layers.{l}.input_layernorm.bias", .part = NN_NORM1_BIAS},
    {.name = "model.layers.{l}.self_attn.q_proj.weight", .part = NN_Q},
    {.name = "model.layers.{l}.self_attn.k_proj.weight", .part = NN_K},
    {.name = "model.layers.{l}.self_attn.v_proj.weight", .part = NN_V},
    {.name = "model.layers.{l}.self_attn.o_proj.weight", .part = NN_PROJ},
    {.name = "model.layers.{l}.self_attn.q_proj.bias", .part = NN_Q_BIAS},
    {.name = "model.layers.{l}.self_attn.k_proj.bias", .part = NN_K_BIAS},
    {.name = "model.layers.{l}.self_attn.v_proj.bias", .part = NN_V_BIAS},
    {.name = "model.layers.{l}.self_attn.o_proj.bias", .part = NN_PROJ_BIAS},
    {.name = "model.layers.{l}.self_attn.q_norm.weight", .part = NN_Q_NORM},
    {.name = "model.layers.{l}.self_attn.k_norm.weight", .part = NN_K_NORM},
    {.name = "model.layers.{l}.self_attn.sinks", .part = NN_SINKS},
    {.name = "model.layers.{l}.post_attention_layernorm.weight", .part = NN_NORM2},
    {.name = "model.layers.{l}.post_attention_layernorm.bias", .part = NN_NORM2_BIAS},
    {.name = "model.layers.{l}.mlp.gate_proj.weight", .part = NN_GATE},
    {.name = "model.layers.{l}.mlp.up_proj.weight", .part = NN_FC1},
    {.name = "model.layers.{l}.mlp.down_proj.weight", .part = NN_FC2},
    {.name = "model.layers.{l}.mlp.gate_proj.bias", .part = NN_GATE_BIAS},
    {.name = "model.layers.{l}.mlp.up_proj.bias", .part = NN_FC1_BIAS},
    {.name = "model.layers.{l}.mlp.down_proj.bias", .part = NN_FC2_BIAS},
    {.name = "model.norm.weight", .part = NN_FINAL_NORM},
    {.name = "model.norm.bias", .part = NN_FINAL_NORM_BIAS},
    {0},
};

const nn_name nn_lm_names[] = {
    {.name = "lm_head.weight", .part = NN_OUTPUT},
    {.name = "lm_head.bias", .part = NN_OUTPUT_BIAS},
    {0},
};

const nn_family nn_family_llama = {
    .type = "llama",
    .keys = {nn_llama_keys, nn_mlp_bias_keys, nn_untied_keys},
    .names = {nn_llama_names, nn_lm_names},
    .rotary = {.theta = 10000},
    .heads = NN_DECODER_HEADS,
};
