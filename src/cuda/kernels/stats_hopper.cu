/* Statistics of heads on tensor cores, for bfloat16 and float16: rows, and what keys receive.
 *
 * A block has a tile of 64 * GROUPS rows of a head. One warpgroup copies: it has the copy engine bring Q and then, key block
 * by key block, K into a ring of STAGES. The others compute 64 rows each: S = Q K^T, and from the softmax of each row, which
 * is known, p = 2^(scale S - lse) in units of log 2. Sums over the keys of a block are float32, sums over blocks float64.
 *
 * For each weight: one multiply-add and one exponential for p, four operations for sums of rows (p, p log p, p p, p d) and a
 * maximum, and some two for what its key receives: sums over the 16 rows of a warp by exchange between lanes, then over
 * warps through shared memory, in fixed point into memory. */
#include "attention/statistics.h"
#include "careful.cuh"
#include "general.cuh"

namespace
{

typedef mha_cuda_stats stats;

enum { GROUP = 128, STAGES = 2, GROUPS = MHA_CUDA_STATS_GROUPS, ROWS = 64 * GROUPS, KEYS = MHA_CUDA_STATS_KEYS };
enum { LAST = KEYS - 7 };  /* of a thread's keys, counted from its first */
enum { OWN = 1 };          /* number of the first barrier of a warpgroup's own threads */
const float HIDDEN = -1e4; /* log2 of a weight that is 0: finite, so that its product with 0 is */

template <typename T, int D> struct shared_memory {
    alignas(1024) T q[ROWS * D];
    alignas(1024) T k[STAGES][KEYS * D];
    float columns[GROUPS][2][4][KEYS];
    alignas(8) uint64_t q_full, k_full[STAGES], k_empty[STAGES];
};

/* Keys [low,high) that one of the rows from `row` on may see, at most `rows` of them. */
MHA_DEVICE range seen_by(const general &c, const sequence &s, int row, int rows)
{
    if (row >= s.queries) return {0, 0};
    range first = visible_keys(c, s, row), last = visible_keys(c, s, min(row + rows, s.queries) - 1);
    return {first.low, max(first.low, last.high)};
}

/* A tile: its first row, its head, and the key blocks that it sees. */
struct tile {
    int row, head, first, end;
};

MHA_DEVICE tile tile_of(const stats &c, const sequence &s, int row, int head)
{
    range r = seen_by(c.g, s, row, ROWS);
    int first = r.low / KEYS;
    return {row, head, first, max(first, (r.high + KEYS - 1) / KEYS)};
}

template <typename T, int D> MHA_DEVICE void copy_tiles(shared_memory<T, D> &m, const stats &c, const sequence &s, const tile &t)
{
    barrier_expect(shared_address(&m.q_full), ROWS * D * 2);
    for (int panel = 0; panel < D / PANEL; panel++)
        copy_in(shared_address(m.q) + panel * ROWS * ROW_BYTES, &c.q, shared_address(&m.q_full), panel * PANEL,
                (int)s.query_row + t.row, t.head, s.query_batch);
    for (int j = t.first, n = 0; j < t.end; j++, n++) {
        int stage = n % STAGES;
        uint32_t full = shared_address(&m.k_full[stage]);
        barrier_wait(shared_address(&m.k_empty[stage]), (n / STAGES + 1) % 2);
        barrier_expect(full, KEYS * D * 2);
        for (int panel = 0; panel < D / PANEL; panel++)
            copy_in(shared_address(m.k[stage]) + panel * KEYS * ROW_BYTES, &c.k, full, panel * PANEL,
                    (int)s.key_row + j * KEYS, t.head / c.g.share, s.key_batch);
    }
}

/* ---- Sums ------------------------------------------------------------------------------------------------------- */

/* Of a thread's two rows, r and r + 8 of its warp's 16. */
struct row_sums {
    double total[2], logs[2], squares[2], distance[2];
    float largest[2];
};

/* Where a thread's rows stand. */
struct place_of_rows {
    int row;       /* the first, in the sequence; the second is 8 more */
    range keys[2]; /* that they see */
    float lse[2];  /* in units of log 2; NaN where float32 does not hold it, so that the careful path is taken */
    int64_t at;    /* position of the first */
};

/* Parts of a block of keys. */
struct block_sums {
    float total[2], logs[2], squares[2], distance[2], largest[2];
};

/* Scores become weights, and their sums. Number i of a thread belongs to row i / 2 % 2 and key i / 4 * 8 + i % 2 from
 * `first` on. LEFT: all keys stand before all rows or at them, and distances count from the last key of the thread. */
template <bool MASKED, bool LEFT>
MHA_DEVICE void weigh(float (&x)[KEYS / 2], block_sums &b, const place_of_rows &r, int first, float scale)
{
    float ahead = (float)(r.at - first);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float total = 0, logs = 0, squares = 0, distance = 0, largest = 0;
#pragma unroll
        for (int n = 0; n < KEYS / 4; n++) {
            int i = n / 2 * 4 + 2 * h + n % 2, key = n / 2 * 8 + n % 2;
            float e = fmaf(x[i], scale, -r.lse[h]);
            if (MASKED && (first + key >= r.keys[h].high || first + key < r.keys[h].low)) e = HIDDEN;
            float p = exp2_fast(e);
            x[i] = p;
            total += p;
            logs = fmaf(p, e, logs);
            squares = fmaf(p, p, squares);
            largest = fmaxf(largest, p);
            distance = fmaf(p, LEFT ? (float)(LAST - key) : fabsf(ahead + (8 * h - key)), distance);
        }
        b.total[h] = total, b.logs[h] = logs, b.squares[h] = squares, b.distance[h] = distance, b.largest[h] = largest;
    }
}

