/* The compiled kernels, embedded by the build (cmake/cuda.cmake). */
#ifndef MHA_CUDA_CUBINS_H
#define MHA_CUDA_CUBINS_H

#include "cuda/kernels.h"

#define MHA_CUDA_ROW(name) extern const unsigned char mha_cubin_##name[];
MHA_CUDA_MODULES(MHA_CUDA_ROW)
#undef MHA_CUDA_ROW

#endif
