/* The kernels of kernels/kernels.def by number: their modules and names, and loading them. */
#ifndef MHA_CUDA_DEVICE_KERNELS_H
#define MHA_CUDA_DEVICE_KERNELS_H

#include <stddef.h>

typedef enum mha_cuda_module {
#define MODULE(folder, name) MHA_CUDA_M_##name,
#include "cuda/kernels/kernels.def"
    MHA_CUDA_MODULE_COUNT
} mha_cuda_module;

typedef enum mha_cuda_kernel {
#define KERNEL(module, name)         MHA_CUDA_K_##name,
#define ATTENTION(module, name, ...) MHA_CUDA_K_##name,
#include "cuda/kernels/kernels.def"
    MHA_CUDA_KERNEL_COUNT,
    MHA_CUDA_K_none = MHA_CUDA_KERNEL_COUNT
} mha_cuda_kernel;

const char *mha_cuda_kernel_name(mha_cuda_kernel kernel);
mha_cuda_module mha_cuda_kernel_module(mha_cuda_kernel kernel);

/* The most bytes of dynamic shared memory that a kernel is started with. */
typedef size_t mha_cuda_shared_memory(mha_cuda_kernel kernel);

#endif
