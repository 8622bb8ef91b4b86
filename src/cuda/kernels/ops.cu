/* The operations of mha_ops.h: activations, dropout, embeddings, loss. */
#include "activation.cuh"
#include "elements.cuh"
#include "ops.h"
#include "philox.cuh"

namespace
{

enum { THREADS = MHA_CUDA_THREADS, WARPS = THREADS / 32 };

MHA_DEVICE int64_t first_number(void) { return blockIdx.x * (int64_t)THREADS + threadIdx.x; }
MHA_DEVICE int64_t all_threads(void) { return gridDim.x * (int64_t)THREADS; }

MHA_DEVICE int64_t integer(const view &t, int64_t at)
{
    return t.type == INT32 ? ((const int32_t *)t.data)[at] : ((const int64_t *)t.data)[at];
}

} // namespace

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)

/* ---- Activations ------------------------------------------------------------------------------------------------ */

KERNEL activate(const __grid_constant__ mha_cuda_activation c)
{
    for (int64_t n = first_number(); n < c.count; n += all_threads()) {
        curve f = curve_of(c.activation, c.z[n]);
        c.h[n] = f.value;
        if (c.slope) c.slope[n] = f.slope;
    }
}

/* The activation of the sums of a product. */
KERNEL activate_result(const __grid_constant__ mha_cuda_activation c)
{
    for (int64_t n = first_number(); n < c.count; n += all_threads())
        store(c.to, place(c.to, n / c.to.size[1], n % c.to.size[1], 0, 0), curve_of(c.activation, c.z[n]).value);
}

KERNEL activate_back(const __grid_constant__ mha_cuda_activation c)
{
    for (int64_t n = first_number(); n < c.count; n += all_threads()) c.h[n] *= c.slope[n];
}

KERNEL activate_gated(const __grid_constant__ mha_cuda_activation c)
{
    for (int64_t n = first_number(); n < c.count; n += all_threads()) {
        int64_t a = n / c.width * 2 * c.width + n % c.width, b = a + c.width;
        float other = c.z[b];
        curve f = curve_of(c.activation, c.z[a]);
        c.h[n] = f.value * other;
        if (c.slope) c.slope[a] = f.slope * other, c.slope[b] = f.value;
    }
}

/* h is dh. */
KERNEL activate_gated_back(const __grid_constant__ mha_cuda_activation c)
{
    for (int64_t n = first_number(); n < c.count; n += all_threads()) {
        int64_t a = n / c.width * 2 * c.width + n % c.width;
        c.slope[a] *= c.h[n];
        c.slope[a + c.width] *= c.h[n];
    }
}

/* ---- Dropout ---------------------------------------------------------------------------------------------------- */

/* A thread takes the eight numbers that one block of random numbers decides: they lie 32 apart. */
KERNEL dropout(const __grid_constant__ mha_cuda_dropout c)
{
    int64_t blocks = (c.size + 255) / 256 * 32;
    for (int64_t n = first_number(); n < c.sequences * blocks; n += all_threads()) {
        int64_t sequence = n / blocks, block = n % blocks, first = block / 32 * 256 + block % 32;
        uint64_t stream = c.stream + (uint64_t)sequence;
        float kept = c.kept;
        uint32_t x[4] = {(uint32_t)stream, (uint32_t)(stream >> 32), 0, 7u << 24};
        if (c.path) {
            philox(x, c.seed);
            if (x[0] < c.path) kept = 0;
        }
        x[0] = (uint32_t)stream, x[1] = (uint32_t)(stream >> 32), x[2] = (uint32_t)block, x[3] = 6u << 24;
        if (c.below) philox(x, c.seed);
        for (int k = 0; k < 8 && first + 32 * k < c.size; k++) {
            int64_t at = sequence * c.size + first + 32 * k;
            uint32_t half = k % 2 ? x[k / 2] >> 16 : x[k / 2] & 0xffff;
            float x = c.from[at], by = half < c.below ? 0.0f : kept;
            c.to[at] = by == 1.0f ? x : x * by; /* NaN stays, with its bits where nothing is dropped */
        }
    }
}

/* ---- Embeddings ------------------------------------------------------------------------------------------------- */

/* Ids outside the table count as its first or last word. */
MHA_DEVICE int64_t id_of(const mha_cuda_embedding &c, int64_t row)
{
    int64_t T = c.ids.size[1], id = integer(c.ids, place(c.ids, row / T, row % T, 0, 0));
    return id < 0 ? 0 : id >= c.words ? c.words - 1 : id;
}

KERNEL embed(const __grid_constant__ mha_cuda_embedding c)
{
    int64_t count = c.ids.size[0] * c.ids.size[1] * c.width;
    for (int64_t n = first_number(); n < count; n += all_threads()) {
        int64_t row = n / c.width, e = n % c.width;
        float x = c.table[id_of(c, row) * c.width + e];
        float place = c.positions ? c.positions[row % c.ids.size[1] * c.width + e] : 0.0f;
        if (c.add) {
            x = fmaf(x, c.scale, c.y[n]);
            if (c.positions) x += place;
        } else if (c.positions) x = fmaf(x, c.scale, place);
        else if (c.scale != 1) x *= c.scale;
        c.y[n] = x;
    }
}

