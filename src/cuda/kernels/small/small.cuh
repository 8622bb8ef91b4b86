/* What the kernels of narrow heads and short sequences share: heads in shared memory, products with them, and what rows see.
 *
 * A tile of the Hopper kernels has 64 columns and at least 128 rows: with 50 rows of 16 numbers, nine tenths of it is padding. Here a
 * warp has 16 rows of a head, or 16 keys, which is as little as tensor cores take, and heads are padded to W columns, 16 or 32.
 * A block has one head, all of it in shared memory, so that there is nothing to wait for once it has come, and a head is too small
 * for descriptors of the copy engine: threads copy 16 bytes at a time. Many blocks share a multiprocessor.
 *
 * Where sequences are not alike, a block has what it is told as if its sequence were alone in the call, and clears the padding. */
#ifndef MHA_CUDA_SMALL_CUH
#define MHA_CUDA_SMALL_CUH

#include "small.h"
#include "careful.cuh"
#include "hopper.cuh"
#include "sequences.cuh"

namespace
{

enum { STEP = MHA_CUDA_SMALL_ROWS }; /* rows and keys of a product */

MHA_DEVICE int whole_steps(int count) { return (count + STEP - 1) / STEP * STEP; }

/* Rows of W numbers in shared memory, PITCH bytes apart: 16 more than they must be, so that eight of them lie in different banks. */
template <int W> struct width {
    enum { PITCH = 2 * W + 16, PIECES = W / 8, PARTS = W / 16 };
};

template <typename T> MHA_DEVICE T *row_at(const mha_cuda_rows &t, int batch, int head, int row)
{
    return (T *)t.data + batch * t.batch + head * t.head + row * t.row;
}

/* The rows of a head to shared memory; zeros behind the last row, up to whole steps, and behind the last column. */
template <typename T, int W>
MHA_DEVICE void bring_head(uint32_t to, const mha_cuda_rows &t, int batch, int head, int count, int columns)
{
    enum { PIECES = width<W>::PIECES };
    for (int n = threadIdx.x; n < whole_steps(count) * PIECES; n += blockDim.x) {
        int row = n / PIECES, column = n % PIECES * 8;
        bool there = row < count && column < columns;
        copy_piece(to + row * width<W>::PITCH + 2 * column,
                   row_at<T>(t, batch, head, there ? row : 0) + (there ? column : 0), there);
    }
}

/* 16 rows of a head as the first factor of a product. */
template <int W> MHA_DEVICE void load_first(uint32_t (&x)[width<W>::PARTS][4], uint32_t rows)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < width<W>::PARTS; i++)
        load_matrices(x[i], rows + lane % 16 * width<W>::PITCH + 32 * i + lane / 16 * 16);
}

/* sums (16,16) = first (16,W) rows^T, of 16 rows of a head. */
template <typename T, int W>
MHA_DEVICE void multiply_rows(float (&sums)[2][4], const uint32_t (&first)[width<W>::PARTS][4], uint32_t rows)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 8; i++) sums[i / 4][i % 4] = 0;
#pragma unroll
    for (int i = 0; i < width<W>::PARTS; i++) { /* matrices: rows 0-7 and columns 0-7, 8-15; rows 8-15, likewise */
        uint32_t b[4];
        load_matrices(b, rows + (lane / 16 * 8 + lane % 8) * width<W>::PITCH + 32 * i + lane / 8 % 2 * 16);
        multiply<T>(sums[0], first[i], b[0], b[1]);
        multiply<T>(sums[1], first[i], b[2], b[3]);
    }
}

/* sums (16,W) += weights (16,16) rows (16,W). */
template <typename T, int W>
MHA_DEVICE void add_rows(float (&sums)[W / 8][4], const uint32_t (&weights)[4], uint32_t rows)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < width<W>::PARTS; i++) { /* matrices: rows 0-7 and 8-15 of columns 0-7; of columns 8-15 */
        uint32_t b[4];
        load_matrices_transposed(b, rows + lane % 16 * width<W>::PITCH + 32 * i + lane / 16 * 16);
        multiply<T>(sums[2 * i], weights, b[0], b[1]);
        multiply<T>(sums[2 * i + 1], weights, b[2], b[3]);
    }
}

/* The results of a product as the first factor of the next. */
template <typename T> MHA_DEVICE void pack_weights(uint32_t (&to)[4], const float (&a)[4], const float (&b)[4])
{
    to[0] = pack<T>(a[0], a[1]), to[1] = pack<T>(a[2], a[3]);
    to[2] = pack<T>(b[0], b[1]), to[3] = pack<T>(b[2], b[3]);
}

/* Whether one of the numbers that a warp holds is infinite or NaN. */
template <int N> MHA_DEVICE bool is_any_lost(const float (&x)[N][4])
{
    float zero = 0;
#pragma unroll
    for (int i = 0; i < 4 * N; i++) zero = fmaf(x[i / 4][i % 4], 0.0f, zero);
    return __any_sync(~0u, zero != 0);
}

