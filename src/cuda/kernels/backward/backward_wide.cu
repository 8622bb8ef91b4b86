/* The kernels of attention backward for heads of 129 to 256 columns: backward.cuh and backward_rows.cuh with 64 keys a block, and
 * half of the columns for each warpgroup. */
#define MHA_CUDA_BACKWARD_KEYS 64
#include "backward_kernels.cuh"

BACKWARD_PLAIN(bf16_256, __nv_bfloat16, 256, 64)
BACKWARD_PLAIN(f16_256, __half, 256, 64)
BACKWARD_PARTS(bf16_256_sequences, __nv_bfloat16, 256, 64, SEQUENCES)
BACKWARD_PARTS(f16_256_sequences, __half, 256, 64, SEQUENCES)
BACKWARD_SEQUENCES_OPTIONS(bf16_256, __nv_bfloat16, 256, 64)
BACKWARD_SEQUENCES_OPTIONS(f16_256, __half, 256, 64)
BACKWARD_PARTS(bf16_256_maps, __nv_bfloat16, 256, 64, MAPS)
BACKWARD_PARTS(f16_256_maps, __half, 256, 64, MAPS)
