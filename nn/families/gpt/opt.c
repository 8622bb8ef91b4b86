/* OPT: learned positions from 2 on, and in some sizes a narrower table of tokens. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"vocab_size", NN_INT, NN_D(input.vocabulary), NULL, NULL},
    {"hidden_size", NN_INT, NN_D(blocks.width), NULL, NULL},
    {"num_hidden_layers", NN_INT, NN_D(blocks.depth), NULL, NULL},
    {"num_attention_heads", NN_INT, NN_D(blocks.heads), NULL, NULL},
    {"ffn_dim", NN_INT, NN_D(blocks.mlp), NULL, NULL},
    {"max_position_embeddings", NN_INT, NN_D(input.positions), "2048", NULL},
    {NULL, NN_MORE, NN_D(input.positions), "2", NULL},
    {NULL, NN_INT, NN_D(input.first_position), "2", NULL},
    {NULL, NN_CHOICE, NN_D(input.position_kind), "1", NULL}, /* NN_POSITIONS_LEARNED */
    {"activation_function", NN_ACTIVATION, NN_D(blocks.activation), "\"relu\"", NULL},
    {NULL, NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {"enable_bias", NN_TRUTH, NN_D(blocks.attention[0].in_bias), "true", NULL},
    {"enable_bias", NN_TRUTH, NN_D(blocks.attention[0].out_bias), "true", NULL},
    {"enable_bias", NN_TRUTH, NN_D(blocks.mlp_bias), "true", NULL},
    {NULL, NN_CHOICE, NN_D(blocks.place), "1", "!do_layer_norm_before"}, /* NN_NORM_BEHIND */
    {NULL, NN_TRUTH, NN_D(blocks.final_norm), "false", "!do_layer_norm_before"},
    {NULL, NN_TRUTH, NN_D(blocks.final_norm), "false", "_remove_final_layer_norm"},
    {NULL, NN_TRUTH, NN_D(blocks.causal), "true", NULL},
    {"vocab_size", NN_INT, NN_O(classes), NULL, NULL},
    {"tie_word_embeddings", NN_TRUTH, NN_O(tied), "true", NULL},
    {"word_embed_proj_dim", NN_NARROW, NN_D(input), "null", NULL},
    {0},
};

static const nn_name names[] = {
    {.name = "model.decoder.embed_tokens.weight", .part = NN_TOKENS},
    {.name = "model.decoder.embed_positions.weight", .part = NN_POSITIONS},
    {.name = "model.decoder.project_in.weight", .part = NN_INPUT_PROJECT},
    {.name = "model.decoder.project_out.weight", .part = NN_TRANSFORM},
    {.name = "model.decoder.layers.{l}.self_attn.q_proj.weight", .part = NN_Q},
    {.name = "model.decoder.layers.{l}.self_attn.k_proj.weight", .part = NN_K},
    {.name = "model.decoder.layers.{l}.self_attn.v_proj.weight", .part = NN_V},
    {.name = "model.decoder.layers.{l}.self_attn.q_proj.bias", .part = NN_Q_BIAS},
    {.name = "model.decoder.layers.{l}.self_attn.k_proj.bias", .part = NN_K_BIAS},
    {.name = "model.decoder.layers.{l}.self_attn.v_proj.bias", .part = NN_V_BIAS},
    {.name = "model.decoder.layers.{l}.self_attn.out_proj.weight", .part = NN_PROJ},
    {.name = "model.decoder.layers.{l}.self_attn.out_proj.bias", .part = NN_PROJ_BIAS},
    {.name = "model.decoder.layers.{l}.self_attn_layer_norm.weight", .part = NN_NORM1, .missing = NN_ONES},
    {.name = "model.decoder.layers.{l}.self_attn_layer_norm.bias", .part = NN_NORM1_BIAS, .missing = NN_ZEROS},
    {.name = "model.decoder.layers.{l}.fc1.weight", .part = NN_FC1},
    {.name = "model.decoder.layers.{l}.fc1.bias", .part = NN_FC1_BIAS},
    {.name = "model.decoder.layers.{l}.fc2.weight", .part = NN_FC2},
    {.name = "model.decoder.layers.{l}.fc2.bias", .part = NN_FC2_BIAS},
    {.name = "model.decoder.layers.{l}.final_layer_norm.weight", .part = NN_NORM2, .missing = NN_ONES},
    {.name = "model.decoder.layers.{l}.final_layer_norm.bias", .part = NN_NORM2_BIAS, .missing = NN_ZEROS},
    {.name = "model.decoder.final_layer_norm.weight", .part = NN_FINAL_NORM, .missing = NN_ONES},
    {.name = "model.decoder.final_layer_norm.bias", .part = NN_FINAL_NORM_BIAS, .missing = NN_ZEROS},
    {0},
};

const nn_family nn_family_opt = {
    .type = "opt",
    .keys = {keys},
    .names = {names, nn_lm_names},
    .prefix = "model.",
    .heads = NN_DECODER_HEADS,
};
