/* DistilBERT: BERT without token types, with names of its own. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"vocab_size", NN_INT, NN_E(input.vocabulary), NULL, NULL},
    {"dim|hidden_size", NN_INT, NN_E(blocks.width), NULL, NULL},
    {"n_layers|num_hidden_layers", NN_INT, NN_E(blocks.depth), NULL, NULL},
    {"n_heads|num_attention_heads", NN_INT, NN_E(blocks.heads), NULL, NULL},
    {"hidden_dim", NN_INT, NN_E(blocks.mlp), NULL, NULL},
    {"max_position_embeddings", NN_INT, NN_E(input.positions), "512", NULL},
    {NULL, NN_CHOICE, NN_E(input.position_kind), "1", NULL}, /* NN_POSITIONS_LEARNED */
    {NULL, NN_TRUTH, NN_E(input.norm), "true", NULL},
    {"activation", NN_ACTIVATION, NN_E(blocks.activation), "\"gelu\"", NULL},
    {NULL, NN_FLOAT, NN_E(blocks.epsilon), "1e-12", NULL},
    {NULL, NN_CHOICE, NN_E(blocks.place), "1", NULL}, /* NN_NORM_BEHIND */
    {NULL, NN_TRUTH, NN_E(blocks.final_norm), "false", NULL},
    {0},
};

static const nn_name names[] = {
    {.name = "distilbert.embeddings.word_embeddings.weight", .part = NN_TOKENS, .encoder = true},
    {.name = "distilbert.embeddings.position_embeddings.weight", .part = NN_POSITIONS, .encoder = true},
    {.name = "distilbert.embeddings.LayerNorm.weight", .part = NN_INPUT_NORM, .encoder = true},
    {.name = "distilbert.embeddings.LayerNorm.gamma", .part = NN_INPUT_NORM, .encoder = true},
    {.name = "distilbert.embeddings.LayerNorm.bias", .part = NN_INPUT_NORM_BIAS, .encoder = true},
    {.name = "distilbert.embeddings.LayerNorm.beta", .part = NN_INPUT_NORM_BIAS, .encoder = true},
    {.name = "distilbert.transformer.layer.{l}.attention.q_lin.weight", .part = NN_Q, .encoder = true},
    {.name = "distilbert.transformer.layer.{l}.attention.q_lin.bias", .part = NN_Q_BIAS, .encoder = true},
    {.name = "distilbert.transformer.layer.{l}.attention.k_lin.weight", .part = NN_K, .encoder = true},
    {.name = "distilbert.transformer.layer.{l}.attention.k_lin.bias", .part = NN_K_BIAS, .encoder = true},
    {.name = "distilbert.transformer.layer.{l}.attention.v_lin.weight", .part = NN_V, .encoder = true},
    {.name = "distilbert.transformer.layer.{l}.attention.v_lin.bias", .part = NN_V_BIAS, .encoder = true},
    {.name = "distilbert.transformer.layer.{l}.attention.out_lin.weight", .part = NN_PROJ, .encoder = true},
    {.name = "distilbert.transformer.layer.{l}.attention.out_lin.bias", .part = NN_PROJ_BIAS, .encoder = true},
    {.name = "distilbert.transformer.layer.{l}.ffn.lin1.weight", .part = NN_FC1, .encoder = true},
    {.name = "distilbert.transformer.layer.{l}.ffn.lin1.bias", .part = NN_FC1_BIAS, .encoder = true},
    {.name = "distilbert.transformer.layer.{l}.ffn.lin2.weight", .part = NN_FC2, .encoder = true},
    {.name = "distilbert.transformer.layer.{l}.ffn.lin2.bias", .part = NN_FC2_BIAS, .encoder = true},
    {.name = "distilbert.transformer.layer.{l}.sa_layer_norm.weight", .part = NN_NORM1, .encoder = true},
    {.name = "distilbert.transformer.layer.{l}.sa_layer_norm.gamma", .part = NN_NORM1, .encoder = true},
    {.name = "distilbert.transformer.layer.{l}.sa_layer_norm.bias", .part = NN_NORM1_BIAS, .encoder = true},
    {.name = "distilbert.transformer.layer.{l}.sa_layer_norm.beta", .part = NN_NORM1_BIAS, .encoder = true},
    {.name = "distilbert.transformer.layer.{l}.output_layer_norm.weight", .part = NN_NORM2, .encoder = true},
    {.name = "distilbert.transformer.layer.{l}.output_layer_norm.gamma", .part = NN_NORM2, .encoder = true},
    {.name = "distilbert.transformer.layer.{l}.output_layer_norm.bias", .part = NN_NORM2_BIAS, .encoder = true},
    {.name = "distilbert.transformer.layer.{l}.output_layer_norm.beta", .part = NN_NORM2_BIAS, .encoder = true},
    {0},
};

