/* Small kernels that are bound by memory: copies, padding, positions, gates, sums of columns. */
#include "elements.cuh"
#include "ops.h"
#include "rows.h"

enum { THREADS = MHA_CUDA_THREADS };

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)

MHA_DEVICE int64_t count_of(const view &t) { return t.size[0] * t.size[1] * t.size[2] * t.size[3]; }
MHA_DEVICE int64_t first_number(void) { return blockIdx.x * (int64_t)THREADS + threadIdx.x; }
MHA_DEVICE int64_t all_threads(void) { return gridDim.x * (int64_t)THREADS; }

/* Element n of the sizes of `like`. */
MHA_DEVICE int64_t place_of(const view &v, const view &like, int64_t n)
{
    int64_t l = n % like.size[3], row = n / like.size[3];
    int64_t k = row % like.size[2], j = row / like.size[2] % like.size[1], i = row / like.size[2] / like.size[1];
    return place(v, i, j, k, l);
}

/* ---- Copies ----------------------------------------------------------------------------------------------------- */

/* Four numbers side by side. */
MHA_DEVICE void load_four(float (&x)[4], const view &t, int64_t at)
{
    if (t.type == FLOAT32) {
        float4 four = *(const float4 *)((const float *)t.data + at);
        x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
        return;
    }
    uint2 four = *(const uint2 *)((const uint16_t *)t.data + at);
    uint32_t both[2] = {four.x, four.y};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint16_t bits = (uint16_t)(both[i / 2] >> 16 * (i % 2));
        x[i] = t.type == BFLOAT16 ? __uint_as_float((uint32_t)bits << 16) : __half2float(__ushort_as_half(bits));
    }
}

MHA_DEVICE void store_four(const view &t, int64_t at, const float (&x)[4])
{
    if (t.type == FLOAT32) {
        *(float4 *)((float *)t.data + at) = make_float4(x[0], x[1], x[2], x[3]);
        return;
    }
    uint32_t both[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint16_t bits = t.type == BFLOAT16 ? __bfloat16_as_ushort(__float2bfloat16_rn(x[i]))
                                           : __half_as_ushort(__float2half_rn(x[i]));
        both[i / 2] |= (uint32_t)bits << 16 * (i % 2);
    }
    *(uint2 *)((uint16_t *)t.data + at) = make_uint2(both[0], both[1]);
}

/* One number, or four side by side, of which a copy keeps every bit. */
MHA_DEVICE void move_bits(const view &to, int64_t at, const view &from, int64_t source, bool quads)
{
    if (to.type == FLOAT32 && quads) *(uint4 *)((uint32_t *)to.data + at) = *(const uint4 *)((const uint32_t *)from.data + source);
    else if (to.type == FLOAT32) ((uint32_t *)to.data)[at] = ((const uint32_t *)from.data)[source];
    else if (quads) *(uint2 *)((uint16_t *)to.data + at) = *(const uint2 *)((const uint16_t *)from.data + source);
    else ((uint16_t *)to.data)[at] = ((const uint16_t *)from.data)[source];
}

/* Zeros, or the numbers of another tensor, which may be added. With `quads`, four numbers side by side at a time. */
KERNEL copy(const __grid_constant__ mha_cuda_copy c)
{
    int step = c.quads ? 4 : 1;
    for (int64_t n = first_number() * step; n < count_of(c.to); n += all_threads() * step) {
        int64_t at = place_of(c.to, c.to, n), source = c.from.data ? place_of(c.from, c.to, n) : 0;
        float x[4] = {0, 0, 0, 0}, y[4];
        if (c.from.data && !c.add && c.from.type == c.to.type) {
            move_bits(c.to, at, c.from, source, c.quads);
            continue;
        }
        if (!c.quads) {
            if (c.from.data) x[0] = load(c.from, source);
            store(c.to, at, c.add ? load(c.to, at) + x[0] : x[0]);
            continue;
        }
        if (c.from.data) load_four(x, c.from, source);
        if (c.add) {
            load_four(y, c.to, at);
#pragma unroll
            for (int i = 0; i < 4; i++) x[i] += y[i];
        }
        store_four(c.to, at, x);
    }
}

