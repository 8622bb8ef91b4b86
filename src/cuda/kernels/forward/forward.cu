/* The kernels of attention forward for heads of up to 128 columns: forward.cuh. */
#include "forward.cuh"

/* Two groups of 64 rows, or at D 64 three where nothing but scores needs registers; for sequences of 193 to 256 rows four, and blocks
 * of 64 keys, so that one tile has all of them; where they are among others, tiles of 128 rows with such blocks. */
#define KINDS(NAME, T, D, CONSUMERS)                            \
    FORWARD_KERNEL(NAME, T, D, CONSUMERS, 128, FULL)            \
    FORWARD_KERNEL(NAME##_window, T, D, CONSUMERS, 128, WINDOW) \
    FORWARD_KERNEL(NAME##_options, T, D, 2, 128, OPTIONS)       \
    FORWARD_KERNEL(NAME##_maps, T, D, 2, 128, MAPS)             \
    FORWARD_KERNEL(NAME##_bits, T, D, 2, 128, BITS)             \
    FORWARD_KERNEL(NAME##_bias, T, D, CONSUMERS, 128, BIAS)
#define WIDTHS(NAME, T)                                         \
    KINDS(NAME##_64, T, 64, 3)                                  \
    FORWARD_KERNEL(NAME##_64_few, T, 64, 2, 128, FULL)          \
    FORWARD_KERNEL(NAME##_64_window_few, T, 64, 2, 128, WINDOW) \
    FORWARD_KERNEL(NAME##_64_bias_few, T, 64, 2, 128, BIAS)     \
    FORWARD_KERNEL(NAME##_64_short, T, 64, 4, 64, FULL)         \
    FORWARD_KERNEL(NAME##_64_short_few, T, 64, 2, 64, FULL)     \
    FORWARD_KERNEL(NAME##_64_short_options, T, 64, 2, 64, OPTIONS) \
    KINDS(NAME##_128, T, 128, 2)                                \
    KINDS(NAME##_96, T, 96, 2)

WIDTHS(forward_bf16, __nv_bfloat16)
WIDTHS(forward_f16, __half)
