/* The kernels of attention backward for heads of 129 to 256 columns: backward.cuh and backward_rows.cuh with 64 keys a block, and
 * half of the columns for each warpgroup. */
#define MHA_CUDA_BACKWARD_KEYS 64
#include "backward_kernels.cuh"

#define KERNELS(NAME, T)                                                                                                   \
    extern "C" __global__ void __launch_bounds__(384, 1) backward_##NAME(const __grid_constant__ mha_cuda_backward c)      \
    {                                                                                                                      \
        run<T, 256, 64, FULL>(c);                                                                                          \
    }                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(384, 1) backward_##NAME##_causal(const __grid_constant__ mha_cuda_backward c) \
    {                                                                                                                      \
        run<T, 256, 64, CAUSAL>(c);                                                                                        \
    }                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(384, 1) backward_##NAME##_options(const __grid_constant__ mha_cuda_backward c) \
    {                                                                                                                      \
        run<T, 256, 64, OPTIONS>(c);                                                                                       \
    }                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(256, 2) backward_##NAME##_prepare(const __grid_constant__ mha_cuda_backward c) \
    {                                                                                                                      \
        prepare<T, 256, 64>(c);                                                                                            \
    }                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(256) backward_##NAME##_convert(const __grid_constant__ mha_cuda_backward c)   \
    {                                                                                                                      \
        convert<T, 256, 64>(c);                                                                                            \
    }

/* The kernels of a call whose tiles are those of sequences, with a mask and dropout or without. */
#define OF_SEQUENCES(NAME, T, KIND)                                                                                        \
    extern "C" __global__ void __launch_bounds__(384, 1) backward_##NAME(const __grid_constant__ mha_cuda_backward c)      \
    {                                                                                                                      \
        run<T, 256, 64, KIND>(c);                                                                                          \
    }                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(256, 2) backward_##NAME##_prepare(const __grid_constant__ mha_cuda_backward c) \
    {                                                                                                                      \
        prepare_parts<T, 256, 64, KIND>(c);                                                                                \
    }                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(256) backward_##NAME##_convert(const __grid_constant__ mha_cuda_backward c)   \
    {                                                                                                                      \
        convert_parts<T, 256, 64, KIND>(c);                                                                                \
    }

KERNELS(bf16_256, __nv_bfloat16)
KERNELS(f16_256, __half)
OF_SEQUENCES(bf16_256_sequences, __nv_bfloat16, SEQUENCES)
OF_SEQUENCES(f16_256_sequences, __half, SEQUENCES)
OF_SEQUENCES(bf16_256_maps, __nv_bfloat16, MAPS)
OF_SEQUENCES(f16_256_maps, __half, MAPS)
