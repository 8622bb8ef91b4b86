/* Forward attention for every type, width, layout and option, and the maps of weights and scores. */
#include "general.cuh"

namespace
{

/* What a thread keeps of its four rows; the 16 threads of a line have the same. */
struct progress {
    float reference[4], sum[4];
    bool sees[4], lost[4];
};

/* The weights of a tile of scores, relative to the largest so far, to shared memory as [key][row]; sums are updated.
 * Returns by what earlier results have to be multiplied. */
MHA_DEVICE void weigh(const general &c, workspace &w, const sequence &s, int h, int i, int j, const float (&dots)[4][4],
                      progress &p, float (&factor)[4])
{
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    float weight[4][4];
#pragma unroll
    for (int a = 0; a < 4; a++) {
        int row = i + 4 * y + a;
        float top = -INFINITY, sum = 0;
        bool visible[4];
        range r = visible_to_row(c, s, row);
#pragma unroll
        for (int b = 0; b < 4; b++) {
            int key = j + 4 * x + b;
            score<float> e = score_of<float>(c, s, h, row, key, r, dots[a][b]);
            visible[b] = e.visible;
            weight[a][b] = e.masked;
            if (!e.visible) continue;
            p.sees[a] = true;
            p.lost[a] = p.lost[a] || !isfinite(e.masked);
            top = fmaxf(top, e.masked);
        }
        float reference = fmaxf(p.reference[a], line_max(top));
        unsigned kept = kept_of_four(c, s.b, h, row, j + 4 * x);
        factor[a] = reference == p.reference[a] ? 1 : expf(p.reference[a] - reference);
        p.reference[a] = reference;
#pragma unroll
        for (int b = 0; b < 4; b++) {
            weight[a][b] = visible[b] ? expf(weight[a][b] - reference) : 0;
            sum += weight[a][b];
            if (c.dropped) weight[a][b] = kept >> b & 1 ? weight[a][b] * c.kept : 0;
        }
        p.sum[a] = fmaf(p.sum[a], factor[a], line_sum(sum));
    }
    __syncthreads();
#pragma unroll
    for (int b = 0; b < 4; b++)
        *(float4 *)&w.weights[4 * x + b][4 * y] = make_float4(weight[0][b], weight[1][b], weight[2][b], weight[3][b]);
}

/* A row of results in float64: the columns of this block's slice. */
MHA_DEVICE void finish_exactly(const general &c, workspace &w, const sequence &s, int h, int i, int first, int columns)
{
    softmax row = exact_softmax(c, w, s, h, i);
    range r = visible_keys(c, s, i);
    double sum = 0;
    for (int j = r.low; j < r.high; j += THREADS) {
        int key = j + threadIdx.x;
        __syncthreads();
        w.careful[threadIdx.x] = 0;
        if (key < r.high) {
            score<double> x = exact_score(c, s, h, i, key);
            if (x.visible) w.careful[threadIdx.x] = exp(x.masked - row.reference) * kept_of(c, s.b, h, i, key);
        }
        __syncthreads();
        for (int n = 0; threadIdx.x < columns && n < min(THREADS, r.high - j); n++)
            if (w.careful[n] != 0)
                sum += w.careful[n] * load(c.v, place(c.v, s.key_batch, h / c.share, s.key_row + j + n, first + threadIdx.x));
    }
    __syncthreads();
    if (threadIdx.x < columns)
        store(c.out, place(c.out, s.query_batch, h, s.query_row + i, first + threadIdx.x), row.sum != 0 ? sum / row.sum : 0);
    if (threadIdx.x == 0 && first == 0) store_softmax(c, s, h, i, row);
}

template <int N>
MHA_DEVICE void finish(const general &c, workspace &w, const sequence &s, int h, int i, int first, progress &p,
                       const float (&o)[4][4 * N])
{
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    __syncthreads();
    if (threadIdx.x < TILE) w.lost[threadIdx.x] = 0;
    __syncthreads();
#pragma unroll
    for (int a = 0; a < 4; a++) {
        int row = i + 4 * y + a;
        bool sees = line_max(p.sees[a]) > 0, lost = p.lost[a] || (sees && !(p.sum[a] > 0 && p.sum[a] < INFINITY));
#pragma unroll
        for (int e = 0; e < 4 * N; e++) lost = lost || !isfinite(o[a][e]);
        lost = line_max(lost) > 0 && sees;
        if (row >= s.padded) continue;
        if (lost) {
            w.lost[4 * y + a] = 1;
            continue;
        }
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int b = 0; b < 4; b++) {
                int e = first + TILE * n + 4 * x + b;
                if (c.out.data && e < c.E)
                    store(c.out, place(c.out, s.query_batch, h, s.query_row + row, e),
                          sees ? o[a][4 * n + b] / p.sum[a] : 0.0f);
            }
        if (x == 0 && first == 0)
            store_softmax(c, s, h, row, sees ? softmax{p.reference[a], p.sum[a]} : softmax{-INFINITY, 0});
    }
    __syncthreads();
    int columns = c.out.data ? min(TILE * N, c.E - first) : 0;
    for (int row = 0; row < TILE; row++)
        if (w.lost[row]) finish_exactly(c, w, s, h, i + row, first, columns);
}

/* A tile of rows of a head, and 64 N columns of its results. */
template <int N> MHA_DEVICE void forward(const general &c, workspace &w, const piece &own)
{
    int h = own.head, i = own.tile * TILE, first = own.slice * TILE * N;
    sequence s = sequence_of(c, own.b);
    if (i >= s.padded) return;
    float o[4][4 * N] = {}, sink = c.sinks.data ? load(c.sinks, place(c.sinks, 0, h, 0, 0)) : -INFINITY;
    progress p;
    for (int a = 0; a < 4; a++) {
        p.reference[a] = sink, p.sum[a] = sink == -INFINITY ? 0 : 1;
        p.sees[a] = false, p.lost[a] = c.sinks.data && !(sink < INFINITY);
    }
    range r = visible_to_rows(c, s, i);
    for (int j = r.low / TILE * TILE; j < r.high; j += TILE) {
        float dots[4][4] = {}, factor[4];
        multiply_rows(w, dots, query_lines(c, c.q, s, h, i), key_lines(c, c.k, s, h / c.share, j), c.D);
        weigh(c, w, s, h, i, j, dots, p, factor);
        if (!c.out.data) continue;
#pragma unroll
        for (int a = 0; a < 4; a++)
#pragma unroll
            for (int e = 0; e < 4 * N; e++) o[a][e] *= factor[a];
        multiply_weights<N>(w, o, key_lines(c, c.v, s, h / c.share, j), first, c.E);
    }
    finish<N>(c, w, s, h, i, first, p, o);
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
