/* Calls for the forward kernels for float32: one launch, a block for each 64 rows of a head. */
#include "cuda/attention.h"
#include "cuda/device.h"

mha_cuda_kernel mha_cuda_float32_kernel(const mha_problem *p)
{
    bool wide = p->D > 64 || p->E > 64;
    return wide ? MHA_CUDA_K_forward_f32_128 : MHA_CUDA_K_forward_f32_64;
}

mha_status mha_cuda_float32_forward(const mha_problem *p, mha_arena *arena, bool run)
{
    const mha_cuda_kernel kernel = mha_cuda_float32_kernel(p);
    const mha_cuda_tile tile = mha_cuda_kernel_tile(kernel);
    const mha_cuda_general c = mha_cuda_describe_general(p);
    mha_cuda_launch l = {mha_cuda_of(p->ctx)->kernels[kernel], mha_cuda_kernel_name(kernel), c.row_tiles * p->H * p->B,
                         tile.threads, tile.shared};
    (void)arena;
    return run ? mha_cuda_start(p->ctx, &l, &c) : MHA_OK;
}
