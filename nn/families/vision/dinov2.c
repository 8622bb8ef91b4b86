/* DINOv2: ViT with scaled branches; the classifier reads the class token and the mean of the patches. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"layer_norm_eps", NN_FLOAT, NN_E(blocks.epsilon), "1e-6", NULL},
    {"patch_size", NN_PATCH_SIZE, NN_E(input.patch), "14", NULL},
    {"mlp_ratio", NN_TIMES, NN_E(blocks.mlp), "4", NULL},
    {"use_swiglu_ffn", NN_SWIGLU, NN_E(blocks.mlp), "false", NULL},
    {"use_swiglu_ffn", NN_TRUTH, NN_E(blocks.gated), "false", NULL},
    {NULL, NN_ACTIVATION, NN_E(blocks.activation), "\"silu\"", "use_swiglu_ffn"},
    {NULL, NN_TRUTH, NN_E(blocks.branch_scale), "true", NULL},
    {0},
};

static const nn_key class_keys[] = {
    {"id2label|num_labels", NN_LABELS, NN_O(classes), "[0,1]", NULL},
    {NULL, NN_CHOICE, NN_O(pool), "4", NULL}, /* NN_POOL_BOTH */
    {NULL, NN_TRUTH, NN_O(bias), "true", NULL},
    {0},
};

static const char *const unused[] = {"embeddings.mask_token", NULL};

const nn_family nn_family_dinov2 = {
    .type = "dinov2",
    .keys = {nn_vit_keys, keys},
    .names = {nn_vit_names},
    .prefix = "dinov2.",
    .unused = unused,
    .heads = {{"ForImageClassification", {class_keys}, NULL, NULL}},
};
