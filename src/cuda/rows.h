/* What the small kernels of rows are told; the same for the host and the device. */
#ifndef MHA_CUDA_ROWS_H
#define MHA_CUDA_ROWS_H

#include "view.h"

/* lse (B,H,Tq), dense, beside the tensors of a caller. */
typedef struct mha_cuda_softmax {
    float *lse;
    mha_cuda_view as_lse;     /* float32 (B,H,Tq,1) */
    mha_cuda_view as_softmax; /* float32 (B,H,Tq,2): a reference and the sum of exponentials relative to it */
    int64_t rows;             /* B*H*Tq */
} mha_cuda_softmax;

/* to = from, or to += from; from none: zeros. Both have the sizes of `to`. With `quads`, fours of numbers of the last axis lie
 * side by side, aligned. */
typedef struct mha_cuda_copy {
    mha_cuda_view to, from;
    int32_t add, quads;
} mha_cuda_copy;

#endif
