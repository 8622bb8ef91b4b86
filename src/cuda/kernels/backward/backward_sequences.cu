/* The kernels of attention backward for sequences that are not alike: backward.cuh and backward_rows.cuh. */
#include "backward_kernels.cuh"

BACKWARD_ALL_PARTS(sequences, SEQUENCES)
