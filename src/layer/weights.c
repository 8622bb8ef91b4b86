/* Parameters that the caller keeps as tensors: checked, then read where they lie.
 *
 * A product takes weights as they are, whatever their type and strides. Where those of several projections, or of the
 * heads of one, do not lie one behind another, they are several matrices, whose products are columns of one result. The
 * bits of a column do not depend on the others, so they are the same either way. */
#include "core/options.h"
#include "layer/layer.h"
#include <stdio.h>

typedef long long ll;

/* ---- Checks ----------------------------------------------------------------------------------------------------- */

/* What the caller gave for a part, and its name. */
typedef struct given_part {
    const char *name;
    mha_weight weight; /* of a vector, only the values */
} given_part;

static given_part get_given(const mha_layer_weights *w, int part)
{
    static const mha_tensor none = MHA_NO_TENSOR;
    const mha_weight all[MHA_PARTS] = {
        [MHA_PART_Q_WEIGHT] = w->q_weight,
        [MHA_PART_K_WEIGHT] = w->k_weight,
        [MHA_PART_V_WEIGHT] = w->v_weight,
        [MHA_PART_Q_BIAS] = {w->q_bias, none, none},
        [MHA_PART_K_BIAS] = {w->k_bias, none, none},
        [MHA_PART_V_BIAS] = {w->v_bias, none, none},
        [MHA_PART_OUT_WEIGHT] = w->out_weight,
        [MHA_PART_OUT_BIAS] = {w->out_bias, none, none},
        [MHA_PART_BIAS_K] = {w->bias_k, none, none},
        [MHA_PART_BIAS_V] = {w->bias_v, none, none},
        [MHA_PART_Q_NORM] = {w->q_norm, none, none},
        [MHA_PART_K_NORM] = {w->k_norm, none, none},
        [MHA_PART_SINKS] = {w->sinks, none, none},
        [MHA_PART_GATES] = {w->gates, none, none},
        [MHA_PART_Q_NORM_BIAS] = {w->q_norm_bias, none, none},
        [MHA_PART_K_NORM_BIAS] = {w->k_norm_bias, none, none},
    };
    return (given_part){mha_part_name(part), all[part]};
}

/* The shape that a part must have: its rows whole, or split into heads or into runs of as many heads each. */
static mha_status check_shape(mha_context *ctx, mha_tensor *t, const char *name, mha_part_size size)
{
    int plain = size.columns ? 2 : 1;
    bool split = size.heads && t->rank == plain + 1;
    const int64_t whole[3] = {size.rows, size.columns, 0};
    int64_t runs = split && t->size[0] > 0 && size.heads % t->size[0] == 0 ? t->size[0] : size.heads;
    const int64_t heads[3] = {size.heads, size.heads ? size.rows / size.heads : 0, size.columns};
    const int64_t in_runs[3] = {runs, runs ? size.rows / runs : 0, size.columns};
    const int64_t *want = split ? in_runs : whole;
    char shape[120], more[80] = "";
    if (plain == 2) snprintf(shape, sizeof shape, "(%lld,%lld)", (ll)whole[0], (ll)whole[1]);
    else snprintf(shape, sizeof shape, "(%lld)", (ll)whole[0]);
    if (size.heads && plain == 2)
        snprintf(more, sizeof more, " or (%lld,%lld,%lld)", (ll)heads[0], (ll)heads[1], (ll)heads[2]);
    else if (size.heads) snprintf(more, sizeof more, " or (%lld,%lld)", (ll)heads[0], (ll)heads[1]);
    if (t->rank != plain && !split)
        return mha_fail(ctx, MHA_BAD_SHAPE, "%s: has rank %d, must be %s%s", name, t->rank, shape, more);
    TRY(mha_check_float(ctx, t, name, t->rank, shape, MHA_INPUT));
    TRY(mha_check_memory(ctx, *t, name));
    for (int axis = 0; axis < t->rank; axis++)
        if (t->size[axis] != want[axis])
            return mha_fail(ctx, MHA_BAD_SHAPE, "%s: axis %d is %lld, must be %lld of %s%s", name, axis,
                            (ll)t->size[axis], (ll)want[axis], shape, more);
    return MHA_OK;
}

static mha_status check_scales(mha_context *ctx, const mha_weight *weight, const char *name)
{
    if (mha_is_given(weight->scales) || mha_is_given(weight->zeros))
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "%s: has scales or zeros, which no type of weights uses yet", name);
    return MHA_OK;
}

