/* Forward attention of float32 tensors with up to 128 columns, whose rows see keys by position: products are float32
 * multiply-adds, since tensor cores round float32 to 11 bits.
 *
 * A block has 128 threads and a tile of 64 rows; a warp has 16 of them, and needs nothing of the others. Thread (y,x) of a
 * warp, 2 by 16, has rows y + 2a of it. It multiplies them with keys x + 16b of a tile of 64 keys, and their weights, 32
 * keys at a time, with columns 4x to 4x + 3 of each 64 columns of V. So 8 by 4 sums, or 8 by 8, take numbers from shared memory
 * in pieces of 16 bytes: neighbours of a warp read the same one of K or V, so that 16 lanes read 128 bytes. Tiles of K come
 * while weights are multiplied, tiles of V while scores are. The order of every sum depends on the place in its
 * sequence alone. */
#include "careful.cuh"
#include "exact.cuh"
#include <stddef.h>

namespace
{

enum {
    ROWS = MHA_CUDA_F32_ROWS,
    KEYS = MHA_CUDA_F32_ROWS,
    BLOCK = MHA_CUDA_F32_THREADS,
    OWN_ROWS = 8,
    OWN_KEYS = 4,
    CHUNK = 32, /* keys whose weights are in shared memory */
    WEIGHTS = CHUNK + 16
};

template <int WIDTH> struct memory {
    float q[ROWS][WIDTH + 4], k[KEYS][WIDTH + 4], v[KEYS][WIDTH];
    float weights[ROWS][WEIGHTS];
    range keys[ROWS]; /* that rows may see */
    sequence s;
    bool lost[ROWS]; /* rows that have to be computed in float64 */
};

/* What thread (y,x) knows of its rows. */
struct rows_of_thread {
    float top[OWN_ROWS], sum[OWN_ROWS]; /* largest score, as a power of 2; sum of this thread's weights, NaN if a score is lost */
};

MHA_DEVICE int first_row(void) { return threadIdx.x / 32 * 16 + threadIdx.x % 2; }
MHA_DEVICE int own_lane(void) { return threadIdx.x % 32 / 2; }

/* Over the 16 threads that have the same rows. */
MHA_DEVICE float sum_of_row(float x)
{
    for (int lanes = 16; lanes > 1; lanes /= 2) x += __shfl_xor_sync(~0u, x, lanes);
    return x;
}

MHA_DEVICE float max_of_row(float x)
{
    for (int lanes = 16; lanes > 1; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, lanes));
    return x;
}

MHA_DEVICE bool any_of_row(bool x) { return __ballot_sync(~0u, x) & 0x55555555u << threadIdx.x % 2; }

/* Rows of a tensor and zeros behind them, on their way: a thread brings pieces of 16 bytes of one column. */
template <int PITCH> MHA_DEVICE void bring(float (&to)[ROWS][PITCH], const lines &A, int width)
{
    enum { PIECES = PITCH / 16 * 4, LINES = BLOCK / PIECES };
    int column = threadIdx.x % PIECES * 4, row = threadIdx.x / PIECES, count = column < width ? A.count : 0;
    const float *from = (const float *)A.t.data + A.at + row * A.t.stride[2] + column;
    const int64_t step = LINES * A.t.stride[2];
    uint32_t at = shared_address(&to[row][column]);
#pragma unroll
    for (int n = 0; n < ROWS; n += LINES, from += step) copy_piece(at + n * PITCH * 4, from, row + n < count);
}

/* x[a][b] = row a . key b, over `width` columns and zeros behind them. */
template <int WIDTH> MHA_DEVICE void multiply_keys(const memory<WIDTH> &m, float (&x)[OWN_ROWS][OWN_KEYS], int width)
{
    enum { STEP = 16 };
    const float *q = m.q[first_row()], *k = m.k[own_lane()];
#pragma unroll
    for (int a = 0; a < OWN_ROWS; a++)
#pragma unroll
        for (int b = 0; b < OWN_KEYS; b++) x[a][b] = 0;
#pragma unroll 1
    for (int first = 0; first < width; first += STEP, q += STEP, k += STEP)
#pragma unroll
        for (int d = 0; d < STEP; d += 4) {
            float4 right[OWN_KEYS];
#pragma unroll
            for (int b = 0; b < OWN_KEYS; b++) right[b] = *(const float4 *)(k + 16 * b * (WIDTH + 4) + d);
#pragma unroll
            for (int a = 0; a < OWN_ROWS; a++) {
                float4 left = *(const float4 *)(q + 2 * a * (WIDTH + 4) + d);
#pragma unroll
                for (int b = 0; b < OWN_KEYS; b++) x[a][b] = fmaf(left.x, right[b].x, x[a][b]);
#pragma unroll
                for (int b = 0; b < OWN_KEYS; b++) x[a][b] = fmaf(left.y, right[b].y, x[a][b]);
#pragma unroll
                for (int b = 0; b < OWN_KEYS; b++) x[a][b] = fmaf(left.z, right[b].z, x[a][b]);
#pragma unroll
                for (int b = 0; b < OWN_KEYS; b++) x[a][b] = fmaf(left.w, right[b].w, x[a][b]);
            }
        }
}

