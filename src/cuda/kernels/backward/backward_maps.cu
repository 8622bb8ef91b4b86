/* The kernels of attention backward with bias, mask and dropout: backward.cuh, backward_maps.cuh and backward_rows.cuh. */
#include "backward_kernels.cuh"

BACKWARD_ALL_PARTS(maps, MAPS)
