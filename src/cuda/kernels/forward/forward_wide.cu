/* The kernels of attention forward for heads of 129 to 256 columns: forward.cuh.
 *
 * A thread has D / 2 sums of results, KEYS / 2 scores and as many weights in half of the registers: 128 + 40 + 20 of 240 at
 * D 256 with blocks of 80 keys, 96 + 56 + 28 at D 192 with 112. Q and two stages of K and V fill shared memory, 224 and 216
 * KB; results therefore leave through that of Q. Bits take registers, and maps
 * shared memory for tiles of bias: their blocks have fewer keys. Options take registers, too, so slopes have no ramps here: sequences of
 * unlike lengths have the blocks, and the bits, that they have alone. */
#include "forward.cuh"

#define KINDS(NAME, T, D, KEYS, OF_BITS)                      \
    FORWARD_KERNEL(NAME, T, D, 2, KEYS, FULL)                    \
    FORWARD_KERNEL(NAME##_window, T, D, 2, KEYS, WINDOW)         \
    FORWARD_KERNEL(NAME##_options, T, D, 2, KEYS, OPTIONS)       \
    FORWARD_KERNEL(NAME##_maps, T, D, 2, 64, MAPS)               \
    FORWARD_KERNEL(NAME##_bits, T, D, 2, OF_BITS, BITS)
#define WIDTHS(NAME, T)                \
    KINDS(NAME##_192, T, 192, 112, 96) \
    KINDS(NAME##_256, T, 256, 80, 64)

WIDTHS(forward_bf16, __nv_bfloat16)
WIDTHS(forward_f16, __half)
