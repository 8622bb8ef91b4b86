/* Attention of single rows in float64, a warp for a row, straight from memory: slow, and right whatever the numbers are.
 *
 * The products of tiles multiply weights of 0 with rows that are not visible, and float32 overflows where a result does
 * not. Both leave infinity or NaN in a result. Where a kernel finds one, it computes the row again with these functions,
 * which read visible rows alone. */
#ifndef MHA_CUDA_CAREFUL_CUH
#define MHA_CUDA_CAREFUL_CUH

#include "hopper.cuh"
#include "view.h"

/* Whether one of the numbers is infinite or NaN: then so is the sum of their products with 0. */
template <int N> MHA_DEVICE bool is_lost(const float (&x)[N])
{
    float zero = 0;
#pragma unroll
    for (int i = 0; i < N; i++) zero = fmaf(x[i], 0.0f, zero);
    return zero != 0;
}

/* A row of D numbers: lane l has the pairs 64 k + 2 l, and zeros behind the last one. */
template <int D, typename NUMBER = float> struct careful_row {
    enum { PAIRS = (D + 63) / 64, COUNT = 2 * PAIRS };
    NUMBER x[COUNT];
};

/* A sum of rows. */
template <int D> using careful_sum = careful_row<D, double>;

template <typename T, int D>
MHA_DEVICE careful_row<D> careful_load(const mha_cuda_rows &t, int batch, int head, int row, int width = D)
{
    careful_row<D> r;
    const T *from = (const T *)t.data + batch * t.batch + head * t.head + row * t.row + threadIdx.x % 32 * 2;
#pragma unroll
    for (int k = 0; k < careful_row<D>::PAIRS; k++) {
        bool inside = (int)threadIdx.x % 32 * 2 + 64 * k < width;
        float2 both = pair_of<T>::get(inside ? *(const uint32_t *)(from + 64 * k) : 0);
        r.x[2 * k] = both.x, r.x[2 * k + 1] = both.y;
    }
    return r;
}

/* The same in all lanes. */
template <int D> MHA_DEVICE double careful_dot(const careful_row<D> &a, const careful_row<D> &b)
{
    double sum = 0;
#pragma unroll
    for (int i = 0; i < careful_row<D>::COUNT; i++) sum += (double)a.x[i] * (double)b.x[i];
    for (int lane = 16; lane; lane /= 2) sum += __shfl_xor_sync(~0u, sum, lane);
    return sum;
}

/* Rounded: where scores are large, the rounding error of a product is more than exp can bear. */
template <int D> MHA_DEVICE double careful_score(double scale, const careful_row<D> &q, const careful_row<D> &k)
{
    return __dmul_rn(scale, careful_dot(q, k));
}

template <int D> MHA_DEVICE void careful_add(careful_sum<D> &to, double by, const careful_row<D> &x)
{
#pragma unroll
    for (int i = 0; i < careful_row<D>::COUNT; i++) to.x[i] += by * (double)x.x[i];
}

/* To a tile in shared memory whose panels are `panel` bytes apart. */
template <typename T, int D> MHA_DEVICE void careful_put(uint32_t to, int panel, int row, const careful_sum<D> &x)
{
    int lane = threadIdx.x % 32;
    uint32_t at = to + row * ROW_BYTES + ((lane / 4) ^ (row % 8)) * 16 + lane % 4 * 4;
#pragma unroll
    for (int k = 0; k < careful_row<D>::PAIRS; k++)
        put_shared(at + k * panel, pack<T>((float)x.x[2 * k], (float)x.x[2 * k + 1]));
}

#endif
