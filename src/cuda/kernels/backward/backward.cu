/* The kernels of attention backward for sequences of any length: backward.cuh and backward_rows.cuh. */
#include "backward_kernels.cuh"

BACKWARD_PLAIN(bf16_128, __nv_bfloat16, 128, 64)
BACKWARD_PLAIN(bf16_64, __nv_bfloat16, 64, 128)
BACKWARD_PLAIN(f16_128, __half, 128, 64)
BACKWARD_PLAIN(f16_64, __half, 64, 128)
BACKWARD_SHARED(bf16_128, __nv_bfloat16, 128, 64)
BACKWARD_SHARED(bf16_64, __nv_bfloat16, 64, 128)
BACKWARD_SHARED(f16_128, __half, 128, 64)
BACKWARD_SHARED(f16_64, __half, 64, 128)
