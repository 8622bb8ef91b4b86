/* Vision Transformers under timm's tensor names; families/timm.h makes the config.json that these tables read. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"qkv_bias", NN_TRUTH, NN_E(blocks.attention[0].in_bias), NULL, NULL},
    {"proj_bias", NN_TRUTH, NN_E(blocks.attention[0].out_bias), NULL, NULL},
    {"class_token", NN_TRUTH, NN_E(input.class_token), NULL, NULL},
    {"distilled", NN_TRUTH, NN_E(input.distilled), NULL, NULL},
    {"norm_pre", NN_TRUTH, NN_E(input.norm), NULL, NULL},
    {"layer_scale", NN_TRUTH, NN_E(blocks.branch_scale), NULL, NULL},
    {"layer_norm_eps", NN_FLOAT, NN_E(blocks.attention[0].qk_norm), NULL, "qk_norm"},
    {NULL, NN_CHOICE, NN_E(blocks.attention[0].qk_norm_kind), "1", NULL}, /* MHA_NORM_LAYER */
    {NULL, NN_TRUTH, NN_E(blocks.attention[0].qk_norm_bias), "true", NULL},
    {"final_norm", NN_TRUTH, NN_E(blocks.final_norm), NULL, NULL},
    {0},
};

static const nn_key class_keys[] = {
    {"num_classes", NN_INT, NN_O(classes), NULL, NULL},
    {"pool", NN_CHOICE, NN_O(pool), NULL, NULL},
    {"fc_norm", NN_TRUTH, NN_O(transform_norm), NULL, NULL},
    {NULL, NN_TRUTH, NN_O(bias), "true", NULL},
    {0},
};

static const nn_name names[] = {
    {.name = "cls_token", .part = NN_CLASS_TOKEN, .encoder = true},
    {.name = "dist_token", .part = NN_DISTILLED_TOKEN, .encoder = true},
    {.name = "pos_embed", .part = NN_POSITIONS, .encoder = true},
    {.name = "patch_embed.proj.weight", .part = NN_PATCH, .encoder = true},
    {.name = "patch_embed.proj.bias", .part = NN_PATCH_BIAS, .encoder = true, .missing = NN_ZEROS},
    {.name = "norm_pre.weight", .part = NN_INPUT_NORM, .encoder = true},
    {.name = "norm_pre.bias", .part = NN_INPUT_NORM_BIAS, .encoder = true},
    {.name = "blocks.{l}.norm1.weight", .part = NN_NORM1, .encoder = true},
    {.name = "blocks.{l}.norm1.bias", .part = NN_NORM1_BIAS, .encoder = true},
    {.name = "blocks.{l}.attn.qkv.weight", .part = NN_Q, .encoder = true, .cut = NN_ROWS_Q},
    {.name = "blocks.{l}.attn.qkv.weight", .part = NN_K, .encoder = true, .cut = NN_ROWS_K},
    {.name = "blocks.{l}.attn.qkv.weight", .part = NN_V, .encoder = true, .cut = NN_ROWS_V},
    {.name = "blocks.{l}.attn.qkv.bias", .part = NN_Q_BIAS, .encoder = true, .cut = NN_ROWS_Q},
    {.name = "blocks.{l}.attn.qkv.bias", .part = NN_K_BIAS, .encoder = true, .cut = NN_ROWS_K},
    {.name = "blocks.{l}.attn.qkv.bias", .part = NN_V_BIAS, .encoder = true, .cut = NN_ROWS_V},
    {.name = "blocks.{l}.attn.q_norm.weight", .part = NN_Q_NORM, .encoder = true},
    {.name = "blocks.{l}.attn.q_norm.bias", .part = NN_Q_NORM_BIAS, .encoder = true},
    {.name = "blocks.{l}.attn.k_norm.weight", .part = NN_K_NORM, .encoder = true},
    {.name = "blocks.{l}.attn.k_norm.bias", .part = NN_K_NORM_BIAS, .encoder = true},
    {.name = "blocks.{l}.attn.proj.weight", .part = NN_PROJ, .encoder = true},
    {.name = "blocks.{l}.attn.proj.bias", .part = NN_PROJ_BIAS, .encoder = true},
    {.name = "blocks.{l}.ls1.gamma", .part = NN_SCALE1, .encoder = true},
    {.name = "blocks.{l}.norm2.weight", .part = NN_NORM2, .encoder = true},
    {.name = "blocks.{l}.norm2.bias", .part = NN_NORM2_BIAS, .encoder = true},
    {.name = "blocks.{l}.mlp.fc1.weight", .part = NN_FC1, .encoder = true},
    {.name = "blocks.{l}.mlp.fc1.bias", .part = NN_FC1_BIAS, .encoder = true},
    {.name = "blocks.{l}.mlp.fc2.weight", .part = NN_FC2, .encoder = true},
    {.name = "blocks.{l}.mlp.fc2.bias", .part = NN_FC2_BIAS, .encoder = true},
    {.name = "blocks.{l}.ls2.gamma", .part = NN_SCALE2, .encoder = true},
    {.name = "norm.weight", .part = NN_FINAL_NORM, .encoder = true},
    {.name = "norm.bias", .part = NN_FINAL_NORM_BIAS, .encoder = true},
    {.name = "fc_norm.weight", .part = NN_TRANSFORM_NORM, .encoder = true},
    {.name = "fc_norm.bias", .part = NN_TRANSFORM_NORM_BIAS, .encoder = true},
    {.name = "head.weight", .part = NN_OUTPUT, .encoder = true},
    {.name = "head.bias", .part = NN_OUTPUT_BIAS, .encoder = true},
    {.name = "head_dist.weight", .part = NN_SECOND, .encoder = true},
    {.name = "head_dist.bias", .part = NN_SECOND_BIAS, .encoder = true},
    {0},
};

const nn_family nn_family_timm = {
    .type = "timm_vit",
    .keys = {nn_vit_keys, keys},
    .names = {names},
    .heads = {{"ForImageClassification", {class_keys}, NULL, NULL}},
};
