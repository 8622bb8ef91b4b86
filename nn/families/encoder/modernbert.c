/* ModernBERT: pre-norm, rotary embedding, gated MLPs, and windows in most layers. */
#include "families/lists.h"

static const nn_key keys[] = {
    {"vocab_size", NN_INT, NN_E(input.vocabulary), NULL, NULL},
    {"hidden_size", NN_INT, NN_E(blocks.width), NULL, NULL},
    {"num_hidden_layers", NN_INT, NN_E(blocks.depth), NULL, NULL},
    {"num_attention_heads", NN_INT, NN_E(blocks.heads), NULL, NULL},
    {"intermediate_size", NN_INT, NN_E(blocks.mlp), NULL, NULL},
    {NULL, NN_TRUTH, NN_E(blocks.gated), "true", NULL},
    {NULL, NN_TRUTH, NN_E(input.norm), "true", NULL},
    {NULL, NN_TRUTH, NN_E(blocks.bare_start), "true", NULL},
    {"hidden_activation", NN_ACTIVATION, NN_E(blocks.activation), "\"gelu\"", NULL},
    {"norm_eps", NN_FLOAT, NN_E(blocks.epsilon), "1e-5", NULL},
    {"norm_bias", NN_TRUTH, NN_E(blocks.norm_bias), "false", NULL},
    {"attention_bias", NN_TRUTH, NN_E(blocks.attention[0].in_bias), "false", NULL},
    {"attention_bias", NN_TRUTH, NN_E(blocks.attention[0].out_bias), "false", NULL},
    {"mlp_bias", NN_TRUTH, NN_E(blocks.mlp_bias), "false", NULL},
    {0},
};

static const nn_name names[] = {
    {.name = "model.embeddings.tok_embeddings.weight", .part = NN_TOKENS, .encoder = true},
    {.name = "model.embeddings.norm.weight", .part = NN_INPUT_NORM, .encoder = true},
    {.name = "model.embeddings.norm.bias", .part = NN_INPUT_NORM_BIAS, .encoder = true},
    {.name = "model.layers.{l}.attn_norm.weight", .part = NN_NORM1, .encoder = true},
    {.name = "model.layers.{l}.attn_norm.bias", .part = NN_NORM1_BIAS, .encoder = true},
    {.name = "model.layers.{l}.attn.Wqkv.weight", .part = NN_Q, .encoder = true, .cut = NN_ROWS_Q},
    {.name = "model.layers.{l}.attn.Wqkv.bias", .part = NN_Q_BIAS, .encoder = true, .cut = NN_ROWS_Q},
    {.name = "model.layers.{l}.attn.Wqkv.weight", .part = NN_K, .encoder = true, .cut = NN_ROWS_K},
    {.name = "model.layers.{l}.attn.Wqkv.bias", .part = NN_K_BIAS, .encoder = true, .cut = NN_ROWS_K},
    {.name = "model.layers.{l}.attn.Wqkv.weight", .part = NN_V, .encoder = true, .cut = NN_ROWS_V},
    {.name = "model.layers.{l}.attn.Wqkv.bias", .part = NN_V_BIAS, .encoder = true, .cut = NN_ROWS_V},
    {.name = "model.layers.{l}.attn.Wo.weight", .part = NN_PROJ, .encoder = true},
    {.name = "model.layers.{l}.attn.Wo.bias", .part = NN_PROJ_BIAS, .encoder = true},
    {.name = "model.layers.{l}.mlp_norm.weight", .part = NN_NORM2, .encoder = true},
    {.name = "model.layers.{l}.mlp_norm.bias", .part = NN_NORM2_BIAS, .encoder = true},
    {.name = "model.layers.{l}.mlp.Wi.weight", .part = NN_GATE, .encoder = true, .cut = NN_FIRST_ROWS},
    {.name = "model.layers.{l}.mlp.Wi.bias", .part = NN_GATE_BIAS, .encoder = true, .cut = NN_FIRST_ROWS},
    {.name = "model.layers.{l}.mlp.Wi.weight", .part = NN_FC1, .encoder = true, .cut = NN_LAST_ROWS},
    {.name = "model.layers.{l}.mlp.Wi.bias", .part = NN_FC1_BIAS, .encoder = true, .cut = NN_LAST_ROWS},
    {.name = "model.layers.{l}.mlp.Wo.weight", .part = NN_FC2, .encoder = true},
    {.name = "model.layers.{l}.mlp.Wo.bias", .part = NN_FC2_BIAS, .encoder = true},
    {.name = "model.final_norm.weight", .part = NN_FINAL_NORM, .encoder = true},
    {.name = "model.final_norm.bias", .part = NN_FINAL_NORM_BIAS, .encoder = true},
    {0},
};

