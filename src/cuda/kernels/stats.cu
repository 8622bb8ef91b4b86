/* Statistics of heads for every type, width, layout and option.
 *
 * `stats_prepare` brings the softmax of every row; with it a weight p = exp(score - reference) / sum is final at once.
 * `stats_rows` walks over the keys that a tile of rows sees and takes all sums of rows and columns; `stats_pairs` does so
 * with several heads side by side. What they leave is added up by `stats_sums` and `stats_heads`.
 *
 * With u = p_a + p_b, m = u / 2, and L the sum of p log p, a pair of heads needs one logarithm for each two weights:
 *
 *     sum of p_a log(p_a / m) + p_b log(p_b / m)  =  L_a + L_b - sum of u log u + log(2) sum of u */
#include "stats.h"
#include "exact.cuh"

namespace
{

typedef mha_cuda_stats stats;

/* ---- Weights ---------------------------------------------------------------------------------------------------- */

/* What weights need of a row. */
struct row_facts {
    range keys;
    float reference, inverse, log_sum;
    bool held; /* by float32: the reference, which then is that of scores in float32 */
};

MHA_DEVICE row_facts facts_of(const general &c, const sequence &s, int h, int i)
{
    if (i >= s.queries) return {{0, 0}, 0, 0, 0, true};
    const double *row = numbers_of_row(c, s, h, i);
    double reference = row[MHA_CUDA_ROW_REFERENCE], sum = row[MHA_CUDA_ROW_SUM];
    return {visible_keys(c, s, i), (float)reference, sum != 0 ? (float)(1 / sum) : 0, sum != 0 ? (float)log(sum) : 0,
            sum == 0 || (!row[MHA_CUDA_ROW_EXACT] && (double)(float)reference == reference)};
}

struct weight {
    float p, log;
};

static __device__ __noinline__ weight exact_weight_of(const general &c, const sequence &s, int h, int i, int j)
{
    const double *row = numbers_of_row(c, s, h, i);
    double log_p = exact_score(c, s, h, i, j).masked - row[MHA_CUDA_ROW_REFERENCE] - log(row[MHA_CUDA_ROW_SUM]);
    float p = (float)exp(log_p);
    return {p, p == 0 ? 0 : (float)log_p};
}

/* From q . k; zeros where the key is not visible. */
MHA_DEVICE weight weight_of(const general &c, const sequence &s, int h, int i, int j, const row_facts &row, float dot)
{
    score<float> x = score_of<float>(c, s, h, i, j, row.keys, dot);
    if (!x.visible) return {0, 0};
    if (!row.held || !isfinite(x.masked)) return exact_weight_of(c, s, h, i, j);
    float less = x.masked - row.reference;
    return {expf(less) * row.inverse, less - row.log_sum};
}

/* NaN counts as the largest. */
MHA_DEVICE float larger(float a, float b) { return b <= a ? a : b; }

/* ---- Fixed point ------------------------------------------------------------------------------------------------ */

/* A sum over the rows of a sequence is at most their number, which leaves this for the bits behind the point. */
MHA_DEVICE int point_of(const sequence &s) { return 29 + __clz(s.queries); } /* 61 - bits of queries */

/* Adds a sum over `rows` rows. Weights of a softmax that is none may be of any size. */
MHA_DEVICE void add_fixed(int64_t *to, float sum, int rows, int point)
{
    if (sum == 0) return;
    if (sum > 0 && sum <= 1.01f * rows) atomicAdd((unsigned long long *)to, (unsigned long long)(int64_t)ldexp((double)sum, point));
    else atomicOr((unsigned long long *)to, 1ull << 63);
}

MHA_DEVICE float from_fixed(int64_t sum, int point) { return sum < 0 ? NAN : (float)ldexp((double)sum, -point); }

/* Sums of the heatmap are exact however small they are: digits of 32 bits in words of 64, without carries. The 24 bits of a
 * float32 are part of two at most. */
MHA_DEVICE int point_of_word(int n) { return 30 + 32 * n; }

MHA_DEVICE void add_words(int64_t *to, float sum)
{
    double rest = sum;
    for (int n = 0; n < MHA_CUDA_STATS_WORDS && rest != 0; n++) {
        double units = floor(ldexp(rest, point_of_word(n)));
        if (units == 0) continue;
        atomicAdd((unsigned long long *)to + n, (unsigned long long)units);
        rest -= ldexp(units, -point_of_word(n));
    }
}

MHA_DEVICE float from_words(const int64_t *words)
{
    double sum = 0;
    for (int n = MHA_CUDA_STATS_WORDS - 1; n >= 0; n--) sum += ldexp((double)words[n], -point_of_word(n));
    return words[0] < 0 ? NAN : (float)sum;
}

/* ---- Rows ------------------------------------------------------------------------------------------------------- */

struct row_sums {
    double total, logs, squares, distance, placed;
    float largest;
};

/* How far key j is from a position; below 0 if one of them has no place. */
MHA_DEVICE float distance_of(const stats &c, int64_t position, int64_t j)
{
    if (!c.grid_columns) return (float)llabs(position - j);
    int64_t from = position - c.grid_first, to = j - c.grid_first;
    if (from < 0 || to < 0) return -1;
    float down = (float)(from / c.grid_columns - to / c.grid_columns);
    float right = (float)(from % c.grid_columns - to % c.grid_columns);
    return sqrtf(fmaf(down, down, right * right));
}

/* A tile of weights: sums of each row; the weights stay in shared memory as [key][row]. */
MHA_DEVICE void weigh(const stats &c, workspace &w, const sequence &s, int h, int i, int j, const float (&dots)[4][4],
                      const row_facts (&facts)[4], row_sums (&sums)[4])
{
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    float p[4][4];
#pragma unroll
    for (int a = 0; a < 4; a++) {
        int row = i + 4 * y + a;
        float total = 0, logs = 0, squares = 0, distance = 0, placed = 0;
#pragma unroll
        for (int b = 0; b < 4; b++) {
            int key = j + 4 * x + b;
            weight e = weight_of(c.g, s, h, row, key, facts[a], dots[a][b]);
            p[a][b] = e.p;
            total += e.p;
            logs = fmaf(e.p, e.log, logs);
            squares = fmaf(e.p, e.p, squares);
            sums[a].largest = larger(sums[a].largest, e.p);
            if (c.distance.data) {
                float d = distance_of(c, row + s.offset, key);
                if (d >= 0) distance = fmaf(e.p, d, distance), placed += e.p;
            }
        }
        sums[a].total += total, sums[a].logs += logs, sums[a].squares += squares;
        sums[a].distance += distance, sums[a].placed += placed;
    }
    __syncthreads();
#pragma unroll
    for (int b = 0; b < 4; b++)
        *(float4 *)&w.weights[4 * x + b][4 * y] = make_float4(p[0][b], p[1][b], p[2][b], p[3][b]);
    __syncthreads();
}

/* What the keys of a tile receive: four threads a key. */
MHA_DEVICE void add_received(const stats &c, const workspace &w, const sequence &s, int h, int j)
{
    int key = threadIdx.x / 4, part = threadIdx.x % 4;
    float sum = 0;
    for (int r = 0; r < TILE / 4; r++) sum += w.weights[key][part * (TILE / 4) + r];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if (part || j + key >= s.length) return;
    add_fixed(c.received_sums + ((int64_t)s.b * c.g.H + h) * c.received_pitch + j + key, sum, TILE, point_of(s));
}

/* A thread has a key and 16 rows. Neighbours whose keys belong to one column of the map add up what they have. */
MHA_DEVICE void add_heat(const stats &c, const workspace &w, const sequence &s, int h, int i, int j)
{
    int key = threadIdx.x % TILE, lane = threadIdx.x % 32, row = threadIdx.x / TILE * (TILE / 4), end = row + TILE / 4;
    int64_t R = c.heatmap.size[2], C = c.heatmap.size[3];
    int64_t column = j + key < s.length ? (j + key) * C / s.length : -1;
    int64_t *head = c.heat_sums + ((int64_t)s.b * c.g.H + h) * R * C * MHA_CUDA_STATS_WORDS;
    while (row < end && i + row < s.queries) {
        int64_t down = (i + row) * R / s.queries;
        float sum = 0;
        int count = 0;
        for (; row < end && i + row < s.queries && (i + row) * R / s.queries == down; row++, count++)
            sum += w.weights[key][row];
        bool bad = !(sum >= 0 && sum <= 1.01f * count);
        if (bad) sum = 0;
        for (int d = 1; d < 32; d *= 2) {
            float other = __shfl_down_sync(~0u, sum, d);
            int64_t of = __shfl_down_sync(~0u, (long long)column, d);
            if (lane + d < 32 && of == column) sum += other;
        }
        int64_t before = __shfl_up_sync(~0u, (long long)column, 1);
        if (column < 0) continue;
        int64_t *to = head + (down * C + column) * MHA_CUDA_STATS_WORDS;
        if (bad) atomicOr((unsigned long long *)to, 1ull << 63);
        if (lane == 0 || before != column) add_words(to, sum);
    }
}

/* A thread has a row, and every fourth set. Keys beyond the sets are in none. */
MHA_DEVICE void add_sets(const stats &c, const workspace &w, const sequence &s, int h, int i, int j)
{
    int row = threadIdx.x % TILE, keys = (int)min((int64_t)min(TILE, s.length - j), c.sets.size[1] - j);
    if (i + row >= s.queries) return;
    for (int64_t n = threadIdx.x / TILE; n < c.sets.size[0]; n += THREADS / TILE) {
        float sum = 0;
        for (int k = 0; k < keys; k++)
            if (((const uint8_t *)c.sets.data)[place(c.sets, n, j + k, 0, 0)]) sum += w.weights[k][row];
        ((float *)c.mass.data)[place(c.mass, s.query_batch, h, s.query_row + i + row, 4 + n)] += sum;
    }
}

/* Sorts the weights of a row into its list, largest first; one thread a row. */
MHA_DEVICE void add_tops(const stats &c, const workspace &w, const sequence &s, int h, int i, int j)
{
    int row = threadIdx.x, keys = min(TILE, s.length - j);
    if (row >= TILE || i + row >= s.queries) return;
    int64_t top = c.top_weights.size[3], by = c.top_weights.stride[3], step = c.top_keys.stride[3];
    float *weights = (float *)c.top_weights.data + place(c.top_weights, s.query_batch, h, s.query_row + i + row, 0);
    int64_t *whose = (int64_t *)c.top_keys.data + place(c.top_keys, s.query_batch, h, s.query_row + i + row, 0);
    float least = weights[(top - 1) * by];
    for (int k = 0; k < keys; k++) {
        float p = w.weights[k][row];
        int64_t n = top;
        if (!(p > least)) continue;
        for (; n > 1 && p > weights[(n - 2) * by]; n--)
            weights[(n - 1) * by] = weights[(n - 2) * by], whose[(n - 1) * step] = whose[(n - 2) * step];
        weights[(n - 1) * by] = p;
        whose[(n - 1) * step] = j + k;
        least = weights[(top - 1) * by];
    }
}

/* Zeros where numbers are put or added up one after another. */
MHA_DEVICE void begin_rows(const stats &c, const sequence &s, int h, int i)
{
    int row = threadIdx.x % TILE, part = threadIdx.x / TILE;
    if (i + row >= s.padded) return;
    int64_t at = s.query_row + i + row;
    for (int64_t n = 4 + part; c.sets.data && n < c.mass.size[3]; n += THREADS / TILE)
        ((float *)c.mass.data)[place(c.mass, s.query_batch, h, at, n)] = 0;
    for (int64_t n = part; c.top_weights.data && n < c.top_weights.size[3]; n += THREADS / TILE) {
        ((float *)c.top_weights.data)[place(c.top_weights, s.query_batch, h, at, n)] = 0;
        ((int64_t *)c.top_keys.data)[place(c.top_keys, s.query_batch, h, at, n)] = -1;
    }
}

MHA_DEVICE void put(const view &t, const sequence &s, int h, int i, double x)
{
    if (t.data) ((float *)t.data)[place(t, s.query_batch, h, s.query_row + i, 0)] = (float)x;
}

MHA_DEVICE double line_sum(double x)
{
    for (int lane = 8; lane; lane /= 2) x += __shfl_xor_sync(~0u, x, lane);
    return x;
}

MHA_DEVICE void finish_rows(const stats &c, const sequence &s, int h, int i, row_sums (&sums)[4])
{
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
    for (int a = 0; a < 4; a++) {
        int row = i + 4 * y + a;
        double total = line_sum(sums[a].total), logs = line_sum(sums[a].logs), squares = line_sum(sums[a].squares);
        double distance = line_sum(sums[a].distance), placed = line_sum(sums[a].placed);
        float largest = sums[a].largest;
        for (int lane = 8; lane; lane /= 2) largest = larger(largest, __shfl_xor_sync(~0u, largest, lane));
        if (x != 0 || row >= s.padded) continue;
        put(c.entropy, s, h, row, 0 - logs);
        put(c.effective, s, h, row, squares != 0 ? 1 / squares : 0);
        put(c.largest, s, h, row, largest);
        put(c.distance, s, h, row, placed != 0 ? distance / placed : 0);
        if (!c.sums_of_rows || row >= s.queries) continue;
        double *to = numbers_of_row(c.g, s, h, row);
        to[MHA_CUDA_ROW_TOTAL] = total, to[MHA_CUDA_ROW_LOGS] = logs, to[MHA_CUDA_ROW_SQUARES] = squares;
    }
}

/* ---- Pairs of heads --------------------------------------------------------------------------------------------- */


/* The weights of head h in a tile. */
MHA_DEVICE void weigh_tile(const general &c, workspace &w, const sequence &s, int h, int i, int j, float (&p)[4][4])
{
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    float dots[4][4] = {};
    multiply_rows(w, dots, query_lines(c, c.q, s, h, i), key_lines(c, c.k, s, h / c.share, j), c.D);
#pragma unroll
    for (int a = 0; a < 4; a++) {
        int row = i + 4 * y + a;
        row_facts facts = facts_of(c, s, h, row);
#pragma unroll
        for (int b = 0; b < 4; b++) p[a][b] = weight_of(c, s, h, row, j + 4 * x + b, facts, dots[a][b]).p;
    }
}

} // namespace