KERNEL fill(const __grid_constant__ mha_cuda_fill c)
{
    for (int64_t n = first_number(); n < count_of(c.to); n += all_threads()) store(c.to, place_of(c.to, c.to, n), c.value);
}

/* Bytes that come with the launch. */
KERNEL upload(const __grid_constant__ mha_cuda_upload c)
{
    for (int n = threadIdx.x; n < c.bytes; n += THREADS) c.to[n] = c.data[n];
}

/* ---- Sequences -------------------------------------------------------------------------------------------------- */

MHA_DEVICE int64_t integer(const view &t, int64_t n)
{
    if (t.type == INT32) return ((const int32_t *)t.data)[n * t.stride[0]];
    return ((const int64_t *)t.data)[n * t.stride[0]];
}

/* The sequence whose stretch of rows holds row t; -1: none. */
MHA_DEVICE int64_t sequence_at(const view &starts, int64_t t)
{
    int64_t low = 0, high = starts.size[0]; /* starts below `low` are at most t */
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (integer(starts, middle) <= t) low = middle + 1;
        else high = middle;
    }
    return low == starts.size[0] ? -1 : low - 1;
}

/* A block takes one row, of all axes between. */
KERNEL clear(const __grid_constant__ mha_cuda_sequences c)
{
    int64_t rows = c.to.size[c.axis], n = blockIdx.x / rows, t = blockIdx.x % rows;
    int64_t b = c.starts.data ? sequence_at(c.starts, t) : n, at = t;
    if (c.starts.data && b >= 0) at -= integer(c.starts, b);
    if (b >= 0 && !(c.lengths.data && at >= integer(c.lengths, b))) return;
    int64_t between = c.axis == 2 ? c.to.size[1] : 1, inside = c.axis == 2 ? c.to.size[3] : c.to.size[2];
    for (int64_t e = threadIdx.x; e < between * inside; e += THREADS) {
        int64_t h = e / inside, d = e % inside;
        store(c.to, c.axis == 2 ? place(c.to, n, h, t, d) : place(c.to, n, t, d, 0), 0.0f);
    }
}

KERNEL places(const __grid_constant__ mha_cuda_sequences c)
{
    int64_t T = c.to.size[1];
    for (int64_t n = first_number(); n < count_of(c.to); n += all_threads()) {
        int64_t b = c.starts.data ? sequence_at(c.starts, n) : n / T, at = 0;
        if (b >= 0) {
            int64_t start = c.starts.data ? integer(c.starts, b) : b * T;
            int64_t end = c.starts.data ? integer(c.starts, b + 1) : start + T;
            at = c.lengths.data ? integer(c.lengths, b) - (end - n) : n - start;
        }
        ((int64_t *)c.to.data)[place(c.to, n / T, n % T, 0, 0)] = at < 0 ? 0 : at;
    }
}

KERNEL append(const __grid_constant__ mha_cuda_sequences c)
{
    for (int64_t n = first_number(); n < count_of(c.from); n += all_threads()) {
        int64_t d = n % c.from.size[3], row = n / c.from.size[3];
        int64_t t = row % c.from.size[2], g = row / c.from.size[2] % c.from.size[1];
        int64_t batch = row / c.from.size[2] / c.from.size[1], b = c.starts.data ? sequence_at(c.starts, t) : batch;
        if (b < 0) continue;
        int64_t at = integer(c.lengths, b) - (c.starts.data ? integer(c.starts, b + 1) : c.from.size[2]) + t;
        if (at >= 0 && at < c.to.size[2])
            store(c.to, place(c.to, b, g, at, d), load(c.from, place(c.from, batch, g, t, d)));
    }
}

/* ---- Heads ------------------------------------------------------------------------------------------------------ */

/* A gate of 0 shuts out whatever the head says, NaN included. */
KERNEL gate(const __grid_constant__ mha_cuda_pair c)
{
    for (int64_t n = first_number(); n < count_of(c.to); n += all_threads()) {
        float by = c.gates[n / c.to.size[3] / c.to.size[2] % c.to.size[1]];
        store(c.to, place_of(c.to, c.to, n), by == 0 ? 0.0f : load(c.from, place_of(c.from, c.to, n)) * by);
    }
}

