/* BioGPT: scaled embeddings and learned positions from 2 on. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"hidden_size", NN_INT, NN_D(blocks.width), NULL, NULL},
    {"num_hidden_layers", NN_INT, NN_D(blocks.depth), NULL, NULL},
    {"num_attention_heads", NN_INT, NN_D(blocks.heads), NULL, NULL},
    {"intermediate_size", NN_INT, NN_D(blocks.mlp), NULL, NULL},
    {"max_position_embeddings", NN_INT, NN_D(input.positions), "1024", NULL},
    {NULL, NN_CHOICE, NN_D(input.position_kind), "1", NULL}, /* NN_POSITIONS_LEARNED */
    {"hidden_act", NN_ACTIVATION, NN_D(blocks.activation), "\"gelu\"", NULL},
    {0},
};

/* Behind the sizes. */
const nn_key nn_biogpt_keys[] = {
    {NULL, NN_MORE, NN_D(input.positions), "2", NULL},
    {NULL, NN_INT, NN_D(input.first_position), "2", NULL},
    {"scale_embedding", NN_ROOT, NN_D(input.scale), "true", NULL},
    {NULL, NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.causal), "true", NULL},
    {"vocab_size", NN_INT, NN_D(input.vocabulary), NULL, NULL},
    {"vocab_size", NN_INT, NN_O(classes), NULL, NULL},
    {"tie_word_embeddings", NN_TRUTH, NN_O(tied), "true", NULL},
    {0},
};

static const nn_name names[] = {
    {.name = "biogpt.embed_tokens.weight", .part = NN_TOKENS},
    {.name = "biogpt.embed_positions.weight", .part = NN_POSITIONS},
    {.name = "biogpt.layers.{l}.self_attn.q_proj.weight", .part = NN_Q},
    {.name = "biogpt.layers.{l}.self_attn.k_proj.weight", .part = NN_K},
    {.name = "biogpt.layers.{l}.self_attn.v_proj.weight", .part = NN_V},
    {.name = "biogpt.layers.{l}.self_attn.q_proj.bias", .part = NN_Q_BIAS},
    {.name = "biogpt.layers.{l}.self_attn.k_proj.bias", .part = NN_K_BIAS},
    {.name = "biogpt.layers.{l}.self_attn.v_proj.bias", .part = NN_V_BIAS},
    {.name = "biogpt.layers.{l}.self_attn.out_proj.weight", .part = NN_PROJ},
    {.name = "biogpt.layers.{l}.self_attn.out_proj.bias", .part = NN_PROJ_BIAS},
    {.name = "biogpt.layers.{l}.self_attn_layer_norm.weight", .part = NN_NORM1},
    {.name = "biogpt.layers.{l}.self_attn_layer_norm.bias", .part = NN_NORM1_BIAS},
    {.name = "biogpt.layers.{l}.fc1.weight", .part = NN_FC1},
    {.name = "biogpt.layers.{l}.fc1.bias", .part = NN_FC1_BIAS},
    {.name = "biogpt.layers.{l}.fc2.weight", .part = NN_FC2},
    {.name = "biogpt.layers.{l}.fc2.bias", .part = NN_FC2_BIAS},
    {.name = "biogpt.layers.{l}.final_layer_norm.weight", .part = NN_NORM2},
    {.name = "biogpt.layers.{l}.final_layer_norm.bias", .part = NN_NORM2_BIAS},
    {.name = "biogpt.layer_norm.weight", .part = NN_FINAL_NORM},
    {.name = "biogpt.layer_norm.bias", .part = NN_FINAL_NORM_BIAS},
    {.name = "output_projection.weight", .part = NN_OUTPUT},
    {0},
};

const nn_family nn_family_biogpt = {
    .type = "biogpt",
    .keys = {keys, nn_biogpt_keys},
    .names = {names},
    .prefix = "biogpt.",
    .heads = NN_DECODER_HEADS,
};