MHA_DEVICE int point_of(const sequence &s) { return 29 + __clz(s.queries); } /* as in stats.cu */

/* Sums over the 16 rows of a warp: each lane gives half of what it has away, three times. */
MHA_DEVICE void sum_columns(float *to, const float (&x)[KEYS / 2])
{
    int lane = threadIdx.x % 32;
    float s[KEYS / 4];
#pragma unroll
    for (int n = 0; n < KEYS / 4; n++) s[n] = x[n / 2 * 4 + n % 2] + x[n / 2 * 4 + 2 + n % 2];
#pragma unroll
    for (int half = KEYS / 8, bit = 16; bit >= 4; half /= 2, bit /= 2) {
        bool upper = lane & bit;
#pragma unroll
        for (int n = 0; n < half; n++) {
            float give = upper ? s[n] : s[n + half], keep = upper ? s[n + half] : s[n];
            s[n] = keep + __shfl_xor_sync(~0u, give, bit);
        }
    }
    int first = lane / 4 * 16 + lane % 4 * 2; /* what is left: two blocks of eight columns, two of each */
#pragma unroll
    for (int n = 0; n < 4; n += 2) *(float2 *)&to[first + n / 2 * 8] = make_float2(s[n], s[n + 1]);
}

/* A thread adds what one key, of which there are `count`, has received from the 64 rows of its warpgroup. */
MHA_DEVICE void add_column(int64_t *received, int count, double units, const float (&columns)[4][KEYS])
{
    int key = threadIdx.x % GROUP;
    float sum = columns[0][key] + columns[1][key] + (columns[2][key] + columns[3][key]);
    if (sum == 0 || key >= count) return;
    unsigned long long *to = (unsigned long long *)received + key;
    if (sum > 0 && sum <= 1.01f * 64) atomicAdd(to, (unsigned long long)((double)sum * units));
    else atomicOr(to, 1ull << 63);
}

/* ---- Rows ------------------------------------------------------------------------------------------------------- */

MHA_DEVICE place_of_rows find_rows(const stats &c, const sequence &s, int h, int row)
{
    place_of_rows r;
    r.row = row, r.at = row + s.offset;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int i = row + 8 * half;
        r.keys[half] = visible_to_row(c.g, s, i), r.lse[half] = -HIDDEN;
        if (i >= s.queries) continue;
        const double *numbers = numbers_of_row(c.g, s, h, i);
        double reference = numbers[MHA_CUDA_ROW_REFERENCE], sum = numbers[MHA_CUDA_ROW_SUM];
        if (sum != 0)
            r.lse[half] = fabs(reference) <= MHA_CUDA_STATS_MOST
                              ? (float)((reference + log(sum)) * 1.4426950408889634)
                              : NAN;
    }
    return r;
}