/* Clears the sums in fixed point, and brings the softmax of the forward call; a block has a tile of rows. */
extern "C" __global__ void __launch_bounds__(THREADS, 2) stats_prepare(const __grid_constant__ mha_cuda_stats c)
{
    __shared__ workspace w;
    int64_t heads = (int64_t)c.g.H * c.g.B,
            words = c.heat_sums ? heads * c.heatmap.size[2] * c.heatmap.size[3] * MHA_CUDA_STATS_WORDS : 0;
    int64_t keys = c.received_sums ? heads * c.received_pitch : 0, all = (int64_t)gridDim.x * THREADS;
    for (int64_t n = (int64_t)blockIdx.x * THREADS + threadIdx.x; n < keys; n += all) c.received_sums[n] = 0;
    for (int64_t n = (int64_t)blockIdx.x * THREADS + threadIdx.x; n < words; n += all) c.heat_sums[n] = 0;
    for (int64_t n = (int64_t)blockIdx.x * THREADS + threadIdx.x; c.lost_pairs && n < c.g.B * (int64_t)c.pair_tiles; n += all)
        c.lost_pairs[n] = 0;
    if ((int64_t)blockIdx.x >= c.g.row_tiles * heads) return;
    int tile = blockIdx.x % c.g.row_tiles, h = blockIdx.x / c.g.row_tiles % c.g.H, b = blockIdx.x / c.g.row_tiles / c.g.H;
    sequence s = sequence_of(c.g, b);
    int first = tile * TILE, i = first + threadIdx.x;
    if (first >= s.queries) return;
    if (c.g.softmax.data) take_softmax(c.g, w, s, h, first, MHA_CUDA_STATS_MOST);
    if (threadIdx.x < TILE && i < s.queries)
        numbers_of_row(c.g, s, h, i)[MHA_CUDA_ROW_EXACT] = c.g.softmax.data && w.lost[threadIdx.x];
}

