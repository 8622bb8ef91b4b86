/* Gradients of attention for every type, width, layout and option.
 *
 * `prepare` finds the softmax of every row and dout . out; then rows (dq), keys (dk and dv), biases and heads (slopes,
 * sinks, importance) have a kernel each. Weights are computed again in each of them, by the same operations. */
#include "exact_backward.cuh"

namespace
{

/* What gradients need of a row. */
struct row_facts {
    range keys;
    float reference, inverse, delta, dlse;
};

MHA_DEVICE row_facts facts_of(const general &c, const sequence &s, int h, int i)
{
    if (i >= s.queries) return {{0, 0}, 0, 0, 0, 0};
    const double *row = numbers_of_row(c, s, h, i);
    double sum = row[MHA_CUDA_ROW_SUM];
    return {visible_keys(c, s, i), (float)row[MHA_CUDA_ROW_REFERENCE], sum != 0 ? (float)(1 / sum) : 0,
            (float)row[MHA_CUDA_ROW_DELTA],
            c.dlse.data ? load(c.dlse, place(c.dlse, s.query_batch, h, s.query_row + i, 0)) : 0};
}

/* From q . k and dout . v. */
template <bool PLAIN>
MHA_DEVICE pair_gradient<float> gradient_of_pair(const general &c, const sequence &s, int h, int i, int j, const row_facts &row,
                               float dot, float dw, float kept)
{
    score<float> x;
    if (PLAIN) {
        x.visible = j >= row.keys.low && j < row.keys.high, x.slope = 1;
        x.masked = held(rounded_product(c.scale, dot));
    } else x = score_of<float>(c, s, h, i, j, row.keys, dot);
    if (!x.visible) return {false, 0, 0, 0};
    float weight = expf(x.masked - row.reference) * row.inverse;
    return {true, weight * kept, weight * (dw * kept - row.delta + row.dlse), x.slope * c.scale};
}

/* The products of a tile. */
struct tile_facts {
    float dots[4][4], dw[4][4];
};

MHA_DEVICE void multiply_tile(const general &c, workspace &w, const sequence &s, int h, int i, int j, tile_facts &t)
{
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++) t.dots[a][b] = t.dw[a][b] = 0;
    multiply_rows(w, t.dots, query_lines(c, c.q, s, h, i), key_lines(c, c.k, s, h / c.share, j), c.D);
    multiply_rows(w, t.dw, query_lines(c, c.dout, s, h, i), key_lines(c, c.v, s, h / c.share, j), c.E);
}

/* Calls `use(a, b, pair_gradient)` for the pairs of a row and a key that a thread has in a tile. `rows` are in shared memory. */
template <bool PLAIN, typename function>
MHA_DEVICE void gradients_of_tile(const general &c, const sequence &s, int h, int i, int j, const row_facts *rows,
                          const tile_facts &t, function use)
{
    int first = threadIdx.x % 16 * 4, line = threadIdx.x / 16 * 4;
#pragma unroll
    for (int a = 0; a < 4; a++) {
        unsigned kept = PLAIN ? 15 : kept_of_four(c, s.b, h, i + line + a, j + first);
#pragma unroll
        for (int b = 0; b < 4; b++) {
            float by = PLAIN || !c.dropped ? 1.0f : kept >> b & 1 ? c.kept : 0.0f;
            use(a, b, gradient_of_pair<PLAIN>(c, s, h, i + line + a, j + first + b, rows[line + a], t.dots[a][b], t.dw[a][b], by));
        }
    }
}

template <typename function>
MHA_DEVICE void gradients_of_pairs(const general &c, const sequence &s, int h, int i, int j, const row_facts *rows,
                         const tile_facts &t, function use)
{
    if (is_plain(c) && !c.dropped) gradients_of_tile<true>(c, s, h, i, j, rows, t, use);
    else gradients_of_tile<false>(c, s, h, i, j, rows, t, use);
}

MHA_DEVICE void bring_facts(row_facts *rows, const general &c, const sequence &s, int h, int i)
{
    __syncthreads();
    if (threadIdx.x < TILE) rows[threadIdx.x] = facts_of(c, s, h, i + threadIdx.x);
}

/* ---- Rows ------------------------------------------------------------------------------------------------------- */

