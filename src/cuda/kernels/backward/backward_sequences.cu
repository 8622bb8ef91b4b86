/* The kernels of attention backward for sequences that are not alike: backward.cuh and backward_rows.cuh. */
#include "backward_kernels.cuh"

BACKWARD_ALL_PARTS(sequences, SEQUENCES)

/* Those with options; and of brief sequences among them, whose dQ is summed in order. */
#define OTHERS(NAME, T, D, QUERIES)                                                                                          \
    BACKWARD_SEQUENCES_OPTIONS(NAME, T, D, QUERIES)                                                                          \
    BACKWARD_KERNEL(NAME##_brief_sequences, (384, 1), (run<T, D, QUERIES, SEQUENCES, ORDERED>(c)))                           \
    BACKWARD_KERNEL(NAME##_brief_sequences_prepare, (256, PREPARES(D)), (prepare_parts<T, D, QUERIES, SEQUENCES, ORDERED>(c)))

OTHERS(bf16_128, __nv_bfloat16, 128, 64)
OTHERS(bf16_64, __nv_bfloat16, 64, 128)
OTHERS(f16_128, __half, 128, 64)
OTHERS(f16_64, __half, 64, 128)
