/* What the operations of the layer and of mha_ops.h on a GPU have in common: core/backend.h says what each of them computes. */
#ifndef MHA_CUDA_OPS_OPS_H
#define MHA_CUDA_OPS_OPS_H

#include "attention/extra_keys.h"
#include "attention/rotary.h"
#include "cuda/device/device.h"

/* Starts a kernel for an operation without a status, with so many blocks; what goes wrong is told by mha_cuda_op_finish. */
void mha_cuda_run(mha_context *ctx, mha_cuda_kernel kernel, const void *parameter, int64_t blocks);

/* The same with one thread for each of `count` numbers. */
void mha_cuda_run_each(mha_context *ctx, mha_cuda_kernel kernel, const void *parameter, int64_t count);

/* Remembers an error for mha_cuda_op_finish; false if it is one. */
bool mha_cuda_note(mha_context *ctx, mha_status status);

/* to (columns) += the sum of partials (chunks,pitch). */
void mha_cuda_add_partials(mha_context *ctx, mha_tensor to, const float *partials, int64_t chunks, int64_t pitch);

/* The bytes of dynamic shared memory of the kernels of products; 0 of others. */
size_t mha_cuda_product_shared(mha_cuda_kernel kernel);

#endif
