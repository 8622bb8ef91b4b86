/* What the decode kernels are told; the same for the host and the device. */
#ifndef MHA_CUDA_DECODE_H
#define MHA_CUDA_DECODE_H

#include "general.h"
#include "schedule.h"
#include <cuda.h>

typedef struct mha_cuda_decode {
    CUtensorMap k, v; /* (B,G,Tk,D) and (B,G,Tk,E), in boxes of 64 columns and MHA_CUDA_DECODE_TILE rows */
    mha_cuda_general g;
    int32_t splits; /* of the keys of a head; blocks of a head, and splits that each has in a row; or, */
    int32_t blocks, units;
    int32_t
        slots; /* if keys lie packed, of all sequences of a key head (schedule.h), of mha_cuda_decode_least keys; or 0 */
    int32_t first_head;     /* of the launch, of the key heads of all sequences */
    int32_t heads;          /* so many it has */
    int32_t alike;          /* whether sequences are, so that nothing has to be read to know where they lie */
    mha_cuda_limits limits; /* of the call: other sequences are left out */
    const int32_t *count;   /* how many sequences are not; or NULL */
    int32_t room;           /* rows of a key head that there is memory for */
    int32_t *counters;      /* zeros, one for each key head of the launch: its blocks that are done */
    float *
        sums; /* (B,G,splits,room,W) or (G,slots,room,W): weighted values of a block, with W columns of the kernel, and */
    float *softmax; /* likewise, (...,room,2): reference and sum of its weights */
} mha_cuda_decode;

#endif
