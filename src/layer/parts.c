/* The parts of a layer's parameters: their sizes, the order in which they lie in a block, views of them. */
#include "layer/layer.h"
#include <string.h>

static const struct {
    const char *name;
    size_t at; /* in mha_layer_parts */
} fields[MHA_PARTS] = {
    [MHA_PART_Q_WEIGHT] = {"q_weight", offsetof(mha_layer_parts, q_weight)},
    [MHA_PART_K_WEIGHT] = {"k_weight", offsetof(mha_layer_parts, k_weight)},
    [MHA_PART_V_WEIGHT] = {"v_weight", offsetof(mha_layer_parts, v_weight)},
    [MHA_PART_Q_BIAS] = {"q_bias", offsetof(mha_layer_parts, q_bias)},
    [MHA_PART_K_BIAS] = {"k_bias", offsetof(mha_layer_parts, k_bias)},
    [MHA_PART_V_BIAS] = {"v_bias", offsetof(mha_layer_parts, v_bias)},
    [MHA_PART_OUT_WEIGHT] = {"out_weight", offsetof(mha_layer_parts, out_weight)},
    [MHA_PART_OUT_BIAS] = {"out_bias", offsetof(mha_layer_parts, out_bias)},
    [MHA_PART_BIAS_K] = {"bias_k", offsetof(mha_layer_parts, bias_k)},
    [MHA_PART_BIAS_V] = {"bias_v", offsetof(mha_layer_parts, bias_v)},
    [MHA_PART_Q_NORM] = {"q_norm", offsetof(mha_layer_parts, q_norm)},
    [MHA_PART_K_NORM] = {"k_norm", offsetof(mha_layer_parts, k_norm)},
    [MHA_PART_SINKS] = {"sinks", offsetof(mha_layer_parts, sinks)},
    [MHA_PART_GATES] = {"gates", offsetof(mha_layer_parts, gates)},
    [MHA_PART_Q_NORM_BIAS] = {"q_norm_bias", offsetof(mha_layer_parts, q_norm_bias)},
    [MHA_PART_K_NORM_BIAS] = {"k_norm_bias", offsetof(mha_layer_parts, k_norm_bias)},
};

const char *mha_part_name(int part) { return fields[part].name; }

mha_tensor *mha_part_of(mha_layer_parts *parts, int part)
{
    return (mha_tensor *)(void *)((char *)parts + fields[part].at);
}

mha_part_size mha_part_size_of(const mha_layer_options *s, int part)
{
    int64_t H = s->heads, G = s->kv_heads, D = s->head_width, E = s->value_head_width;
    bool norm = s->norm_epsilon > 0, shared = s->norm_span == MHA_NORM_EACH_HEAD;
    const mha_part_size q_norm = {norm, shared ? D : H * D, 0, shared ? 0 : H};
    const mha_part_size k_norm = {norm, shared ? D : G * D, 0, shared ? 0 : G};
    const mha_part_size sizes[MHA_PARTS] = {
        [MHA_PART_Q_WEIGHT] = {true, H * D, s->width, H},
        [MHA_PART_K_WEIGHT] = {true, G * D, s->key_width, G},
        [MHA_PART_V_WEIGHT] = {true, G * E, s->value_width, G},
        [MHA_PART_Q_BIAS] = {s->in_bias, H * D, 0, H},
        [MHA_PART_K_BIAS] = {s->in_bias, G * D, 0, G},
        [MHA_PART_V_BIAS] = {s->in_bias, G * E, 0, G},
        [MHA_PART_OUT_WEIGHT] = {s->out_projection, s->out_width, H * E, 0},
        [MHA_PART_OUT_BIAS] = {s->out_bias, s->out_width, 0, 0},
        [MHA_PART_BIAS_K] = {s->bias_kv, G * D, 0, G},
        [MHA_PART_BIAS_V] = {s->bias_kv, G * E, 0, G},
        [MHA_PART_Q_NORM] = q_norm,
        [MHA_PART_K_NORM] = k_norm,
        [MHA_PART_SINKS] = {s->sinks, H, 0, 0},
        [MHA_PART_GATES] = {s->gates, H, 0, 0},
        [MHA_PART_Q_NORM_BIAS] = {norm && s->norm_bias, q_norm.rows, 0, q_norm.heads},
        [MHA_PART_K_NORM_BIAS] = {norm && s->norm_bias, k_norm.rows, 0, k_norm.heads},
    };
    return sizes[part];
}

