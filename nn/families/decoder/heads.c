/* Heads beside that of a language model. Of decoders: one vector of logits for a text, read from its last token. Of decoders and
 * encoders: logits for each token, and those of where an answer begins and ends. */
#include "families/lists.h"

const nn_key nn_score_keys[] = {
    {"id2label|num_labels", NN_LABELS, NN_O(classes), "[0,1]", NULL},
    {NULL, NN_CHOICE, NN_O(pool), "3", NULL}, /* NN_POOL_LAST */
    {NULL, NN_TRUTH, NN_O(tied), "false", NULL},
    {NULL, NN_TRUTH, NN_O(bias), "false", NULL},
    {NULL, NN_FLOAT, NN_O(scale), "1", NULL},
    {NULL, NN_FLOAT, NN_O(softcap), "0", NULL},
    {0},
};

const nn_key nn_each_token_keys[] = {
    {"id2label|num_labels", NN_LABELS, NN_O(classes), "[0,1]", NULL},
    {NULL, NN_TRUTH, NN_O(tied), "false", NULL},
    {NULL, NN_TRUTH, NN_O(bias), "true", NULL},
    {NULL, NN_FLOAT, NN_O(scale), "1", NULL},
    {NULL, NN_FLOAT, NN_O(softcap), "0", NULL},
    {0},
};

const nn_key nn_named_keys[] = {{NULL, NN_TRUTH, NN_O(named), "true", NULL}, {0}};

const nn_key nn_answer_keys[] = {{NULL, NN_INT, NN_O(classes), "2", NULL}, {0}};

const nn_name nn_score_names[] = {{.name = "score.weight", .part = NN_OUTPUT}, {0}};

const nn_name nn_each_token_names[] = {
    {.name = "score.weight", .part = NN_OUTPUT},
    {.name = "score.bias", .part = NN_OUTPUT_BIAS},
    {.name = "classifier.weight", .part = NN_OUTPUT},
    {.name = "classifier.bias", .part = NN_OUTPUT_BIAS},
    {0},
};

const nn_name nn_answer_names[] = {
    {.name = "qa_outputs.weight", .part = NN_OUTPUT},
    {.name = "qa_outputs.bias", .part = NN_OUTPUT_BIAS},
    {0},
};