static const nn_key masked_keys[] = {
    {"vocab_size", NN_INT, NN_O(classes), NULL, NULL},
    {"tie_word_embeddings", NN_TRUTH, NN_O(tied), "true", NULL},
    {NULL, NN_TRUTH, NN_O(bias), "true", NULL},
    {"dim|hidden_size", NN_INT, NN_O(transform), NULL, NULL},
    {NULL, NN_TRUTH, NN_O(transform_bias), "true", NULL},
    {NULL, NN_TRUTH, NN_O(transform_norm), "true", NULL},
    {"activation", NN_ACTIVATION, NN_O(transform_activation), "\"gelu\"", NULL},
    {0},
};

static const nn_name masked_names[] = {
    {.name = "vocab_transform.weight", .part = NN_TRANSFORM, .encoder = true},
    {.name = "vocab_transform.bias", .part = NN_TRANSFORM_BIAS, .encoder = true},
    {.name = "vocab_layer_norm.weight", .part = NN_TRANSFORM_NORM, .encoder = true},
    {.name = "vocab_layer_norm.gamma", .part = NN_TRANSFORM_NORM, .encoder = true},
    {.name = "vocab_layer_norm.bias", .part = NN_TRANSFORM_NORM_BIAS, .encoder = true},
    {.name = "vocab_layer_norm.beta", .part = NN_TRANSFORM_NORM_BIAS, .encoder = true},
    {.name = "vocab_projector.weight", .part = NN_OUTPUT, .encoder = true},
    {.name = "vocab_projector.bias", .part = NN_OUTPUT_BIAS, .encoder = true},
    {0},
};

static const nn_key class_keys[] = {
    {"id2label|num_labels", NN_LABELS, NN_O(classes), "[0,1]", NULL},
    {NULL, NN_CHOICE, NN_O(pool), "1", NULL}, /* NN_POOL_FIRST */
    {NULL, NN_TRUTH, NN_O(bias), "true", NULL},
    {"dim|hidden_size", NN_INT, NN_O(transform), NULL, NULL},
    {NULL, NN_TRUTH, NN_O(transform_bias), "true", NULL},
    {NULL, NN_ACTIVATION, NN_O(transform_activation), "\"relu\"", NULL},
    {0},
};

static const nn_name class_names[] = {
    {.name = "pre_classifier.weight", .part = NN_TRANSFORM, .encoder = true},
    {.name = "pre_classifier.bias", .part = NN_TRANSFORM_BIAS, .encoder = true},
    {.name = "classifier.weight", .part = NN_OUTPUT, .encoder = true},
    {.name = "classifier.bias", .part = NN_OUTPUT_BIAS, .encoder = true},
    {0},
};

static const char *const unused[] = {"vocab_projector.weight", NULL};

const nn_family nn_family_distilbert = {
    .type = "distilbert",
    .keys = {keys},
    .names = {names},
    .prefix = "distilbert.",
    .unused = unused,
    .heads = {{"ForMaskedLM", {masked_keys}, masked_names, NULL},
              {"ForSequenceClassification", {class_keys}, class_names, NULL},
              {"ForTokenClassification", {nn_each_token_keys, nn_named_keys}, nn_each_token_names, NULL},
              {"ForQuestionAnswering", {nn_each_token_keys}, nn_answer_names, NULL}},
};
