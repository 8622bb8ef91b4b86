/* The tables of layer_names.h, what of them a larger file has, and what a part is: its place, its sizes, its group. */
#include "layer/names.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { NEEDED = false, OPTIONAL = true };

/* A norm with a bias, and one between the heads and the last weight, are other layers than ours. They are named here
 * because a block inside a larger file may have neighbours that nobody knows, but these must not be passed over. */
/* clang-format off */
const layer_family layer_families[] = {
    {"pytorch", false, 0, true, {
        {"in_proj_weight", LAYER_IN_WEIGHT, LAYER_DENSE, NEEDED},
        {"in_proj_bias", LAYER_IN_BIAS, LAYER_DENSE, OPTIONAL},
        {"out_proj.weight", LAYER_OUT_WEIGHT, LAYER_DENSE, NEEDED},
        {"out_proj.bias", LAYER_OUT_BIAS, LAYER_DENSE, OPTIONAL},
        {"bias_k", LAYER_BIAS_K, LAYER_LIFTED, OPTIONAL},
        {"bias_v", LAYER_BIAS_V, LAYER_LIFTED, OPTIONAL},
        {"q_norm.weight", LAYER_Q_NORM, LAYER_DENSE, OPTIONAL},
        {"k_norm.weight", LAYER_K_NORM, LAYER_DENSE, OPTIONAL},
        {"sinks", LAYER_SINKS, LAYER_DENSE, OPTIONAL},
        {"gates", LAYER_GATES, LAYER_DENSE, OPTIONAL},
    }},
    {"pytorch-split", false, 0, true, {
        {"q_proj_weight", LAYER_Q_WEIGHT, LAYER_DENSE, NEEDED},
        {"k_proj_weight", LAYER_K_WEIGHT, LAYER_DENSE, NEEDED},
        {"v_proj_weight", LAYER_V_WEIGHT, LAYER_DENSE, NEEDED},
        {"in_proj_bias", LAYER_IN_BIAS, LAYER_DENSE, OPTIONAL},
        {"out_proj.weight", LAYER_OUT_WEIGHT, LAYER_DENSE, NEEDED},
        {"out_proj.bias", LAYER_OUT_BIAS, LAYER_DENSE, OPTIONAL},
        {"bias_k", LAYER_BIAS_K, LAYER_LIFTED, OPTIONAL},
        {"bias_v", LAYER_BIAS_V, LAYER_LIFTED, OPTIONAL},
        {"q_norm.weight", LAYER_Q_NORM, LAYER_DENSE, OPTIONAL},
        {"k_norm.weight", LAYER_K_NORM, LAYER_DENSE, OPTIONAL},
        {"sinks", LAYER_SINKS, LAYER_DENSE, OPTIONAL},
        {"gates", LAYER_GATES, LAYER_DENSE, OPTIONAL},
    }},
    {"gpt2", true, 0, false, {
        {"c_attn.weight", LAYER_IN_WEIGHT, LAYER_TRANSPOSED, NEEDED},
        {"c_attn.bias", LAYER_IN_BIAS, LAYER_DENSE, NEEDED},
        {"c_proj.weight", LAYER_OUT_WEIGHT, LAYER_TRANSPOSED, NEEDED},
        {"c_proj.bias", LAYER_OUT_BIAS, LAYER_DENSE, NEEDED},
        {"bias", LAYER_IGNORED, LAYER_DENSE, OPTIONAL}, /* the causal mask */
        {"masked_bias", LAYER_IGNORED, LAYER_DENSE, OPTIONAL},
    }},
    {"bert", false, 0, false, {
        {"self.query.weight", LAYER_Q_WEIGHT, LAYER_DENSE, NEEDED},
        {"self.query.bias", LAYER_Q_BIAS, LAYER_DENSE, NEEDED},
        {"self.key.weight", LAYER_K_WEIGHT, LAYER_DENSE, NEEDED},
        {"self.key.bias", LAYER_K_BIAS, LAYER_DENSE, NEEDED},
        {"self.value.weight", LAYER_V_WEIGHT, LAYER_DENSE, NEEDED},
        {"self.value.bias", LAYER_V_BIAS, LAYER_DENSE, NEEDED},
        {"output.dense.weight", LAYER_OUT_WEIGHT, LAYER_DENSE, NEEDED},
        {"output.dense.bias", LAYER_OUT_BIAS, LAYER_DENSE, NEEDED},
    }},
    {"vit", false, 0, false, {
        {"qkv.weight", LAYER_IN_WEIGHT, LAYER_DENSE, NEEDED},
        {"qkv.bias", LAYER_IN_BIAS, LAYER_DENSE, OPTIONAL},
        {"proj.weight", LAYER_OUT_WEIGHT, LAYER_DENSE, NEEDED},
        {"proj.bias", LAYER_OUT_BIAS, LAYER_DENSE, OPTIONAL},
        {"q_norm.weight", LAYER_Q_NORM, LAYER_DENSE, OPTIONAL},
        {"k_norm.weight", LAYER_K_NORM, LAYER_DENSE, OPTIONAL},
        {"q_norm.bias", LAYER_REFUSED, LAYER_DENSE, OPTIONAL},
        {"k_norm.bias", LAYER_REFUSED, LAYER_DENSE, OPTIONAL},
        {"norm.weight", LAYER_REFUSED, LAYER_DENSE, OPTIONAL},
    }},
    {"llama", true, 10000, false, {
        {"q_proj.weight", LAYER_Q_WEIGHT, LAYER_DENSE, NEEDED},
        {"k_proj.weight", LAYER_K_WEIGHT, LAYER_DENSE, NEEDED},
        {"v_proj.weight", LAYER_V_WEIGHT, LAYER_DENSE, NEEDED},
        {"o_proj.weight", LAYER_OUT_WEIGHT, LAYER_DENSE, NEEDED},
        {"q_proj.bias", LAYER_Q_BIAS, LAYER_DENSE, OPTIONAL},
        {"k_proj.bias", LAYER_K_BIAS, LAYER_DENSE, OPTIONAL},
        {"v_proj.bias", LAYER_V_BIAS, LAYER_DENSE, OPTIONAL},
        {"o_proj.bias", LAYER_OUT_BIAS, LAYER_DENSE, OPTIONAL},
        {"q_norm.weight", LAYER_Q_NORM, LAYER_DENSE, OPTIONAL},
        {"k_norm.weight", LAYER_K_NORM, LAYER_DENSE, OPTIONAL},
        {"sinks", LAYER_SINKS, LAYER_DENSE, OPTIONAL},
        {"q_norm.bias", LAYER_REFUSED, LAYER_DENSE, OPTIONAL},
        {"k_norm.bias", LAYER_REFUSED, LAYER_DENSE, OPTIONAL},
        {"rotary_emb.inv_freq", LAYER_IGNORED, LAYER_DENSE, OPTIONAL}, /* what the base says, too */
    }},
    {"bart", false, 0, false, {
        {"q_proj.weight", LAYER_Q_WEIGHT, LAYER_DENSE, NEEDED},
        {"k_proj.weight", LAYER_K_WEIGHT, LAYER_DENSE, NEEDED},
        {"v_proj.weight", LAYER_V_WEIGHT, LAYER_DENSE, NEEDED},
        {"out_proj.weight", LAYER_OUT_WEIGHT, LAYER_DENSE, NEEDED},
        {"q_proj.bias", LAYER_Q_BIAS, LAYER_DENSE, OPTIONAL},
        {"k_proj.bias", LAYER_K_BIAS, LAYER_DENSE, OPTIONAL},
        {"v_proj.bias", LAYER_V_BIAS, LAYER_DENSE, OPTIONAL},
        {"out_proj.bias", LAYER_OUT_BIAS, LAYER_DENSE, OPTIONAL},
    }},
    {NULL, false, 0, false, {{NULL, LAYER_IGNORED, LAYER_DENSE, OPTIONAL}}},
};
/* clang-format on */

