#include "cuda/attention/small_plan.h"

/* Longer sequences have other kernels. */
static int64_t at_most(int64_t length) { return length < MHA_CUDA_SMALL_LENGTH ? length : MHA_CUDA_SMALL_LENGTH; }

mha_cuda_small_plan mha_cuda_plan_small(const mha_problem *p, bool backward)
{
    enum { ROWS = MHA_CUDA_SMALL_ROWS, GAP = 8, BYTES = 2 }; /* GAP: numbers between rows in shared memory */
    const int64_t most_rows = at_most(mha_cuda_most_of(p, 2)), most_keys = at_most(mha_cuda_most_of(p, 3));
    const int64_t rows = (most_rows + ROWS - 1) / ROWS, keys = (most_keys + ROWS - 1) / ROWS;
    const int of_sequences =
        mha_cuda_has_spans(p) ? MHA_CUDA_K_small_forward_bf16_16_sequences - MHA_CUDA_K_small_forward_bf16_16 : 0;
    const int wide = p->D > 16 || p->E > 16, half = p->q.type == MHA_FLOAT16;
    const size_t step = ROWS * BYTES * (size_t)((wide ? 32 : 16) + GAP); /* bytes of the rows of a warp */
    mha_cuda_plan plan;
    mha_cuda_plan_forward(&plan, p);
    mha_cuda_small_plan small = {.offset = plan.right};
    if (backward) { /* K, V, Q and dO; lse and delta */
        small.kernel = (mha_cuda_kernel)(MHA_CUDA_K_small_backward_bf16_16 + 2 * half + wide + of_sequences);
        small.blocks = p->B * p->G, small.threads = (int)(32 * (rows + keys));
        small.shared = (size_t)(2 * (keys + rows)) * step + (size_t)(2 * rows * ROWS) * sizeof(float);
    } else { /* all warps copy K, V and Q */
        small.kernel = (mha_cuda_kernel)(MHA_CUDA_K_small_forward_bf16_16 + 2 * half + wide + of_sequences);
        small.blocks = p->B * p->H, small.threads = (int)(32 * (rows > keys ? rows : keys));
        small.shared = (size_t)(2 * keys + rows) * step;
    }
    return small;
}
