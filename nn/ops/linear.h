/* A linear layer, forward and backward: products of mha_matmul. */
#ifndef NN_OPS_LINEAR_H
#define NN_OPS_LINEAR_H

#include <mha_ops.h>

/* y (rows,N) = activation(x (rows,K) w^T + b)    or, with `add`,    y = activation(y + x w^T + b)
 *
 *   w (N,K)   b (N) or none
 *
 * Tensors of rank 2 of any float type and stride; bfloat16 x and w use the matrix engine, if available. Returns the
 * same as mha_matmul. */
mha_status nn_linear_forward(mha_context *ctx, mha_tensor y, mha_tensor x, mha_tensor w, mha_tensor b,
                             mha_activation activation, bool add);

/* The gradients of a linear layer to compute; a zeroed member is not computed. */
typedef struct nn_linear_gradients {
    mha_tensor dx; /* (rows,K)   dy w, */
    bool add;      /*            added to the previous contents */
    mha_tensor dw; /* (N,K)      += dy^T x */
    float *db;     /* (N)        += the sum of the rows of dy */
} nn_linear_gradients;

/* From dy (rows,N), the gradient of x w^T + b (before an activation). Returns the same as mha_matmul. */
mha_status nn_linear_backward(mha_context *ctx, const nn_linear_gradients *gradients, mha_tensor dy, mha_tensor x,
                              mha_tensor w);

#endif