/* ---- Larger files ------------------------------------------------------------------------------------------------ */

/* Bytes of the name in front of an attention layer's first tensor; 0 if it is none. */
static size_t prefix_length(const char *name)
{
    size_t length = strlen(name);
    for (const layer_family *f = layer_families; f->title; f++) {
        size_t tail = strlen(f->names[0].name);
        if (length > tail && length - tail <= LAYER_PREFIX_MAX && strcmp(name + length - tail, f->names[0].name) == 0)
            return length - tail;
    }
    return 0;
}

/* Where two names first differ, the one with fewer digits is the smaller number. */
static bool is_before(const char *a, const char *b)
{
    while (*a && *a == *b) a++, b++;
    size_t digits = strspn(a, "0123456789"), others = strspn(b, "0123456789");
    return digits != others ? digits < others : strcmp(a, b) < 0;
}

layer_prefixes layer_prefixes_find(const safetensors *file)
{
    layer_prefixes found = {0};
    for (size_t i = 0; i < safetensors_count(file); i++) {
        char prefix[LAYER_PREFIX_MAX + 1];
        const char *name = safetensors_get(file, i)->name;
        size_t length = prefix_length(name);
        if (!length) continue;
        snprintf(prefix, sizeof prefix, "%.*s", (int)length, name);
        if (!found.count || is_before(prefix, found.first)) memcpy(found.first, prefix, sizeof prefix);
        if (!found.count || is_before(found.last, prefix)) memcpy(found.last, prefix, sizeof prefix);
        found.count++;
    }
    return found;
}

