/* The public edge of sums. */
#include "ops/check.h"

mha_status mha_add(mha_context *ctx, mha_tensor x, mha_tensor r)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_succeed(ctx);
    if (x.rank < 1 || x.rank > 4) return mha_fail(ctx, MHA_BAD_SHAPE, "x: has rank %d, must be from 1 to 4", x.rank);
    TRY(mha_check_float(ctx, &x, "x", x.rank, "", MHA_OUTPUT));
    TRY(mha_check_float(ctx, &r, "r", x.rank, "as x", MHA_INPUT));
    TRY(mha_check_like(ctx, r, "r", x, "x"));
    const mha_argument all[] = {{"x", x, MHA_OUTPUT}, {"r", r, MHA_INPUT}};
    TRY(MHA_CHECK_APART(ctx, all));
    ctx->backend->copy(ctx, x, r, true);
    return mha_call_end(ctx);
}

mha_status mha_sum_rows(mha_context *ctx, mha_tensor sum, mha_tensor y)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_succeed(ctx);
    TRY(mha_check_float(ctx, &y, "y", 2, "(rows,N)", MHA_INPUT));
    TRY(mha_check_tensor(ctx, &sum, "sum", 1, "(N)", MHA_OUTPUT));
    if (sum.type != MHA_FLOAT32)
        return mha_fail(ctx, MHA_BAD_TYPE, "sum: is %s, must be float32", mha_type_name(sum.type));
    TRY(mha_check_size(ctx, sum, "sum", 0, y.size[1], "N of y"));
    const mha_argument all[] = {{"sum", sum, MHA_OUTPUT}, {"y", y, MHA_INPUT}};
    TRY(MHA_CHECK_APART(ctx, all));
    TRY(mha_memory_reserve(ctx, &ctx->room, ctx->backend->partial_bytes(y.size[0], y.size[1]) + MHA_ALIGNMENT));
    ctx->backend->sum_rows(ctx, sum, y, (float *)(void *)ctx->room.start);
    return mha_call_end(ctx);
}
