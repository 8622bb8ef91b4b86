/* Tensors in device memory, for the host and the device; strides in elements. */
#ifndef MHA_CUDA_VIEW_H
#define MHA_CUDA_VIEW_H

#include <stdint.h>

/* (B,H,T,D) whose numbers of a row lie side by side. */
typedef struct mha_cuda_rows {
    void *data;
    int64_t batch, head, row;
} mha_cuda_rows;

/* Up to four axes of any type; missing axes are the last ones and have the size 1. */
typedef struct mha_cuda_view {
    void *data; /* NULL: none */
    int64_t size[4], stride[4];
    int32_t type; /* mha_type */
} mha_cuda_view;

#endif
