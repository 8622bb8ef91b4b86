/* ViT: an image cut into patches, and a classifier that reads the class token. */
#include "families/lists.h"

const nn_key nn_vit_keys[] = {
    {"hidden_size", NN_INT, NN_E(blocks.width), NULL, NULL},
    {"num_hidden_layers", NN_INT, NN_E(blocks.depth), NULL, NULL},
    {"num_attention_heads", NN_INT, NN_E(blocks.heads), NULL, NULL},
    {"intermediate_size", NN_INT, NN_E(blocks.mlp), "null", NULL},
    {"hidden_act", NN_ACTIVATION, NN_E(blocks.activation), "\"gelu\"", NULL},
    {"layer_norm_eps", NN_FLOAT, NN_E(blocks.epsilon), "1e-12", NULL},
    {"qkv_bias", NN_TRUTH, NN_E(blocks.attention[0].in_bias), "true", NULL},
    {NULL, NN_CHOICE, NN_E(input.kind), "1", NULL},          /* NN_INPUT_PATCHES */
    {NULL, NN_CHOICE, NN_E(input.position_kind), "1", NULL}, /* NN_POSITIONS_LEARNED */
    {NULL, NN_TRUTH, NN_E(input.class_token), "true", NULL},
    {"image_size", NN_SIZES, NN_E(input.rows), "224", NULL},
    {"patch_size", NN_PATCH_SIZE, NN_E(input.patch), "16", NULL},
    {"num_channels", NN_INT, NN_E(input.channels), "3", NULL},
    {0},
};

const nn_key nn_label_keys[] = {
    {"id2label|num_labels", NN_LABELS, NN_O(classes), "[0,1]", NULL},
    {NULL, NN_CHOICE, NN_O(pool), "1", NULL}, /* NN_POOL_FIRST */
    {NULL, NN_TRUTH, NN_O(bias), "true", NULL},
    {0},
};

const nn_name nn_vit_names[] = {
    {.name = "embeddings.cls_token", .part = NN_CLASS_TOKEN, .encoder = true},
    {.name = "embeddings.distillation_token", .part = NN_DISTILLED_TOKEN, .encoder = true},
    {.name = "embeddings.position_embeddings", .part = NN_POSITIONS, .encoder = true},
    {.name = "embeddings.patch_embeddings.projection.weight", .part = NN_PATCH, .encoder = true},
    {.name = "embeddings.patch_embeddings.projection.bias", .part = NN_PATCH_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.attention.attention.query.weight", .part = NN_Q, .encoder = true},
    {.name = "encoder.layer.{l}.attention.attention.query.bias", .part = NN_Q_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.attention.attention.key.weight", .part = NN_K, .encoder = true},
    {.name = "encoder.layer.{l}.attention.attention.key.bias", .part = NN_K_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.attention.attention.value.weight", .part = NN_V, .encoder = true},
    {.name = "encoder.layer.{l}.attention.attention.value.bias", .part = NN_V_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.attention.output.dense.weight", .part = NN_PROJ, .encoder = true},
    {.name = "encoder.layer.{l}.attention.output.dense.bias", .part = NN_PROJ_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.intermediate.dense.weight", .part = NN_FC1, .encoder = true},
    {.name = "encoder.layer.{l}.intermediate.dense.bias", .part = NN_FC1_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.output.dense.weight", .part = NN_FC2, .encoder = true},
    {.name = "encoder.layer.{l}.output.dense.bias", .part = NN_FC2_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.layernorm_before.weight", .part = NN_NORM1, .encoder = true},
    {.name = "encoder.layer.{l}.layernorm_before.bias", .part = NN_NORM1_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.layernorm_after.weight", .part = NN_NORM2, .encoder = true},
    {.name = "encoder.layer.{l}.layernorm_after.bias", .part = NN_NORM2_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.norm1.weight", .part = NN_NORM1, .encoder = true},
    {.name = "encoder.layer.{l}.norm1.bias", .part = NN_NORM1_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.norm2.weight", .part = NN_NORM2, .encoder = true},
    {.name = "encoder.layer.{l}.norm2.bias", .part = NN_NORM2_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.mlp.fc1.weight", .part = NN_FC1, .encoder = true},
    {.name = "encoder.layer.{l}.mlp.fc1.bias", .part = NN_FC1_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.mlp.fc2.weight", .part = NN_FC2, .encoder = true},
    {.name = "encoder.layer.{l}.mlp.fc2.bias", .part = NN_FC2_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.mlp.weights_out.weight", .part = NN_FC2, .encoder = true},
    {.name = "encoder.layer.{l}.mlp.weights_out.bias", .part = NN_FC2_BIAS, .encoder = true},
    {.name = "encoder.layer.{l}.mlp.weights_in.weight", .part = NN_GATE, .encoder = true, .cut = NN_FIRST_ROWS},
    {.name = "encoder.layer.{l}.mlp.weights_in.bias", .part = NN_GATE_BIAS, .encoder = true, .cut = NN_FIRST_ROWS},
    {.name = "encoder.layer.{l}.mlp.weights_in.weight", .part = NN_FC1, .encoder = true, .cut = NN_LAST_ROWS},
    {.name = "encoder.layer.{l}.mlp.weights_in.bias", .part = NN_FC1_BIAS, .encoder = true, .cut = NN_LAST_ROWS},
    {.name = "encoder.layer.{l}.layer_scale1.lambda1", .part = NN_SCALE1, .encoder = true},
    {.name = "encoder.layer.{l}.layer_scale2.lambda1", .part = NN_SCALE2, .encoder = true},
    {.name = "layernorm.weight", .part = NN_FINAL_NORM, .encoder = true},
    {.name = "layernorm.bias", .part = NN_FINAL_NORM_BIAS, .encoder = true},
    {.name = "classifier.weight", .part = NN_OUTPUT, .encoder = true},
    {.name = "classifier.bias", .part = NN_OUTPUT_BIAS, .encoder = true},
    {0},
};

static const char *const unused[] = {"pooler.dense.weight", "pooler.dense.bias", NULL};

const nn_family nn_family_vit = {
    .type = "vit",
    .keys = {nn_vit_keys},
    .names = {nn_vit_names},
    .prefix = "vit.",
    .unused = unused,
    .heads = {{"ForImageClassification", {nn_label_keys}, NULL, NULL}},
};
