/* Gradients of attention of float32 tensors with up to 128 columns, whose rows see keys by position (f32.cuh): of rows (dQ) and of keys
 * (dK and dV) in kernels of their own, which both compute weights, so that no two blocks add to the same sum. What they need of rows
 * is in c.rows (general_backward.cu). Threads synchronize two or three times a tile; tiles come while others are multiplied. */
#include "exact_backward.cuh"
#include "f32.cuh"
#include <stddef.h>

namespace
{

template <int WIDTH> struct block_of {
    enum { LINES = MHA_CUDA_F32_LINES(WIDTH), THREADS = 2 * LINES, COLUMNS = WIDTH / 16 };
};

/* Of a block's own lines, rows or keys, and of a tile of the others. */
template <int WIDTH, int ROW_COUNT> struct memory {
    enum { PITCH = WIDTH + 4, LINES = block_of<WIDTH>::LINES };
    float own[2][LINES][PITCH], others[2][OTHERS][PITCH]; /* Q and dO, K and V */
    float weights[LINES][WEIGHTS];
    float4 facts[ROW_COUNT]; /* of rows: reference, 1 / sum, and dout . out - dlse, which is subtracted from dO . V */
    range keys[ROW_COUNT];   /* that rows may see */
    sequence s;
    bool lost[LINES];           /* lines that have to be computed in float64 */
    bool lost_others[OTHERS]; /* others that are not finite, if not all own lines scores_to_gradients them */
};

/* Brings what is known of `count` rows from row i on. */
MHA_DEVICE void bring_rows(float4 *facts, range *keys, const general &c, const sequence &s, int h, int i, int count)
{
    int n = threadIdx.x, row = i + n;
    if (n >= count) return;
    keys[n] = visible_to_row(c, s, row), facts[n] = make_float4(0, 0, 0, 0);
    if (row >= s.queries) return;
    const double *numbers = numbers_of_row(c, s, h, row);
    double sum = numbers[MHA_CUDA_ROW_SUM];
    float delta = (float)numbers[MHA_CUDA_ROW_DELTA];
    if (c.dlse.data) delta -= load(c.dlse, place(c.dlse, s.query_batch, h, s.query_row + row, 0));
    facts[n] = make_float4((float)numbers[MHA_CUDA_ROW_REFERENCE], sum != 0 ? (float)(1 / sum) : 0, delta, 0);
}

/* From q . k and dO . v to weights and gradients by scores (without the scale), in a tile whose keys begin at j. Own lines are rows or
 * keys. ALL: its rows see all of its keys. */
template <bool ROWS, bool ALL>
MHA_DEVICE void scores_to_gradients(const float4 *facts, const range *keys, float scale, int j, float (&x)[OWN_LINES][OWN_OTHERS],
                     float (&y)[OWN_LINES][OWN_OTHERS])
{
#pragma unroll
    for (int a = 0; a < OWN_LINES; a++)
#pragma unroll
        for (int b = 0; b < OWN_OTHERS; b++) {
            float4 f = facts[ROWS ? first_line() + 2 * a : own_lane() + 16 * b];
            float weight = exp_fast(held(rounded_product(scale, x[a][b])) - f.x) * f.y;
            bool seen = ALL || is_seen<ROWS>(keys, j, a, b);
            x[a][b] = seen ? weight : 0;
            y[a][b] = seen ? weight * (y[a][b] - f.z) : 0;
        }
}

template <bool ROWS>
MHA_DEVICE void scores_to_gradients(bool all, const float4 *facts, const range *keys, float scale, int j, float (&x)[OWN_LINES][OWN_OTHERS],
                     float (&y)[OWN_LINES][OWN_OTHERS])
{
    if (all) scores_to_gradients<ROWS, true>(facts, keys, scale, j, x, y);
    else scores_to_gradients<ROWS, false>(facts, keys, scale, j, x, y);
}

/* sums += weights times a tile. Sums of a tile are added up, so that long rows lose little. */
template <int COUNT, int PITCH, int COLUMNS>
MHA_DEVICE void add_tile(float (&weights)[COUNT][WEIGHTS], const float (&x)[OWN_LINES][OWN_OTHERS],
                         const float (&others)[OTHERS][PITCH], float (&sums)[OWN_LINES][COLUMNS])
{
    float part[OWN_LINES][COLUMNS];
    multiply_tile(weights, x, others, part);
#pragma unroll
    for (int a = 0; a < OWN_LINES; a++)
#pragma unroll
        for (int e = 0; e < COLUMNS; e++) sums[a][e] += part[a][e];
}

/* The same with sums of 64 columns of half a tile at a time, which take fewer registers. */
template <int COUNT, int PITCH, int COLUMNS>
MHA_DEVICE void add_tile_in_parts(float (&weights)[COUNT][WEIGHTS], const float (&x)[OWN_LINES][OWN_OTHERS],
                                  const float (&others)[OTHERS][PITCH], float (&sums)[OWN_LINES][COLUMNS])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        put_weights(weights, x, half);
#pragma unroll
        for (int first = 0; first < COLUMNS; first += 4) {
            float part[OWN_LINES][4];
            clear(part);
            multiply_chunk<1>(weights, others + half * CHUNK, part, 16 * first);
#pragma unroll
            for (int a = 0; a < OWN_LINES; a++)
#pragma unroll
                for (int e = 0; e < 4; e++) sums[a][first + e] += part[a][e];
        }
    }
}

