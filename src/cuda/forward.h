/* What the forward kernels are told; the same for the host and the device. */
#ifndef MHA_CUDA_FORWARD_H
#define MHA_CUDA_FORWARD_H

#include "view.h"
#include <cuda.h>
#include <stdint.h>

typedef struct mha_cuda_forward {
    CUtensorMap q, k, v, o; /* (B,H,T,D), in boxes of 64 columns */
    float *lse;             /* (B,H,Tq), or NULL */
    int32_t *counter;       /* 0; tiles that blocks take beyond their first */
    float scale;            /* of scores, times log2(e); above 0 */
    int32_t Tq, Tk, H, B;
    int32_t group;     /* query heads of a key head */
    int32_t offset;    /* row i sees keys up to i + offset */
    int32_t row_tiles; /* of a head */
    int32_t section;   /* heads that are worked on together */
    int32_t tiles;     /* of all heads */
    mha_cuda_rows queries, keys, values;

    /* For the kernels with options. */
    int32_t left, right;             /* row i sees keys from i + left to i + right */
    int32_t modified;                /* whether there is a cap or a slope */
    float cap, cap_inverse;          /* times log2(e), and 2 log2(e) scale / softcap; or 0 */
    const float *slopes;             /* or NULL */
    int64_t slope_batch, slope_head; /* strides */
    const float *sinks;              /* or NULL */
    int64_t sink_head;               /* stride */
    int32_t *lost;                   /* (B,H,row_tiles * rows of a tile / 64): rows whose results are not finite */
} mha_cuda_forward;

#endif