/* A block has a tile of rows of a head. The last tiles come first: under a causal mask they see most. */
extern "C" __global__ void __launch_bounds__(THREADS, 1) stats_rows(const __grid_constant__ mha_cuda_stats c)
{
    __shared__ workspace w;
    int heads = c.g.H * c.g.B, tile = c.g.row_tiles - 1 - blockIdx.x / heads, h = blockIdx.x % heads % c.g.H,
        b = blockIdx.x % heads / c.g.H, i = tile * TILE;
    sequence s = sequence_of(c.g, b);
    if (i >= s.padded) return;
    row_sums sums[4] = {};
    row_facts facts[4];
#pragma unroll
    for (int a = 0; a < 4; a++) facts[a] = facts_of(c.g, s, h, i + threadIdx.x / 16 * 4 + a);
    begin_rows(c, s, h, i);
    range r = visible_to_rows(c.g, s, i);
    for (int j = r.low / TILE * TILE; j < r.high; j += TILE) {
        float dots[4][4] = {};
        multiply_rows(w, dots, query_lines(c.g, c.g.q, s, h, i), key_lines(c.g, c.g.k, s, h / c.g.share, j), c.g.D);
        weigh(c, w, s, h, i, j, dots, facts, sums);
        if (c.received.data) add_received(c, w, s, h, j);
        if (c.heatmap.data) add_heat(c, w, s, h, i, j);
        if (c.sets.data) add_sets(c, w, s, h, i, j);
        if (c.top_weights.data) add_tops(c, w, s, h, i, j);
    }
    finish_rows(c, s, h, i, sums);
}

