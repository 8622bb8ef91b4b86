/* Which kernels a call has: one kind of them, or, where sequences are not alike, those of each way that one of them may go
 * (schedule.h). Plain C without the driver, as plan.h. */
#ifndef MHA_CUDA_WAYS_H
#define MHA_CUDA_WAYS_H

#include "attention/gradient.h"
#include "cuda/schedule.h"

/* The ways that there are for the sequences of a call. */
mha_cuda_ways mha_cuda_ways_forward(const mha_problem *p);
mha_cuda_ways mha_cuda_ways_backward(const mha_problem *p); /* of one without obstacles */

/* A bit for each that one of its sequences may go. */
unsigned mha_cuda_ways_among(const mha_problem *p, mha_cuda_ways ways);

#define MHA_CUDA_BIT(way) (1u << (way))

typedef enum mha_cuda_path {
    MHA_CUDA_PATH_GENERAL,
    MHA_CUDA_PATH_TILES, /* and those of other ways for some sequences */
    MHA_CUDA_PATH_FLOAT32,
    MHA_CUDA_PATH_DECODE,
    MHA_CUDA_PATH_SMALL
} mha_cuda_path;

mha_cuda_path mha_cuda_path_forward(const mha_problem *p);
mha_cuda_path mha_cuda_path_backward(const mha_gradient_call *call);

#endif
