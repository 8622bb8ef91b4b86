/* A linear layer: three products, all by mha_matmul, and a sum of rows. */
#include "ops/linear.h"

mha_status nn_linear_forward(mha_context *ctx, mha_tensor y, mha_tensor x, mha_tensor w, mha_tensor b,
                             mha_activation activation, bool add)
{
    mha_matmul_options options = {sizeof options, 1.0f, add, b, activation};
    return mha_matmul(ctx, y, x, mha_tensor_swap(w, 0, 1), &options);
}

mha_status nn_linear_backward(mha_context *ctx, const nn_linear_gradients *gradients, mha_tensor dy, mha_tensor x,
                              mha_tensor w)
{
    mha_matmul_options add = MHA_MATMUL_DEFAULTS;
    mha_status status = MHA_OK;
    add.accumulate = true;
    if (gradients->dx.rank) status = mha_matmul(ctx, gradients->dx, dy, w, gradients->add ? &add : NULL);
    if (!status && gradients->dw.rank) status = mha_matmul(ctx, gradients->dw, mha_tensor_swap(dy, 0, 1), x, &add);
    if (!status && gradients->db) status = mha_sum_rows(ctx, mha_tensor_1d(gradients->db, MHA_FLOAT32, dy.size[1]), dy);
    return status;
}
