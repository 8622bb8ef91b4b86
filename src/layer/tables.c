/* The rotary embedding of a layer: what its options say about it, and its tables, which grow with the positions that
 * calls ask for. */
#include "layer/layer.h"

typedef long long ll;

static mha_status check_table(mha_context *ctx, mha_tensor *t, const char *name, int64_t pairs)
{
    TRY(mha_check_float(ctx, t, name, 2, "(P,w/2)", MHA_INPUT));
    TRY(mha_check_memory(ctx, *t, name));
    if (t->size[1] != pairs)
        return mha_fail(ctx, MHA_BAD_SHAPE, "%s: has rows of %lld, must be %lld, half of the rotated width", name,
                        (ll)t->size[1], (ll)pairs);
    return MHA_OK;
}

/* The one of the three sources of angles that is given. */
static mha_status check_source(mha_context *ctx, mha_layer_options *s)
{
    int64_t pairs = s->rotary_width / 2;
    if (mha_is_given(s->rotary_frequencies)) {
        TRY(mha_check_float(ctx, &s->rotary_frequencies, "rotary_frequencies", 1, "(w/2)", MHA_INPUT));
        TRY(mha_check_memory(ctx, s->rotary_frequencies, "rotary_frequencies"));
        if (s->rotary_frequencies.size[0] != pairs)
            return mha_fail(ctx, MHA_BAD_SHAPE, "rotary_frequencies: are %lld, must be %lld, half of the rotated width",
                            (ll)s->rotary_frequencies.size[0], (ll)pairs);
    }
    if (!mha_is_given(s->rotary_cos)) return MHA_OK;
    TRY(check_table(ctx, &s->rotary_cos, "rotary_cos", pairs));
    TRY(check_table(ctx, &s->rotary_sin, "rotary_sin", pairs));
    if (s->rotary_cos.size[0] != s->rotary_sin.size[0])
        return mha_fail(ctx, MHA_BAD_SHAPE, "rotary_sin: has %lld rows, rotary_cos has %lld", (ll)s->rotary_sin.size[0],
                        (ll)s->rotary_cos.size[0]);
    if (s->rotary_multiplier != 1)
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "rotary_multiplier: must be 1 with tables of your own");
    return MHA_OK;
}

mha_status mha_layer_check_rotary(mha_context *ctx, mha_layer_options *s)
{
    bool frequencies = mha_is_given(s->rotary_frequencies), tables = mha_is_given(s->rotary_cos);
    if (!(s->rotary_base >= 0) || isinf(s->rotary_base))
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "rotary_base: must be 0 or a positive number");
    if ((s->rotary_base > 0) + frequencies + tables > 1)
        return mha_fail(ctx, MHA_BAD_ARGUMENT,
                        "rotary_base, rotary_frequencies, rotary_cos: only one of them can be given");
    if (tables != mha_is_given(s->rotary_sin))
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "rotary_cos, rotary_sin: only one is given");
    if (!(s->rotary_multiplier > 0) || isinf(s->rotary_multiplier))
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "rotary_multiplier: must be a positive number");
    if ((s->rotary_base > 0 || frequencies || tables) && s->rotary_width == 0) s->rotary_width = s->head_width;
    if (s->rotary_width < 0 || s->rotary_width % 2 || s->rotary_width > s->head_width)
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "rotary_width: %lld must be even and at most %lld, the width of a head",
                        (ll)s->rotary_width, (ll)s->head_width);
    return check_source(ctx, s);
}

mha_status mha_layer_keep_frequencies(mha_context *ctx, mha_layer *layer)
{
    mha_tensor given = layer->shape.rotary_frequencies;
    if (!given.rank) return MHA_OK;
    TRY(mha_memory_reserve(ctx, &layer->frequencies, (size_t)given.size[0] * sizeof(float) + MHA_ALIGNMENT));
    mha_tensor own = mha_tensor_1d(layer->frequencies.start, MHA_FLOAT32, given.size[0]);
    ctx->backend->copy(ctx, own, given, false);
    layer->shape.rotary_frequencies = own;
    return mha_call_end(ctx);
}

mha_frequencies mha_layer_frequencies(const mha_layer *layer)
{
    const mha_layer_options *s = &layer->shape;
    return (mha_frequencies){s->rotary_base, s->rotary_frequencies, (double)s->rotary_multiplier};
}

int64_t mha_layer_near(const mha_layer *layer)
{
    enum { ANGLES = 1 << 20 }; /* of 8 bytes, cosine and sine */
    int64_t pairs = layer->shape.rotary_width / 2;
    return pairs > ANGLES ? 1 : pairs ? ANGLES / pairs : ANGLES;
}

mha_status mha_layer_tables(mha_context *ctx, mha_layer *layer, int64_t position, mha_tensor *cos, mha_tensor *sin)
{
    int64_t pairs = layer->shape.rotary_width / 2, positions = layer->positions;
    if (layer->shape.rotary_cos.rank) {
        *cos = layer->shape.rotary_cos;
        *sin = layer->shape.rotary_sin;
        return MHA_OK;
    }
    if (position >= positions) {
        int64_t most = mha_layer_near(layer);
        positions = position + 1 > 2 * positions ? position + 1 : 2 * positions;
        if (positions > most) positions = most;
        layer->positions = 0;
        layer->tabulated = false;
        TRY(mha_memory_reserve(ctx, &layer->tables, (size_t)(positions * pairs) * 2 * sizeof(float) + MHA_ALIGNMENT));
        layer->positions = positions;
    }
    float *start = (float *)layer->tables.start;
    *cos = mha_tensor_2d(start, MHA_FLOAT32, positions, pairs);
    *sin = mha_tensor_2d(start ? start + positions * pairs : NULL, MHA_FLOAT32, positions, pairs);
    if (layer->tabulated) return MHA_OK;
    TRY(mha_rotary_fill(ctx, *cos, *sin, mha_layer_frequencies(layer)));
    layer->tabulated = !ctx->rehearsing && !mha_is_recording(ctx); /* a rehearsal only reserves */
    return MHA_OK;
}
