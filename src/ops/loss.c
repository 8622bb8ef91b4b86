/* The public edge of cross-entropy. Labels may lie on a device: the device judges them. */
#include "ops/check.h"

mha_status mha_cross_entropy(mha_context *ctx, mha_loss *loss, mha_tensor dlogits, mha_tensor logits, mha_tensor labels,
                             const mha_loss_options *options)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_loss_options o = MHA_LOSS_DEFAULTS;
    mha_tensor none = MHA_NO_TENSOR;
    mha_succeed(ctx);
    if (!loss) return mha_fail(ctx, MHA_BAD_ARGUMENT, "loss: is NULL");
    TRY(mha_options_take(ctx, &o, sizeof o, options, "MHA_LOSS_DEFAULTS"));
    if (!(o.smoothing >= 0 && o.smoothing <= 1))
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "smoothing: is %g, must be from 0 to 1", (double)o.smoothing);
    TRY(mha_check_dense(ctx, &logits, "logits", 2, "(rows,N)", MHA_INPUT));
    TRY(mha_check_ids(ctx, &labels, "labels", 1, "(rows)"));
    TRY(mha_check_size(ctx, labels, "labels", 0, logits.size[0], "rows of logits"));
    if (mha_is_given(dlogits)) {
        TRY(mha_check_dense(ctx, &dlogits, "dlogits", 2, "(rows,N)", MHA_OUTPUT));
        TRY(mha_check_like(ctx, dlogits, "dlogits", logits, "logits"));
    } else dlogits = none;
    const mha_argument all[] = {
        {"dlogits", dlogits, MHA_OUTPUT}, {"logits", logits, MHA_INPUT}, {"labels", labels, MHA_INPUT}};
    TRY(MHA_CHECK_APART(ctx, all));
    return ctx->backend->cross_entropy(ctx, loss, dlogits, logits, labels, o.smoothing);
}
