#include "families/bare.h"
#include "families/lists.h"
#include <string.h>

/* ---- nn.MultiheadAttention, and what mha's layers have beside it ---------------------------------------------------- */

static const nn_name in_names[] = {
    {.name = "in_proj_weight", .part = NN_Q, .encoder = true, .cut = NN_ROWS_Q},
    {.name = "in_proj_weight", .part = NN_K, .encoder = true, .cut = NN_ROWS_K},
    {.name = "in_proj_weight", .part = NN_V, .encoder = true, .cut = NN_ROWS_V},
    {0},
};

static const nn_name split_names[] = {
    {.name = "q_proj_weight", .part = NN_Q, .encoder = true},
    {.name = "k_proj_weight", .part = NN_K, .encoder = true},
    {.name = "v_proj_weight", .part = NN_V, .encoder = true},
    {0},
};

static const nn_name other_names[] = {
    {.name = "in_proj_bias", .part = NN_Q_BIAS, .encoder = true, .cut = NN_ROWS_Q},
    {.name = "in_proj_bias", .part = NN_K_BIAS, .encoder = true, .cut = NN_ROWS_K},
    {.name = "in_proj_bias", .part = NN_V_BIAS, .encoder = true, .cut = NN_ROWS_V},
    {.name = "out_proj.weight", .part = NN_PROJ, .encoder = true},
    {.name = "out_proj.bias", .part = NN_PROJ_BIAS, .encoder = true},
    {.name = "bias_k", .part = (nn_part_kind)NN_BARE_KEY, .encoder = true, .cut = NN_LIFTED},
    {.name = "bias_v", .part = (nn_part_kind)NN_BARE_VALUE, .encoder = true, .cut = NN_LIFTED},
    {.name = "q_norm.weight", .part = NN_Q_NORM, .encoder = true},
    {.name = "k_norm.weight", .part = NN_K_NORM, .encoder = true},
    {.name = "sinks", .part = NN_SINKS, .encoder = true},
    {.name = "gates", .part = (nn_part_kind)NN_BARE_GATES, .encoder = true},
    {0},
};

static const nn_family pytorch = {.type = "pytorch", .names = {in_names, other_names}},
                       pytorch_split = {.type = "pytorch-split", .names = {split_names, other_names}};

/* ---- All of them ------------------------------------------------------------------------------------------------ */

static const nn_bare bares[] = {
    {.title = "pytorch", .family = &pytorch, .same_biases = true},
    {.title = "pytorch-split", .family = &pytorch_split, .same_biases = true},
    {.title = "gpt2", .family = &nn_family_gpt2, .causal = true, .needs_biases = true},
    {.title = "bert", .family = &nn_family_bert, .needs_biases = true},
    {.title = "vit", .family = &nn_family_timm, .refuses_norm = true},
    {.title = "llama", .family = &nn_family_llama, .causal = true, .rotary_base = 10000},
    {.title = "bart", .family = &nn_family_bart},
};

const nn_bare *nn_bare_get(int n) { return n >= 0 && n < (int)(sizeof bares / sizeof *bares) ? &bares[n] : NULL; }

/* ---- CLIP, of whose towers layers can be opened ------------------------------------------------------------------- */

static const nn_key clip_keys[] = {
    {"hidden_size", NN_INT, NN_E(blocks.width), NULL, NULL},
    {"num_hidden_layers", NN_INT, NN_E(blocks.depth), NULL, NULL},
    {"num_attention_heads", NN_INT, NN_E(blocks.heads), NULL, NULL},
    {0},
};

static const nn_key text_keys[] = {{NULL, NN_TRUTH, NN_E(blocks.causal), "true", NULL}, {0}};

#define CLIP_NAMES(tower)                                                                           \
    {                                                                                               \
        {.name = tower "q_proj.weight", .part = NN_Q, .encoder = true},                             \
            {.name = tower "q_proj.bias", .part = NN_Q_BIAS, .encoder = true},                      \
            {.name = tower "k_proj.weight", .part = NN_K, .encoder = true},                         \
            {.name = tower "k_proj.bias", .part = NN_K_BIAS, .encoder = true},                      \
            {.name = tower "v_proj.weight", .part = NN_V, .encoder = true},                         \
            {.name = tower "v_proj.bias", .part = NN_V_BIAS, .encoder = true},                      \
            {.name = tower "out_proj.weight", .part = NN_PROJ, .encoder = true},                    \
            {.name = tower "out_proj.bias", .part = NN_PROJ_BIAS, .encoder = true}, {.name = NULL}, \
    }

static const nn_name text_names[] = CLIP_NAMES("text_model.encoder.layers.{l}.self_attn."),
                     picture_names[] = CLIP_NAMES("vision_model.encoder.layers.{l}.self_attn.");

static const nn_family towers[] = {
    {.type = "clip_text_model", .keys = {clip_keys, text_keys}, .names = {text_names}},
    {.type = "clip_vision_model", .keys = {clip_keys}, .names = {picture_names}},
};

const nn_family *nn_family_find_layers(const char *type)
{
    for (size_t n = 0; n < sizeof towers / sizeof *towers; n++)
        if (strcmp(towers[n].type, type) == 0) return &towers[n];
    return NULL;
}