/* Heads that lie one behind another need no axis of their own. */
static mha_tensor join_heads(mha_tensor t, mha_part_size size)
{
    int plain = size.columns ? 2 : 1;
    if (t.rank == plain) return t;
    bool joins = t.size[0] < 2 || (t.size[1] < 2 ? true : t.stride[0] == t.size[1] * t.stride[1]);
    if (!joins) return t;
    mha_tensor joined = {t.data, t.type, plain, {size.rows, size.columns, 0, 0}, {0, 0, 0, 0}};
    joined.stride[0] = t.size[1] < 2 ? t.stride[0] : t.stride[1];
    if (plain == 2) joined.stride[1] = t.stride[2];
    return joined;
}

/* ---- Fused tensors ---------------------------------------------------------------------------------------------- */

/* Puts the three parts of a fused tensor (rows of q, k and v; W) in their places. */
static mha_status split_fused(mha_context *ctx, const mha_layer_options *s, const char *name, mha_tensor fused,
                              int64_t columns, mha_tensor *to[MHA_IN], const char *const names[MHA_IN])
{
    int64_t rows = 0, at = 0;
    if (!mha_is_given(fused)) return MHA_OK;
    for (int n = 0; n < MHA_IN; n++) {
        if (mha_is_given(*to[n])) return mha_fail(ctx, MHA_BAD_ARGUMENT, "%s: is given, and so is %s", names[n], name);
        rows += mha_layer_rows(s, n);
    }
    TRY(check_shape(ctx, &fused, name, (mha_part_size){true, rows, columns, 0}));
    for (int n = 0; n < MHA_IN; n++) {
        *to[n] = fused;
        to[n]->data = (char *)fused.data + at * fused.stride[0] * (int64_t)mha_type_size(fused.type);
        to[n]->size[0] = mha_layer_rows(s, n);
        at += to[n]->size[0];
    }
    return MHA_OK;
}

static mha_status take_fused(mha_context *ctx, mha_layer_weights *w, const mha_layer_options *s)
{
    static const char *const weights[MHA_IN] = {"q_weight", "k_weight", "v_weight"};
    static const char *const biases[MHA_IN] = {"q_bias", "k_bias", "v_bias"};
    mha_tensor *weight[MHA_IN] = {&w->q_weight.values, &w->k_weight.values, &w->v_weight.values};
    mha_tensor *bias[MHA_IN] = {&w->q_bias, &w->k_bias, &w->v_bias};
    if (mha_is_given(w->in_weight.values) && (s->key_width != s->width || s->value_width != s->width))
        return mha_fail(ctx, MHA_BAD_ARGUMENT,
                        "in_weight: is one for all inputs, but their widths are %lld, %lld and %lld", (ll)s->width,
                        (ll)s->key_width, (ll)s->value_width);
    if (mha_is_given(w->in_bias) && !s->in_bias)
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "in_bias: is given, but the options do not ask for it");
    TRY(check_scales(ctx, &w->in_weight, "in_weight"));
    TRY(split_fused(ctx, s, "in_weight", w->in_weight.values, s->width, weight, weights));
    return split_fused(ctx, s, "in_bias", w->in_bias, 0, bias, biases);
}

mha_status mha_layer_borrow(mha_context *ctx, mha_layer *layer, const mha_layer_weights *weights)
{
    mha_layer_weights w = MHA_LAYER_WEIGHTS_DEFAULTS;
    MHA_NEED(ctx, weights);
    TRY(mha_options_take(ctx, &w, sizeof w, weights, "MHA_LAYER_WEIGHTS_DEFAULTS"));
    TRY(take_fused(ctx, &w, &layer->shape));
    for (int part = 0; part < MHA_PARTS; part++) {
        given_part given = get_given(&w, part);
        mha_part_size size = mha_part_size_of(&layer->shape, part);
        mha_tensor t = given.weight.values;
        TRY(check_scales(ctx, &given.weight, given.name));
        if (!size.there && mha_is_given(t))
            return mha_fail(ctx, MHA_BAD_ARGUMENT, "%s: is given, but the options do not ask for it", given.name);
        if (size.there && !mha_is_given(t))
            return mha_fail(ctx, MHA_BAD_ARGUMENT, "%s: is missing, but the options ask for it", given.name);
        if (!size.there) continue;
        TRY(check_shape(ctx, &t, given.name, size));
        *mha_part_of(&layer->parts, part) = join_heads(t, size);
    }
    layer->borrowed = true;
    return MHA_OK;
}

