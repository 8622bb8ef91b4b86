/* XGLM: scaled embeddings and positions of sines and cosines from 2 on. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"d_model|hidden_size", NN_INT, NN_D(blocks.width), NULL, NULL},
    {"num_layers|num_hidden_layers", NN_INT, NN_D(blocks.depth), NULL, NULL},
    {"attention_heads|num_attention_heads", NN_INT, NN_D(blocks.heads), NULL, NULL},
    {"ffn_dim", NN_INT, NN_D(blocks.mlp), NULL, NULL},
    {"max_position_embeddings", NN_INT, NN_D(input.positions), "2048", NULL},
    {NULL, NN_CHOICE, NN_D(input.position_kind), "2", NULL}, /* NN_POSITIONS_SINUSOIDAL */
    {"activation_function", NN_ACTIVATION, NN_D(blocks.activation), "\"gelu\"", NULL},
    {0},
};

static const nn_name names[] = {
    {.name = "model.layers.{l}.self_attn.out_proj.weight", .part = NN_PROJ},
    {.name = "model.layers.{l}.self_attn.out_proj.bias", .part = NN_PROJ_BIAS},
    {.name = "model.layers.{l}.self_attn_layer_norm.weight", .part = NN_NORM1},
    {.name = "model.layers.{l}.self_attn_layer_norm.bias", .part = NN_NORM1_BIAS},
    {.name = "model.layers.{l}.fc1.weight", .part = NN_FC1},
    {.name = "model.layers.{l}.fc1.bias", .part = NN_FC1_BIAS},
    {.name = "model.layers.{l}.fc2.weight", .part = NN_FC2},
    {.name = "model.layers.{l}.fc2.bias", .part = NN_FC2_BIAS},
    {.name = "model.layers.{l}.final_layer_norm.weight", .part = NN_NORM2},
    {.name = "model.layers.{l}.final_layer_norm.bias", .part = NN_NORM2_BIAS},
    {.name = "model.layer_norm.weight", .part = NN_FINAL_NORM},
    {.name = "model.layer_norm.bias", .part = NN_FINAL_NORM_BIAS},
    {0},
};

static const char *const unused[] = {"embed_positions.weights", NULL};

const nn_family nn_family_xglm = {
    .type = "xglm",
    .keys = {keys, nn_biogpt_keys},
    .names = {names, nn_llama_names, nn_lm_names},
    .unused = unused,
    .heads = NN_DECODER_HEADS,
};
