/* DeiT: ViT with a second token, which learned from a teacher. */
#include "families/lists.h"

static const nn_key keys[] = {{NULL, NN_TRUTH, NN_E(input.distilled), "true", NULL}, {0}};

static const nn_key teacher_keys[] = {
    {"id2label|num_labels", NN_LABELS, NN_O(classes), "[0,1]", NULL},
    {NULL, NN_CHOICE, NN_O(pool), "5", NULL}, /* NN_POOL_TWO */
    {NULL, NN_TRUTH, NN_O(bias), "true", NULL},
    {0},
};

static const nn_name teacher_names[] = {
    {.name = "cls_classifier.weight", .part = NN_OUTPUT, .encoder = true},
    {.name = "cls_classifier.bias", .part = NN_OUTPUT_BIAS, .encoder = true},
    {.name = "distillation_classifier.weight", .part = NN_SECOND, .encoder = true},
    {.name = "distillation_classifier.bias", .part = NN_SECOND_BIAS, .encoder = true},
    {0},
};

static const char *const unused[] = {"pooler.dense.weight", "pooler.dense.bias", NULL};

const nn_family nn_family_deit = {
    .type = "deit",
    .keys = {nn_vit_keys, keys},
    .names = {nn_vit_names},
    .prefix = "deit.",
    .unused = unused,
    .heads = {{"ForImageClassification", {nn_label_keys}, NULL, NULL},
              {"ForImageClassificationWithTeacher", {teacher_keys}, teacher_names, NULL}},
};
