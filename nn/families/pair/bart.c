/* BART: post-norm, learned positions from 2 on, a norm of the embeddings. */
#include "families/lists.h"

const nn_key nn_bart_keys[] = {
    {"vocab_size", NN_INT, NN_E(input.vocabulary), NULL, NULL},
    {"d_model", NN_INT, NN_E(blocks.width), NULL, NULL},
    {"encoder_layers", NN_INT, NN_E(blocks.depth), NULL, NULL},
    {"encoder_attention_heads", NN_INT, NN_E(blocks.heads), NULL, NULL},
    {"encoder_ffn_dim", NN_INT, NN_E(blocks.mlp), NULL, NULL},
    {"activation_function", NN_ACTIVATION, NN_E(blocks.activation), "\"gelu\"", NULL},
    {"max_position_embeddings", NN_INT, NN_E(input.positions), "1024", NULL},
    {"scale_embedding", NN_ROOT, NN_E(input.scale), "false", NULL},
    {NULL, NN_FLOAT, NN_E(blocks.epsilon), "1e-5", NULL},
    {"vocab_size", NN_INT, NN_D(input.vocabulary), NULL, NULL},
    {"d_model", NN_INT, NN_D(blocks.width), NULL, NULL},
    {"decoder_layers", NN_INT, NN_D(blocks.depth), NULL, NULL},
    {"decoder_attention_heads", NN_INT, NN_D(blocks.heads), NULL, NULL},
    {"decoder_ffn_dim", NN_INT, NN_D(blocks.mlp), NULL, NULL},
    {"activation_function", NN_ACTIVATION, NN_D(blocks.activation), "\"gelu\"", NULL},
    {"max_position_embeddings", NN_INT, NN_D(input.positions), "1024", NULL},
    {"scale_embedding", NN_ROOT, NN_D(input.scale), "false", NULL},
    {NULL, NN_FLOAT, NN_D(blocks.epsilon), "1e-5", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.causal), "true", NULL},
    {"vocab_size", NN_INT, NN_O(classes), NULL, NULL},
    {"tie_word_embeddings", NN_TRUTH, NN_O(tied), "true", NULL},
    {0},
};

