/* Calls for the kernels for float32: a block for each tile of rows, or of keys, of a head. */
#include "cuda/attention/attention.h"

mha_status mha_cuda_float32_start(const mha_problem *p, const mha_cuda_row *row, mha_cuda_kernel kernel,
                                  const mha_cuda_general *c, int64_t lines, int64_t heads)
{
    const int64_t size = row->pass == MHA_CUDA_FORWARD ? row->rows : row->keys;
    mha_cuda_launch l = {kernel, (lines + size - 1) / size * heads * p->B, row->threads, mha_cuda_row_shared(row)};
    return mha_cuda_start(p->ctx, &l, c);
}

mha_status mha_cuda_float32_forward(const mha_problem *p, const mha_cuda_choice *choice, mha_arena *arena, bool run)
{
    const mha_cuda_general c = mha_cuda_describe_general(p);
    (void)arena;
    return run ? mha_cuda_float32_start(p, choice->row, choice->row->kernel, &c, c.Tq, p->H) : MHA_OK;
}
