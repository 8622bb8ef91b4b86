/* Forward attention of float32 tensors with up to 128 columns, whose rows see keys by position (f32.cuh). A block has 64 rows, whose
 * warps synchronize twice a tile of 64 keys: tiles of K come while weights are multiplied, tiles of V while scores are. The order of every
 * sum depends on the place in its sequence alone. */
#include "exact.cuh"
#include "f32.cuh"
#include <stddef.h>

namespace
{

enum { ROWS = MHA_CUDA_F32_TILE, KEYS = OTHERS, BLOCK = ROWS / 16 * 32 };

template <int WIDTH> struct memory {
    float q[ROWS][WIDTH + 4], k[KEYS][WIDTH + 4], v[KEYS][WIDTH];
    float weights[ROWS][WEIGHTS];
    range keys[ROWS]; /* that rows may see */
    sequence s;
    bool lost[ROWS];      /* rows that have to be computed in float64 */
    bool lost_keys[KEYS]; /* rows of V that are not finite, if not all see them */
};

/* What thread (y,x) knows of its rows. */
struct rows_of_thread {
    float top[OWN_LINES], sum[OWN_LINES]; /* largest score; sum of this thread's weights, NaN if a score is lost */
};

/* Products of the keys from j on become weights relative to the largest score so far. `factor`: what earlier results are multiplied
 * by. ALL: rows see all of these keys. */
template <bool ALL>
MHA_DEVICE void weigh(const range *keys, float scale, int j, float (&x)[OWN_LINES][OWN_OTHERS], rows_of_thread &own,
                      float (&factor)[OWN_LINES])
{
#pragma unroll
    for (int a = 0; a < OWN_LINES; a++) {
        float most = -INFINITY, sum = 0;
#pragma unroll
        for (int b = 0; b < OWN_OTHERS; b++) {
            x[a][b] = rounded_product(scale, x[a][b]);
            if (ALL || is_seen<true>(keys, j, a, b)) sum = fmaf(x[a][b], 0.0f, sum);
            else x[a][b] = -INFINITY;
            most = fmaxf(most, x[a][b]);
        }
        float before = own.top[a], top = fmaxf(before, max_of_line(most)), less = top == -INFINITY ? 0 : top;
        factor[a] = exp_fast(before - less), own.top[a] = top;
#pragma unroll
        for (int b = 0; b < OWN_OTHERS; b++) x[a][b] = exp_fast(x[a][b] - less), sum += x[a][b];
        own.sum[a] = fmaf(own.sum[a], factor[a], sum);
    }
}

/* Stores the rows of the tile from row i on but those that are lost, and returns whether there are any. */
template <int WIDTH, int COLUMNS>
MHA_DEVICE bool store_rows(const general &c, memory<WIDTH> &m, int h, int i, const rows_of_thread &own,
                           const float (&o)[OWN_LINES][COLUMNS])
{
    bool any = false;
#pragma unroll
    for (int a = 0; a < OWN_LINES; a++) {
        int n = first_line() + 2 * a, row = i + n;
        bool sees = m.keys[n].high > m.keys[n].low;
        float sum = sum_of_line(own.sum[a]);
        bool lost = any_of_line(is_lost(o[a])) || !(sum > 0 && sum < INFINITY);
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
        if (own_lane() == 0) store_softmax(c, m.s, h, row, sees ? softmax{own.top[a], sum} : softmax{-INFINITY, 0});
    }
    return __syncthreads_or(any);
}

template <int WIDTH> MHA_DEVICE void forward(const general &c)
{
    enum { COLUMNS = WIDTH / 16 };
    static_assert(sizeof(memory<WIDTH>) <= MHA_CUDA_F32_SHARED(WIDTH), "shared memory");
    static_assert(sizeof(workspace) <= offsetof(memory<WIDTH>, keys), "what repairs rows has the place of tiles");
    memory<WIDTH> &m = *(memory<WIDTH> *)dynamic_memory<16>();
    piece p = piece_at({c.row_tiles, 1, c.H, c.B}, blockIdx.x);
    int h = p.head, g = h / c.share, i = (c.row_tiles - 1 - p.tile) * ROWS; /* the last rows see the most keys */
    if (threadIdx.x == 0) m.s = sequence_of(c, p.b);
    __syncthreads();
    if (i >= m.s.padded) return;
    const range any = visible_to_rows(c, m.s, i), all = seen_by_all(c, m.s, i, ROWS);
    const float sink = c.sinks.data ? load(c.sinks, place(c.sinks, 0, h, 0, 0)) : -INFINITY;
    if (threadIdx.x < ROWS) m.keys[threadIdx.x] = visible_to_row(c, m.s, i + threadIdx.x);
    rows_of_thread own;
    float o[OWN_LINES][COLUMNS] = {};
#pragma unroll
    for (int a = 0; a < OWN_LINES; a++) {
        own.top[a] = sink, own.sum[a] = 0;
        if (sink != -INFINITY && own_lane() == 0) own.sum[a] = 0 * sink + 1; /* NaN if it is not finite */
    }
    int j = any.low / KEYS * KEYS;
    if (j < any.high) {
        bring_queries<BLOCK>(m.q, c.q, m.s, h, i, c.D);
        bring_keys<BLOCK>(m.k, c.k, m.s, g, j, c.D);
    }
    for (; j < any.high; j += KEYS) {
        float x[OWN_LINES][OWN_OTHERS], factor[OWN_LINES];
        pieces_come();
        __syncthreads();
        bring_keys<BLOCK>(m.v, c.v, m.s, g, j, c.E);
        multiply_lines(m.q, m.k, x, c.D);
        const bool seen = j >= all.low && j + KEYS <= all.high;
        if (seen) weigh<true>(m.keys, c.scale, j, x, own, factor);
        else weigh<false>(m.keys, c.scale, j, x, own, factor);
        pieces_come();
        if (!seen) clear_lost<BLOCK>(m.v, m.lost_keys);
        __syncthreads();
        if (!seen) lose_lines<true>(m.lost_keys, m.keys, j, x);
        if (j + KEYS < any.high) bring_keys<BLOCK>(m.k, c.k, m.s, g, j + KEYS, c.D);
        float part[OWN_LINES][COLUMNS];
        multiply_tile(m.weights, x, m.v, part);
#pragma unroll
        for (int a = 0; a < OWN_LINES; a++)
#pragma unroll
            for (int e = 0; e < COLUMNS; e++) o[a][e] = fmaf(o[a][e], factor[a], part[a][e]); /* so that long rows lose little */
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
