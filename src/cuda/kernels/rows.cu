/* Small kernels, one thread for each row or number. */
#include "rows.h"
#include "elements.cuh"

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

/* Zeros, or the numbers of another tensor, which may be added. */
extern "C" __global__ void __launch_bounds__(256) copy(const __grid_constant__ mha_cuda_copy c)
{
    int64_t count = c.to.size[0] * c.to.size[1] * c.to.size[2] * c.to.size[3];
    for (int64_t n = blockIdx.x * 256ll + threadIdx.x; n < count; n += gridDim.x * 256ll) {
        int64_t row = n / c.to.size[3], column = n % c.to.size[3];
        int64_t at = place_of_row(c.to, row) + column * c.to.stride[3];
        float x = c.from.data ? load(c.from, place_of_row(c.from, row) + column * c.from.stride[3]) : 0;
        store(c.to, at, c.add ? load(c.to, at) + x : x);
    }
}
