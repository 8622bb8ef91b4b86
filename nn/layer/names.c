/* The tables of names.h, the search for layers in a larger file, and the position, shape and group of each part. */
#include "layer/modules.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { NEEDED = false, OPTIONAL = true };

/* Norms with a bias, and norms between the heads and the output projection, are not supported. They are listed because
 * unknown tensors of a larger file are ignored, but these must be refused. */
/* clang-format off */
const nn_layer_family nn_layer_families[] = {
    {"pytorch", false, 0, true, {
        {"in_proj_weight", NN_LAYER_IN_WEIGHT, NN_LAYER_DENSE, NEEDED},
        {"in_proj_bias", NN_LAYER_IN_BIAS, NN_LAYER_DENSE, OPTIONAL},
        {"out_proj.weight", NN_LAYER_OUT_WEIGHT, NN_LAYER_DENSE, NEEDED},
        {"out_proj.bias", NN_LAYER_OUT_BIAS, NN_LAYER_DENSE, OPTIONAL},
        {"bias_k", NN_LAYER_BIAS_K, NN_LAYER_LIFTED, OPTIONAL},
        {"bias_v", NN_LAYER_BIAS_V, NN_LAYER_LIFTED, OPTIONAL},
        {"q_norm.weight", NN_LAYER_Q_NORM, NN_LAYER_DENSE, OPTIONAL},
        {"k_norm.weight", NN_LAYER_K_NORM, NN_LAYER_DENSE, OPTIONAL},
        {"sinks", NN_LAYER_SINKS, NN_LAYER_DENSE, OPTIONAL},
        {"gates", NN_LAYER_GATES, NN_LAYER_DENSE, OPTIONAL},
    }},
    {"pytorch-split", false, 0, true, {
        {"q_proj_weight", NN_LAYER_Q_WEIGHT, NN_LAYER_DENSE, NEEDED},
        {"k_proj_weight", NN_LAYER_K_WEIGHT, NN_LAYER_DENSE, NEEDED},
        {"v_proj_weight", NN_LAYER_V_WEIGHT, NN_LAYER_DENSE, NEEDED},
        {"in_proj_bias", NN_LAYER_IN_BIAS, NN_LAYER_DENSE, OPTIONAL},
        {"out_proj.weight", NN_LAYER_OUT_WEIGHT, NN_LAYER_DENSE, NEEDED},
        {"out_proj.bias", NN_LAYER_OUT_BIAS, NN_LAYER_DENSE, OPTIONAL},
        {"bias_k", NN_LAYER_BIAS_K, NN_LAYER_LIFTED, OPTIONAL},
        {"bias_v", NN_LAYER_BIAS_V, NN_LAYER_LIFTED, OPTIONAL},
        {"q_norm.weight", NN_LAYER_Q_NORM, NN_LAYER_DENSE, OPTIONAL},
        {"k_norm.weight", NN_LAYER_K_NORM, NN_LAYER_DENSE, OPTIONAL},
        {"sinks", NN_LAYER_SINKS, NN_LAYER_DENSE, OPTIONAL},
        {"gates", NN_LAYER_GATES, NN_LAYER_DENSE, OPTIONAL},
    }},
    {"gpt2", true, 0, false, {
        {"c_attn.weight", NN_LAYER_IN_WEIGHT, NN_LAYER_TRANSPOSED, NEEDED},
        {"c_attn.bias", NN_LAYER_IN_BIAS, NN_LAYER_DENSE, NEEDED},
        {"c_proj.weight", NN_LAYER_OUT_WEIGHT, NN_LAYER_TRANSPOSED, NEEDED},
        {"c_proj.bias", NN_LAYER_OUT_BIAS, NN_LAYER_DENSE, NEEDED},
        {"bias", NN_LAYER_IGNORED, NN_LAYER_DENSE, OPTIONAL}, /* the causal mask */
        {"masked_bias", NN_LAYER_IGNORED, NN_LAYER_DENSE, OPTIONAL},
    }},
    {"bert", false, 0, false, {
        {"self.query.weight", NN_LAYER_Q_WEIGHT, NN_LAYER_DENSE, NEEDED},
        {"self.query.bias", NN_LAYER_Q_BIAS, NN_LAYER_DENSE, NEEDED},
        {"self.key.weight", NN_LAYER_K_WEIGHT, NN_LAYER_DENSE, NEEDED},
        {"self.key.bias", NN_LAYER_K_BIAS, NN_LAYER_DENSE, NEEDED},
        {"self.value.weight", NN_LAYER_V_WEIGHT, NN_LAYER_DENSE, NEEDED},
        {"self.value.bias", NN_LAYER_V_BIAS, NN_LAYER_DENSE, NEEDED},
        {"output.dense.weight", NN_LAYER_OUT_WEIGHT, NN_LAYER_DENSE, NEEDED},
        {"output.dense.bias", NN_LAYER_OUT_BIAS, NN_LAYER_DENSE, NEEDED},
    }},
    {"vit", false, 0, false, {
        {"qkv.weight", NN_LAYER_IN_WEIGHT, NN_LAYER_DENSE, NEEDED},
        {"qkv.bias", NN_LAYER_IN_BIAS, NN_LAYER_DENSE, OPTIONAL},
        {"proj.weight", NN_LAYER_OUT_WEIGHT, NN_LAYER_DENSE, NEEDED},
        {"proj.bias", NN_LAYER_OUT_BIAS, NN_LAYER_DENSE, OPTIONAL},
        {"q_norm.weight", NN_LAYER_Q_NORM, NN_LAYER_DENSE, OPTIONAL},
        {"k_norm.weight", NN_LAYER_K_NORM, NN_LAYER_DENSE, OPTIONAL},
        {"q_norm.bias", NN_LAYER_REFUSED, NN_LAYER_DENSE, OPTIONAL},
        {"k_norm.bias", NN_LAYER_REFUSED, NN_LAYER_DENSE, OPTIONAL},
        {"norm.weight", NN_LAYER_REFUSED, NN_LAYER_DENSE, OPTIONAL},
    }},
    {"llama", true, 10000, false, {
        {"q_proj.weight", NN_LAYER_Q_WEIGHT, NN_LAYER_DENSE, NEEDED},
        {"k_proj.weight", NN_LAYER_K_WEIGHT, NN_LAYER_DENSE, NEEDED},
        {"v_proj.weight", NN_LAYER_V_WEIGHT, NN_LAYER_DENSE, NEEDED},
        {"o_proj.weight", NN_LAYER_OUT_WEIGHT, NN_LAYER_DENSE, NEEDED},
        {"q_proj.bias", NN_LAYER_Q_BIAS, NN_LAYER_DENSE, OPTIONAL},
        {"k_proj.bias", NN_LAYER_K_BIAS, NN_LAYER_DENSE, OPTIONAL},
        {"v_proj.bias", NN_LAYER_V_BIAS, NN_LAYER_DENSE, OPTIONAL},
        {"o_proj.bias", NN_LAYER_OUT_BIAS, NN_LAYER_DENSE, OPTIONAL},
        {"q_norm.weight", NN_LAYER_Q_NORM, NN_LAYER_DENSE, OPTIONAL},
        {"k_norm.weight", NN_LAYER_K_NORM, NN_LAYER_DENSE, OPTIONAL},
        {"sinks", NN_LAYER_SINKS, NN_LAYER_DENSE, OPTIONAL},
        {"q_norm.bias", NN_LAYER_REFUSED, NN_LAYER_DENSE, OPTIONAL},
        {"k_norm.bias", NN_LAYER_REFUSED, NN_LAYER_DENSE, OPTIONAL},
        {"rotary_emb.inv_freq", NN_LAYER_IGNORED, NN_LAYER_DENSE, OPTIONAL}, /* follows from the base */
    }},
    {"bart", false, 0, false, {
        {"q_proj.weight", NN_LAYER_Q_WEIGHT, NN_LAYER_DENSE, NEEDED},
        {"k_proj.weight", NN_LAYER_K_WEIGHT, NN_LAYER_DENSE, NEEDED},
        {"v_proj.weight", NN_LAYER_V_WEIGHT, NN_LAYER_DENSE, NEEDED},
        {"out_proj.weight", NN_LAYER_OUT_WEIGHT, NN_LAYER_DENSE, NEEDED},
        {"q_proj.bias", NN_LAYER_Q_BIAS, NN_LAYER_DENSE, OPTIONAL},
        {"k_proj.bias", NN_LAYER_K_BIAS, NN_LAYER_DENSE, OPTIONAL},
        {"v_proj.bias", NN_LAYER_V_BIAS, NN_LAYER_DENSE, OPTIONAL},
        {"out_proj.bias", NN_LAYER_OUT_BIAS, NN_LAYER_DENSE, OPTIONAL},
    }},
    {NULL, false, 0, false, {{NULL, NN_LAYER_IGNORED, NN_LAYER_DENSE, OPTIONAL}}},
};
/* clang-format on */

