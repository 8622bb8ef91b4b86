/* Calls for the kernels for float32: a block for each tile of rows, or of keys, of a head. */
#include "cuda/attention.h"
#include "cuda/device.h"

static bool is_wide(const mha_problem *p) { return p->D > 64 || p->E > 64; }

mha_cuda_kernel mha_cuda_float32_kernel(const mha_problem *p)
{
    return is_wide(p) ? MHA_CUDA_K_forward_f32_128 : MHA_CUDA_K_forward_f32_64;
}

mha_cuda_kernel mha_cuda_float32_keys_kernel(const mha_problem *p)
{
    return is_wide(p) ? MHA_CUDA_K_backward_f32_keys_128 : MHA_CUDA_K_backward_f32_keys_64;
}

/* For `heads` heads of `lines` rows or keys each. */
static mha_status start(const mha_problem *p, mha_cuda_kernel kernel, const mha_cuda_general *c, int64_t lines,
                        int64_t heads)
{
    const mha_cuda_tile tile = mha_cuda_kernel_tile(kernel);
    mha_cuda_launch l = {mha_cuda_of(p->ctx)->kernels[kernel], mha_cuda_kernel_name(kernel),
                         (lines + tile.rows - 1) / tile.rows * heads * p->B, tile.threads, tile.shared};
    return mha_cuda_start(p->ctx, &l, c);
}

mha_status mha_cuda_float32_forward(const mha_problem *p, mha_arena *arena, bool run)
{
    const mha_cuda_general c = mha_cuda_describe_general(p);
    (void)arena;
    return run ? start(p, mha_cuda_float32_kernel(p), &c, c.Tq, p->H) : MHA_OK;
}

mha_status mha_cuda_float32_rows(const mha_problem *p, const mha_cuda_general *c)
{
    return start(p, is_wide(p) ? MHA_CUDA_K_backward_f32_rows_128 : MHA_CUDA_K_backward_f32_rows_64, c, c->Tq, p->H);
}

mha_status mha_cuda_float32_keys(const mha_problem *p, const mha_cuda_general *c)
{
    return start(p, mha_cuda_float32_keys_kernel(p), c, c->Tk, p->G);
}