/* ---- Parts ------------------------------------------------------------------------------------------------------- */

_Static_assert(offsetof(mha_layer_parts, gates) == LAYER_GATES * sizeof(mha_tensor) &&
                   sizeof(mha_layer_parts) == LAYER_PARTS * sizeof(mha_tensor),
               "layer_part counts the fields of mha_layer_parts");

mha_tensor layer_part_of(const mha_layer_parts *parts, layer_part part)
{
    mha_tensor tensor;
    memcpy(&tensor, (const char *)parts + (size_t)part * sizeof tensor, sizeof tensor);
    return tensor;
}

void layer_part_shape(int64_t shape[2], layer_part part, const mha_layer_options *o)
{
    int64_t q = o->heads * o->head_width, k = o->kv_heads * o->head_width, v = o->kv_heads * o->value_head_width;
    const int64_t shapes[LAYER_PARTS][2] = {
        [LAYER_Q_WEIGHT] = {q, o->width},
        [LAYER_K_WEIGHT] = {k, o->key_width},
        [LAYER_V_WEIGHT] = {v, o->value_width},
        [LAYER_Q_BIAS] = {q},
        [LAYER_K_BIAS] = {k},
        [LAYER_V_BIAS] = {v},
        [LAYER_OUT_WEIGHT] = {o->width, o->heads * o->value_head_width},
        [LAYER_OUT_BIAS] = {o->width},
        [LAYER_BIAS_K] = {k},
        [LAYER_BIAS_V] = {v},
        [LAYER_Q_NORM] = {o->head_width},
        [LAYER_K_NORM] = {o->head_width},
        [LAYER_SINKS] = {o->heads},
        [LAYER_GATES] = {o->heads},
        [LAYER_IN_WEIGHT] = {q + k + v, o->width},
        [LAYER_IN_BIAS] = {q + k + v},
    };
    memcpy(shape, shapes[part], sizeof shapes[part]);
}

layer_group layer_group_of(layer_part part)
{
    static const layer_group groups[LAYER_PARTS] = {
        [LAYER_Q_WEIGHT] = LAYER_WEIGHTS,    [LAYER_K_WEIGHT] = LAYER_WEIGHTS, [LAYER_V_WEIGHT] = LAYER_WEIGHTS,
        [LAYER_IN_WEIGHT] = LAYER_WEIGHTS,   [LAYER_OUT_WEIGHT] = LAYER_OUT,   [LAYER_Q_BIAS] = LAYER_IN_BIASES,
        [LAYER_K_BIAS] = LAYER_IN_BIASES,    [LAYER_V_BIAS] = LAYER_IN_BIASES, [LAYER_IN_BIAS] = LAYER_IN_BIASES,
        [LAYER_OUT_BIAS] = LAYER_OUT_BIASES, [LAYER_BIAS_K] = LAYER_EXTRA_KEY, [LAYER_BIAS_V] = LAYER_EXTRA_KEY,
        [LAYER_Q_NORM] = LAYER_NORMS,        [LAYER_K_NORM] = LAYER_NORMS,     [LAYER_SINKS] = LAYER_SINK,
        [LAYER_GATES] = LAYER_GATE,
    };
    return groups[part];
}

int layer_part_rank(layer_part part)
{
    layer_group group = layer_group_of(part);
    return group == LAYER_WEIGHTS || group == LAYER_OUT ? 2 : 1;
}

const layer_family *layer_family_to_save(const mha_layer *layer)
{
    const mha_layer_options *o = mha_layer_shape(layer);
    bool pytorch = o->key_width == o->width && o->value_width == o->width && o->kv_heads == o->heads &&
                   o->value_head_width == o->head_width && o->heads * o->head_width == o->width;
    return &layer_families[pytorch ? 0 : 1];
}
