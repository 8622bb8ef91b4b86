/* ELECTRA: BERT with a table of tokens of its own width. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"embedding_size", NN_UNLIKE, NN_E(input.width), "128", NULL},
    {NULL, NN_TRUTH, NN_E(input.width_bias), "true", NULL},
    {0},
};

static const nn_name names[] = {
    {.name = "embeddings_project.weight", .part = NN_INPUT_PROJECT, .encoder = true},
    {.name = "embeddings_project.bias", .part = NN_INPUT_PROJECT_BIAS, .encoder = true},
    {0},
};

static const nn_key masked_keys[] = {
    {"embedding_size", NN_INT, NN_O(transform), "128", NULL},
    {NULL, NN_ACTIVATION, NN_O(transform_activation), "\"gelu\"", NULL},
    {0},
};

static const nn_name masked_names[] = {
    {.name = "generator_predictions.dense.weight", .part = NN_TRANSFORM, .encoder = true},
    {.name = "generator_predictions.dense.bias", .part = NN_TRANSFORM_BIAS, .encoder = true},
    {.name = "generator_predictions.LayerNorm.weight", .part = NN_TRANSFORM_NORM, .encoder = true},
    {.name = "generator_predictions.LayerNorm.gamma", .part = NN_TRANSFORM_NORM, .encoder = true},
    {.name = "generator_predictions.LayerNorm.bias", .part = NN_TRANSFORM_NORM_BIAS, .encoder = true},
    {.name = "generator_predictions.LayerNorm.beta", .part = NN_TRANSFORM_NORM_BIAS, .encoder = true},
    {.name = "generator_lm_head.weight", .part = NN_OUTPUT, .encoder = true},
    {.name = "generator_lm_head.bias", .part = NN_OUTPUT_BIAS, .encoder = true},
    {0},
};

static const nn_key class_keys[] = {{NULL, NN_ACTIVATION, NN_O(transform_activation), "\"gelu\"", NULL}, {0}};

static const nn_name class_names[] = {
    {.name = "classifier.dense.weight", .part = NN_TRANSFORM, .encoder = true},
    {.name = "classifier.dense.bias", .part = NN_TRANSFORM_BIAS, .encoder = true},
    {.name = "classifier.out_proj.weight", .part = NN_OUTPUT, .encoder = true},
    {.name = "classifier.out_proj.bias", .part = NN_OUTPUT_BIAS, .encoder = true},
    {0},
};

static const char *const unused[] = {"generator_lm_head.weight", "generator_lm_head.bias", NULL};

const nn_family nn_family_electra = {
    .type = "electra",
    .keys = {nn_bert_keys, nn_is_decoder_keys, keys},
    .names = {names, nn_bert_names},
    .prefix = "electra.",
    .unused = unused,
    .heads = {{"ForMaskedLM", {nn_masked_keys, masked_keys}, masked_names, NULL},
              {"ForSequenceClassification", {nn_class_keys, class_keys}, class_names, NULL},
              {"ForTokenClassification", {nn_each_token_keys, nn_named_keys}, nn_each_token_names, NULL},
              {"ForQuestionAnswering", {nn_each_token_keys}, nn_answer_names, NULL}},
};
