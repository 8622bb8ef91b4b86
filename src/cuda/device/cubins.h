/* The compiled kernels, embedded by the build (cmake/cuda.cmake). */
#ifndef MHA_CUDA_DEVICE_CUBINS_H
#define MHA_CUDA_DEVICE_CUBINS_H

#define MODULE(folder, name) extern const unsigned char mha_cubin_##name[];
#include "cuda/kernels/kernels.def"

#endif