/* The same block of keys in float64, where a score is not finite: a thread has the same rows and keys. */
__device__ __noinline__ void weigh_carefully(const stats &c, int b, int h, int top, int first, row_sums &sums)
{
    sequence s = sequence_of(c.g, b);
    place_of_rows r = find_rows(c, s, h, top);
    for (int n = 0; n < KEYS / 2; n++) {
        int half = n / (KEYS / 4), key = first + n % (KEYS / 4) / 2 * 8 + n % 2, row = r.row + 8 * half;
        if (row >= s.queries || key < r.keys[half].low || key >= r.keys[half].high) continue;
        const double *numbers = numbers_of_row(c.g, s, h, row);
        double e = exact_score(c.g, s, h, row, key).masked - numbers[MHA_CUDA_ROW_REFERENCE] - log(numbers[MHA_CUDA_ROW_SUM]);
        double p = exp(e);
        sums.total[half] += p, sums.squares[half] += p * p, sums.distance[half] += p * llabs(r.at + 8 * half - key);
        if (p != 0) sums.logs[half] += p * e;
        if (!((float)p <= sums.largest[half])) sums.largest[half] = (float)p;
        if (!c.received_sums || p == 0) continue;
        unsigned long long *to =
            (unsigned long long *)c.received_sums + ((int64_t)s.b * c.g.H + h) * c.received_pitch + key;
        if (p > 0 && p <= 1.01) atomicAdd(to, (unsigned long long)ldexp(p, point_of(s)));
        else atomicOr(to, 1ull << 63);
    }
}

MHA_DEVICE void put(const view &t, const sequence &s, int h, int i, double x)
{
    if (t.data) ((float *)t.data)[place(t, s.query_batch, h, s.query_row + i, 0)] = (float)x;
}

/* Over the four lanes of a row. */
MHA_DEVICE double quad_sum(double x)
{
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

/* What the weights of a row and of its sink add up to: 1, but for roundings of its lse and of scores, which are common to all
 * of them and count where scores are large. */
MHA_DEVICE double whole_of(const stats &c, const sequence &s, int h, int row, double total)
{
    if (total == 0 || row >= s.queries) return 1;
    if (!c.g.sinks.data) return total;
    const double *numbers = numbers_of_row(c.g, s, h, row);
    double lse = numbers[MHA_CUDA_ROW_REFERENCE] + log(numbers[MHA_CUDA_ROW_SUM]);
    return total + exp(load(c.g.sinks, place(c.g.sinks, 0, h, 0, 0)) - lse);
}

/* Pairs of heads are compared with weights as they are, and so are the sums that are kept for them. */
MHA_DEVICE void finish(const stats &c, const sequence &s, int h, int first, row_sums &sums)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        double total = quad_sum(sums.total[half]), logs = quad_sum(sums.logs[half]);
        double squares = quad_sum(sums.squares[half]), distance = quad_sum(sums.distance[half]);
        float largest = sums.largest[half], other = __shfl_xor_sync(~0u, largest, 1);
        largest = other <= largest ? largest : other;
        other = __shfl_xor_sync(~0u, largest, 2);
        largest = other <= largest ? largest : other;
        int row = first + 8 * half;
        if (threadIdx.x % 4 || row >= s.padded) continue;
        double whole = whole_of(c, s, h, row, total);
        put(c.entropy, s, h, row, (total * log(whole) - logs) / whole);
        put(c.effective, s, h, row, squares != 0 ? whole * whole / squares : 0);
        put(c.largest, s, h, row, largest / whole);
        put(c.distance, s, h, row, total != 0 ? distance / total : 0);
        if (!c.sums_of_rows || row >= s.queries) continue;
        double *to = numbers_of_row(c.g, s, h, row);
        to[MHA_CUDA_ROW_TOTAL] = total, to[MHA_CUDA_ROW_LOGS] = logs, to[MHA_CUDA_ROW_SQUARES] = squares;
    }
}

/* `beyond` is how far the first row stands behind the key that distances count from. */
MHA_DEVICE void add_block(row_sums &sums, const block_sums &b, bool left, double beyond)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        sums.total[h] += b.total[h], sums.squares[h] += b.squares[h];
        sums.logs[h] = fma((double)b.logs[h], 0.69314718055994530942, sums.logs[h]);
        sums.distance[h] += fma((double)b.total[h], left ? beyond + 8 * h : 0.0, (double)b.distance[h]);
        sums.largest[h] = fmaxf(sums.largest[h], b.largest[h]);
    }
}

/* What a warpgroup's 64 rows see: keys that one of them does, and keys that all of them do. */
struct view_of_rows {
    range some, every;
    int length;
    double units; /* of sums over rows: how many are 1 */
    int64_t at;   /* position of the first */
};

MHA_DEVICE view_of_rows look(const stats &c, const sequence &s, int top)
{
    view_of_rows v = {seen_by(c.g, s, top, 64), {0, 0}, s.length, ldexp(1.0, point_of(s)), top + s.offset};
    if (top + 64 > s.queries) return v;
    v.every = {visible_keys(c.g, s, top + 63).low, visible_keys(c.g, s, top).high};
    return v;
}