/* 16 rows of results, times a number each, to a tensor. `count`: how many rows there are from the first on. */
template <typename T, int W>
MHA_DEVICE void put_rows(const mha_cuda_rows &t, int batch, int head, int first, int count, const float (&x)[W / 8][4],
                         float by, float by_later, int columns)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = lane / 4 + 8 * h;
        if (row >= count) continue;
        T *to = row_at<T>(t, batch, head, first + row) + lane % 4 * 2;
        float own = h ? by_later : by;
#pragma unroll
        for (int i = 0; i < W / 8; i++)
            if (8 * i < columns) *(uint32_t *)(to + 8 * i) = pack<T>(x[i][2 * h] * own, x[i][2 * h + 1] * own);
    }
}

/* ---- Sequences that are not alike ------------------------------------------------------------------------------- */

/* A call with one sequence alone; and how many rows and keys it has with padding. */
struct lone {
    mha_cuda_small c;
    int padded, keys;
    bool is_here; /* false: the sequence is left to other kernels */
};

MHA_DEVICE mha_cuda_rows rows_from(mha_cuda_rows t, int batch, int64_t row)
{
    if (t.data) t.data = (uint16_t *)t.data + batch * t.batch + row * t.row;
    return t;
}

MHA_DEVICE mha_cuda_view numbers_from(mha_cuda_view t, int batch, int64_t row)
{
    if (t.data) t.data = (float *)t.data + batch * t.stride[0] + row * t.stride[2];
    return t;
}

/* By one thread. */
__device__ __noinline__ void find_lone(lone &to, const mha_cuda_small &c, int b)
{
    const sequence s = find_sequence(c, c.query_rows, c.key_rows, b);
    const int Q = s.query_batch, K = s.key_batch;
    to.is_here = mha_cuda_method_of(c.limits, s.queries, s.length) == MHA_CUDA_BY_SMALL_HEADS;
    to.padded = s.padded, to.keys = s.keys;
    to.c = c;
    to.c.Tq = s.queries, to.c.Tk = s.length;
    to.c.offset = c.causal ? (int32_t)limit(s.offset, -s.queries, s.length) : s.length;
    to.c.q = rows_from(c.q, Q, s.query_row), to.c.out = rows_from(c.out, Q, s.query_row);
    to.c.dout = rows_from(c.dout, Q, s.query_row), to.c.dq = rows_from(c.dq, Q, s.query_row);
    to.c.k = rows_from(c.k, K, s.key_row), to.c.v = rows_from(c.v, K, s.key_row);
    to.c.dk = rows_from(c.dk, K, s.key_row), to.c.dv = rows_from(c.dv, K, s.key_row);
    to.c.lse = numbers_from(c.lse, Q, s.query_row), to.c.softmax = numbers_from(c.softmax, Q, s.query_row);
}

/* Zeros for rows [first, end) of a head. */
MHA_DEVICE void clear_rows(const mha_cuda_rows &t, int head, int first, int end, int columns)
{
    int pieces = columns / 8;
    for (int n = threadIdx.x; t.data && n < (end - first) * pieces; n += blockDim.x)
        *(uint4 *)(row_at<uint16_t>(t, 0, head, first + n / pieces) + n % pieces * 8) = make_uint4(0, 0, 0, 0);
}

/* ---- What rows see ---------------------------------------------------------------------------------------------- */

/* How many keys a row sees: those up to its position. */
MHA_DEVICE int keys_seen(const mha_cuda_small &c, int row)
{
    return row < c.Tq ? min(c.Tk, max(0, row + c.offset + 1)) : 0;
}

/* The first row that sees a key. */
MHA_DEVICE int first_row(const mha_cuda_small &c, int key) { return key < c.Tk ? max(0, key - c.offset) : c.Tq; }

/* ---- Rows in float64 -------------------------------------------------------------------------------------------- */

/* The softmax of a row that sees keys: its largest score and the sum of exponentials relative to it. */
struct careful_softmax {
    double top, sum;
};

template <typename T, int W>
MHA_DEVICE careful_softmax soften_carefully(const mha_cuda_small &c, int batch, int head, int row, const careful_row<W> &q)
{
    careful_softmax s = {-INFINITY, 0};
    int own = head / c.group, keys = keys_seen(c, row);
    for (int j = 0; j < keys; j++)
        s.top = fmax(s.top, careful_score((double)c.scale, q, careful_load<T, W>(c.k, batch, own, j, c.D)));
    for (int j = 0; j < keys; j++)
        s.sum += exp(careful_score((double)c.scale, q, careful_load<T, W>(c.k, batch, own, j, c.D)) - s.top);
    return s;
}

template <typename T, int W>
MHA_DEVICE void careful_store(const mha_cuda_rows &t, int batch, int head, int row, const careful_sum<W> &x, int columns)
{
    int column = threadIdx.x % 32 * 2;
    if (t.data && column < columns)
        *(uint32_t *)(row_at<T>(t, batch, head, row) + column) = pack<T>((float)x.x[0], (float)x.x[1]);
}

} // namespace

#endif