const nn_name nn_bart_names[] = {
    {.name = "model.encoder.embed_tokens.weight", .part = NN_TOKENS, .encoder = true},
    {.name = "model.shared.weight", .part = NN_TOKENS, .encoder = true},
    {.name = "model.encoder.embed_positions.weight", .part = NN_POSITIONS, .encoder = true},
    {.name = "model.encoder.layernorm_embedding.weight", .part = NN_INPUT_NORM, .encoder = true},
    {.name = "model.encoder.layernorm_embedding.bias", .part = NN_INPUT_NORM_BIAS, .encoder = true},
    {.name = "model.encoder.layers.{l}.self_attn.q_proj.weight", .part = NN_Q, .encoder = true},
    {.name = "model.encoder.layers.{l}.self_attn.q_proj.bias", .part = NN_Q_BIAS, .encoder = true},
    {.name = "model.encoder.layers.{l}.self_attn.k_proj.weight", .part = NN_K, .encoder = true},
    {.name = "model.encoder.layers.{l}.self_attn.k_proj.bias", .part = NN_K_BIAS, .encoder = true, .missing = NN_ZEROS},
    {.name = "model.encoder.layers.{l}.self_attn.v_proj.weight", .part = NN_V, .encoder = true},
    {.name = "model.encoder.layers.{l}.self_attn.v_proj.bias", .part = NN_V_BIAS, .encoder = true},
    {.name = "model.encoder.layers.{l}.self_attn.out_proj.weight", .part = NN_PROJ, .encoder = true},
    {.name = "model.encoder.layers.{l}.self_attn.out_proj.bias", .part = NN_PROJ_BIAS, .encoder = true},
    {.name = "model.encoder.layers.{l}.self_attn_layer_norm.weight", .part = NN_NORM1, .encoder = true},
    {.name = "model.encoder.layers.{l}.self_attn_layer_norm.bias", .part = NN_NORM1_BIAS, .encoder = true},
    {.name = "model.encoder.layers.{l}.fc1.weight", .part = NN_FC1, .encoder = true},
    {.name = "model.encoder.layers.{l}.fc1.bias", .part = NN_FC1_BIAS, .encoder = true},
    {.name = "model.encoder.layers.{l}.fc2.weight", .part = NN_FC2, .encoder = true},
    {.name = "model.encoder.layers.{l}.fc2.bias", .part = NN_FC2_BIAS, .encoder = true},
    {.name = "model.encoder.layers.{l}.final_layer_norm.weight", .part = NN_NORM2, .encoder = true},
    {.name = "model.encoder.layers.{l}.final_layer_norm.bias", .part = NN_NORM2_BIAS, .encoder = true},
    {.name = "model.encoder.layer_norm.weight", .part = NN_FINAL_NORM, .encoder = true},
    {.name = "model.encoder.layer_norm.bias", .part = NN_FINAL_NORM_BIAS, .encoder = true},
    {.name = "model.decoder.embed_tokens.weight", .part = NN_TOKENS},
    {.name = "model.shared.weight", .part = NN_TOKENS},
    {.name = "model.decoder.embed_positions.weight", .part = NN_POSITIONS},
    {.name = "model.decoder.layernorm_embedding.weight", .part = NN_INPUT_NORM},
    {.name = "model.decoder.layernorm_embedding.bias", .part = NN_INPUT_NORM_BIAS},
    {.name = "model.decoder.layers.{l}.self_attn.q_proj.weight", .part = NN_Q},
    {.name = "model.decoder.layers.{l}.self_attn.q_proj.bias", .part = NN_Q_BIAS},
    {.name = "model.decoder.layers.{l}.self_attn.k_proj.weight", .part = NN_K},
    {.name = "model.decoder.layers.{l}.self_attn.k_proj.bias", .part = NN_K_BIAS, .missing = NN_ZEROS},
    {.name = "model.decoder.layers.{l}.self_attn.v_proj.weight", .part = NN_V},
    {.name = "model.decoder.layers.{l}.self_attn.v_proj.bias", .part = NN_V_BIAS},
    {.name = "model.decoder.layers.{l}.self_attn.out_proj.weight", .part = NN_PROJ},
    {.name = "model.decoder.layers.{l}.self_attn.out_proj.bias", .part = NN_PROJ_BIAS},
    {.name = "model.decoder.layers.{l}.self_attn_layer_norm.weight", .part = NN_NORM1},
    {.name = "model.decoder.layers.{l}.self_attn_layer_norm.bias", .part = NN_NORM1_BIAS},
    {.name = "model.decoder.layers.{l}.fc1.weight", .part = NN_FC1},
    {.name = "model.decoder.layers.{l}.fc1.bias", .part = NN_FC1_BIAS},
    {.name = "model.decoder.layers.{l}.fc2.weight", .part = NN_FC2},
    {.name = "model.decoder.layers.{l}.fc2.bias", .part = NN_FC2_BIAS},
    {.name = "model.decoder.layers.{l}.final_layer_norm.weight", .part = NN_NORM2},
    {.name = "model.decoder.layers.{l}.final_layer_norm.bias", .part = NN_NORM2_BIAS},
    {.name = "model.decoder.layers.{l}.encoder_attn.q_proj.weight", .part = NN_CROSS_Q},
    {.name = "model.decoder.layers.{l}.encoder_attn.q_proj.bias", .part = NN_CROSS_Q_BIAS},
    {.name = "model.decoder.layers.{l}.encoder_attn.k_proj.weight", .part = NN_CROSS_K},
    {.name = "model.decoder.layers.{l}.encoder_attn.k_proj.bias", .part = NN_CROSS_K_BIAS, .missing = NN_ZEROS},
    {.name = "model.decoder.layers.{l}.encoder_attn.v_proj.weight", .part = NN_CROSS_V},
    {.name = "model.decoder.layers.{l}.encoder_attn.v_proj.bias", .part = NN_CROSS_V_BIAS},
    {.name = "model.decoder.layers.{l}.encoder_attn.out_proj.weight", .part = NN_CROSS_PROJ},
    {.name = "model.decoder.layers.{l}.encoder_attn.out_proj.bias", .part = NN_CROSS_PROJ_BIAS},
    {.name = "model.decoder.layers.{l}.encoder_attn_layer_norm.weight", .part = NN_CROSS_NORM},
    {.name = "model.decoder.layers.{l}.encoder_attn_layer_norm.bias", .part = NN_CROSS_NORM_BIAS},
    {.name = "model.decoder.layer_norm.weight", .part = NN_FINAL_NORM},
    {.name = "model.decoder.layer_norm.bias", .part = NN_FINAL_NORM_BIAS},
    {.name = "lm_head.weight", .part = NN_OUTPUT},
    {.name = "proj_out.weight", .part = NN_OUTPUT},
    {.name = "lm_head.bias", .part = NN_OUTPUT_BIAS},
    {.name = "final_logits_bias", .part = NN_OUTPUT_BIAS, .missing = NN_ZEROS},
    {0},
};

