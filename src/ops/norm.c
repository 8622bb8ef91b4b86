/* The public edge of norms: every rule about their arguments. A matrix (rows,W) goes to the device as heads (1,1,rows,W),
 * so that models and the queries and keys of a layer share one operation. */
#include "ops/check.h"

static mha_status check_vector(mha_context *ctx, mha_tensor *t, const char *name, int64_t W, mha_role role)
{
    TRY(mha_check_dense(ctx, t, name, 1, "(W)", role));
    return mha_check_size(ctx, *t, name, 0, W, "W of x");
}

static mha_status take_options(mha_context *ctx, mha_norm_options *o, const mha_norm_options *options, int64_t W)
{
    *o = (mha_norm_options)MHA_NORM_DEFAULTS;
    TRY(mha_options_take(ctx, o, sizeof *o, options, "MHA_NORM_DEFAULTS"));
    if ((unsigned)o->kind > MHA_NORM_LAYER)
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "kind: %d is no mha_norm", (int)o->kind);
    if (!(o->epsilon > 0 && o->epsilon < INFINITY))
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "epsilon: must be finite and above 0");
    if (!mha_is_given(o->gain)) return mha_fail(ctx, MHA_BAD_ARGUMENT, "gain: is none; a norm has one for each column");
    TRY(check_vector(ctx, &o->gain, "gain", W, MHA_INPUT));
    return mha_is_given(o->bias) ? check_vector(ctx, &o->bias, "bias", W, MHA_INPUT) : MHA_OK;
}

static mha_status check_matrix(mha_context *ctx, mha_tensor *t, const char *name, mha_tensor x, mha_role role)
{
    TRY(mha_check_dense(ctx, t, name, 2, "(rows,W)", role));
    return mha_check_like(ctx, *t, name, x, "x");
}

static mha_status check_kept(mha_context *ctx, mha_tensor *kept, mha_tensor x, mha_role role)
{
    TRY(mha_check_dense(ctx, kept, "kept", 2, "(rows,2)", role));
    TRY(mha_check_size(ctx, *kept, "kept", 0, x.size[0], "rows of x"));
    return mha_check_size(ctx, *kept, "kept", 1, 2, "a mean and an inverse root");
}

static mha_tensor as_heads(mha_tensor t)
{
    return t.rank ? mha_tensor_4d(t.data, MHA_FLOAT32, 1, 1, t.size[0], t.size[1]) : t;
}

static mha_norm_about about(const mha_norm_options *o)
{
    return (mha_norm_about){
        .gain = o->gain, .bias = o->bias, .epsilon = o->epsilon, .centred = o->kind == MHA_NORM_LAYER};
}

/* With r if `add`. */
static mha_status forward(mha_context *ctx, mha_tensor y, mha_tensor kept, mha_tensor x, mha_tensor r, bool add,
                          const mha_norm_options *options)
{
    mha_norm_options o;
    mha_tensor none = MHA_NO_TENSOR;
    mha_succeed(ctx);
    TRY(mha_check_dense(ctx, &x, "x", 2, "(rows,W)", add ? MHA_OUTPUT : MHA_INPUT));
    TRY(check_matrix(ctx, &y, "y", x, MHA_OUTPUT));
    if (add) TRY(check_matrix(ctx, &r, "r", x, MHA_INPUT));
    if (mha_is_given(kept)) TRY(check_kept(ctx, &kept, x, MHA_OUTPUT));
    else kept = none;
    TRY(take_options(ctx, &o, options, x.size[1]));
    const mha_argument all[] = {{"y", y, MHA_OUTPUT},
                                {"kept", kept, MHA_OUTPUT},
                                {"x", add ? x : mha_unless_same(x, y), add ? MHA_OUTPUT : MHA_INPUT},
                                {"r", r, MHA_INPUT},
                                {"gain", o.gain, MHA_INPUT},
                                {"bias", o.bias, MHA_INPUT}};
    TRY(MHA_CHECK_APART(ctx, all));
    mha_norm_about norm = about(&o);
    ctx->backend->normalize(ctx, as_heads(y), kept, as_heads(x), as_heads(r), &norm);
    return mha_call_end(ctx);
}

mha_status mha_norm_forward(mha_context *ctx, mha_tensor y, mha_tensor kept, mha_tensor x,
                            const mha_norm_options *options)
{
    mha_tensor none = MHA_NO_TENSOR;
    return ctx ? forward(ctx, y, kept, x, none, false, options) : MHA_BAD_ARGUMENT;
}

mha_status mha_norm_forward_add(mha_context *ctx, mha_tensor y, mha_tensor kept, mha_tensor x, mha_tensor r,
                                const mha_norm_options *options)
{
    return ctx ? forward(ctx, y, kept, x, r, true, options) : MHA_BAD_ARGUMENT;
}

mha_status mha_norm_backward(mha_context *ctx, const mha_norm_gradients *gradients, mha_tensor dy, mha_tensor x,
                             mha_tensor kept, const mha_norm_options *options)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_norm_options o;
    mha_succeed(ctx);
    if (!gradients) return mha_fail(ctx, MHA_BAD_ARGUMENT, "gradients: is NULL");
    mha_norm_gradients g = *gradients;
    TRY(mha_check_dense(ctx, &x, "x", 2, "(rows,W)", MHA_INPUT));
    TRY(check_matrix(ctx, &dy, "dy", x, MHA_INPUT));
    TRY(check_kept(ctx, &kept, x, MHA_INPUT));
    TRY(check_matrix(ctx, &g.x, "gradients.x", x, MHA_OUTPUT));
    if (mha_is_given(g.gain)) TRY(check_vector(ctx, &g.gain, "gradients.gain", x.size[1], MHA_OUTPUT));
    if (mha_is_given(g.bias)) TRY(check_vector(ctx, &g.bias, "gradients.bias", x.size[1], MHA_OUTPUT));
    TRY(take_options(ctx, &o, options, x.size[1]));
    const mha_argument all[] = {{"gradients.x", g.x, MHA_OUTPUT},
                                {"gradients.gain", g.gain, MHA_OUTPUT},
                                {"gradients.bias", g.bias, MHA_OUTPUT},
                                {"dy", g.accumulate ? dy : mha_unless_same(dy, g.x), MHA_INPUT},
                                {"x", x, MHA_INPUT},
                                {"kept", kept, MHA_INPUT},
                                {"gain", o.gain, MHA_INPUT},
                                {"bias", o.bias, MHA_INPUT}};
    TRY(MHA_CHECK_APART(ctx, all));
    size_t bytes = mha_is_given(g.gain) || mha_is_given(g.bias)
                       ? ctx->backend->partial_bytes(x.size[0], 2 * x.size[1]) + MHA_ALIGNMENT
                       : 0;
    TRY(mha_memory_reserve(ctx, &ctx->room, bytes));
    mha_norm_about norm = about(&o);
    mha_norm_back to = {as_heads(g.x), g.accumulate, g.gain, g.bias};
    ctx->backend->normalize_back(ctx, &to, as_heads(dy), as_heads(x), kept, &norm, (float *)(void *)ctx->room.start);
    return mha_call_end(ctx);
}