/* Products of the keys from j on become weights relative to the largest score so far. `factor`: what earlier results are multiplied
 * by. `scale` includes log2 e. ALL: rows see all of these keys. */
template <bool ALL>
MHA_DEVICE void weigh(const range *keys, float scale, int j, float (&x)[OWN_ROWS][OWN_KEYS], rows_of_thread &own,
                      float (&factor)[OWN_ROWS])
{
#pragma unroll
    for (int a = 0; a < OWN_ROWS; a++) {
        range r = ALL ? range{0, 0} : keys[first_row() + 2 * a];
        float most = -INFINITY, sum = 0;
#pragma unroll
        for (int b = 0; b < OWN_KEYS; b++) {
            int key = j + own_lane() + 16 * b;
            if (ALL || (key >= r.low && key < r.high)) sum = fmaf(x[a][b], 0.0f, sum);
            else x[a][b] = -INFINITY;
            most = fmaxf(most, x[a][b]);
        }
        float before = own.top[a], top = fmaxf(before, max_of_row(most) * scale), less = top == -INFINITY ? 0 : top;
        factor[a] = exp2_fast(before - less), own.top[a] = top;
#pragma unroll
        for (int b = 0; b < OWN_KEYS; b++) x[a][b] = exp2_fast(fmaf(x[a][b], scale, -less)), sum += x[a][b];
        own.sum[a] = fmaf(own.sum[a], factor[a], sum);
    }
}

/* part[a] += weights of row a times CHUNK rows of V from `first` on. */
template <int WIDTH, int COLUMNS>
MHA_DEVICE void multiply_chunk(const memory<WIDTH> &m, float (&part)[OWN_ROWS][COLUMNS], int first)
{
    const float *weights = m.weights[first_row()], *v = &m.v[first][4 * own_lane()];
#pragma unroll 2
    for (int key = 0; key < CHUNK; key += 4) {
        float4 right[4][COLUMNS / 4];
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int e = 0; e < COLUMNS / 4; e++) right[n][e] = *(const float4 *)(v + (key + n) * WIDTH + 64 * e);
#pragma unroll
        for (int a = 0; a < OWN_ROWS; a++) {
            float4 four = *(const float4 *)(weights + 2 * a * WEIGHTS + key);
            const float left[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int e = 0; e < COLUMNS / 4; e++) {
                    part[a][4 * e] = fmaf(left[n], right[n][e].x, part[a][4 * e]);
                    part[a][4 * e + 1] = fmaf(left[n], right[n][e].y, part[a][4 * e + 1]);
                    part[a][4 * e + 2] = fmaf(left[n], right[n][e].z, part[a][4 * e + 2]);
                    part[a][4 * e + 3] = fmaf(left[n], right[n][e].w, part[a][4 * e + 3]);
                }
        }
    }
}

/* o[a] = o[a] times its factor, and weights of row a times V. Sums of a tile are added up, so that long rows lose little. */
template <int WIDTH, int COLUMNS>
MHA_DEVICE void multiply_values(memory<WIDTH> &m, const float (&x)[OWN_ROWS][OWN_KEYS], const float (&factor)[OWN_ROWS],
                                float (&o)[OWN_ROWS][COLUMNS])
{
    float part[OWN_ROWS][COLUMNS] = {};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        __syncwarp();
#pragma unroll
        for (int a = 0; a < OWN_ROWS; a++)
#pragma unroll
            for (int b = 0; b < 2; b++) m.weights[first_row() + 2 * a][own_lane() + 16 * b] = x[a][2 * half + b];
        __syncwarp();
        multiply_chunk(m, part, half * CHUNK);
    }
#pragma unroll
    for (int a = 0; a < OWN_ROWS; a++)
#pragma unroll
        for (int e = 0; e < COLUMNS; e++) o[a][e] = fmaf(o[a][e], factor[a], part[a][e]);
}