static const nn_key masked_keys[] = {
    {"vocab_size", NN_INT, NN_O(classes), NULL, NULL},
    {"tie_word_embeddings", NN_TRUTH, NN_O(tied), "true", NULL},
    {"decoder_bias", NN_TRUTH, NN_O(bias), "true", NULL},
    {"hidden_size", NN_INT, NN_O(transform), NULL, NULL},
    {"classifier_bias", NN_TRUTH, NN_O(transform_bias), "false", NULL},
    {NULL, NN_TRUTH, NN_O(transform_norm), "true", NULL},
    {"classifier_activation", NN_ACTIVATION, NN_O(transform_activation), "\"gelu\"", NULL},
    {0},
};

static const nn_name masked_names[] = {
    {.name = "head.dense.weight", .part = NN_TRANSFORM, .encoder = true},
    {.name = "head.dense.bias", .part = NN_TRANSFORM_BIAS, .encoder = true},
    {.name = "head.norm.weight", .part = NN_TRANSFORM_NORM, .encoder = true},
    {.name = "head.norm.bias", .part = NN_TRANSFORM_NORM_BIAS, .encoder = true},
    {.name = "decoder.weight", .part = NN_OUTPUT, .encoder = true},
    {.name = "decoder.bias", .part = NN_OUTPUT_BIAS, .encoder = true},
    {0},
};

static const nn_key row_keys[] = {
    {"id2label|num_labels", NN_LABELS, NN_O(classes), "[0,1]", NULL},
    {NULL, NN_TRUTH, NN_O(bias), "true", NULL},
    {"hidden_size", NN_INT, NN_O(transform), NULL, NULL},
    {"classifier_bias", NN_TRUTH, NN_O(transform_bias), "false", NULL},
    {NULL, NN_TRUTH, NN_O(transform_norm), "true", NULL},
    {"classifier_activation", NN_ACTIVATION, NN_O(transform_activation), "\"gelu\"", NULL},
    {0},
};

static const nn_key pool_keys[] = {{"classifier_pooling", NN_POOL, NN_O(pool), "\"cls\"", NULL}, {0}};

static const nn_name class_names[] = {
    {.name = "head.dense.weight", .part = NN_TRANSFORM, .encoder = true},
    {.name = "head.dense.bias", .part = NN_TRANSFORM_BIAS, .encoder = true},
    {.name = "head.norm.weight", .part = NN_TRANSFORM_NORM, .encoder = true},
    {.name = "head.norm.bias", .part = NN_TRANSFORM_NORM_BIAS, .encoder = true},
    {.name = "classifier.weight", .part = NN_OUTPUT, .encoder = true},
    {.name = "classifier.bias", .part = NN_OUTPUT_BIAS, .encoder = true},
    {0},
};

static const char *const unused[] = {"decoder.weight", NULL};

const nn_family nn_family_modernbert = {
    .type = "modernbert",
    .keys = {keys},
    .names = {names},
    .rotary = {.theta = 160000, .theta_key = "global_rope_theta", .local = 10000, .local_key = "local_rope_theta"},
    .window = {.layers = NN_SLIDES_BUT_FIRST_OF,
               .key = "local_attention",
               .absent = "128",
               .number = "global_attn_every_n_layers",
               .number_absent = "3",
               .half = true},
    .prefix = "model.",
    .unused = unused,
    .heads = {{"ForMaskedLM", {masked_keys}, masked_names, NULL},
              {"ForSequenceClassification", {row_keys, pool_keys}, class_names, NULL},
              {"ForTokenClassification", {row_keys, nn_named_keys}, class_names, NULL},
              {"ForQuestionAnswering", {row_keys}, class_names, NULL}},
};
