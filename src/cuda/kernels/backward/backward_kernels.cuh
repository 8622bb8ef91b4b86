/* The kernels of a call whose tiles are those of sequences, for both types and widths. */
#ifndef MHA_CUDA_BACKWARD_KERNELS_CUH
#define MHA_CUDA_BACKWARD_KERNELS_CUH

#include "backward_rows.cuh"

#define BACKWARD_STEPS(NAME, T, D, QUERIES, KIND)                                                                           \
    extern "C" __global__ void __launch_bounds__(384, 1) backward_##NAME(const __grid_constant__ mha_cuda_backward c)       \
    {                                                                                                                       \
        run<T, D, QUERIES, KIND>(c);                                                                                        \
    }                                                                                                                       \
    extern "C" __global__ void __launch_bounds__(256, 4) backward_##NAME##_prepare(const __grid_constant__ mha_cuda_backward c) \
    {                                                                                                                       \
        prepare_parts<T, D, QUERIES, KIND>(c);                                                                              \
    }                                                                                                                       \
    extern "C" __global__ void __launch_bounds__(256) backward_##NAME##_convert(const __grid_constant__ mha_cuda_backward c) \
    {                                                                                                                       \
        convert_parts<T, D, QUERIES, KIND>(c);                                                                              \
    }

#define BACKWARD_KERNELS(NAME, KIND)                                   \
    BACKWARD_STEPS(bf16_128_##NAME, __nv_bfloat16, 128, 64, KIND)      \
    BACKWARD_STEPS(bf16_64_##NAME, __nv_bfloat16, 64, 128, KIND)       \
    BACKWARD_STEPS(f16_128_##NAME, __half, 128, 64, KIND)              \
    BACKWARD_STEPS(f16_64_##NAME, __half, 64, 128, KIND)

#endif
