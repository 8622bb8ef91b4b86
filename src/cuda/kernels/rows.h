/* What the small kernels of rows are told; the same for the host and the device. */
#ifndef MHA_CUDA_ROWS_H
#define MHA_CUDA_ROWS_H

#include "view.h"

/* to = from, or to += from; from none: zeros. Both have the sizes of `to`. With `quads`, fours of numbers of the last axis lie
 * side by side, aligned. */
typedef struct mha_cuda_copy {
    mha_cuda_view to, from;
    int32_t add, quads;
} mha_cuda_copy;

#endif
