/* The kernels of attention for many rows of a key head, bfloat16, and those that add up their sums: decode_many.cuh. */
#include "decode_many.cuh"

#define MERGE(E)                                                                        \
    extern "C" __global__ void __launch_bounds__(MERGE_WARPS * 32, (E) > 192 ? 2 : 4)   \
        decode_merge_##E(const __grid_constant__ mha_cuda_decode c)                     \
    {                                                                                   \
        merge<E>(c);                                                                    \
    }

WIDTHS(decode_many_bf16, __nv_bfloat16)
MERGE(64)
MERGE(128)
MERGE(192)
MERGE(256)