/* The weights of the key at a row's position, of those beside it, and of the first key: a thread has one of them. */
extern "C" __global__ void __launch_bounds__(THREADS, 2) stats_mass(const __grid_constant__ mha_cuda_stats c)
{
    int tile = blockIdx.x % c.g.row_tiles, h = blockIdx.x / c.g.row_tiles % c.g.H, b = blockIdx.x / c.g.row_tiles / c.g.H;
    int i = tile * TILE + threadIdx.x / 4, n = threadIdx.x % 4;
    sequence s = sequence_of(c.g, b);
    if (i >= s.padded) return;
    int64_t position = i + s.offset, j = n == 0 ? position : n == 1 ? position - 1 : n == 2 ? position + 1 : 0;
    float p = 0;
    if (i < s.queries && j >= 0 && j < s.length) {
        int64_t at = place(c.g.q, s.query_batch, h, s.query_row + i, 0);
        int64_t from = place(c.g.k, s.key_batch, h / c.g.share, s.key_row + j, 0);
        float dot = 0;
        for (int d = 0; d < c.g.D; d++)
            dot = fmaf(load(c.g.q, at + d * c.g.q.stride[3]), load(c.g.k, from + d * c.g.k.stride[3]), dot);
        p = weight_of(c.g, s, h, i, (int)j, facts_of(c.g, s, h, i), dot).p;
    }
    ((float *)c.mass.data)[place(c.mass, s.query_batch, h, s.query_row + i, n)] = p;
}