/* The sum over a block, in every thread. */
MHA_DEVICE double block_sum(double x)
{
    __shared__ double parts[THREADS / 32];
#pragma unroll
    for (int mask = 16; mask; mask >>= 1) x += __shfl_xor_sync(~0u, x, mask);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    for (int n = 0; n < THREADS / 32; n++) x += parts[n];
    return x;
}

/* A block takes one head: the sum of to * from over all its rows. */
KERNEL gate_sums(const __grid_constant__ mha_cuda_pair c)
{
    int64_t h = blockIdx.x, T = c.to.size[2], E = c.to.size[3];
    double sum = 0;
    for (int64_t n = threadIdx.x; n < c.to.size[0] * T * E; n += THREADS) {
        int64_t e = n % E, t = n / E % T, b = n / E / T;
        sum += (double)load(c.to, place(c.to, b, h, t, e)) * (double)load(c.from, place(c.from, b, h, t, e));
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) c.sums[h] += (float)sum;
}

/* A block takes one row of matrices. */
KERNEL clean(const __grid_constant__ mha_cuda_pair c)
{
    int64_t n = blockIdx.x;
    int any = 0;
    for (int64_t k = threadIdx.x; k < c.other.size[1]; k += THREADS) any |= load(c.other, place(c.other, n, k, 0, 0)) != 0;
    any = __syncthreads_or(any);
    for (int64_t k = threadIdx.x; k < c.to.size[1]; k += THREADS)
        store(c.to, place(c.to, n, k, 0, 0), any ? load(c.from, place(c.from, n, k, 0, 0)) : 0.0f);
}

/* to (B,Tq,Tk) = the mean of from (B,H,Tq,Tk) over heads. */
KERNEL average_heads(const __grid_constant__ mha_cuda_pair c)
{
    for (int64_t n = first_number(); n < count_of(c.to); n += all_threads()) {
        int64_t j = n % c.to.size[2], i = n / c.to.size[2] % c.to.size[1], b = n / c.to.size[2] / c.to.size[1];
        double sum = 0;
        for (int64_t h = 0; h < c.from.size[1]; h++) sum += (double)load(c.from, place(c.from, b, h, i, j));
        store(c.to, place(c.to, b, i, j, 0), sum / (double)c.from.size[1]);
    }
}

/* ---- Sums of columns -------------------------------------------------------------------------------------------- */

/* A block takes 256 columns of a chunk of rows. */
KERNEL column_sums(const __grid_constant__ mha_cuda_column_sums c)
{
    int64_t chunk = blockIdx.x % c.chunks, column = blockIdx.x / c.chunks * THREADS + threadIdx.x, columns = c.y.size[1];
    int64_t first = chunk * MHA_CUDA_CHUNK, end = min(first + MHA_CUDA_CHUNK, c.y.size[0]);
    if (column >= columns) return;
    double sum = 0;
#pragma unroll 8
    for (int64_t row = first; row < end; row++) sum += (double)load(c.y, place(c.y, row, column, 0, 0));
    c.partials[chunk * columns + column] = (float)sum;
}

/* A block takes 32 columns; each of 8 lines of threads every eighth chunk. */
KERNEL add_sums(const __grid_constant__ mha_cuda_add_sums c)
{
    enum { LINES = THREADS / 32 };
    __shared__ double parts[LINES][32];
    int lane = threadIdx.x % 32, line = threadIdx.x / 32;
    int64_t column = blockIdx.x * 32ll + lane;
    double sum = 0;
    if (column < c.columns) {
#pragma unroll 4
        for (int64_t n = line; n < c.chunks; n += LINES) sum += (double)c.partials[n * c.pitch + column];
    }
    parts[line][lane] = sum;
    __syncthreads();
    if (line || column >= c.columns) return;
    sum = 0;
    for (int n = 0; n < LINES; n++) sum += parts[n][lane];
    float *to = c.to + column * c.stride;
    *to = (float)((double)*to + sum);
}
