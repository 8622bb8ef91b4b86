/* BERT: post-norm, with the head of a masked language model or of a classifier. */
#include "families/lists.h"

const nn_key nn_bert_keys[] = {
    {"vocab_size", NN_INT, NN_E(input.vocabulary), NULL, NULL},
    {"hidden_size", NN_INT, NN_E(blocks.width), NULL, NULL},
    {"num_hidden_layers", NN_INT, NN_E(blocks.depth), NULL, NULL},
    {"num_attention_heads", NN_INT, NN_E(blocks.heads), NULL, NULL},
    {"intermediate_size", NN_INT, NN_E(blocks.mlp), NULL, NULL},
    {"max_position_embeddings", NN_INT, NN_E(input.positions), "512", NULL},
    {"type_vocab_size", NN_INT, NN_E(input.token_types), "2", NULL},
    {NULL, NN_CHOICE, NN_E(input.position_kind), "1", NULL}, /* NN_POSITIONS_LEARNED */
    {NULL, NN_TRUTH, NN_E(input.norm), "true", NULL},
    {"hidden_act", NN_ACTIVATION, NN_E(blocks.activation), "\"gelu\"", NULL},
    {"layer_norm_eps", NN_FLOAT, NN_E(blocks.epsilon), "1e-12", NULL},
    {NULL, NN_CHOICE, NN_E(blocks.place), "1", NULL}, /* NN_NORM_BEHIND */
    {NULL, NN_TRUTH, NN_E(blocks.final_norm), "false", NULL},
    {0},
};

/* Of layers, that is: whole models with it are refused. */
const nn_key nn_is_decoder_keys[] = {{"is_decoder", NN_TRUTH, NN_E(blocks.causal), "false", NULL}, {0}};