/* A block has a tile of rows, a head, and OTHERS heads behind it to compare it with. */
extern "C" __global__ void __launch_bounds__(THREADS, 1) stats_pairs(const __grid_constant__ mha_cuda_stats c)
{
    enum { OTHERS = MHA_CUDA_STATS_OTHERS };
    __shared__ union {
        workspace w;
        struct {
            float pair[2][STEP][PITCH]; /* of the workspace: multiply_rows needs no more */
            double sums[OTHERS][2][THREADS];
        };
    } u;
    int H = c.g.H, groups = (H - 2 + OTHERS) / OTHERS;
    int group = blockIdx.x % groups, a = blockIdx.x / groups % H;
    int tile = blockIdx.x / groups / H % c.g.row_tiles, b = blockIdx.x / groups / H / c.g.row_tiles, i = tile * TILE;
    int first = a + 1 + group * OTHERS, count = min(OTHERS, H - first);
    sequence s = sequence_of(c.g, b);
    if (count <= 0 || (c.lost_pairs && !c.lost_pairs[(int64_t)b * c.pair_tiles + tile])) return;
    for (int n = 0; n < OTHERS; n++) u.sums[n][0][threadIdx.x] = u.sums[n][1][threadIdx.x] = 0;
    range r = visible_to_rows(c.g, s, i);
    for (int j = r.low / TILE * TILE; j < r.high; j += TILE) {
        float p[4][4], q[4][4];
        weigh_tile(c.g, u.w, s, a, i, j, p);
        for (int n = 0; n < count; n++) {
            float logs = 0, dots = 0;
            weigh_tile(c.g, u.w, s, first + n, i, j, q);
#pragma unroll
            for (int k = 0; k < 16; k++) {
                float x = p[k / 4][k % 4], y = q[k / 4][k % 4], both = x + y;
                if (both != 0) logs = fmaf(both, logf(both), logs);
                dots = fmaf(x, y, dots);
            }
            u.sums[n][0][threadIdx.x] += logs;
            u.sums[n][1][threadIdx.x] += dots;
        }
    }
    double *to = c.pair_sums + (((int64_t)b * c.pair_tiles + tile) * H + a) * H * 2;
    for (int n = 0; n < count; n++)
        for (int k = 0; k < 2; k++) {
            double sum = block_sum(u.w, u.sums[n][k][threadIdx.x]);
            if (threadIdx.x == 0) to[(first + n) * 2 + k] = sum;
        }
}

