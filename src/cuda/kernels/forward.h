/* What the forward kernels are told; the same for the host and the device. */
#ifndef MHA_CUDA_FORWARD_H
#define MHA_CUDA_FORWARD_H

#include "spans.h"
#include <cuda.h>
#include <stdint.h>

typedef struct mha_cuda_forward {
    CUtensorMap q, k, v, o; /* (B,H,T,D), in boxes of 64 columns */
    int32_t *counter;       /* 0; tiles that blocks take beyond their first */
    float scale;            /* of scores, times log2(e); above 0 */
    int32_t Tq, Tk, H, B;
    int32_t D, E;        /* widths: up to that of the kernel */
    int32_t group;       /* query heads of a key head */
    int32_t left, right; /* row i sees keys from i + left to i + right */
    int32_t offset;      /* for the kernels with options: of rows to keys */
    int32_t row_tiles;   /* of a head */
    int32_t section;     /* heads that are worked on together */
    int32_t tiles;       /* of all heads */
    mha_cuda_rows queries, keys, values;
    mha_cuda_view lse, softmax; /* float32 (B,H,Tq,1) and (B,H,Tq,2), or none */

    /* For all kernels but the plain ones. */
    mha_cuda_rows results;      /* out */
    const mha_cuda_span *spans; /* the tiles of rows of all sequences; NULL: sequences are alike */
    const int32_t *span_count;
    float scale_after;               /* of scores once they are modified: 1, or scale if nothing is */
    int32_t modified;                /* whether there is a cap or a slope */
    float cap, cap_inverse;          /* times log2(e), and 2 log2(e) scale / softcap; or 0 */
    const float *slopes;             /* or NULL */
    int64_t slope_batch, slope_head; /* strides */
    const float *sinks;              /* or NULL */
    int64_t sink_head;               /* stride */
    int32_t *lost;                   /* (B,H,row_tiles * rows of a tile / 64): rows whose results are not finite */
    int32_t *any_lost;               /* with spans: whether there are any */

    /* For the kernels with maps and those with bits. */
    CUtensorMap bias_map;          /* of bias, in boxes of 64 rows and 128 bytes */
    mha_cuda_view bias, mask;      /* (B,H,Tq,Tk), stride 0 where they broadcast; or none */
    int32_t bias_stages;           /* tiles of bias in shared memory; 0: it is read as it is */
    int32_t bias_batch, bias_head; /* 0 or 1: whether it has more than one */
    int32_t mask_pairs;            /* two keys that lie side by side can be read together */
    float bias_by;                 /* what it is multiplied by before it is added to scores */
    float kept;                    /* 1 / (1 - dropout) */
    uint64_t dropped;              /* weights whose number is less are dropped */
    uint64_t seed, stream;
    int32_t mask_fours, mask_sixteens; /* for those with bits: so many keys can be read together */
} mha_cuda_forward;

#endif
