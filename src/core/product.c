/* The public edge of the matrix product: every rule about its arguments. The device of the context does the rest. */
#include "core/options.h"
#include "core/tensor.h"

typedef long long ll;

static mha_status check_size(mha_context *ctx, mha_tensor t, const char *name, int axis, int64_t want, const char *why)
{
    if (t.size[axis] != want)
        return mha_fail(ctx, MHA_BAD_SHAPE, "%s: axis %d is %lld, must be %lld (%s)", name, axis, (ll)t.size[axis],
                        (ll)want, why);
    return MHA_OK;
}

/* All but b (K,N), which lies at `right`. Fills in the options. */
static mha_status check(mha_context *ctx, mha_tensor *c, mha_tensor *a, int64_t K, int64_t N, mha_tensor right,
                        mha_matmul_options *o, const mha_matmul_options *options)
{
    *o = (mha_matmul_options)MHA_MATMUL_DEFAULTS;
    TRY(mha_options_take(ctx, o, sizeof *o, options, "MHA_MATMUL_DEFAULTS"));
    TRY(mha_check_float(ctx, c, "c", 2, "(M,N)", MHA_OUTPUT));
    TRY(mha_check_float(ctx, a, "a", 2, "(M,K)", MHA_INPUT));
    TRY(check_size(ctx, *a, "a", 1, K, "K of b"));
    TRY(check_size(ctx, *c, "c", 0, a->size[0], "M of a"));
    TRY(check_size(ctx, *c, "c", 1, N, "N of b"));
    if (!isfinite(o->alpha)) return mha_fail(ctx, MHA_BAD_ARGUMENT, "alpha: must be finite");
    if ((unsigned)o->activation > MHA_RELU_SQUARED)
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "activation: %d is not an activation", (int)o->activation);
    if (mha_is_given(o->bias)) {
        TRY(mha_check_float(ctx, &o->bias, "bias", 1, "(N)", MHA_INPUT));
        TRY(check_size(ctx, o->bias, "bias", 0, N, "N of b"));
    }
    const mha_argument all[] = {
        {"c", *c, MHA_OUTPUT}, {"a", *a, MHA_INPUT}, {"b", right, MHA_INPUT}, {"bias", o->bias, MHA_INPUT}};
    return MHA_CHECK_APART(ctx, all);
}

mha_status mha_matmul(mha_context *ctx, mha_tensor c, mha_tensor a, mha_tensor b, const mha_matmul_options *options)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_matmul_options o;
    mha_succeed(ctx);
    TRY(mha_check_float(ctx, &b, "b", 2, "(K,N)", MHA_INPUT));
    TRY(check(ctx, &c, &a, b.size[0], b.size[1], b, &o, options));
    return ctx->backend->matmul(ctx, c, a, b, &o);
}

mha_status mha_matmul_packed(mha_context *ctx, mha_tensor c, mha_tensor a, const void *packed,
                             const mha_matmul_options *options)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_packed_about about;
    mha_matmul_options o;
    mha_succeed(ctx);
    TRY(mha_need_host(ctx, "mha_matmul_packed"));
    if (!packed) return mha_fail(ctx, MHA_BAD_ARGUMENT, "packed: is NULL");
    TRY(ctx->backend->packed_about(ctx, &about, packed));
    TRY(check(ctx, &c, &a, about.K, about.N, about.memory, &o, options));
    if (a.type != about.a)
        return mha_fail(ctx, MHA_BAD_TYPE, "a: is %s, b was packed for one that is %s", mha_type_name(a.type),
                        mha_type_name(about.a));
    return ctx->backend->matmul_packed(ctx, c, a, packed, &o);
}

static mha_status size_packed(mha_context *ctx, size_t *bytes, mha_tensor *b, mha_type a, mha_role role)
{
    TRY(mha_need_host(ctx, "mha_matmul_pack"));
    TRY(mha_check_float(ctx, b, "b", 2, "(K,N)", role));
    if (!mha_is_float(a))
        return mha_fail(ctx, MHA_BAD_TYPE, "a: is to be %s, must be float32, bfloat16 or float16", mha_type_name(a));
    return ctx->backend->pack_size(ctx, bytes, *b, a);
}

mha_status mha_matmul_pack_size(mha_context *ctx, size_t *bytes, mha_tensor b, mha_type a)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_succeed(ctx);
    if (!bytes) return mha_fail(ctx, MHA_BAD_ARGUMENT, "bytes: is NULL");
    return size_packed(ctx, bytes, &b, a, MHA_SHAPE);
}

mha_status mha_matmul_pack(mha_context *ctx, void *packed, size_t bytes, mha_tensor b, mha_type a)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    size_t needed = 0;
    mha_succeed(ctx);
    TRY(size_packed(ctx, &needed, &b, a, MHA_INPUT));
    if (!packed) return mha_fail(ctx, MHA_BAD_ARGUMENT, "packed: is NULL");
    if (bytes < needed) return mha_fail(ctx, MHA_BAD_ARGUMENT, "packed: has %zu bytes, needs %zu", bytes, needed);
    const mha_argument all[] = {{"packed", mha_tensor_1d(packed, MHA_BOOL, (int64_t)needed), MHA_OUTPUT},
                                {"b", b, MHA_INPUT}};
    TRY(MHA_CHECK_APART(ctx, all));
    return ctx->backend->pack(ctx, packed, b, a);
}