/* ---- Lists of heads ---------------------------------------------------------------------------------------------- */

static const char of_head[] = "{h}";

bool nn_layer_name_lists(const char *name) { return strstr(name, of_head); }

void nn_layer_name_of_head(char *out, size_t room, const char *name, int64_t head)
{
    const char *at = strstr(name, of_head);
    if (!at) snprintf(out, room, "%s", name);
    else snprintf(out, room, "%.*s%lld%s", (int)(at - name), name, (long long)head, at + sizeof of_head - 1);
}

/* ---- Larger files ------------------------------------------------------------------------------------------------ */

/* The length of the prefix, if the name is that of an attention layer's first tensor; otherwise 0. */
static size_t prefix_length(const char *name)
{
    size_t length = strlen(name);
    for (const nn_layer_family *f = nn_layer_families; f->title; f++) {
        size_t tail = strlen(f->names[0].name);
        if (length > tail && length - tail <= NN_LAYER_PREFIX_MAX &&
            strcmp(name + length - tail, f->names[0].name) == 0)
            return length - tail;
    }
    return nn_layer_modules_prefix(name);
}

/* At the first difference of two names, the one with fewer digits is the smaller number. */
static bool is_before(const char *a, const char *b)
{
    while (*a && *a == *b) a++, b++;
    size_t digits = strspn(a, "0123456789"), others = strspn(b, "0123456789");
    return digits != others ? digits < others : strcmp(a, b) < 0;
}