/* Sums over rows become numbers. Blocks of a head share its keys and the cells of its map. */
extern "C" __global__ void __launch_bounds__(THREADS, 2) stats_sums(const __grid_constant__ mha_cuda_stats c)
{
    int heads = c.g.H * c.g.B, h = blockIdx.x % heads % c.g.H, b = blockIdx.x % heads / c.g.H;
    int64_t head = (int64_t)b * c.g.H + h, first = (int64_t)(blockIdx.x / heads) * MHA_CUDA_STATS_NUMBERS;
    int64_t cells = c.heatmap.data ? c.heatmap.size[2] * c.heatmap.size[3] : 0;
    sequence s = sequence_of(c.g, b);
    for (int64_t n = first + threadIdx.x; n < first + MHA_CUDA_STATS_NUMBERS; n += THREADS) {
        if (c.received.data && n < s.keys)
            ((float *)c.received.data)[place(c.received, s.key_batch, h, s.key_row + n, 0)] =
                from_fixed(c.received_sums[head * c.received_pitch + n], point_of(s));
        if (n < cells)
            ((float *)c.heatmap.data)[place(c.heatmap, b, h, n / c.heatmap.size[3], n % c.heatmap.size[3])] =
                from_words(c.heat_sums + (head * cells + n) * MHA_CUDA_STATS_WORDS);
    }
}

/* A block has two heads, or one twice. */
extern "C" __global__ void __launch_bounds__(THREADS, 2) stats_heads(const __grid_constant__ mha_cuda_stats c)
{
    __shared__ workspace w;
    int H = c.g.H, x = blockIdx.x % H, a = blockIdx.x / H % H, b = blockIdx.x / H / H;
    if (x < a) return;
    sequence s = sequence_of(c.g, b);
    double total = 0, logs = 0, first = 0, second = 0, sums[2] = {0, 0}, rows = 0;
    for (int i = threadIdx.x; i < s.queries; i += THREADS) {
        const double *p = numbers_of_row(c.g, s, a, i), *q = numbers_of_row(c.g, s, x, i);
        rows += p[MHA_CUDA_ROW_SUM] != 0 || q[MHA_CUDA_ROW_SUM] != 0;
        total += p[MHA_CUDA_ROW_TOTAL] + q[MHA_CUDA_ROW_TOTAL], logs += p[MHA_CUDA_ROW_LOGS] + q[MHA_CUDA_ROW_LOGS];
        first += p[MHA_CUDA_ROW_SQUARES], second += q[MHA_CUDA_ROW_SQUARES];
    }
    for (int n = threadIdx.x; x > a && n < c.pair_tiles; n += THREADS)
        for (int k = 0; k < 2; k++) sums[k] += c.pair_sums[((((int64_t)b * c.pair_tiles + n) * H + a) * H + x) * 2 + k];
    total = block_sum(w, total), logs = block_sum(w, logs), first = block_sum(w, first), second = block_sum(w, second);
    sums[0] = block_sum(w, sums[0]), sums[1] = block_sum(w, sums[1]), rows = block_sum(w, rows);
    if (threadIdx.x) return;
    double norms = sqrt(first * second), divergence = 0, cosine = norms != 0 ? sums[1] / norms : 0;
    if (rows != 0) divergence = (logs - sums[0] + 0.69314718055994530942 * total) / 2 / rows;
    if (divergence < 0) divergence = 0; /* rounding, of maps that are the same */
    if (divergence > 0.69314718055994530942) divergence = 0.69314718055994530942;
    if (cosine > 1) cosine = 1;
    if (x == a) divergence = 0, cosine = norms != 0;
    for (int n = 0; n < 2; n++) {
        int y = n ? x : a, z = n ? a : x;
        if (c.divergence.data) ((float *)c.divergence.data)[place(c.divergence, b, y, z, 0)] = (float)divergence;
        if (c.cosine.data) ((float *)c.cosine.data)[place(c.cosine, b, y, z, 0)] = (float)cosine;
    }
}
