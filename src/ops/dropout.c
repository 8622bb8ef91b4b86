/* The public edge of dropout, and the block of random numbers. */
#include "core/philox.h"
#include "ops/check.h"

static mha_status check_rate(mha_context *ctx, float rate, const char *name)
{
    if (!(rate >= 0 && rate < 1))
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "%s: is %g, must be from 0 to below 1", name, (double)rate);
    return MHA_OK;
}

mha_status mha_dropout(mha_context *ctx, mha_tensor to, mha_tensor from, const mha_dropout_options *options)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_dropout_options o = MHA_DROPOUT_DEFAULTS;
    mha_succeed(ctx);
    TRY(mha_options_take(ctx, &o, sizeof o, options, "MHA_DROPOUT_DEFAULTS"));
    TRY(check_rate(ctx, o.drop, "drop"));
    TRY(check_rate(ctx, o.path, "path"));
    TRY(mha_check_dense(ctx, &to, "to", 3, "(B,T,W)", MHA_OUTPUT));
    TRY(mha_check_dense(ctx, &from, "from", 3, "(B,T,W)", MHA_INPUT));
    TRY(mha_check_like(ctx, from, "from", to, "to"));
    if (mha_element_count(to) && to.size[1] * to.size[2] > INT64_C(1) << 35)
        return mha_fail(ctx, MHA_TOO_LARGE, "to: a sequence has over 2^35 numbers");
    const mha_argument all[] = {{"to", to, MHA_OUTPUT}, {"from", mha_unless_same(from, to), MHA_INPUT}};
    TRY(MHA_CHECK_APART(ctx, all));
    ctx->backend->dropout(ctx, to, from, &o);
    return mha_call_end(ctx);
}

void mha_random_block(uint32_t block[4], uint64_t key, const uint32_t counter[4])
{
    if (!block || !counter) return;
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    mha_philox(c, key);
    for (int i = 0; i < 4; i++) block[i] = c[i];
}