template <int N>
MHA_DEVICE void finish_rows(const general &c, workspace &w, const sequence &s, int h, int i, int first,
                            const float (&dq)[4][4 * N], const float (&slope)[4])
{
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    __syncthreads();
    if (threadIdx.x < TILE) w.lost[threadIdx.x] = false;
    __syncthreads();
#pragma unroll
    for (int a = 0; a < 4; a++) {
        int row = i + 4 * y + a;
        float all = line_sum(slope[a]);
        bool lost = !isfinite(all);
#pragma unroll
        for (int e = 0; e < 4 * N; e++) lost = lost || !isfinite(dq[a][e]);
        lost = line_max(lost) > 0;
        if (row >= s.padded) continue;
        if (lost && row < s.queries) {
            w.lost[4 * y + a] = true;
            continue;
        }
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int b = 0; b < 4; b++) {
                int d = first + TILE * n + 4 * x + b;
                if (c.dq.data && d < c.D)
                    store(c.dq, place(c.dq, s.query_batch, h, s.query_row + row, d),
                          row < s.queries ? dq[a][4 * n + b] : 0.0f);
            }
        if (x == 0 && first == 0 && row < s.queries) numbers_of_row(c, s, h, row)[MHA_CUDA_ROW_SLOPE] = all;
    }
    __syncthreads();
    for (int row = 0; row < TILE; row++)
        if (w.lost[row]) finish_row_exactly(c, w, s, h, i + row, first, min(TILE * N, c.D - first));
}

/* A tile of rows of a head, and 64 N columns of their gradients. */
template <int N> MHA_DEVICE void gradient_of_rows(const general &c, workspace &w, const piece &own)
{
    __shared__ row_facts rows[TILE];
    int h = own.head, i = own.tile * TILE, first = own.slice * TILE * N;
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    sequence s = sequence_of(c, own.b);
    if (i >= s.padded) return;
    float dq[4][4 * N] = {}, slope[4] = {};
    bring_facts(rows, c, s, h, i);
    range r = visible_to_rows(c, s, i);
    for (int j = r.low / TILE * TILE; j < r.high; j += TILE) {
        tile_facts t;
        multiply_tile(c, w, s, h, i, j, t);
        gradients_of_pairs(c, s, h, i, j, rows, t, [&](int a, int b, const pair_gradient<float> &m) {
            if (c.slopes.data && m.visible)
                slope[a] -= m.score * (float)llabs(i + 4 * y + a + s.offset - (j + 4 * x + b));
            t.dots[a][b] = m.score * m.slope;
        });
        __syncthreads();
#pragma unroll
        for (int n = 0; n < 4; n++)
            *(float4 *)&w.weights[4 * x + n][4 * y] =
                make_float4(t.dots[0][n], t.dots[1][n], t.dots[2][n], t.dots[3][n]);
        multiply_weights<N>(w, dq, key_lines(c, c.k, s, h / c.share, j), first, c.D);
    }
    finish_rows<N>(c, w, s, h, i, first, dq, slope);
}

template <int N> MHA_DEVICE void gradient_of_rows(const general &c)
{
    __shared__ workspace w;
    for_each_piece(c, {c.row_tiles, c.slices, c.H, c.B}, [&](const piece &own) { gradient_of_rows<N>(c, w, own); });
}

/* ---- Keys ------------------------------------------------------------------------------------------------------- */

template <int N>
MHA_DEVICE void finish_keys(const general &c, workspace &w, const sequence &s, int g, int j, int first,
                            const float (&dk)[4][4 * N], const float (&dv)[4][4 * N])
{
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    __syncthreads();
    if (threadIdx.x < TILE) w.lost[threadIdx.x] = false;
    __syncthreads();
#pragma unroll
    for (int a = 0; a < 4; a++) {
        int key = j + 4 * y + a;
        bool lost = false;
#pragma unroll
        for (int e = 0; e < 4 * N; e++) lost = lost || !isfinite(dk[a][e]) || !isfinite(dv[a][e]);
        lost = line_max(lost) > 0;
        if (key >= s.keys) continue;
        if (lost) {
            w.lost[4 * y + a] = true;
            continue;
        }
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int b = 0; b < 4; b++) {
                int d = first + TILE * n + 4 * x + b;
                int64_t row = s.key_row + key;
                if (c.dk.data && d < c.D) store(c.dk, place(c.dk, s.key_batch, g, row, d), dk[a][4 * n + b]);
                if (c.dv.data && d < c.E) store(c.dv, place(c.dv, s.key_batch, g, row, d), dv[a][4 * n + b]);
            }
    }
    __syncthreads();
    for (int key = 0; key < TILE; key++)
        if (w.lost[key]) finish_key_exactly(c, w, s, g, j + key, first, TILE * N);
}

