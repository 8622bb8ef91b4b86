/* The kernels of attention for many rows of a key head, float16: decode_many.cuh. */
#include "decode_many.cuh"

WIDTHS(decode_many_f16, __half)