/* Rows with the same id are added in their order, by the block of the first of them. */
KERNEL embed_back(const __grid_constant__ mha_cuda_embedding c)
{
    int64_t own = blockIdx.x, rows = c.ids.size[0] * c.ids.size[1], id = id_of(c, own);
    int before = 0;
    for (int64_t n = threadIdx.x; n < own && !before; n += THREADS) before = id_of(c, n) == id;
    if (__syncthreads_or(before)) return;
    for (int64_t first = own; first < rows; first += 32) {
        bool same = first + threadIdx.x % 32 < rows && id_of(c, first + threadIdx.x % 32) == id;
        for (unsigned some = __ballot_sync(~0u, same); some; some &= some - 1) {
            const float *from = c.table + (first + __ffs((int)some) - 1) * c.width;
            for (int64_t e = threadIdx.x; e < c.width; e += THREADS) {
                float *to = c.y + id * c.width + e;
                *to = fmaf(from[e], c.scale, *to);
            }
        }
    }
}

/* ---- Loss ------------------------------------------------------------------------------------------------------- */

MHA_DEVICE int64_t label_of(const mha_cuda_loss &c, int64_t row) { return integer(c.labels, row * c.labels.stride[0]); }

/* One block: how many labels there are, and the first that is outside its range. */
KERNEL loss_labels(const __grid_constant__ mha_cuda_loss c)
{
    __shared__ unsigned long long counted, bad;
    if (threadIdx.x == 0) counted = 0, bad = ~0ull;
    __syncthreads();
    for (int64_t n = threadIdx.x; n < c.rows; n += THREADS) {
        int64_t label = label_of(c, n);
        if (label < -1 || label >= c.classes) atomicMin(&bad, (unsigned long long)n);
        else if (label >= 0) atomicAdd(&counted, 1ull);
    }
    __syncthreads();
    if (threadIdx.x == 0) c.sums->counted = (int64_t)counted, c.sums->bad = (int64_t)(bad + 1);
}

template <typename T> MHA_DEVICE T block_sum(T x, T *parts)
{
#pragma unroll
    for (int mask = 16; mask; mask >>= 1) x += __shfl_xor_sync(~0u, x, mask);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    for (int n = 0; n < WARPS; n++) x += parts[n];
    return x;
}

/* The largest logit and the first place where it stands. */
struct top {
    float value;
    int64_t place;
};

MHA_DEVICE top better(top a, top b)
{
    bool second = b.value > a.value || (b.value == a.value && b.place < a.place);
    return second ? b : a;
}

MHA_DEVICE top block_top(top x, top *parts)
{
#pragma unroll
    for (int mask = 16; mask; mask >>= 1)
        x = better(x, {__shfl_xor_sync(~0u, x.value, mask), __shfl_xor_sync(~0u, x.place, mask)});
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = parts[0];
    for (int n = 1; n < WARPS; n++) x = better(x, parts[n]);
    return x;
}

/* A block takes a row. */
KERNEL loss_rows(const __grid_constant__ mha_cuda_loss c)
{
    __shared__ double parts[WARPS];
    __shared__ top tops[WARPS];
    int64_t row = blockIdx.x, label = label_of(c, row);
    const float *x = c.logits + row * c.classes;
    float *dx = c.dlogits ? c.dlogits + row * c.classes : NULL;
    if (label < 0 || label >= c.classes) {
        for (int64_t n = threadIdx.x; dx && n < c.classes; n += THREADS) dx[n] = 0;
        if (threadIdx.x == 0) c.losses[row] = 0, c.right[row] = 0;
        return;
    }
    top best = {-INFINITY, c.classes};
    for (int64_t n = threadIdx.x; n < c.classes; n += THREADS) best = better(best, {x[n], n});
    best = block_top(best, tops);
    double total = 0, others = 0, most = (double)best.value, smoothing = (double)c.smoothing;
    for (int64_t n = threadIdx.x; n < c.classes; n += THREADS) {
        total += (double)expf(x[n] - best.value);
        if (smoothing > 0) others += (double)x[n] - most;
    }
    total = block_sum(total, parts);
    others = block_sum(others, parts);
    double by = 1 / (double)c.sums->counted, share = smoothing / (double)c.classes;
    for (int64_t n = threadIdx.x; dx && n < c.classes; n += THREADS) {
        double target = share + (n == label ? 1 - smoothing : 0);
        dx[n] = (float)(((double)expf(x[n] - best.value) / total - target) * by);
    }
    if (threadIdx.x) return;
    c.losses[row] = log(total) - (1 - smoothing) * ((double)x[label] - most) -
                    (smoothing > 0 ? smoothing * others / (double)c.classes : 0);
    c.right[row] = best.place == label;
}

/* One block: the sums over rows. */
KERNEL loss_sums(const __grid_constant__ mha_cuda_loss c)
{
    __shared__ double parts[WARPS];
    __shared__ long long counts[WARPS];
    double loss = 0;
    long long right = 0;
    for (int64_t n = threadIdx.x; n < c.rows; n += THREADS) loss += c.losses[n], right += c.right[n];
    loss = block_sum(loss, parts);
    right = block_sum(right, counts);
    if (threadIdx.x == 0) c.sums->loss = loss, c.sums->correct = right;
}