/* A tile of keys of a key head, and 64 N columns of both gradients. Where it lies is kept in shared memory: it takes no registers
 * there. */
template <int N> MHA_DEVICE void gradient_of_keys(const general &c, workspace &w, const piece &own)
{
    __shared__ row_facts rows[TILE];
    __shared__ struct {
        sequence s;
        int g, j, first, h, i;
    } t;
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    if (threadIdx.x == 0)
        t.s = sequence_of(c, own.b), t.g = own.head, t.j = own.tile * TILE, t.first = own.slice * TILE * N;
    __syncthreads();
    if (t.j >= t.s.keys) return;
    float dk[4][4 * N] = {}, dv[4][4 * N] = {};
    for (int h = t.g * c.share; h < (t.g + 1) * c.share; h++)
        for (int i = 0; i < t.s.queries; i += TILE) {
            range r = visible_to_rows(c, t.s, i);
            if (r.low >= t.j + TILE || r.high <= t.j) continue;
            tile_facts m;
            if (threadIdx.x == 0) t.h = h, t.i = i;
            bring_facts(rows, c, t.s, h, i);
            multiply_tile(c, w, t.s, t.h, t.i, t.j, m);
            gradients_of_pairs(c, t.s, t.h, t.i, t.j, rows, m, [&](int a, int b, const pair_gradient<float> &one) {
                m.dots[a][b] = one.value;
                m.dw[a][b] = one.score * one.slope;
            });
            __syncthreads();
#pragma unroll
            for (int a = 0; a < 4; a++)
                *(float4 *)&w.weights[4 * y + a][4 * x] =
                    make_float4(m.dots[a][0], m.dots[a][1], m.dots[a][2], m.dots[a][3]);
            if (t.first < c.E) multiply_weights<N>(w, dv, query_lines(c, c.dout, t.s, t.h, t.i), t.first, c.E);
            __syncthreads();
#pragma unroll
            for (int a = 0; a < 4; a++)
                *(float4 *)&w.weights[4 * y + a][4 * x] = make_float4(m.dw[a][0], m.dw[a][1], m.dw[a][2], m.dw[a][3]);
            if (t.first < c.D) multiply_weights<N>(w, dk, query_lines(c, c.q, t.s, t.h, t.i), t.first, c.D);
        }
    finish_keys<N>(c, w, t.s, t.g, t.j, t.first, dk, dv);
}

template <int N> MHA_DEVICE void gradient_of_keys(const general &c)
{
    __shared__ workspace w;
    for_each_piece(c, {c.key_tiles, c.slices, c.G, c.B}, [&](const piece &own) { gradient_of_keys<N>(c, w, own); });
}

/* ---- Bias ------------------------------------------------------------------------------------------------------- */

MHA_DEVICE int tiles_of(int64_t size) { return (int)((size + TILE - 1) / TILE); }

/* A tile of the gradient of bias, or what broadcasts to one: all rows, keys, heads and sequences whose
 * scores a number of the bias is added to, in a fixed order. */
