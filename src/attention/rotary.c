/* The public edge of the rotary position embedding and of the tables of its angles. */
#include "attention/rotary.h"
#include "core/options.h"

typedef long long ll;

/* (P,w/2), or a row for each (b,t). */
static mha_status check_table(mha_rotation *r, mha_tensor *t, const char *name)
{
    int rank = t->rank == 3 ? 3 : 2;
    TRY(mha_check_float(r->ctx, t, name, rank, "(P,w/2) or 3 (B,T,w/2)", MHA_INPUT));
    if (t->size[rank - 1] != r->width / 2)
        return mha_fail(r->ctx, MHA_BAD_SHAPE, "%s: has rows of %lld, must be %lld, half of the rotated width", name,
                        (ll)t->size[rank - 1], (ll)r->width / 2);
    if (rank == 3 && ((t->size[0] != 1 && t->size[0] != r->x.size[0]) || t->size[1] != r->x.size[2]))
        return mha_fail(r->ctx, MHA_BAD_SHAPE, "%s: is (%lld,%lld,*), must be (B,T,*) or (1,T,*) of x", name,
                        (ll)t->size[0], (ll)t->size[1]);
    return MHA_OK;
}

/* Positions as (B,T), each with a row in the tables or with angles that can be computed. */
static mha_status check_positions(mha_rotation *r)
{
    mha_tensor *p = &r->options.positions;
    int64_t B = r->x.size[0], T = r->x.size[2], rows = r->cos.size[0];
    if (r->cos.rank != r->sin.rank)
        return mha_fail(r->ctx, MHA_BAD_SHAPE, "sin: has rank %d, cos has %d", r->sin.rank, r->cos.rank);
    if (r->sin.size[0] != rows && r->cos.rank == 2)
        return mha_fail(r->ctx, MHA_BAD_SHAPE, "sin: has %lld rows, cos has %lld", (ll)r->sin.size[0], (ll)rows);
    if (r->options.first_position < -MHA_SIZE_LIMIT || r->options.first_position > MHA_SIZE_LIMIT)
        return mha_fail(r->ctx, MHA_BAD_ARGUMENT, "first_position: %lld is not within +-2^40",
                        (ll)r->options.first_position);
    if (mha_is_given(*p)) {
        TRY(mha_check_tensor(r->ctx, p, "positions", p->rank == 1 ? 1 : 2, "(B,T), or 1 (T)", MHA_INPUT));
        if (p->type != MHA_INT64)
            return mha_fail(r->ctx, MHA_BAD_TYPE, "positions: is %s, must be int64", mha_type_name(p->type));
        mha_tensor wide = mha_broadcast(*p);
        if ((wide.size[2] != 1 && wide.size[2] != B) || p->size[p->rank - 1] != T)
            return mha_fail(r->ctx, MHA_BAD_SHAPE, "positions: must be (B,T), (1,T) or (T) of x");
        *p = (mha_tensor){p->data, p->type, 2, {B, T, 0, 0}, {wide.stride[2], p->stride[p->rank - 1], 0, 0}};
    }
    if (r->ctx->backend->remote && p->rank) { /* positions that nothing is known of are kept within what there is */
        r->beyond = r->frequencies.base > 0 || r->frequencies.values.rank;
        return MHA_OK;
    }
    for (int64_t b = 0; r->cos.rank == 2 && r->x.size[1] && b < (p->rank ? B : B > 0); b++)
        for (int64_t t = 0; t < T; t++) {
            bool beyond = mha_rotation_is_beyond(r, b, t);
            if (mha_rotation_position(r, b, t) < 0 ||
                (beyond && !(r->frequencies.base > 0 || r->frequencies.values.rank)))
                return mha_fail(r->ctx, MHA_BAD_ARGUMENT,
                                "positions: (%lld,%lld) is at %lld, but the tables have %lld rows", (ll)b, (ll)t,
                                (ll)mha_rotation_position(r, b, t), (ll)rows);
            r->beyond = r->beyond || beyond;
        }
    return MHA_OK;
}