/* Copies of what is tied, and tables that are computed. */
const char *const nn_pair_unused[] = {"shared.weight",
                                      "lm_head.weight",
                                      "proj_out.weight",
                                      "embed_tokens.weight",
                                      "embed_positions.weight",
                                      "final_logits_bias",
                                      NULL};

static const nn_key keys[] = {
    {NULL, NN_MORE, NN_E(input.positions), "2", NULL},
    {NULL, NN_INT, NN_E(input.first_position), "2", NULL},
    {NULL, NN_CHOICE, NN_E(input.position_kind), "1", NULL},
    {NULL, NN_TRUTH, NN_E(input.norm), "true", NULL},
    {NULL, NN_CHOICE, NN_E(blocks.place), "1", NULL},
    {NULL, NN_TRUTH, NN_E(blocks.final_norm), "false", NULL},
    {NULL, NN_MORE, NN_D(input.positions), "2", NULL},
    {NULL, NN_INT, NN_D(input.first_position), "2", NULL},
    {NULL, NN_CHOICE, NN_D(input.position_kind), "1", NULL},
    {NULL, NN_TRUTH, NN_D(input.norm), "true", NULL},
    {NULL, NN_CHOICE, NN_D(blocks.place), "1", NULL},
    {NULL, NN_TRUTH, NN_D(blocks.final_norm), "false", NULL},
    {NULL, NN_TRUTH, NN_O(bias), "true", NULL},
    {0},
};

/* Heads over the decoder, which reads the tokens of the encoder behind the start token: a classifier of the row of the last
 * end token, and question answering. */
static const nn_key row_keys[] = {
    {"id2label|num_labels", NN_LABELS, NN_O(classes), "[0,1,2]", NULL},
    {NULL, NN_TRUTH, NN_O(tied), "false", NULL},
    {NULL, NN_TRUTH, NN_O(follows), "true", NULL},
    {"decoder_start_token_id", NN_INT, NN_O(start), "2", NULL},
    {"eos_token_id", NN_INT, NN_O(end), "2", NULL},
    {0},
};

static const nn_key class_keys[] = {
    {NULL, NN_CHOICE, NN_O(pool), "7", NULL}, /* NN_POOL_PICKED */
    {"d_model", NN_INT, NN_O(transform), NULL, NULL},
    {NULL, NN_TRUTH, NN_O(transform_bias), "true", NULL},
    {NULL, NN_ACTIVATION, NN_O(transform_activation), "\"tanh\"", NULL},
    {0},
};

static const nn_name class_names[] = {
    {.name = "classification_head.dense.weight", .part = NN_TRANSFORM},
    {.name = "classification_head.dense.bias", .part = NN_TRANSFORM_BIAS},
    {.name = "classification_head.out_proj.weight", .part = NN_OUTPUT},
    {.name = "classification_head.out_proj.bias", .part = NN_OUTPUT_BIAS},
    {0},
};

static const nn_key span_keys[] = {{NULL, NN_INT, NN_O(classes), "2", NULL}, {0}};

static const nn_name span_names[] = {
    {.name = "qa_outputs.weight", .part = NN_OUTPUT},
    {.name = "qa_outputs.bias", .part = NN_OUTPUT_BIAS},
    {0},
};

const nn_family nn_family_bart = {
    .type = "bart",
    .keys = {nn_bart_keys, keys},
    .names = {nn_bart_names},
    .unused = nn_pair_unused,
    .heads = {{"ForConditionalGeneration", {NULL}, NULL, NULL},
              {"ForSequenceClassification", {row_keys, class_keys}, class_names, NULL},
              {"ForQuestionAnswering", {row_keys, span_keys}, span_names, NULL}},
};