MHA_DEVICE void gradient_of_bias(const general &c, workspace &w, const piece &own)
{
    __shared__ row_facts rows[TILE];
    const view &t = c.dbias;
    bool one_row = t.size[2] == 1, one_key = t.size[3] == 1;
    int key_tiles = tiles_of(t.size[3]), own_h = own.head, own_b = own.b;
    int own_i = own.tile / key_tiles * TILE, own_j = own.tile % key_tiles * TILE;
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    double sum[4][4] = {}, all = 0;
    for (int b = t.size[0] == 1 ? 0 : own_b; b < (t.size[0] == 1 ? c.B : own_b + 1); b++) {
        sequence s = sequence_of(c, b);
        for (int h = t.size[1] == 1 ? 0 : own_h; h < (t.size[1] == 1 ? c.H : own_h + 1); h++)
            for (int i = one_row ? 0 : own_i; i < (one_row ? s.queries : min(s.queries, own_i + 1)); i += TILE) {
                range r = visible_to_rows(c, s, i);
                int from = one_key ? r.low / TILE * TILE : own_j, to = one_key ? r.high : min(r.high, own_j + 1);
                if (r.low >= from + TILE && !one_key) continue;
                for (int j = from; j < to; j += TILE) {
                    tile_facts f;
                    bring_facts(rows, c, s, h, i);
                    multiply_tile(c, w, s, h, i, j, f);
                    gradients_of_tile<false>(c, s, h, i, j, rows, f, [&](int a, int n, const pair_gradient<float> &m) {
                        bool lost = m.visible && !isfinite(m.score);
                        sum[a][n] += lost ? exact_gradient_of_pair(c, s, h, i + 4 * y + a, j + 4 * x + n).score : m.score;
                    });
                }
            }
    }
    int columns = one_key ? 1 : TILE;
    for (int half = 0; half < 2; half++) {
        __syncthreads();
        for (int a = 0; a < 4; a++)
            for (int n = 0; y / 8 == half && n < 4; n++) w.sums[4 * (y % 8) + a][4 * x + n] = sum[a][n];
        __syncthreads();
        for (int n = threadIdx.x; n < (one_row ? 1 : TILE / 2) * columns; n += THREADS) {
            int a = n / columns, e = n % columns, i = own_i + half * TILE / 2 + a, j = own_j + e;
            if (!one_row) all = 0;
            for (int p = a; p < (one_row ? TILE / 2 : a + 1); p++)
                for (int q = e; q < (one_key ? TILE : e + 1); q++) all += w.sums[p][q];
            if (!one_row && i < t.size[2] && j < t.size[3])
                ((float *)t.data)[place(t, own_b, own_h, i, j)] = (float)all;
        }
    }
    if (one_row && threadIdx.x < columns && own_j + threadIdx.x < t.size[3])
        ((float *)t.data)[place(t, own_b, own_h, 0, own_j + threadIdx.x)] = (float)all;
}

/* ---- Before them ------------------------------------------------------------------------------------------------ */

/* dout . out of row i. */
MHA_DEVICE void multiply_out(const general &c, workspace &w, const sequence &s, int h, int i)
{
    double *row = numbers_of_row(c, s, h, i), worth = 0;
    float delta = 0;
    int64_t at = place(c.out, s.query_batch, h, s.query_row + i, 0);
    int64_t from = place(c.dout, s.query_batch, h, s.query_row + i, 0);
    for (int e = 0; row[MHA_CUDA_ROW_SUM] != 0 && e < c.E; e++) {
        float x = load(c.out, at + e * c.out.stride[3]), y = load(c.dout, from + e * c.dout.stride[3]);
        delta = fmaf(y, x, delta);
        worth += (double)x * y;
    }
    row[MHA_CUDA_ROW_DELTA] = isfinite(delta) ? delta : worth;
    row[MHA_CUDA_ROW_WORTH] = worth;
    row[MHA_CUDA_ROW_SLOPE] = 0;
    w.lost[threadIdx.x] = !isfinite(worth);
}

/* The same from weights and values, where `out` is infinite. */
MHA_DEVICE void multiply_out_exactly(const general &c, workspace &w, const sequence &s, int h, int i)
{
    double *row = numbers_of_row(c, s, h, i), worth = 0;
    range r = visible_keys(c, s, i);
    for (int j = r.low + threadIdx.x; j < r.high; j += THREADS) {
        score<double> x = exact_score(c, s, h, i, j);
        if (!x.visible) continue;
        double kept = c.dropped ? kept_of(c, s.b, h, i, j) : 1;
        if (kept != 0)
            worth += exact_weight(c, s, h, i, j) * kept *
                     exact_dot(c.dout, place(c.dout, s.query_batch, h, s.query_row + i, 0), c.v,
                               place(c.v, s.key_batch, h / c.share, s.key_row + j, 0), c.E);
    }
    worth = block_sum(w, worth);
    if (threadIdx.x == 0) row[MHA_CUDA_ROW_DELTA] = row[MHA_CUDA_ROW_WORTH] = worth;
}

