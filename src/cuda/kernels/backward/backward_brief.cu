/* The kernels of attention backward for brief sequences, whose dQ is summed in order: backward.cuh and backward_rows.cuh. */
#include "backward_rows.cuh"

#define KERNELS(NAME, T, D, QUERIES)                                                          \
    extern "C" __global__ void __launch_bounds__(384, 1)                                      \
        backward_##NAME##_brief(const __grid_constant__ mha_cuda_backward c)                  \
    {                                                                                         \
        run<T, D, QUERIES, FULL, ORDERED>(c);                                                 \
    }                                                                                         \
    extern "C" __global__ void __launch_bounds__(384, 1)                                      \
        backward_##NAME##_brief_window(const __grid_constant__ mha_cuda_backward c)           \
    {                                                                                         \
        run<T, D, QUERIES, WINDOW, ORDERED>(c);                                               \
    }                                                                                         \
    extern "C" __global__ void __launch_bounds__(256, 4)                                      \
        backward_##NAME##_brief_prepare(const __grid_constant__ mha_cuda_backward c)          \
    {                                                                                         \
        prepare_in_order<T, D, QUERIES>(c);                                                   \
    }                                                                                         \
    extern "C" __global__ void __launch_bounds__(256, (D) > 64 ? 2 : 3)                       \
        backward_##NAME##_brief_convert(const __grid_constant__ mha_cuda_backward c)          \
    {                                                                                         \
        convert_in_order<T, D, QUERIES>(c);                                                   \
    }

KERNELS(bf16_64, __nv_bfloat16, 64, 128)
KERNELS(f16_64, __half, 64, 128)
KERNELS(bf16_128, __nv_bfloat16, 128, 64)
KERNELS(f16_128, __half, 128, 64)