static mha_status check(mha_rotation *r)
{
    TRY(mha_check_float(r->ctx, &r->x, "x", 4, "(B,H,T,D)", MHA_INPUT));
    TRY(mha_check_float(r->ctx, &r->out, "out", 4, "(B,H,T,D)", MHA_OUTPUT));
    for (int axis = 0; axis < 4; axis++)
        if (r->out.size[axis] != r->x.size[axis])
            return mha_fail(r->ctx, MHA_BAD_SHAPE, "out: axis %d is %lld, must be %lld as x", axis,
                            (ll)r->out.size[axis], (ll)r->x.size[axis]);
    r->width = r->options.width ? r->options.width : r->x.size[3];
    if (r->width < 0 || r->width % 2 || r->width > r->x.size[3])
        return mha_fail(r->ctx, MHA_BAD_ARGUMENT, "width: %lld must be even and at most %lld, the width of x",
                        (ll)r->width, (ll)r->x.size[3]);
    TRY(check_table(r, &r->cos, "cos"));
    TRY(check_table(r, &r->sin, "sin"));
    TRY(check_positions(r));
    const mha_argument all[] = {
        {"out", r->out, MHA_OUTPUT},
        {"x, without being x", mha_same_view(r->out, r->x) ? (mha_tensor)MHA_NO_TENSOR : r->x, MHA_INPUT},
        {"cos", r->cos, MHA_INPUT},
        {"sin", r->sin, MHA_INPUT},
        {"positions", r->options.positions, MHA_INPUT}};
    return MHA_CHECK_APART(r->ctx, all);
}

mha_status mha_rotary_apply_beyond(mha_context *ctx, mha_tensor out, mha_tensor x, mha_tensor cos, mha_tensor sin,
                                   mha_frequencies frequencies, const mha_rotary_options *options)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_rotation r = {.ctx = ctx,
                      .out = out,
                      .x = x,
                      .cos = cos,
                      .sin = sin,
                      .frequencies = frequencies,
                      .options = MHA_ROTARY_DEFAULTS};
    mha_succeed(ctx);
    TRY(mha_options_take(ctx, &r.options, sizeof r.options, options, "MHA_ROTARY_DEFAULTS"));
    TRY(check(&r));
    if (mha_element_count(x) == 0) return MHA_OK;
    return ctx->backend->rotate(&r);
}

mha_status mha_rotary_apply(mha_context *ctx, mha_tensor out, mha_tensor x, mha_tensor cos, mha_tensor sin,
                            const mha_rotary_options *options)
{
    return mha_rotary_apply_beyond(ctx, out, x, cos, sin, (mha_frequencies){0}, options);
}

/* ---- Tables ----------------------------------------------------------------------------------------------------- */

mha_status mha_rotary_fill(mha_context *ctx, mha_tensor cosines, mha_tensor sines, mha_frequencies f)
{
    mha_rotation here = {.ctx = ctx}, *r = &here;
    TRY(mha_check_float(ctx, &cosines, "cos", 2, "(P,w/2)", MHA_OUTPUT));
    TRY(mha_check_float(ctx, &sines, "sin", 2, "(P,w/2)", MHA_OUTPUT));
    if (cosines.size[0] != sines.size[0] || cosines.size[1] != sines.size[1])
        return mha_fail(r->ctx, MHA_BAD_SHAPE, "sin: must have the sizes of cos");
    if (mha_is_given(f.values)) {
        TRY(mha_check_float(ctx, &f.values, "frequencies", 1, "(w/2)", MHA_INPUT));
        if (f.values.size[0] != cosines.size[1])
            return mha_fail(r->ctx, MHA_BAD_SHAPE, "frequencies: are %lld, must be %lld as the columns of cos",
                            (ll)f.values.size[0], (ll)cosines.size[1]);
    }
    const mha_argument all[] = {
        {"cos", cosines, MHA_OUTPUT}, {"sin", sines, MHA_OUTPUT}, {"frequencies", f.values, MHA_INPUT}};
    TRY(MHA_CHECK_APART(ctx, all));
    if (mha_element_count(cosines) > 0) ctx->backend->rotary_tables(ctx, cosines, sines, &f);
    return mha_call_end(ctx);
}

mha_status mha_rotary_tables(mha_context *ctx, mha_tensor cosines, mha_tensor sines, double base)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_frequencies f = {.base = base, .multiplier = 1};
    mha_succeed(ctx);
    if (!(base > 0) || isinf(base)) return mha_fail(ctx, MHA_BAD_ARGUMENT, "base: must be a positive number");
    return mha_rotary_fill(ctx, cosines, sines, f);
}

mha_status mha_rotary_tables_from(mha_context *ctx, mha_tensor cosines, mha_tensor sines, mha_tensor frequencies,
                                  double multiplier)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_frequencies f = {.values = frequencies, .multiplier = multiplier};
    mha_succeed(ctx);
    if (!mha_is_given(frequencies)) return mha_fail(ctx, MHA_BAD_ARGUMENT, "frequencies: are none");
    if (!(multiplier > 0) || isinf(multiplier))
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "multiplier: must be a positive number");
    return mha_rotary_fill(ctx, cosines, sines, f);
}