/* The softmax of a tile of rows, dout . out, and its part of the gradients of sinks. */
MHA_DEVICE void prepare(const general &c, workspace &w, const piece &p)
{
    int h = p.head;
    sequence s = sequence_of(c, p.b);
    int first = p.tile * TILE, i = first + threadIdx.x;
    bool own = threadIdx.x < TILE && i < s.queries;
    if (first >= s.queries) return;
    if (c.softmax.data) take_softmax(c, w, s, h, first, INFINITY);
    if (threadIdx.x < TILE) w.lost[threadIdx.x] = false;
    if (own) multiply_out(c, w, s, h, i);
    __syncthreads();
    for (int n = 0; n < TILE; n++)
        if (w.lost[n]) multiply_out_exactly(c, w, s, h, first + n);
    __syncthreads();
    if (!own) return;
    double *row = numbers_of_row(c, s, h, i), sink = 0;
    if (row[MHA_CUDA_ROW_SUM] != 0 && c.sinks.data) {
        double logit = load(c.sinks, place(c.sinks, 0, h, 0, 0)) - row[MHA_CUDA_ROW_REFERENCE];
        double dlse = c.dlse.data ? load(c.dlse, place(c.dlse, s.query_batch, h, s.query_row + i, 0)) : 0;
        sink = -exp(logit) / row[MHA_CUDA_ROW_SUM] * (row[MHA_CUDA_ROW_DELTA] - dlse);
    }
    row[MHA_CUDA_ROW_SINK] = sink;
}

} // namespace

extern "C" __global__ void __launch_bounds__(THREADS, 2) general_prepare(const __grid_constant__ mha_cuda_general c)
{
    __shared__ workspace w;
    for_each_piece(c, {c.row_tiles, 1, c.H, c.B}, [&](const piece &own) { prepare(c, w, own); });
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) general_rows_64(const __grid_constant__ mha_cuda_general c)
{
    gradient_of_rows<1>(c);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) general_rows_128(const __grid_constant__ mha_cuda_general c)
{
    gradient_of_rows<2>(c);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) general_keys_64(const __grid_constant__ mha_cuda_general c)
{
    gradient_of_keys<1>(c);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) general_keys_128(const __grid_constant__ mha_cuda_general c)
{
    gradient_of_keys<2>(c);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) general_bias(const __grid_constant__ mha_cuda_general c)
{
    __shared__ workspace w;
    const int64_t *size = c.dbias.size;
    for_each_piece(c, {tiles_of(size[2]) * tiles_of(size[3]), 1, (int)size[1], (int)size[0]},
                   [&](const piece &own) { gradient_of_bias(c, w, own); });
}

/* Sums over the rows of a head, or of a head in all sequences: importance, and the gradients of sinks and slopes. A block
 * has a number of one of them. */
extern "C" __global__ void __launch_bounds__(THREADS, 1) general_heads(const __grid_constant__ mha_cuda_general c)
{
    __shared__ workspace w;
    int64_t n = blockIdx.x;
    const view *const all[3] = {&c.importance, &c.dsinks, &c.dslopes};
    const int which[3] = {MHA_CUDA_ROW_WORTH, MHA_CUDA_ROW_SINK, MHA_CUDA_ROW_SLOPE};
    for (int kind = 0; kind < 3; kind++) {
        const view &t = *all[kind];
        int64_t count = t.data ? t.size[0] * t.size[1] : 0;
        if (n >= count) {
            n -= count;
            continue;
        }
        int h = (int)(n % t.size[1]), own = (int)(n / t.size[1]);
        double sum = 0;
        for (int b = t.size[0] > 1 ? own : 0; b < (t.size[0] > 1 ? own + 1 : c.B); b++) {
            sequence s = sequence_of(c, b);
            for (int i = threadIdx.x; i < s.queries; i += THREADS) sum += numbers_of_row(c, s, h, i)[which[kind]];
        }
        sum = block_sum(w, sum);
        if (threadIdx.x == 0) ((float *)t.data)[place(t, own, h, 0, 0)] = (float)(kind ? sum : fabs(sum));
        return;
    }
}