/* Whether a line is lost, for the threads that have it. */
template <int N> MHA_DEVICE bool is_line_lost(const float (&x)[N]) { return any_of_line(is_lost(x)); }

/* Columns of a line, from element `at` on, times `by`; zeros unless `there`. */
template <int COLUMNS>
MHA_DEVICE void store_line(const view &t, int64_t at, int width, const float (&x)[COLUMNS], float by, bool there)
{
#pragma unroll
    for (int e = 0; e < COLUMNS; e++) {
        int column = 4 * own_lane() + e / 4 * 64 + e % 4;
        if (t.data && column < width) store(t, at + column * t.stride[3], there ? x[e] * by : 0.0f);
    }
}

/* ---- Rows ------------------------------------------------------------------------------------------------------- */

template <int WIDTH> MHA_DEVICE void gradient_of_rows(const general &c)
{
    typedef block_of<WIDTH> block;
    typedef memory<WIDTH, block::LINES> shared;
    enum { BLOCK = block::THREADS, LINES = block::LINES };
    static_assert(sizeof(shared) <= MHA_CUDA_F32_SHARED_BACK(WIDTH), "shared memory");
    static_assert(sizeof(workspace) <= offsetof(shared, facts), "what repairs rows has the place of tiles");
    shared &m = *(shared *)dynamic_memory<16>();
    const int tiles = (c.Tq + LINES - 1) / LINES;
    const piece p = piece_at({tiles, 1, c.H, c.B}, blockIdx.x);
    const int h = p.head, g = h / c.share, i = (tiles - 1 - p.tile) * LINES; /* the last rows see the most keys */
    if (threadIdx.x == 0) m.s = sequence_of(c, p.b);
    __syncthreads();
    if (i >= m.s.padded) return;
    const range all = seen_by_all(c, m.s, i, LINES);
    const int last = min(i + LINES, m.s.queries) - 1, low = i < m.s.queries ? visible_keys(c, m.s, i).low : 0,
              high = i < m.s.queries ? visible_keys(c, m.s, last).high : 0;
    float dq[OWN_LINES][block::COLUMNS] = {};
    bring_rows(m.facts, m.keys, c, m.s, h, i, LINES);
    int j = low / OTHERS * OTHERS;
    if (j < high) {
        bring_queries<BLOCK>(m.own[0], c.q, m.s, h, i, c.D);
        bring_queries<BLOCK>(m.own[1], c.dout, m.s, h, i, c.E);
        bring_keys<BLOCK>(m.others[1], c.v, m.s, g, j, c.E);
    }
    for (; j < high; j += OTHERS) {
        float x[OWN_LINES][OWN_OTHERS], y[OWN_LINES][OWN_OTHERS];
        pieces_come();
        __syncthreads();
        bring_keys<BLOCK>(m.others[0], c.k, m.s, g, j, c.D);
        multiply_lines(m.own[1], m.others[1], y, c.E);
        pieces_come();
        const bool seen = j >= all.low && j + OTHERS <= all.high;
        if (!seen) clear_lost<BLOCK>(m.others[0], m.lost_others);
        __syncthreads();
        if (j + OTHERS < high) bring_keys<BLOCK>(m.others[1], c.v, m.s, g, j + OTHERS, c.E);
        multiply_lines(m.own[0], m.others[0], x, c.D);
        scores_to_gradients<true>(seen, m.facts, m.keys, c.scale, j, x, y);
        if (!seen) lose_lines<true>(m.lost_others, m.keys, j, y);
        add_tile(m.weights, y, m.others[0], dq);
    }
    bool any = false;
#pragma unroll
    for (int a = 0; a < OWN_LINES; a++) {
        int n = first_line() + 2 * a, row = i + n;
        bool there = row < m.s.queries, lost = is_line_lost(dq[a]) && there;
        any = any || lost;
        if (own_lane() == 0) m.lost[n] = lost;
        if (row < m.s.padded && !lost)
            store_line(c.dq, place(c.dq, m.s.query_batch, h, m.s.query_row + row, 0), c.D, dq[a], c.scale, there);
    }
    if (!__syncthreads_or(any)) return;
    for (int n = 0; n < LINES; n++)
        if (m.lost[n]) finish_row_exactly<BLOCK>(c, *(workspace *)&m, m.s, h, i + n, 0, c.D);
}

