/* What the decode kernels are told; the same for the host and the device. */
#ifndef MHA_CUDA_DECODE_H
#define MHA_CUDA_DECODE_H

#include "general.h"
#include <cuda.h>

typedef struct mha_cuda_decode {
    CUtensorMap k, v; /* (B,G,Tk,D) and (B,G,Tk,E), in boxes of 64 columns and MHA_CUDA_DECODE_TILE rows */
    mha_cuda_general g;
    int32_t splits;     /* blocks of a key head */
    int32_t first_head; /* of the launch, of the key heads of all sequences */
    int32_t alike;      /* whether sequences are, so that nothing has to be read to know where they lie */
    int32_t *counters;  /* zeros, one for each key head of the launch: its blocks that are done */
    float *sums;        /* (B,G,splits,share*Tq,W): weighted values of a block, with W columns of the kernel, and */
    float *softmax;     /* (B,G,splits,share*Tq,2): reference and sum of its weights */
} mha_cuda_decode;

#endif