mha_status mha_layer_check_apart(mha_context *ctx, const mha_layer *layer, const mha_argument *all, size_t count)
{
    mha_layer_parts parts = layer->parts;
    TRY(mha_check_apart(ctx, all, count));
    const mha_argument tables[] = {{"rotary_cos", layer->shape.rotary_cos, MHA_INPUT},
                                   {"rotary_sin", layer->shape.rotary_sin, MHA_INPUT}};
    mha_tensor block = mha_tensor_1d(parts.q_weight.data, MHA_FLOAT32, layer->count);
    for (size_t n = 0; n < count; n++) {
        if (all[n].role != MHA_OUTPUT || !all[n].tensor.data) continue;
        if (!layer->borrowed && mha_may_overlap(all[n].tensor, block))
            return mha_fail(ctx, MHA_OVERLAP, "%s: shares memory with the parameters", all[n].name);
        for (int k = 0; k < 2; k++)
            if (tables[k].tensor.data && mha_may_overlap(all[n].tensor, tables[k].tensor))
                return mha_fail(ctx, MHA_OVERLAP, "%s: shares memory with %s", all[n].name, tables[k].name);
        for (int part = 0; layer->borrowed && part < MHA_PARTS; part++) {
            mha_tensor t = *mha_part_of(&parts, part);
            if (t.data && mha_may_overlap(all[n].tensor, t))
                return mha_fail(ctx, MHA_OVERLAP, "%s: shares memory with the layer's %s", all[n].name,
                                mha_part_name(part));
        }
    }
    return MHA_OK;
}

/* ---- Weights as matrices ---------------------------------------------------------------------------------------- */

/* Whether b lies behind a as further rows of it. */
static bool continues(mha_tensor a, mha_tensor b)
{
    return b.rank == 2 && a.type == b.type && a.stride[0] == b.stride[0] && a.stride[1] == b.stride[1] &&
           (char *)b.data == (char *)a.data + a.size[0] * a.stride[0] * (int64_t)mha_type_size(a.type);
}

bool mha_weight_next(mha_weight_walk *w, const mha_tensor weights[MHA_IN], int last)
{
    if (w->matrix.rank) w->column += w->matrix.size[0];
    if (w->part > last) return false;
    mha_tensor t = weights[w->part];
    if (t.rank == 3) {
        int64_t bytes = w->head * t.stride[0] * (int64_t)mha_type_size(t.type);
        w->matrix = (mha_tensor){
            (char *)t.data + bytes, t.type, 2, {t.size[1], t.size[2], 0, 0}, {t.stride[1], t.stride[2], 0, 0}};
        if (++w->head == t.size[0]) w->head = 0, w->part++;
        return true;
    }
    w->matrix = t;
    for (w->part++; w->part <= last && continues(w->matrix, weights[w->part]); w->part++)
        w->matrix.size[0] += weights[w->part].size[0];
    return true;
}

bool mha_weights_are_one(const mha_tensor weights[MHA_IN], int first, int last)
{
    mha_weight_walk walk = {.part = first};
    mha_weight_next(&walk, weights, last);
    return walk.part > last;
}

mha_type mha_weights_type(const mha_tensor weights[MHA_IN], int first, int last, mha_type compute)
{
    if (compute == MHA_BFLOAT16) return MHA_BFLOAT16;
    for (int n = first + 1; n <= last; n++)
        if (weights[n].type != weights[first].type) return MHA_FLOAT32;
    return weights[first].type;
}

void mha_weights_gather(mha_context *ctx, mha_tensor to, const mha_tensor weights[MHA_IN], int first, int last)
{
    for (int n = first; n <= last; n++) {
        mha_tensor from = weights[n], part = to;
        part.size[0] = from.rank == 3 ? from.size[0] * from.size[1] : from.size[0];
        int64_t rows = part.size[0];
        if (from.rank == 3) part = mha_part_split(part, from.size[0]);
        ctx->backend->copy(ctx, part, from, false);
        if (to.data) to.data = (char *)to.data + rows * to.stride[0] * (int64_t)mha_type_size(to.type);
    }
}
