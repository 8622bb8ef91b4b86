/* The matrix product of projections and MLPs, with bias and activation in the same pass:
 *
 *     C = activation(alpha A B + bias)            or            C = activation(C + alpha A B + bias)
 *
 *   a (M,K)   b (K,N)   c (M,N)   bias (N)        each float32, bfloat16 or float16, sums in float32
 *
 * Two bfloat16 factors go to the matrix engine of the context's instruction set, where there is one.
 *
 * Strides are free, so A Bt is mha_tensor_swap(b, 0, 1) and At B is mha_tensor_swap(a, 0, 1); it is fastest when one of
 * the two strides is 1. c may not overlap anything else.
 *
 * The bits of an element depend on its row of a, its column of b, its bias and its old value alone: not on M or N, the
 * number of threads, the strides, or whether b was packed before. K = 0 gives activation(bias). */
#ifndef MHA_CPU_MATMUL_H
#define MHA_CPU_MATMUL_H

#include "cpu/kernels.h"

typedef struct mha_matmul_options {
    float alpha;
    bool accumulate; /* start from what c holds, not from zero */
    mha_tensor bias; /* (N), one for each column; or none */
    mha_activation activation;
} mha_matmul_options;

/* clang-format off */
#define MHA_MATMUL_DEFAULTS {1.0f, false, MHA_NO_TENSOR, MHA_LINEAR}
/* clang-format on */

/* C from a and b; `options` NULL means MHA_MATMUL_DEFAULTS. b is packed on the way, in blocks, in the context's
 * scratch. Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_OVERLAP, MHA_TOO_LARGE or
 * MHA_NO_MEMORY; on error nothing has been written. */
mha_status mha_matmul(mha_context *ctx, mha_tensor c, mha_tensor a, mha_tensor b, const mha_matmul_options *options);

/* Weights that serve many calls are packed once: ask for the size, give the memory (any alignment), pack for an a of
 * the type that is to come, and pass it in place of b. The packed form is what the kernels or the matrix engine of this
 * context's instruction set read; another one refuses it, and so does an a of another type. It may be read by any
 * number of threads, must not be moved, and needs no clean-up. */
mha_status mha_matmul_pack_size(mha_context *ctx, size_t *bytes, mha_tensor b, mha_type a); /* b may have no data */
mha_status mha_matmul_pack(mha_context *ctx, void *packed, size_t bytes, mha_tensor b, mha_type a);
mha_status mha_matmul_packed(mha_context *ctx, mha_tensor c, mha_tensor a, const void *packed,
                             const mha_matmul_options *options);

#endif