template <typename T, int D>
MHA_DEVICE void multiply(float (&x)[KEYS / 2], uint64_t q, uint64_t k)
{
    products_begin();
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        product_shared<T>(x, q + i / 4 * (ROWS * ROW_BYTES >> 4) + i % 4 * 2, k + i / 4 * (KEYS * ROW_BYTES >> 4) + i % 4 * 2,
                          i > 0);
    products_commit();
    products_wait<0>();
    touch(x);
}

template <typename T, int D>
MHA_DEVICE void compute_tile(shared_memory<T, D> &m, const stats &c, int batch, const tile &t, int who)
{
    int thread = threadIdx.x % GROUP, lane = thread % 32, warp = thread / 32, top = t.row + who * 64;
    int row = top + warp * 16 + lane / 4;
    place_of_rows r;
    view_of_rows v;
    {
        sequence s = sequence_of(c.g, batch);
        r = find_rows(c, s, t.head, row);
        v = look(c, s, top);
    }
    row_sums sums = {};
    float scale = (float)(c.g.scale * 1.4426950408889634);
    uint64_t q = factor(shared_address(m.q) + who * 64 * ROW_BYTES, 0);
    int64_t *received = c.received_sums + ((int64_t)batch * c.g.H + t.head) * c.received_pitch;
    if (t.first < t.end) barrier_wait(shared_address(&m.q_full), 0);
    for (int j = t.first, n = 0; j < t.end; j++, n++) {
        int stage = n % STAGES, key = j * KEYS, first = key + lane % 4 * 2;
        float x[KEYS / 2];
        block_sums b;
        barrier_wait(shared_address(&m.k_full[stage]), n / STAGES % 2);
        multiply<T, D>(x, q, factor(shared_address(m.k[stage]), 0));
        if (thread == 0) barrier_arrive(shared_address(&m.k_empty[stage]));
        if (key >= v.some.high || key + KEYS <= v.some.low) continue;
        bool whole = key >= v.every.low && key + KEYS <= v.every.high, left = whole && key + KEYS - 1 <= v.at;
        if (left) weigh<false, true>(x, b, r, first, scale);
        else if (whole) weigh<false, false>(x, b, r, first, scale);
        else weigh<true, false>(x, b, r, first, scale);
        float(&columns)[4][KEYS] = m.columns[who][n % 2];
        if (c.received_sums) sum_columns(columns[warp], x);
        if (group_any(OWN + who, GROUP, !isfinite(b.logs[0] + b.logs[1]))) {
            row_sums so_far = sums; /* a copy: what a function is given the address of leaves the registers */
            weigh_carefully(c, batch, t.head, row, first, so_far);
            sums = so_far;
            continue;
        }
        if (c.received_sums) add_column(received + key, v.length - key, v.units, columns);
        add_block(sums, b, left, (double)(r.at - first - LAST));
    }
    finish(c, sequence_of(c.g, batch), t.head, row, sums);
}

template <typename T, int D> MHA_DEVICE void run(const stats &c)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    shared_memory<T, D> &m = *(shared_memory<T, D> *)memory;
    int heads = c.g.H * c.g.B, tiles = gridDim.x / heads; /* the longest rows come first */
    int row = (tiles - 1 - blockIdx.x / heads) * ROWS, h = blockIdx.x % heads % c.g.H;
    sequence s = sequence_of(c.g, blockIdx.x % heads / c.g.H);
    tile t = tile_of(c, s, row, h);
    if (threadIdx.x == 0) {
        barrier_make(shared_address(&m.q_full), 1);
        for (int i = 0; i < STAGES; i++) {
            barrier_make(shared_address(&m.k_full[i]), 1);
            barrier_make(shared_address(&m.k_empty[i]), GROUPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        publish_shared();
    }
    __syncthreads();
    if (threadIdx.x < GROUP) {
        registers_give<56>();
        if (threadIdx.x == 0 && t.first < t.end) copy_tiles<T, D>(m, c, s, t);
    } else {
        registers_take<152>();
        compute_tile<T, D>(m, c, blockIdx.x % heads / c.g.H, t, threadIdx.x / GROUP - 1);
    }
}

} // namespace

#define KERNEL(NAME, T, D)                                                                                           \
    extern "C" __global__ void __launch_bounds__(GROUP *(GROUPS + 1), 1) NAME(const __grid_constant__ mha_cuda_stats c) \
    {                                                                                                                \
        run<T, D>(c);                                                                                                \
    }

KERNEL(stats_bf16_64, __nv_bfloat16, 64)
KERNEL(stats_bf16_128, __nv_bfloat16, 128)
KERNEL(stats_f16_64, __half, 64)
KERNEL(stats_f16_128, __half, 128)
