/* The public edge of activations, plain and gated. */
#include "ops/check.h"

mha_status mha_activation_forward(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z,
                                  mha_activation activation)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_tensor none = MHA_NO_TENSOR;
    mha_succeed(ctx);
    TRY(mha_check_activation(ctx, activation));
    TRY(mha_check_dense(ctx, &z, "z", 2, "(rows,N)", MHA_INPUT));
    TRY(mha_check_dense(ctx, &h, "h", 2, "(rows,N)", MHA_OUTPUT));
    TRY(mha_check_like(ctx, h, "h", z, "z"));
    if (mha_is_given(slope)) {
        TRY(mha_check_dense(ctx, &slope, "slope", 2, "(rows,N)", MHA_OUTPUT));
        TRY(mha_check_like(ctx, slope, "slope", z, "z"));
    } else slope = none;
    const mha_argument all[] = {{"h", h, MHA_OUTPUT},
                                {"slope", slope, MHA_OUTPUT},
                                {"z", mha_unless_same(mha_unless_same(z, h), slope), MHA_INPUT}};
    TRY(MHA_CHECK_APART(ctx, all));
    ctx->backend->activate(ctx, h, slope, z, activation);
    return mha_call_end(ctx);
}

mha_status mha_activation_backward(mha_context *ctx, mha_tensor dh, mha_tensor slope)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_succeed(ctx);
    TRY(mha_check_dense(ctx, &dh, "dh", 2, "(rows,N)", MHA_OUTPUT));
    TRY(mha_check_dense(ctx, &slope, "slope", 2, "(rows,N)", MHA_INPUT));
    TRY(mha_check_like(ctx, slope, "slope", dh, "dh"));
    const mha_argument all[] = {{"dh", dh, MHA_OUTPUT}, {"slope", slope, MHA_INPUT}};
    TRY(MHA_CHECK_APART(ctx, all));
    ctx->backend->activate_back(ctx, dh, slope);
    return mha_call_end(ctx);
}

/* Twice as wide as h (rows,N). */
static mha_status check_gates(mha_context *ctx, mha_tensor *t, const char *name, mha_tensor h, const char *h_name,
                              mha_role role)
{
    TRY(mha_check_dense(ctx, t, name, 2, "(rows,2N)", role));
    TRY(mha_check_size(ctx, *t, name, 0, h.size[0], h_name));
    return mha_check_size(ctx, *t, name, 1, 2 * h.size[1], "2N");
}

mha_status mha_gated_forward(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z, mha_activation activation)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_tensor none = MHA_NO_TENSOR;
    mha_succeed(ctx);
    TRY(mha_check_activation(ctx, activation));
    TRY(mha_check_dense(ctx, &h, "h", 2, "(rows,N)", MHA_OUTPUT));
    TRY(check_gates(ctx, &z, "z", h, "rows of h", MHA_INPUT));
    if (mha_is_given(slope)) TRY(check_gates(ctx, &slope, "slope", h, "rows of h", MHA_OUTPUT));
    else slope = none;
    const mha_argument all[] = {
        {"h", h, MHA_OUTPUT}, {"slope", slope, MHA_OUTPUT}, {"z", mha_unless_same(z, slope), MHA_INPUT}};
    TRY(MHA_CHECK_APART(ctx, all));
    ctx->backend->activate_gated(ctx, h, slope, z, activation);
    return mha_call_end(ctx);
}

mha_status mha_gated_backward(mha_context *ctx, mha_tensor slope, mha_tensor dh)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_succeed(ctx);
    TRY(mha_check_dense(ctx, &dh, "dh", 2, "(rows,N)", MHA_INPUT));
    TRY(check_gates(ctx, &slope, "slope", dh, "rows of dh", MHA_OUTPUT));
    const mha_argument all[] = {{"slope", slope, MHA_OUTPUT}, {"dh", dh, MHA_INPUT}};
    TRY(MHA_CHECK_APART(ctx, all));
    ctx->backend->activate_gated_back(ctx, slope, dh);
    return mha_call_end(ctx);
}
