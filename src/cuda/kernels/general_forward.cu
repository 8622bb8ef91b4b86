/* Forward attention for every type, width, layout and option, and the maps of weights and scores. */
#include "exact.cuh"

namespace
{

/* The weights of a tile of scores, relative to the largest so far, to shared memory as [key][row]; sums are updated: NaN if float32
 * does not hold a score. Returns by what earlier results have to be multiplied. */
template <bool PLAIN>
MHA_DEVICE void weigh(const general &c, workspace &w, const sequence &s, int h, int i, int j, float (&x)[4][4],
                      float (&factor)[4])
{
    int first = threadIdx.x % 16 * 4, line = threadIdx.x / 16 * 4;
#pragma unroll
    for (int a = 0; a < 4; a++) {
        range r = w.keys[line + a];
        float before = w.reference[line + a], own = -INFINITY, sum = 0;
#pragma unroll
        for (int b = 0; b < 4; b++) {
            int key = j + first + b;
            bool visible = key >= r.low && key < r.high;
            if (PLAIN) x[a][b] = rounded_product(c.scale, x[a][b]);
            else {
                score<float> e = score_of<float>(c, s, h, i + line + a, key, r, x[a][b]);
                visible = e.visible, x[a][b] = e.masked;
            }
            x[a][b] = visible ? held(x[a][b]) : -INFINITY;
            own = fmaxf(own, x[a][b]);
        }
        own = line_max(own);
        float top = fmaxf(before, own), less = top == -INFINITY ? 0 : top;
        unsigned kept = PLAIN ? 15 : kept_of_four(c, s.b, h, i + line + a, j + first);
        factor[a] = top == before ? 1 : expf(before - top);
#pragma unroll
        for (int b = 0; b < 4; b++) {
            x[a][b] = expf(x[a][b] - less);
            sum += x[a][b];
            if (!PLAIN && c.dropped) x[a][b] = kept >> b & 1 ? x[a][b] * c.kept : 0;
        }
        sum = line_sum(sum);
        __syncwarp();
        if (first != 0) continue;
        w.reference[line + a] = top, w.sum[line + a] = fmaf(w.sum[line + a], factor[a], sum);
        if (own > -INFINITY || sum != 0) w.sees[line + a] = true;
    }
    __syncthreads();
#pragma unroll
    for (int b = 0; b < 4; b++)
        *(float4 *)&w.weights[first + b][line] = make_float4(x[0][b], x[1][b], x[2][b], x[3][b]);
}

template <int N>
MHA_DEVICE void finish(const general &c, workspace &w, const sequence &s, int h, int i, int first,
                       const float (&o)[4][4 * N])
{
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    __syncthreads();
#pragma unroll
    for (int a = 0; a < 4; a++) {
        int n = 4 * y + a, row = i + n;
        float sum = w.sum[n];
        bool sees = w.sees[n], lost = !(sum > 0 && sum < INFINITY);
#pragma unroll
        for (int e = 0; e < 4 * N; e++) lost = lost || !isfinite(o[a][e]);
        lost = line_any(lost) && sees;
        __syncwarp();
        if (x == 0) w.lost[n] = lost && row < s.padded;
        if (row >= s.padded || lost) continue;
#pragma unroll
        for (int k = 0; k < N; k++)
#pragma unroll
            for (int b = 0; b < 4; b++) {
                int e = first + TILE * k + 4 * x + b;
                if (c.out.data && e < c.E)
                    store(c.out, place(c.out, s.query_batch, h, s.query_row + row, e),
                          sees ? o[a][4 * k + b] / sum : 0.0f);
            }
        if (x == 0 && first == 0)
            store_softmax(c, s, h, row, sees ? softmax{w.reference[n], sum} : softmax{-INFINITY, 0});
    }
    __syncthreads();
    int columns = c.out.data ? min(TILE * N, c.E - first) : 0;
    for (int row = 0; row < TILE; row++)
        if (w.lost[row]) finish_exactly(c, w, s, h, i + row, first, columns);
}

/* A tile of rows of a head, and 64 N columns of its results. Where it lies is kept in shared memory: it takes no registers there. */
template <int N> MHA_DEVICE void forward(const general &c, workspace &w, const piece &own)
{
    __shared__ struct {
        sequence s;
        int h, i, first;
        range keys;
    } t;
    if (threadIdx.x == 0) {
        t.s = sequence_of(c, own.b), t.h = own.head, t.i = own.tile * TILE, t.first = own.slice * TILE * N;
        t.keys = visible_to_rows(c, t.s, t.i);
    }
    __syncthreads();
    if (t.i >= t.s.padded) return;
    if (threadIdx.x < TILE) {
        float sink = c.sinks.data ? load(c.sinks, place(c.sinks, 0, t.h, 0, 0)) : -INFINITY;
        w.reference[threadIdx.x] = sink,
        w.sum[threadIdx.x] = sink == -INFINITY ? 0 : 0 * sink + 1; /* NaN if it is not finite */
        w.keys[threadIdx.x] = visible_to_row(c, t.s, t.i + threadIdx.x), w.sees[threadIdx.x] = false;
    }
    float o[4][4 * N] = {};
    for (int j = t.keys.low / TILE * TILE; j < t.keys.high; j += TILE) {
        float dots[4][4] = {}, factor[4];
        multiply_rows(w, dots, query_lines(c, c.q, t.s, t.h, t.i), key_lines(c, c.k, t.s, t.h / c.share, j), c.D);
        if (is_plain(c) && !c.dropped) weigh<true>(c, w, t.s, t.h, t.i, j, dots, factor);
        else weigh<false>(c, w, t.s, t.h, t.i, j, dots, factor);
        if (!c.out.data) continue;
#pragma unroll
        for (int a = 0; a < 4; a++)
#pragma unroll
            for (int e = 0; e < 4 * N; e++) o[a][e] *= factor[a];
        multiply_weights<N>(w, o, key_lines(c, c.v, t.s, t.h / c.share, j), t.first, c.E);
    }
    finish<N>(c, w, t.s, t.h, t.i, t.first, o);
}

/* A block has one of them. */
template <int N> MHA_DEVICE void forward(const general &c)
{
    __shared__ workspace w;
    forward<N>(c, w, piece_at({c.row_tiles, c.slices, c.H, c.B}, blockIdx.x));
}

/* For calls that repair results: a block has some of them. Kernels of their own, because the loop takes registers. */
template <int N> MHA_DEVICE void repair(const general &c)
{
    __shared__ workspace w;
    for_each_piece(c, {c.row_tiles, c.slices, c.H, c.B}, [&](const piece &own) { forward<N>(c, w, own); });
}

/* What a map shows of one pair. */
MHA_DEVICE double shown(const general &c, const sequence &s, int h, int i, int j, float dot)
{
    if (i >= s.queries || j >= s.keys) return c.stage < SOFTMAX ? -INFINITY : 0;
    score<float> x = score_of<float>(c, s, h, i, j, visible_keys(c, s, i), dot);
    if (c.stage < SOFTMAX) {
        float value = c.stage == SCALED ? x.scaled : c.stage == CAPPED ? x.capped : x.visible ? x.masked : -INFINITY;
        if (isfinite(value) && isfinite(x.scaled)) return value;
        if (c.stage == MASKED && !x.visible) return -INFINITY;
        score<double> e = exact_score(c, s, h, i, j);
        double exact = c.stage == SCALED ? e.scaled : c.stage == CAPPED ? e.capped : e.masked;
        return e.visible || isfinite(e.scaled) ? exact : -INFINITY;
    }
    if (!x.visible) return 0;
    const double *row = numbers_of_row(c, s, h, i);
    double reference = row[MHA_CUDA_ROW_REFERENCE], weight;
    if (isfinite(x.masked) && (double)(float)reference == reference)
        weight = expf(x.masked - (float)reference) / (float)row[MHA_CUDA_ROW_SUM];
    else weight = exact_weight(c, s, h, i, j);
    return c.stage == DROPPED && c.dropped ? weight * kept_of(c, s.b, h, i, j) : weight;
}

} // namespace

