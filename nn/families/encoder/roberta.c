/* RoBERTa: BERT whose positions begin after that of padding; XLM-RoBERTa and CamemBERT, which are RoBERTa with other
 * tokenizers. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"pad_token_id", NN_INT, NN_E(input.padding), "1", NULL},
    {"pad_token_id", NN_INT, NN_E(input.first_position), "1", NULL},
    {NULL, NN_MORE, NN_E(input.first_position), "1", NULL},
    {0},
};

static const nn_key masked_keys[] = {{NULL, NN_ACTIVATION, NN_O(transform_activation), "\"gelu\"", NULL}, {0}};

static const nn_name masked_names[] = {
    {.name = "lm_head.dense.weight", .part = NN_TRANSFORM, .encoder = true},
    {.name = "lm_head.dense.bias", .part = NN_TRANSFORM_BIAS, .encoder = true},
    {.name = "lm_head.layer_norm.weight", .part = NN_TRANSFORM_NORM, .encoder = true},
    {.name = "lm_head.layer_norm.gamma", .part = NN_TRANSFORM_NORM, .encoder = true},
    {.name = "lm_head.layer_norm.bias", .part = NN_TRANSFORM_NORM_BIAS, .encoder = true},
    {.name = "lm_head.layer_norm.beta", .part = NN_TRANSFORM_NORM_BIAS, .encoder = true},
    {.name = "lm_head.decoder.weight", .part = NN_OUTPUT, .encoder = true},
    {.name = "lm_head.decoder.bias", .part = NN_OUTPUT_BIAS, .encoder = true},
    {.name = "lm_head.bias", .part = NN_OUTPUT_BIAS, .encoder = true},
    {0},
};

static const nn_name class_names[] = {
    {.name = "classifier.dense.weight", .part = NN_TRANSFORM, .encoder = true},
    {.name = "classifier.dense.bias", .part = NN_TRANSFORM_BIAS, .encoder = true},
    {.name = "classifier.out_proj.weight", .part = NN_OUTPUT, .encoder = true},
    {.name = "classifier.out_proj.bias", .part = NN_OUTPUT_BIAS, .encoder = true},
    {0},
};

static const char *const unused[] = {"lm_head.bias",        "lm_head.decoder.weight", "lm_head.decoder.bias",
                                     "pooler.dense.weight", "pooler.dense.bias",      NULL};

#define ROBERTA(model_type)                                                                             \
    {                                                                                                   \
        .type = model_type, .keys = {nn_bert_keys, nn_is_decoder_keys, keys}, .names = {nn_bert_names}, \
        .prefix = "roberta.", .unused = unused, .heads = {                                              \
            {"ForMaskedLM", {nn_masked_keys, masked_keys}, masked_names, NULL},                         \
            {"ForSequenceClassification", {nn_class_keys}, class_names, NULL},                          \
            {"ForTokenClassification", {nn_each_token_keys, nn_named_keys}, nn_each_token_names, NULL}, \
            {"ForQuestionAnswering", {nn_each_token_keys}, nn_answer_names, NULL}                       \
        }                                                                                               \
    }

const nn_family nn_family_roberta = ROBERTA("roberta");
const nn_family nn_family_xlm_roberta = ROBERTA("xlm-roberta");
const nn_family nn_family_camembert = ROBERTA("camembert");