const nn_name nn_bert_names[] = {
    {.name = "embeddings.word_embeddings.weight", .part = NN_TOKENS, .encoder = true},
    {.name = "embeddings.position_embeddings.weight", .part = NN_POSITIONS, .encoder = true},
    {.name = "embeddings.token_type_embeddings.weight", .part = NN_TYPES, .encoder = true},
    {.name = "embeddings.LayerNorm.weight", .part = NN_INPUT_NORM, .encoder = true},
    {.name = "embeddings.LayerNorm.gamma", .part = NN_INPUT_NORM, .encoder = true},
    {.name = "embeddings.LayerNorm.bias", .part = NN_INPUT_NORM_BIAS, .encoder = true},
    {.name = "embeddings.LayerNorm.beta", .part = NN_INPUT_NORM_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.attention.self.query.weight", .part = NN_Q, .encoder = true},
    {.name = "encoder.layer.{l}.attention.self.query.bias", .part = NN_Q_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.attention.self.key.weight", .part = NN_K, .encoder = true},
    {.name = "encoder.layer.{l}.attention.self.key.bias", .part = NN_K_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.attention.self.value.weight", .part = NN_V, .encoder = true},
    {.name = "encoder.layer.{l}.attention.self.value.bias", .part = NN_V_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.attention.output.dense.weight", .part = NN_PROJ, .encoder = true},
    {.name = "encoder.layer.{l}.attention.output.dense.bias", .part = NN_PROJ_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.intermediate.dense.weight", .part = NN_FC1, .encoder = true},
    {.name = "encoder.layer.{l}.intermediate.dense.bias", .part = NN_FC1_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.output.dense.weight", .part = NN_FC2, .encoder = true},
    {.name = "encoder.layer.{l}.output.dense.bias", .part = NN_FC2_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.attention.output.LayerNorm.weight", .part = NN_NORM1, .encoder = true},
    {.name = "encoder.layer.{l}.attention.output.LayerNorm.gamma", .part = NN_NORM1, .encoder = true},
    {.name = "encoder.layer.{l}.attention.output.LayerNorm.bias", .part = NN_NORM1_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.attention.output.LayerNorm.beta", .part = NN_NORM1_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.output.LayerNorm.weight", .part = NN_NORM2, .encoder = true},
    {.name = "encoder.layer.{l}.output.LayerNorm.gamma", .part = NN_NORM2, .encoder = true},
    {.name = "encoder.layer.{l}.output.LayerNorm.bias", .part = NN_NORM2_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.output.LayerNorm.beta", .part = NN_NORM2_BIAS, .encoder = true},
    {0},
};

const nn_key nn_masked_keys[] = {
    {"vocab_size", NN_INT, NN_O(classes), NULL, NULL},
    {"tie_word_embeddings", NN_TRUTH, NN_O(tied), "true", NULL},
    {NULL, NN_TRUTH, NN_O(bias), "true", NULL},
    {"hidden_size", NN_INT, NN_O(transform), NULL, NULL},
    {NULL, NN_TRUTH, NN_O(transform_bias), "true", NULL},
    {NULL, NN_TRUTH, NN_O(transform_norm), "true", NULL},
    {"hidden_act", NN_ACTIVATION, NN_O(transform_activation), "\"gelu\"", NULL},
    {0},
};

static const nn_name masked_names[] = {
    {.name = "cls.predictions.transform.dense.weight", .part = NN_TRANSFORM, .encoder = true},
    {.name = "cls.predictions.transform.dense.bias", .part = NN_TRANSFORM_BIAS, .encoder = true},
    {.name = "cls.predictions.transform.LayerNorm.weight", .part = NN_TRANSFORM_NORM, .encoder = true},
    {.name = "cls.predictions.transform.LayerNorm.gamma", .part = NN_TRANSFORM_NORM, .encoder = true},
    {.name = "cls.predictions.transform.LayerNorm.bias", .part = NN_TRANSFORM_NORM_BIAS, .encoder = true},
    {.name = "cls.predictions.transform.LayerNorm.beta", .part = NN_TRANSFORM_NORM_BIAS, .encoder = true},
    {.name = "cls.predictions.decoder.weight", .part = NN_OUTPUT, .encoder = true},
    {.name = "cls.predictions.decoder.bias", .part = NN_OUTPUT_BIAS, .encoder = true},
    {.name = "cls.predictions.bias", .part = NN_OUTPUT_BIAS, .encoder = true},
    {0},
};

const nn_key nn_class_keys[] = {
    {"id2label|num_labels", NN_LABELS, NN_O(classes), "[0,1]", NULL},
    {NULL, NN_CHOICE, NN_O(pool), "1", NULL}, /* NN_POOL_FIRST */
    {NULL, NN_TRUTH, NN_O(bias), "true", NULL},
    {"hidden_size", NN_INT, NN_O(transform), NULL, NULL},
    {NULL, NN_TRUTH, NN_O(transform_bias), "true", NULL},
    {NULL, NN_ACTIVATION, NN_O(transform_activation), "\"tanh\"", NULL},
    {0},
};

static const nn_name class_names[] = {
    {.name = "bert.pooler.dense.weight", .part = NN_TRANSFORM, .encoder = true},
    {.name = "bert.pooler.dense.bias", .part = NN_TRANSFORM_BIAS, .encoder = true},
    {.name = "classifier.weight", .part = NN_OUTPUT, .encoder = true},
    {.name = "classifier.bias", .part = NN_OUTPUT_BIAS, .encoder = true},
    {0},
};

static const char *const unused[] = {"cls.predictions.bias",
                                     "cls.predictions.decoder.weight",
                                     "cls.predictions.decoder.bias",
                                     "cls.seq_relationship.weight",
                                     "cls.seq_relationship.bias",
                                     "pooler.dense.weight",
                                     "pooler.dense.bias",
                                     NULL};

const nn_family nn_family_bert = {
    .type = "bert",
    .keys = {nn_bert_keys, nn_is_decoder_keys},
    .names = {nn_bert_names},
    .prefix = "bert.",
    .unused = unused,
    .heads = {{"ForMaskedLM", {nn_masked_keys}, masked_names, NULL},
              {"ForSequenceClassification", {nn_class_keys}, class_names, NULL},
              {"ForTokenClassification", {nn_each_token_keys, nn_named_keys}, nn_each_token_names, NULL},
              {"ForQuestionAnswering", {nn_each_token_keys}, nn_answer_names, NULL}},
};