/* ---- Keys ------------------------------------------------------------------------------------------------------- */

/* A tile of rows of one of the heads that share keys. */
struct row_tile {
    int h, i;
};

/* The first tile from `t` on whose rows may see one of `count` keys from j on; head `end` if there is none. */
MHA_DEVICE row_tile find_tile(const general &c, const sequence &s, row_tile t, int end, int j, int count)
{
    for (; t.h < end; t.h++, t.i = 0)
        for (; t.i < s.queries; t.i += OTHERS) {
            range r = visible_to_rows(c, s, t.i);
            if (r.low < j + count && r.high > j) return t;
        }
    return t;
}

/* Where the block's keys lie, and its tile of rows and the next one in turns, are kept in shared memory: they take no registers there. */
template <int WIDTH> MHA_DEVICE void gradient_of_keys(const general &c)
{
    typedef block_of<WIDTH> block;
    typedef memory<WIDTH, OTHERS> shared;
    enum { BLOCK = block::THREADS, LINES = block::LINES };
    static_assert(sizeof(shared) <= MHA_CUDA_F32_SHARED_BACK(WIDTH), "shared memory");
    static_assert(sizeof(workspace) <= offsetof(shared, facts), "what repairs keys has the place of tiles");
    __shared__ struct {
        int g, j, end;
        row_tile tile[2];
    } at;
    shared &m = *(shared *)dynamic_memory<16>();
    if (threadIdx.x == 0) {
        const piece p = piece_at({(c.Tk + LINES - 1) / LINES, 1, c.G, c.B}, blockIdx.x);
        m.s = sequence_of(c, p.b), at.g = p.head, at.j = p.tile * LINES, at.end = (p.head + 1) * c.share;
        at.tile[0] = find_tile(c, m.s, {p.head * c.share, 0}, at.end, at.j, LINES);
    }
    __syncthreads();
    if (at.j >= m.s.keys) return;
    float dk[OWN_LINES][block::COLUMNS] = {}, dv[OWN_LINES][block::COLUMNS] = {};
    if (at.tile[0].h < at.end) {
        bring_keys<BLOCK>(m.own[0], c.k, m.s, at.g, at.j, c.D);
        bring_keys<BLOCK>(m.own[1], c.v, m.s, at.g, at.j, c.E);
        bring_queries<BLOCK>(m.others[1], c.dout, m.s, at.tile[0].h, at.tile[0].i, c.E);
    }
    for (int side = 0; at.tile[side].h < at.end; side ^= 1) {
        float x[OWN_LINES][OWN_OTHERS], y[OWN_LINES][OWN_OTHERS];
        const row_tile &own = at.tile[side], &next = at.tile[side ^ 1];
        const range all = seen_by_all(c, m.s, own.i, OTHERS);
        const bool seen = at.j >= all.low && at.j + LINES <= all.high;
        pieces_come();
        if (!seen) clear_lost<BLOCK>(m.others[1], m.lost_others);
        __syncthreads();
        bring_queries<BLOCK>(m.others[0], c.q, m.s, own.h, own.i, c.D);
        bring_rows(m.facts, m.keys, c, m.s, own.h, own.i, OTHERS);
        if (threadIdx.x == 0) at.tile[side ^ 1] = find_tile(c, m.s, {own.h, own.i + OTHERS}, at.end, at.j, LINES);
        multiply_lines(m.own[1], m.others[1], y, c.E);
        pieces_come();
        if (!seen) clear_lost<BLOCK>(m.others[0], m.lost_others, true);
        __syncthreads();
        multiply_lines(m.own[0], m.others[0], x, c.D);
        scores_to_gradients<false>(seen, m.facts, m.keys, c.scale, at.j, x, y);
        if (!seen) lose_lines<false>(m.lost_others, m.keys, at.j, x), lose_lines<false>(m.lost_others, m.keys, at.j, y);
        if (c.dv.data) add_tile_in_parts(m.weights, x, m.others[1], dv);
        __syncthreads();
        if (next.h < at.end) bring_queries<BLOCK>(m.others[1], c.dout, m.s, next.h, next.i, c.E);
        if (c.dk.data) add_tile_in_parts(m.weights, y, m.others[0], dk);
    }
    bool any = false;
#pragma unroll
    for (int a = 0; a < OWN_LINES; a++) {
        int n = first_line() + 2 * a, key = at.j + n;
        bool lost = is_line_lost(dk[a]); /* all lanes take part in both */
        lost = (is_line_lost(dv[a]) || lost) && key < m.s.keys;
        any = any || lost;
        if (own_lane() == 0) m.lost[n] = lost;
        if (key >= m.s.keys || lost) continue;
        int64_t row = m.s.key_row + key;
        store_line(c.dk, place(c.dk, m.s.key_batch, at.g, row, 0), c.D, dk[a], c.scale, true);
        store_line(c.dv, place(c.dv, m.s.key_batch, at.g, row, 0), c.E, dv[a], 1, true);
    }
    if (!__syncthreads_or(any)) return;
    for (int n = 0; n < LINES; n++)
        if (m.lost[n]) finish_key_exactly<BLOCK>(c, *(workspace *)&m, m.s, at.g, at.j + n, 0, max(c.D, c.E));
}

} // namespace

#define KERNELS(WIDTH)                                                                                                          \
    extern "C" __global__ void __launch_bounds__(2 * MHA_CUDA_F32_LINES(WIDTH), MHA_CUDA_F32_BLOCKS_BACK(WIDTH))                \
        backward_f32_rows_##WIDTH(const __grid_constant__ mha_cuda_general c)                                                   \
    {                                                                                                                           \
        gradient_of_rows<WIDTH>(c);                                                                                             \
    }                                                                                                                           \
    extern "C" __global__ void __launch_bounds__(2 * MHA_CUDA_F32_LINES(WIDTH), MHA_CUDA_F32_BLOCKS_BACK(WIDTH))                \
        backward_f32_keys_##WIDTH(const __grid_constant__ mha_cuda_general c)                                                   \
    {                                                                                                                           \
        gradient_of_keys<WIDTH>(c);                                                                                             \
    }
KERNELS(64)
KERNELS(128)
