/* A tensor (B,H,T,D) in device memory whose numbers of a row lie side by side; strides in elements. */
#ifndef MHA_CUDA_VIEW_H
#define MHA_CUDA_VIEW_H

#include <stdint.h>

typedef struct mha_cuda_rows {
    void *data;
    int64_t batch, head, row;
} mha_cuda_rows;

#endif
