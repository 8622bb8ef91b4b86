/* Small kernels, one thread for each row or number. */
#include "rows.h"

static __device__ int64_t place_of_row(const mha_cuda_view &v, int64_t row)
{
    int64_t t = row % v.size[2], h = row / v.size[2] % v.size[1], b = row / v.size[2] / v.size[1];
    return b * v.stride[0] + h * v.stride[1] + t * v.stride[2];
}

/* From the kernels' lse to the caller's tensors. The reference is lse itself, so that the sum is 1. */
extern "C" __global__ void __launch_bounds__(256) softmax_put(const __grid_constant__ mha_cuda_softmax c)
{
    for (int64_t row = blockIdx.x * 256ll + threadIdx.x; row < c.rows; row += gridDim.x * 256ll) {
        float lse = c.lse[row];
        if (c.as_lse.data) ((float *)c.as_lse.data)[place_of_row(c.as_lse, row)] = lse;
        if (c.as_softmax.data) {
            float *to = (float *)c.as_softmax.data + place_of_row(c.as_softmax, row);
            to[0] = lse;
            to[c.as_softmax.stride[3]] = lse == -INFINITY ? 0.0f : 1.0f;
        }
    }
}

/* And from the caller's softmax back to lse. */
extern "C" __global__ void __launch_bounds__(256) softmax_get(const __grid_constant__ mha_cuda_softmax c)
{
    for (int64_t row = blockIdx.x * 256ll + threadIdx.x; row < c.rows; row += gridDim.x * 256ll) {
        const float *from = (const float *)c.as_softmax.data + place_of_row(c.as_softmax, row);
        float sum = from[c.as_softmax.stride[3]];
        c.lse[row] = sum > 0 ? from[0] + logf(sum) : -INFINITY;
    }
}

/* Zeros, for numbers of 16 bits. */
extern "C" __global__ void __launch_bounds__(256) zero_16(const __grid_constant__ mha_cuda_view v)
{
    int64_t count = v.size[0] * v.size[1] * v.size[2] * v.size[3];
    for (int64_t n = blockIdx.x * 256ll + threadIdx.x; n < count; n += gridDim.x * 256ll)
        ((uint16_t *)v.data)[place_of_row(v, n / v.size[3]) + n % v.size[3] * v.stride[3]] = 0;
}