/* Stores the rows of the tile from row i on but those that are lost, and returns whether there are any. */
template <int WIDTH, int COLUMNS>
MHA_DEVICE bool store_rows(const general &c, memory<WIDTH> &m, int h, int i, const rows_of_thread &own,
                           const float (&o)[OWN_ROWS][COLUMNS])
{
    const double ln_2 = 0.693147180559945309;
    bool any = false;
#pragma unroll
    for (int a = 0; a < OWN_ROWS; a++) {
        int n = first_row() + 2 * a, row = i + n;
        bool sees = m.keys[n].high > m.keys[n].low;
        float sum = sum_of_row(own.sum[a]);
        bool lost = any_of_row(is_lost(o[a])) || !(sum > 0 && sum < INFINITY);
        lost = lost && sees;
        any = any || lost;
        if (own_lane() == 0) m.lost[n] = lost;
        if (row >= m.s.padded || lost) continue;
        float *to = (float *)c.out.data + place(c.out, m.s.query_batch, h, m.s.query_row + row, 4 * own_lane());
#pragma unroll
        for (int e = 0; e < COLUMNS / 4; e++)
            if (4 * own_lane() + 64 * e < c.E)
                *(float4 *)(to + 64 * e) = sees ? make_float4(o[a][4 * e] / sum, o[a][4 * e + 1] / sum, o[a][4 * e + 2] / sum,
                                                              o[a][4 * e + 3] / sum)
                                                : make_float4(0, 0, 0, 0);
        if (own_lane() == 0) store_softmax(c, m.s, h, row, sees ? softmax{own.top[a] * ln_2, sum} : softmax{-INFINITY, 0});
    }
    return __syncthreads_or(any);
}

/* The keys that all rows of a tile see that are not padding. */
MHA_DEVICE range seen_by_all(const general &c, const sequence &s, int i)
{
    return {visible_keys(c, s, min(i + ROWS, s.queries) - 1).low, visible_keys(c, s, i).high};
}

template <int WIDTH> MHA_DEVICE void forward(const general &c)
{
    enum { COLUMNS = WIDTH / 16 };
    static_assert(sizeof(memory<WIDTH>) <= MHA_CUDA_F32_SHARED(WIDTH), "shared memory");
    static_assert(sizeof(workspace) <= offsetof(memory<WIDTH>, keys), "what repairs rows has the place of tiles");
    memory<WIDTH> &m = *(memory<WIDTH> *)dynamic_memory<16>();
    piece p = piece_at({c.row_tiles, 1, c.H, c.B}, blockIdx.x);
    int h = p.head, i = (c.row_tiles - 1 - p.tile) * ROWS; /* the last rows see the most keys */
    if (threadIdx.x == 0) m.s = sequence_of(c, p.b);
    __syncthreads();
    if (i >= m.s.padded) return;
    const range any = visible_to_rows(c, m.s, i), all = any.high ? seen_by_all(c, m.s, i) : any;
    const float log2_e = 1.44269504f, scale = (float)(c.scale * 1.4426950408889634);
    const float sink = c.sinks.data ? load(c.sinks, place(c.sinks, 0, h, 0, 0)) : -INFINITY;
    if (threadIdx.x < ROWS) m.keys[threadIdx.x] = visible_to_row(c, m.s, i + threadIdx.x);
    rows_of_thread own;
    float o[OWN_ROWS][COLUMNS] = {};
#pragma unroll
    for (int a = 0; a < OWN_ROWS; a++) {
        own.top[a] = sink * log2_e, own.sum[a] = 0;
        if (sink != -INFINITY && own_lane() == 0) own.sum[a] = exp2_fast(fmaf(sink, log2_e, -own.top[a]));
    }
    int j = any.low / KEYS * KEYS;
    if (j < any.high) {
        bring(m.q, query_lines(c, c.q, m.s, h, i), c.D);
        bring(m.k, key_lines(c, c.k, m.s, h / c.share, j), c.D);
    }
    for (; j < any.high; j += KEYS) {
        float x[OWN_ROWS][OWN_KEYS], factor[OWN_ROWS];
        pieces_come();
        __syncthreads();
        bring(m.v, key_lines(c, c.v, m.s, h / c.share, j), c.E);
        multiply_keys(m, x, c.D);
        if (j >= all.low && j + KEYS <= all.high) weigh<true>(m.keys, scale, j, x, own, factor);
        else weigh<false>(m.keys, scale, j, x, own, factor);
        pieces_come();
        __syncthreads();
        if (j + KEYS < any.high) bring(m.k, key_lines(c, c.k, m.s, h / c.share, j + KEYS), c.D);
        multiply_values(m, x, factor, o);
    }
    __syncthreads(); /* the ranges of rows are there, if there were no tiles */
    if (!store_rows(c, m, h, i, own, o)) return;
    for (int row = 0; row < ROWS; row++)
        if (m.lost[row]) finish_exactly<BLOCK>(c, *(workspace *)&m, m.s, h, i + row, 0, c.E);
}

} // namespace

extern "C" __global__ void __launch_bounds__(BLOCK, MHA_CUDA_F32_BLOCKS(64)) forward_f32_64(const __grid_constant__ mha_cuda_general c)
{
    forward<64>(c);
}

extern "C" __global__ void __launch_bounds__(BLOCK, MHA_CUDA_F32_BLOCKS(128)) forward_f32_128(const __grid_constant__ mha_cuda_general c)
{
    forward<128>(c);
}