extern "C" __global__ void __launch_bounds__(THREADS, 2) general_forward_64(const __grid_constant__ mha_cuda_general c)
{
    forward<1>(c);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) general_forward_128(const __grid_constant__ mha_cuda_general c)
{
    forward<2>(c);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) general_repair_64(const __grid_constant__ mha_cuda_general c)
{
    repair<1>(c);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) general_repair_128(const __grid_constant__ mha_cuda_general c)
{
    repair<2>(c);
}

/* A block has a tile of a map. A map with one head is the mean over all. */
extern "C" __global__ void __launch_bounds__(THREADS, 2) general_map(const __grid_constant__ mha_cuda_general c)
{
    __shared__ workspace w;
    int64_t key_tiles = (c.map.size[3] + TILE - 1) / TILE, row_tiles = (c.map.size[2] + TILE - 1) / TILE;
    int64_t tile = blockIdx.x % (key_tiles * row_tiles), head = blockIdx.x / (key_tiles * row_tiles);
    int heads = (int)c.map.size[1], b = (int)(head / heads), own = (int)(head % heads), of_each = c.H / heads;
    int i = (int)(tile / key_tiles) * TILE, j = (int)(tile % key_tiles) * TILE;
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    sequence s = sequence_of(c, b);
    double sum[4][4] = {};
    for (int h = own * of_each; h < (own + 1) * of_each; h++) {
        float dots[4][4] = {};
        lines keys = key_lines(c, c.k, s, h / c.share, j);
        keys.count = min(TILE, s.keys - j); /* padding, too, has scores */
        multiply_rows(w, dots, query_lines(c, c.q, s, h, i), keys, c.D);
        for (int a = 0; a < 4; a++)
            for (int n = 0; n < 4; n++) sum[a][n] += shown(c, s, h, i + 4 * y + a, j + 4 * x + n, dots[a][n]);
    }
    for (int a = 0; a < 4; a++)
        for (int n = 0; n < 4; n++) {
            int row = i + 4 * y + a, key = j + 4 * x + n;
            if (row < c.map.size[2] && key < c.map.size[3])
                store(c.map, place(c.map, b, own, row, key), of_each > 1 ? sum[a][n] / of_each : sum[a][n]);
        }
}
