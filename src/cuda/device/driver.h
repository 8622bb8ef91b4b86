/* NVIDIA's driver, libcuda.so.1, opened at run time: the plug-in loads where there is none. */
#ifndef MHA_CUDA_DRIVER_H
#define MHA_CUDA_DRIVER_H

#include "mha.h"
#include <cuda.h>

/* The functions that are used. Some names are macros of cuda.h, which then stand for the version that it declares. */
#define MHA_CUDA_FUNCTIONS(F)            \
    F(cuInit)                            \
    F(cuGetErrorName)                    \
    F(cuGetErrorString)                  \
    F(cuDeviceGetCount)                  \
    F(cuDeviceGet)                       \
    F(cuDeviceGetName)                   \
    F(cuDeviceGetAttribute)              \
    F(cuDeviceTotalMem)                  \
    F(cuDevicePrimaryCtxRetain)          \
    F(cuDevicePrimaryCtxRelease)         \
    F(cuCtxPushCurrent)                  \
    F(cuCtxPopCurrent)                   \
    F(cuCtxSynchronize)                  \
    F(cuModuleLoadData)                  \
    F(cuModuleUnload)                    \
    F(cuModuleGetFunction)               \
    F(cuFuncSetAttribute)                \
    F(cuLaunchKernelEx)                  \
    F(cuMemAlloc)                        \
    F(cuMemFree)                         \
    F(cuMemsetD32Async)                  \
    F(cuMemcpyDtoHAsync)                 \
    F(cuMemcpyHtoDAsync)                 \
    F(cuStreamCreate)                    \
    F(cuStreamSynchronize)               \
    F(cuStreamDestroy)                   \
    F(cuStreamIsCapturing)               \
    F(cuThreadExchangeStreamCaptureMode) \
    F(cuPointerGetAttributes)            \
    F(cuTensorMapEncodeTiled)

typedef struct mha_cuda_driver {
#define MHA_CUDA_FIELD(name) __typeof__(name) *name;
    MHA_CUDA_FUNCTIONS(MHA_CUDA_FIELD)
#undef MHA_CUDA_FIELD
} mha_cuda_driver;

/* Opens and initialises the driver; on error the reason is at `why`. It stays loaded. */
mha_status mha_cuda_driver_open(mha_cuda_driver *driver, char *why, size_t size);

/* A line about a GPU: its name, compute capability, multiprocessors and memory; or why the kernels cannot run on it. */
mha_status mha_cuda_describe(const mha_cuda_driver *driver, int ordinal, char *text, size_t size);

/* The text of an error. */
const char *mha_cuda_error_text(const mha_cuda_driver *driver, CUresult error);

#endif