int64_t mha_parts_lay(mha_layer_parts *parts, const mha_layer_options *s, float *block)
{
    int64_t at = 0;
    memset(parts, 0, sizeof *parts);
    for (int n = 0; n < MHA_PARTS; n++) {
        mha_part_size part = mha_part_size_of(s, n);
        int64_t rows = part.rows, columns = part.columns;
        if (!part.there) continue;
        float *data = block ? block + at : NULL;
        *mha_part_of(parts, n) =
            columns ? mha_tensor_2d(data, MHA_FLOAT32, rows, columns) : mha_tensor_1d(data, MHA_FLOAT32, rows);
        at += rows * (columns ? columns : 1);
    }
    if (s->key_width == s->width && s->value_width == s->width)
        parts->in_weight = mha_layer_in_weight(parts, MHA_Q, MHA_V);
    if (s->in_bias) parts->in_bias = mha_layer_in_bias(parts, MHA_Q, MHA_V);
    return at;
}

int64_t mha_layer_rows(const mha_layer_options *s, int projection)
{
    return (projection == MHA_Q ? s->heads : s->kv_heads) * (projection == MHA_V ? s->value_head_width : s->head_width);
}

int64_t mha_layer_width(const mha_layer_options *s, int projection)
{
    return projection == MHA_Q ? s->width : projection == MHA_K ? s->key_width : s->value_width;
}

mha_tensor mha_layer_in_weight(const mha_layer_parts *parts, int first, int last)
{
    const mha_tensor weights[MHA_IN] = {parts->q_weight, parts->k_weight, parts->v_weight};
    mha_tensor joined = weights[first];
    for (int n = first + 1; n <= last; n++) joined.size[0] += weights[n].size[0];
    return joined;
}

mha_tensor mha_layer_in_bias(const mha_layer_parts *parts, int first, int last)
{
    const mha_tensor biases[MHA_IN] = {parts->q_bias, parts->k_bias, parts->v_bias};
    mha_tensor joined = biases[first];
    for (int n = first + 1; n <= last; n++) joined.size[0] += biases[n].size[0];
    return joined;
}

mha_tensor mha_part_split(mha_tensor part, int64_t heads)
{
    mha_tensor split = {part.data, part.type, part.rank + 1, {heads, part.size[0] / heads, 0, 0}, {0, 0, 0, 0}};
    split.stride[0] = split.size[1] * part.stride[0];
    for (int axis = 0; axis < part.rank; axis++) {
        split.size[axis + 1] = axis ? part.size[axis] : split.size[1];
        split.stride[axis + 1] = part.stride[axis];
    }
    return split;
}

/* ---- Views ------------------------------------------------------------------------------------------------------ */

mha_layer_parts mha_layer_view(const mha_layer *layer, float *block)
{
    mha_layer_parts parts;
    memset(&parts, 0, sizeof parts);
    if (!layer) return parts;
    if (!block) return layer->parts;
    mha_parts_lay(&parts, &layer->shape, block);
    return parts;
}

/* Rows from `first` on, of a matrix or of a vector. */
static mha_tensor some_rows(mha_tensor part, int64_t first, int64_t rows)
{
    if (!part.rank) return part;
    part.data = (char *)part.data + first * part.stride[0] * (int64_t)mha_type_size(part.type);
    part.size[0] = rows;
    return part;
}

/* Head h of a part that consists of them, without their axis. */
static void take_head(mha_layer_parts *parts, const mha_layer_options *s, int part, int64_t h)
{
    mha_tensor *t = mha_part_of(parts, part);
    mha_part_size size = mha_part_size_of(s, part);
    if (!t->rank) return;
    mha_tensor runs = t->rank > (size.columns ? 2 : 1) ? *t : mha_part_split(*t, size.heads);
    int64_t heads = size.heads / runs.size[0], rows = runs.size[1] / heads; /* heads of a run, rows of a head */
    mha_tensor run = some_rows(runs, h / heads, 1);
    *t = (mha_tensor){run.data, run.type, run.rank - 1, {run.size[1], run.size[2], 0, 0}, {0, 0, 0, 0}};
    for (int axis = 0; axis < t->rank; axis++) t->stride[axis] = run.stride[axis + 1];
    *t = some_rows(*t, h % heads * rows, rows);
}

mha_layer_parts mha_layer_view_head(const mha_layer *layer, float *block, int64_t h)
{
    static const mha_tensor none = MHA_NO_TENSOR;
    mha_layer_parts p = mha_layer_view(layer, block);
    if (!layer || h < 0 || h >= layer->shape.heads) return mha_layer_view(NULL, NULL);
    const mha_layer_options *s = &layer->shape;
    int64_t g = h / (s->heads / s->kv_heads), E = s->value_head_width;
    for (int part = 0; part < MHA_PARTS; part++) {
        mha_part_size size = mha_part_size_of(s, part);
        if (size.heads) take_head(&p, s, part, size.heads == s->heads ? h : g);
    }
    if (p.out_weight.rank)
        p.out_weight = mha_tensor_swap(some_rows(mha_tensor_swap(p.out_weight, 0, 1), h * E, E), 0, 1);
    p.sinks = some_rows(p.sinks, h, 1);
    p.gates = some_rows(p.gates, h, 1);
    p.in_weight = p.in_bias = none;
    return p;
}
