/* The kernels of a backward call, by type and width. */
#ifndef MHA_CUDA_BACKWARD_KERNELS_CUH
#define MHA_CUDA_BACKWARD_KERNELS_CUH

#include "backward_rows.cuh"

#define BACKWARD_KERNEL(NAME, BOUNDS, BODY)                                                                          \
    extern "C" __global__ void __launch_bounds__ BOUNDS backward_##NAME(const __grid_constant__ mha_cuda_backward c) \
    {                                                                                                                \
        BODY;                                                                                                        \
    }

/* Blocks of `prepare` and of `convert` that a multiprocessor runs at a time. */
#define PREPARES(D) ((D) > 128 ? 2 : 4)
#define CONVERTS(D) ((D) > 128 ? 1 : (D) > 64 ? 2 : 3)

/* Sequences that are alike, without maps. */
#define BACKWARD_PLAIN(NAME, T, D, QUERIES)                                          \
    BACKWARD_KERNEL(NAME, (384, 1), (run<T, D, QUERIES, FULL>(c)))                   \
    BACKWARD_KERNEL(NAME##_window, (384, 1), (run<T, D, QUERIES, WINDOW>(c)))        \
    BACKWARD_KERNEL(NAME##_options, (384, 1), (run<T, D, QUERIES, OPTIONS>(c)))      \
    BACKWARD_KERNEL(NAME##_prepare, (256, PREPARES(D)), (prepare<T, D, QUERIES>(c))) \
    BACKWARD_KERNEL(NAME##_convert, (256, CONVERTS(D)), (convert<T, D, QUERIES>(c)))

/* Where blocks share tiles of keys. */
#define BACKWARD_SHARED(NAME, T, D, QUERIES)                                                                       \
    BACKWARD_KERNEL(NAME##_shared, (384, 1), (run<T, D, QUERIES, FULL, INTEGERS, false, true>(c)))                 \
    BACKWARD_KERNEL(NAME##_window_shared, (384, 1), (run<T, D, QUERIES, WINDOW, INTEGERS, false, true>(c)))

/* Tiles of sequences, with maps or without. */
#define BACKWARD_PARTS(NAME, T, D, QUERIES, KIND)                                                          \
    BACKWARD_KERNEL(NAME, (384, 1), (run<T, D, QUERIES, KIND>(c)))                                         \
    BACKWARD_KERNEL(NAME##_prepare, (256, PREPARES(D)), (prepare_parts<T, D, QUERIES, KIND, INTEGERS>(c))) \
    BACKWARD_KERNEL(NAME##_convert, (256, CONVERTS(D)), (convert_parts<T, D, QUERIES, KIND>(c)))

/* Those of sequences with slopes, a softcap or sinks. */
#define BACKWARD_SEQUENCES_OPTIONS(NAME, T, D, QUERIES) \
    BACKWARD_KERNEL(NAME##_sequences_options, (384, 1), (run<T, D, QUERIES, SEQUENCES, INTEGERS, false>(c)))

#define BACKWARD_ALL_PARTS(NAME, KIND)                            \
    BACKWARD_PARTS(bf16_128_##NAME, __nv_bfloat16, 128, 64, KIND) \
    BACKWARD_PARTS(bf16_64_##NAME, __nv_bfloat16, 64, 128, KIND)  \
    BACKWARD_PARTS(f16_128_##NAME, __half, 128, 64, KIND)         \
    BACKWARD_PARTS(f16_64_##NAME, __half, 64, 128, KIND)

#endif
