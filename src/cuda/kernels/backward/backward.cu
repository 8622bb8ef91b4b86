/* The kernels of attention backward for sequences of any length: backward.cuh and backward_rows.cuh. */
#include "backward_rows.cuh"

#define KERNELS(NAME, T, D, QUERIES)                                                                                  \
    extern "C" __global__ void __launch_bounds__(384, 1) backward_##NAME(const __grid_constant__ mha_cuda_backward c) \
    {                                                                                                                 \
        run<T, D, QUERIES, FULL>(c);                                                                                  \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(384, 1)                                                              \
        backward_##NAME##_causal(const __grid_constant__ mha_cuda_backward c)                                         \
    {                                                                                                                 \
        run<T, D, QUERIES, CAUSAL>(c);                                                                                \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(384, 1)                                                              \
        backward_##NAME##_options(const __grid_constant__ mha_cuda_backward c)                                        \
    {                                                                                                                 \
        run<T, D, QUERIES, OPTIONS>(c);                                                                               \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                                 \
        backward_##NAME##_prepare(const __grid_constant__ mha_cuda_backward c)                                        \
    {                                                                                                                 \
        prepare<T, D, QUERIES>(c);                                                                                    \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(256)                                                                 \
        backward_##NAME##_convert(const __grid_constant__ mha_cuda_backward c)                                        \
    {                                                                                                                 \
        convert<T, D, QUERIES>(c);                                                                                    \
    }

KERNELS(bf16_128, __nv_bfloat16, 128, 64)
KERNELS(bf16_64, __nv_bfloat16, 64, 128)
KERNELS(f16_128, __half, 128, 64)
KERNELS(f16_64, __half, 64, 128)
