/* How the kernels of narrow heads and short sequences are started. Plain C without the driver, as
 * plan.h. */
#ifndef MHA_CUDA_SMALL_PLAN_H
#define MHA_CUDA_SMALL_PLAN_H

#include "cuda/attention/small.h"
#include "cuda/kernels.h"
#include "cuda/plan.h"

typedef struct mha_cuda_small_plan {
    mha_cuda_kernel kernel;
    int64_t blocks; /* one for each query head, or, backward, for each key head */
    int threads;    /* of a block */
    size_t shared;  /* bytes of shared memory of a block */
    int32_t offset; /* as mha_cuda_small has it */
} mha_cuda_small_plan;

/* The plan of a call that has sequences for these kernels. */
mha_cuda_small_plan mha_cuda_plan_small(const mha_problem *p, bool backward);

#endif
