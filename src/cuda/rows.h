/* What the small kernels of rows are told; the same for the host and the device. */
#ifndef MHA_CUDA_ROWS_H
#define MHA_CUDA_ROWS_H

#include <stdint.h>

/* A tensor of up to four axes; strides in elements. */
typedef struct mha_cuda_view {
    void *data; /* NULL: none */
    int64_t size[4], stride[4];
} mha_cuda_view;

/* lse (B,H,Tq), dense, beside the tensors of a caller. */
typedef struct mha_cuda_softmax {
    float *lse;
    mha_cuda_view as_lse;     /* float32 (B,H,Tq,1) */
    mha_cuda_view as_softmax; /* float32 (B,H,Tq,2): a reference and the sum of exponentials relative to it */
    int64_t rows;             /* B*H*Tq */
} mha_cuda_softmax;

#endif
