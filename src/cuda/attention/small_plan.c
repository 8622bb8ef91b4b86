#include "cuda/attention/small_plan.h"

/* What the kernels of Hopper can do, and these cannot. */
static const char *obstacle(const mha_problem *p)
{
    mha_cuda_plan plan;
    if (p->D > MHA_CUDA_SMALL_WIDTH || p->E > MHA_CUDA_SMALL_WIDTH) return "more than 32 columns";
    if (p->Tq > MHA_CUDA_SMALL_LENGTH || p->Tk > MHA_CUDA_SMALL_LENGTH) return "more than 128 rows or keys";
    if (p->options.window_left != MHA_UNLIMITED || p->options.window_right != MHA_UNLIMITED) return "a window";
    mha_cuda_plan_forward(&plan, p);
    return plan.kind >= MHA_CUDA_OPTIONS ? "options" : NULL;
}

const char *mha_cuda_small_obstacle(const mha_problem *p)
{
    const char *why = mha_cuda_obstacle(p);
    return why ? why : obstacle(p);
}

const char *mha_cuda_small_obstacle_backward(const mha_gradient_call *call)
{
    const char *why = mha_cuda_obstacle_backward(call);
    return why ? why : obstacle(&call->problem);
}

mha_cuda_small_plan mha_cuda_plan_small(const mha_problem *p, bool backward)
{
    enum { ROWS = MHA_CUDA_SMALL_ROWS, GAP = 8, BYTES = 2 }; /* GAP: numbers between rows in shared memory */
    const int64_t rows = (p->Tq + ROWS - 1) / ROWS, keys = (p->Tk + ROWS - 1) / ROWS;
    const int wide = p->D > 16 || p->E > 16, half = p->q.type == MHA_FLOAT16;
    const size_t step = ROWS * BYTES * (size_t)((wide ? 32 : 16) + GAP); /* bytes of the rows of a warp */
    mha_cuda_plan plan;
    mha_cuda_plan_forward(&plan, p);
    mha_cuda_small_plan small = {.offset = plan.right};
    if (backward) { /* K, V, Q and dO; lse and delta */
        small.kernel = (mha_cuda_kernel)(MHA_CUDA_K_small_backward_bf16_16 + 2 * half + wide);
        small.blocks = p->B * p->G, small.threads = (int)(32 * (rows + keys));
        small.shared = (size_t)(2 * (keys + rows)) * step + (size_t)(2 * rows * ROWS) * sizeof(float);
    } else { /* all warps copy K, V and Q */
        small.kernel = (mha_cuda_kernel)(MHA_CUDA_K_small_forward_bf16_16 + 2 * half + wide);
        small.blocks = p->B * p->H, small.threads = (int)(32 * (rows > keys ? rows : keys));
        small.shared = (size_t)(2 * keys + rows) * step;
    }
    return small;
}