nn_layer_prefixes nn_layer_prefixes_find(const nn_safetensors *file)
{
    nn_layer_prefixes found = {0};
    for (size_t i = 0; i < nn_safetensors_count(file); i++) {
        char prefix[NN_LAYER_PREFIX_MAX + 1];
        const char *name = nn_safetensors_get(file, i)->name;
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

_Static_assert(offsetof(mha_layer_parts, gates) == NN_LAYER_GATES * sizeof(mha_tensor) &&
                   sizeof(mha_layer_parts) == NN_LAYER_PARTS * sizeof(mha_tensor),
               "layer_part counts the fields of mha_layer_parts");

mha_tensor nn_layer_part_of(const mha_layer_parts *parts, nn_layer_part part)
{
    mha_tensor tensor;
    memcpy(&tensor, (const char *)parts + (size_t)part * sizeof tensor, sizeof tensor);
    return tensor;
}

void nn_layer_part_shape(int64_t shape[2], nn_layer_part part, const mha_layer_options *o)
{
    int64_t q = o->heads * o->head_width, k = o->kv_heads * o->head_width, v = o->kv_heads * o->value_head_width;
    int64_t out = o->out_width ? o->out_width : o->width;
    const int64_t shapes[NN_LAYER_PARTS][2] = {
        [NN_LAYER_Q_WEIGHT] = {q, o->width},
        [NN_LAYER_K_WEIGHT] = {k, o->key_width},
        [NN_LAYER_V_WEIGHT] = {v, o->value_width},
        [NN_LAYER_Q_BIAS] = {q},
        [NN_LAYER_K_BIAS] = {k},
        [NN_LAYER_V_BIAS] = {v},
        [NN_LAYER_OUT_WEIGHT] = {out, o->heads * o->value_head_width},
        [NN_LAYER_OUT_BIAS] = {out},
        [NN_LAYER_BIAS_K] = {k},
        [NN_LAYER_BIAS_V] = {v},
        [NN_LAYER_Q_NORM] = {o->head_width},
        [NN_LAYER_K_NORM] = {o->head_width},
        [NN_LAYER_SINKS] = {o->heads},
        [NN_LAYER_GATES] = {o->heads},
        [NN_LAYER_Q_NORM_BIAS] = {o->head_width},
        [NN_LAYER_K_NORM_BIAS] = {o->head_width},
        [NN_LAYER_IN_WEIGHT] = {q + k + v, o->width},
        [NN_LAYER_IN_BIAS] = {q + k + v},
    };
    memcpy(shape, shapes[part], sizeof shapes[part]);
}

nn_layer_group nn_layer_group_of(nn_layer_part part)
{
    static const nn_layer_group groups[NN_LAYER_PARTS] = {
        [NN_LAYER_Q_WEIGHT] = NN_LAYER_WEIGHTS,  [NN_LAYER_K_WEIGHT] = NN_LAYER_WEIGHTS,
        [NN_LAYER_V_WEIGHT] = NN_LAYER_WEIGHTS,  [NN_LAYER_IN_WEIGHT] = NN_LAYER_WEIGHTS,
        [NN_LAYER_OUT_WEIGHT] = NN_LAYER_OUT,    [NN_LAYER_Q_BIAS] = NN_LAYER_IN_BIASES,
        [NN_LAYER_K_BIAS] = NN_LAYER_IN_BIASES,  [NN_LAYER_V_BIAS] = NN_LAYER_IN_BIASES,
        [NN_LAYER_IN_BIAS] = NN_LAYER_IN_BIASES, [NN_LAYER_OUT_BIAS] = NN_LAYER_OUT_BIASES,
        [NN_LAYER_BIAS_K] = NN_LAYER_EXTRA_KEY,  [NN_LAYER_BIAS_V] = NN_LAYER_EXTRA_KEY,
        [NN_LAYER_Q_NORM] = NN_LAYER_NORMS,      [NN_LAYER_K_NORM] = NN_LAYER_NORMS,
        [NN_LAYER_SINKS] = NN_LAYER_SINK,        [NN_LAYER_GATES] = NN_LAYER_GATE,
        [NN_LAYER_Q_NORM_BIAS] = NN_LAYER_NORMS, [NN_LAYER_K_NORM_BIAS] = NN_LAYER_NORMS,
    };
    return groups[part];
}

int nn_layer_part_rank(nn_layer_part part)
{
    nn_layer_group group = nn_layer_group_of(part);
    return group == NN_LAYER_WEIGHTS || group == NN_LAYER_OUT ? 2 : 1;
}

const nn_layer_family *nn_layer_family_to_save(const mha_layer *layer)
{
    const mha_layer_options *o = mha_layer_shape(layer);
    bool pytorch = o->key_width == o->width && o->value_width == o->width && o->kv_heads == o->heads &&
                   o->value_head_width == o->head_width && o->heads * o->head_width == o->width;
    return &nn_layer_families[pytorch ? 0 : 1];
}
