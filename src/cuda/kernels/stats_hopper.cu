/* Statistics of heads on tensor cores, for bfloat16 and float16: rows, and what keys receive.
 *
 * A block has a tile of ROWS rows of a head. In the first warpgroup one warp has the copy engine bring Q and then, key block by key
 * block, K into a ring of STAGES. The other warpgroups compute 128 rows each, as two halves of 64: S = Q K^T, and from the softmax of
 * each row, which is known, p = 2^(scale S - lse) in units of log 2. While one half is weighed, the product of the other runs. Runs of
 * key blocks that are all visible, on one side of all rows, have a loop of their own without branches. Sums over the keys of some
 * blocks are float32, sums over those float64 in shared memory.
 *
 * For each weight: one multiply-add and one exponential for p, four operations for sums of rows (p, p log p, p p, p d), half of one
 * for the maximum, and some two for what its key receives: sums over the 32 rows of a warp by exchange between lanes go to a ring of
 * SLOTS in shared memory; two warps of the first warpgroup add up those of all warps, in fixed point into memory. */
#include "stats.h"
#include "careful.cuh"
#include "exact.cuh"

namespace
{

typedef mha_cuda_stats stats;

enum { GROUP = 128, GROUPS = MHA_CUDA_STATS_GROUPS, COMPUTE = GROUP * GROUPS, WARPS = COMPUTE / 32 };
enum { ROWS = MHA_CUDA_STATS_ROWS, BOX = MHA_CUDA_STATS_BOX, KEYS = MHA_CUDA_STATS_KEYS, OWN_ROWS = ROWS / GROUPS };
enum { STAGES = MHA_CUDA_STATS_STAGES, SLOTS = MHA_CUDA_STATS_SLOTS };
enum { LAST = KEYS - 7 };                                /* of a thread's keys, counted from its first */
enum { TOTAL, LOGS, SQUARES, DISTANCE, SUMS };           /* of a row */
enum kind { UNSEEN, LEFT, RIGHT, MIXED };                /* of a key block: where it stands; MIXED: some keys may be hidden */
const float HIDDEN = -1e4;                               /* log2 of a weight that is 0: finite, so that its product with 0 is */

/* Key blocks that the rows of a warpgroup see: one of them some, and where all rows see all keys, those before every row and
 * behind it. */
struct sight {
    range some, left, right;
    int length, queries;
};

/* A tile: its first row, its batch and head, and the key blocks that it sees. */
struct tile {
    int row, batch, head, first, end;
};

template <typename T, int D> struct shared_memory {
    alignas(1024) T q[ROWS * D];
    alignas(1024) T k[STAGES][KEYS * D];
    double sums[2 * 2 * SUMS][COMPUTE]; /* of a thread's four rows */
    float columns[SLOTS][WARPS][KEYS];
    tile own;
    sight seen[GROUPS];
    alignas(8) uint64_t q_full, k_full[STAGES], k_empty[STAGES], columns_full[SLOTS], columns_empty[SLOTS];
};

/* Keys [low,high) that one of the rows from `row` on may see, at most `rows` of them. */
MHA_DEVICE range seen_by(const general &c, const sequence &s, int row, int rows)
{
    if (row >= s.queries) return {0, 0};
    range first = visible_keys(c, s, row), last = visible_keys(c, s, min(row + rows, s.queries) - 1);
    return {first.low, max(first.low, last.high)};
}

MHA_DEVICE sight look(const general &c, const sequence &s, int top)
{
    range some = seen_by(c, s, top, OWN_ROWS);
    sight v = {{some.low / KEYS, (some.high + KEYS - 1) / KEYS}, {0, 0}, {0, 0}, s.length, s.queries};
    if (top + OWN_ROWS > s.queries) return v;
    int low = visible_keys(c, s, top + OWN_ROWS - 1).low, high = visible_keys(c, s, top).high;
    int64_t at = top + s.offset;
    int right = (int)limit(at + OWN_ROWS - 1, low, s.length);
    v.left = {(low + KEYS - 1) / KEYS, (int)limit(at + 1, 0, high) / KEYS};
    v.right = {(right + KEYS - 1) / KEYS, high / KEYS};
    return v;
}

/* Key blocks of one kind, up to `end`. */
struct run_of_blocks {
    kind what;
    int end;
};

MHA_DEVICE run_of_blocks run_from(const sight &v, int j, int end)
{
    if (j < v.some.low) return {UNSEEN, min(end, v.some.low)};
    if (j >= v.some.high) return {UNSEEN, end};
    if (j >= v.left.low && j < v.left.high) return {LEFT, v.left.high};
    if (j >= v.right.low && j < v.right.high) return {RIGHT, v.right.high};
    int next = v.some.high;
    if (v.left.low < v.left.high && v.left.low > j) next = min(next, v.left.low);
    if (v.right.low < v.right.high && v.right.low > j) next = min(next, v.right.low);
    return {MIXED, next};
}

MHA_DEVICE tile tile_of(const stats &c, const sequence &s, int row, int head)
{
    range r = seen_by(c.g, s, row, ROWS);
    int first = r.low / KEYS;
    return {row, s.b, head, first, max(first, (r.high + KEYS - 1) / KEYS)};
}

template <typename T, int D> MHA_DEVICE void copy_tiles(shared_memory<T, D> &m, const stats &c, const sequence &s, const tile &t)
{
    barrier_expect(shared_address(&m.q_full), ROWS * D * 2);
    for (int n = 0; n < ROWS / BOX * (D / PANEL); n++) {
        int panel = n / (ROWS / BOX), box = n % (ROWS / BOX);
        copy_in(shared_address(m.q) + (panel * ROWS + box * BOX) * ROW_BYTES, &c.q, shared_address(&m.q_full), panel * PANEL,
                (int)s.query_row + t.row + box * BOX, t.head, s.query_batch);
    }
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

/* ---- Columns ---------------------------------------------------------------------------------------------------- */

MHA_DEVICE int point_of(const sequence &s) { return 29 + __clz(s.queries); } /* as in stats.cu */

/* Weights of two rows are added to a thread's sums of 16 keys, or are the first ones. */
template <bool FIRST> MHA_DEVICE void add_columns(float (&s)[KEYS / 4], const float (&x)[KEYS / 2])
{
#pragma unroll
    for (int n = 0; n < KEYS / 4; n++) {
        float both = x[n / 2 * 4 + n % 2] + x[n / 2 * 4 + 2 + n % 2];
        s[n] = FIRST ? both : s[n] + both;
    }
}

/* Zeros where they are needed: the compiler would have them ready before it is known whether they are. */
MHA_DEVICE void clear(float (&s)[KEYS / 4])
{
#pragma unroll
    for (int n = 0; n < KEYS / 4; n++) s[n] = zero_here();
}

/* A lane gives half of its sums to the lane that differs in a bit, and adds what it gets to the other half. */
template <int HALF, int BIT> MHA_DEVICE void exchange(float (&s)[KEYS / 4])
{
    bool upper = threadIdx.x & BIT;
#pragma unroll
    for (int n = 0; n < HALF; n++) {
        float give = upper ? s[n] : s[n + HALF], keep = upper ? s[n + HALF] : s[n];
        s[n] = keep + __shfl_xor_sync(~0u, give, BIT);
    }
}

/* Sums over the rows of a warp: a lane keeps those of keys 2 lane and 2 lane + 1. */
MHA_DEVICE float2 sum_columns(float (&s)[KEYS / 4])
{
    exchange<KEYS / 8, 16>(s);
    exchange<KEYS / 16, 8>(s);
    exchange<KEYS / 32, 4>(s);
    return make_float2(s[0], s[1]);
}

/* The sums of a warp, to the slot of key block n of the tile. */
template <typename S> MHA_DEVICE void put_columns(S &m, float (&s)[KEYS / 4], int n)
{
    int slot = n % SLOTS, lane = threadIdx.x % 32, warp = threadIdx.x / 32 - GROUP / 32;
    float2 both = sum_columns(s);
    barrier_wait(shared_address(&m.columns_empty[slot]), (n / SLOTS + 1) % 2);
    *(float2 *)&m.columns[slot][warp][2 * lane] = both;
    __syncwarp();
    if (lane == 0) barrier_arrive(shared_address(&m.columns_full[slot]));
}

/* What keys receive from all rows of the tile: a thread, of KEYS, has a key of each block. */
template <typename S> MHA_DEVICE void add_up_columns(S &m, const stats &c, const sequence &s, const tile &t, int key)
{
    int64_t *received = c.received_sums + ((int64_t)s.b * c.g.H + t.head) * c.received_pitch;
    double units = ldexp(1.0, point_of(s));
    for (int j = t.first, n = 0; j < t.end; j++, n++) {
        int slot = n % SLOTS, at = j * KEYS + key;
        float sum = 0;
        barrier_wait(shared_address(&m.columns_full[slot]), n / SLOTS % 2);
#pragma unroll
        for (int warp = 0; warp < WARPS; warp++) sum += m.columns[slot][warp][key];
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(&m.columns_empty[slot]));
        if (sum == 0 || at >= s.length) continue;
        unsigned long long *to = (unsigned long long *)received + at;
        if (sum > 0 && sum <= 1.01f * ROWS) atomicAdd(to, (unsigned long long)((double)sum * units));
        else atomicOr(to, 1ull << 63);
    }
}

/* ---- Rows ------------------------------------------------------------------------------------------------------- */

/* A thread's rows: r and r + 8 of its warp's 16 in each half. */
struct place_of_rows {
    int row;         /* the first, in the sequence; others are 8, 64 and 72 more */
    range keys;      /* that it sees, where there is no end of keys or rows */
    float offset;    /* of its position */
    float lse[2][2]; /* in units of log 2; NaN where float32 does not hold it, so that the careful path is taken */
};

/* Sums of two rows. */
struct row_sums {
    float total[2], logs[2], squares[2], distance[2], largest[2];
};

/* The largest of three numbers that are not negative, whose bits have their order. */
MHA_DEVICE float largest_of(float x, float y, float z)
{
    return __int_as_float(__vimax3_s32(__float_as_int(x), __float_as_int(y), __float_as_int(z)));
}

/* Scores become weights, and their sums. Number i of a thread belongs to row i / 2 % 2 and key i / 4 * 8 + i % 2 from
 * `first` on. Distances count from the thread's last key or first, if all keys are on one side of all rows. */
template <kind KIND, int HALF>
MHA_DEVICE void weigh(float (&x)[KEYS / 2], row_sums &b, const place_of_rows &r, const sight &seen, int first, float scale)
{
    float ahead = (float)(r.row + 64 * HALF - first) + r.offset;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int more = 64 * HALF + 8 * h, low = 0, high = 0;
        if (KIND == MIXED && r.row + more < seen.queries)
            low = r.keys.low + more - first, high = min(seen.length, r.keys.high + more) - first;
        float total = 0, distance = 0;
#pragma unroll
        for (int n = 0; n < KEYS / 4; n++) {
            int i = n / 2 * 4 + 2 * h + n % 2, key = n / 2 * 8 + n % 2;
            float e = fmaf(x[i], scale, -r.lse[HALF][h]);
            if (KIND == MIXED && (key >= high || key < low)) e = HIDDEN;
            float p = exp2_fast(e), d = KIND == LEFT ? (float)(LAST - key) : (float)key;
            if (KIND == MIXED) d = fabsf(ahead + (8 * h - key));
            x[i] = p;
            total += p;
            b.logs[h] = fmaf(p, e, b.logs[h]);
            b.squares[h] = fmaf(p, p, b.squares[h]);
            distance = fmaf(p, d, distance);
        }
#pragma unroll
        for (int n = 0; n < KEYS / 4; n += 2) b.largest[h] = largest_of(b.largest[h], x[2 * n + 2 * h], x[2 * n + 2 * h + 1]);
        if (KIND == LEFT) distance = fmaf(total, ahead + (8 * h - LAST), distance);
        if (KIND == RIGHT) distance = fmaf(total, -(ahead + 8 * h), distance);
        b.total[h] += total, b.distance[h] += distance;
    }
}

/* Adds what has come together to the sums in float64. */
MHA_DEVICE void fold(double (*sums)[COMPUTE], row_sums &b)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        double(*to)[COMPUTE] = sums + h * SUMS;
        *to[TOTAL] += b.total[h], *to[SQUARES] += b.squares[h], *to[DISTANCE] += b.distance[h];
        *to[LOGS] = fma((double)b.logs[h], 0.69314718055994530942, *to[LOGS]);
        b.total[h] = b.logs[h] = b.squares[h] = b.distance[h] = 0;
    }
}

MHA_DEVICE place_of_rows find_rows(const stats &c, const sequence &s, int h, int row)
{
    enum { FAR = 4096 }; /* beyond the ends of keys, whatever is added */
    place_of_rows r = {row, mha_cuda_visible_keys<-FAR>(c.g, s, row), (float)s.offset, {}};
#pragma unroll
    for (int n = 0; n < 4; n++) {
        int i = row + n / 2 * 64 + n % 2 * 8;
        float &lse = r.lse[n / 2][n % 2];
        lse = -HIDDEN;
        if (i >= s.queries) continue;
        const double *numbers = numbers_of_row(c.g, s, h, i);
        double reference = numbers[MHA_CUDA_ROW_REFERENCE], sum = numbers[MHA_CUDA_ROW_SUM];
        if (sum != 0)
            lse = fabs(reference) <= MHA_CUDA_STATS_MOST ? (float)((reference + log(sum)) * 1.4426950408889634) : NAN;
    }
    return r;
}

/* Rows with a score that is not finite, in float64: a thread has the same rows, from `top` on, and the same of `keys`. What keys
 * before `received_from` receive has been added. Returns the largest weights. */
__device__ __noinline__ float2 weigh_carefully(const stats &c, int b, int h, int top, range keys, int received_from,
                                               double (*sums)[COMPUTE])
{
    sequence s = sequence_of(c.g, b);
    float2 largest = {};
    for (int n = 0; n < 2 * SUMS; n++) *sums[n] = 0;
    for (int n = 0; n < 2 * (keys.high - keys.low); n++) {
        int half = n % 2, key = keys.low + n / 2, row = top + 8 * half;
        range seen = visible_to_row(c.g, s, row);
        double(*to)[COMPUTE] = sums + half * SUMS;
        float &most = half ? largest.y : largest.x;
        if (key / 2 % 4 != threadIdx.x % 4 || key < seen.low || key >= seen.high) continue;
        const double *numbers = numbers_of_row(c.g, s, h, row);
        double e = exact_score(c.g, s, h, row, key).masked - numbers[MHA_CUDA_ROW_REFERENCE] - log(numbers[MHA_CUDA_ROW_SUM]);
        double p = exp(e);
        *to[TOTAL] += p, *to[SQUARES] += p * p, *to[DISTANCE] += p * llabs(row + s.offset - key);
        if (p != 0) *to[LOGS] += p * e;
        if (!((float)p <= most)) most = (float)p;
        if (!c.received_sums || p == 0 || key < received_from) continue;
        unsigned long long *received =
            (unsigned long long *)c.received_sums + ((int64_t)s.b * c.g.H + h) * c.received_pitch + key;
        if (p > 0 && p <= 1.01) atomicAdd(received, (unsigned long long)ldexp(p, point_of(s)));
        else atomicOr(received, 1ull << 63);
    }
    return largest;
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
MHA_DEVICE void finish_row(const stats &c, const sequence &s, int h, int row, const double (*sums)[COMPUTE], float largest)
{
    double total = quad_sum(*sums[TOTAL]), logs = quad_sum(*sums[LOGS]);
    double squares = quad_sum(*sums[SQUARES]), distance = quad_sum(*sums[DISTANCE]);
    float other = __shfl_xor_sync(~0u, largest, 1);
    largest = other <= largest ? largest : other;
    other = __shfl_xor_sync(~0u, largest, 2);
    largest = other <= largest ? largest : other;
    if (threadIdx.x % 4 || row >= s.padded) return;
    double whole = whole_of(c, s, h, row, total);
    put(c.entropy, s, h, row, (total * log(whole) - logs) / whole);
    put(c.effective, s, h, row, squares != 0 ? whole * whole / squares : 0);
    put(c.largest, s, h, row, largest / whole);
    put(c.distance, s, h, row, total != 0 ? distance / total : 0);
    if (!c.sums_of_rows || row >= s.queries) return;
    double *to = numbers_of_row(c.g, s, h, row);
    to[MHA_CUDA_ROW_TOTAL] = total, to[MHA_CUDA_ROW_LOGS] = logs, to[MHA_CUDA_ROW_SQUARES] = squares;
}

/* S of 64 rows and a block of keys, asynchronously. */
template <typename T, int D> MHA_DEVICE void multiply(float (&x)[KEYS / 2], uint32_t q, uint32_t k)
{
    if (D > 64) make_opaque(q), make_opaque(k); /* or the compiler keeps the places of all factors in registers */
    products_begin();
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        product_shared<T>(x, factor_at(q + i / 4 * (ROWS * ROW_BYTES >> 4) + i % 4 * 2),
                          factor_at(k + i / 4 * (KEYS * ROW_BYTES >> 4) + i % 4 * 2), i > 0);
    products_commit();
}

/* What is left to do for half of a warpgroup's rows, and their results. `good` is where keys end whose scores were finite. */
template <int HALF>
MHA_DEVICE void finish(const stats &c, const volatile tile &t, int row, double (*all)[COMPUTE], row_sums &b, int good)
{
    double(*sums)[COMPUTE] = all + 2 * HALF * SUMS;
    float2 largest = make_float2(b.largest[0], b.largest[1]);
    if (good == INT32_MAX) fold(sums, b);
    else largest = weigh_carefully(c, t.batch, t.head, row, {t.first * KEYS, t.end * KEYS}, good, sums);
    const sequence s = sequence_of(c.g, t.batch);
    finish_row(c, s, t.head, row, sums, largest.x);
    finish_row(c, s, t.head, row + 8, sums + SUMS, largest.y);
}

/* A warpgroup's work on a tile: key block j, number n of the tile, is next, and x has the scores of the first half of its rows. */
struct progress {
    int j, n, end;
    int good; /* where keys end whose scores were finite for the warp */
    row_sums one, other;
    float x[KEYS / 2];
};

/* Key blocks of one kind, up to `end`. */
template <typename T, int D, bool COLUMNS, kind KIND>
MHA_DEVICE void compute_run(shared_memory<T, D> &m, progress &b, const place_of_rows &r, const sight &seen, int end, uint32_t q,
                            float scale, double (*sums)[COMPUTE])
{
    enum { FOLD = D == 64 ? 8 : 4 }; /* at D 128 registers are few */
    const uint32_t half = 64 * ROW_BYTES >> 4;
    bool first_thread = threadIdx.x % GROUP == 0;
    for (; b.j < end; b.j++, b.n++) {
        int stage = b.n % STAGES, next = b.j + 1 < b.end ? b.n + 1 : b.n; /* behind the last, a product that nobody reads */
        int first = b.j * KEYS + threadIdx.x % 4 * 2;
        float y[KEYS / 2], columns[KEYS / 4];
        multiply<T, D>(y, q + half, shared_address(m.k[stage]) >> 4);
        if (KIND != UNSEEN) weigh<KIND, 0>(b.x, b.one, r, seen, first, scale);
        if (KIND != UNSEEN && COLUMNS) add_columns<true>(columns, b.x);
        products_wait<0>();
        touch(y);
        if (first_thread) barrier_arrive(shared_address(&m.k_empty[stage]));
        barrier_wait(shared_address(&m.k_full[next % STAGES]), next / STAGES % 2);
        multiply<T, D>(b.x, q, shared_address(m.k[next % STAGES]) >> 4);
        if (KIND != UNSEEN) weigh<KIND, 1>(y, b.other, r, seen, first, scale);
        if (KIND != UNSEEN && COLUMNS) add_columns<false>(columns, y);
        products_wait<0>();
        touch(b.x);
        bool lost = __any_sync(~0u, !isfinite(b.one.logs[0] + b.one.logs[1] + b.other.logs[0] + b.other.logs[1]));
        if (lost) b.good = min(b.good, b.j * KEYS); /* and the sums stay what they are */
        if (COLUMNS && (KIND == UNSEEN || lost)) clear(columns);
        if (COLUMNS) put_columns(m, columns, b.n);
        if (b.n % FOLD == FOLD - 1 && !lost) fold(sums, b.one), fold(sums + 2 * SUMS, b.other);
    }
}

template <typename T, int D, bool COLUMNS> MHA_DEVICE void compute_tile(shared_memory<T, D> &m, const stats &c, int who)
{
    const volatile tile &t = m.own; /* there are no registers for it */
    const sight &seen = m.seen[who];
    int thread = threadIdx.x % GROUP, row = t.row + who * OWN_ROWS + thread / 32 * 16 + thread % 32 / 4;
    const place_of_rows r = find_rows(c, sequence_of(c.g, t.batch), t.head, row);
    progress b = {t.first, 0, t.end, INT32_MAX, {}, {}, {}};
    float scale = (float)(c.g.scale * 1.4426950408889634);
    double(*sums)[COMPUTE] = (double(*)[COMPUTE])(&m.sums[0][threadIdx.x - GROUP]);
    uint32_t q = (shared_address(m.q) + who * OWN_ROWS * ROW_BYTES) >> 4;
    for (int i = 0; i < 4 * SUMS; i++) *sums[i] = 0;
    if (b.j < b.end) {
        barrier_wait(shared_address(&m.q_full), 0);
        barrier_wait(shared_address(&m.k_full[0]), 0);
        multiply<T, D>(b.x, q, shared_address(m.k[0]) >> 4);
        products_wait<0>();
        touch(b.x);
    }
    while (b.j < b.end) {
        run_of_blocks run = run_from(seen, b.j, b.end);
        if (run.what == LEFT) compute_run<T, D, COLUMNS, LEFT>(m, b, r, seen, run.end, q, scale, sums);
        else if (run.what == RIGHT) compute_run<T, D, COLUMNS, RIGHT>(m, b, r, seen, run.end, q, scale, sums);
        else if (run.what == MIXED) compute_run<T, D, COLUMNS, MIXED>(m, b, r, seen, run.end, q, scale, sums);
        else compute_run<T, D, COLUMNS, UNSEEN>(m, b, r, seen, run.end, q, scale, sums);
    }
    finish<0>(c, t, r.row, sums, b.one, b.good);
    finish<1>(c, t, r.row + 64, sums, b.other, b.good);
}

/* The warpgroup that does not compute: its first warp copies, the next two have a key of each block for each thread. */
template <typename T, int D> MHA_DEVICE void help(shared_memory<T, D> &m, const stats &c, const sequence &s, const tile &t)
{
    int key = threadIdx.x - 32;
    if (threadIdx.x == 0 && t.first < t.end) copy_tiles<T, D>(m, c, s, t);
    if (c.received_sums && key >= 0 && key < KEYS) add_up_columns(m, c, s, t, key);
}

template <typename T, int D> MHA_DEVICE void run(const stats &c)
{
    unsigned char *memory = dynamic_memory<1024>();
    shared_memory<T, D> &m = *(shared_memory<T, D> *)memory;
    int heads = c.g.H * c.g.B, tiles = gridDim.x / heads; /* the longest rows come first */
    int row = (tiles - 1 - blockIdx.x / heads) * ROWS, h = blockIdx.x % heads % c.g.H, batch = blockIdx.x % heads / c.g.H;
    sequence s = sequence_of(c.g, batch);
    tile t = tile_of(c, s, row, h);
    if (threadIdx.x == 0) {
        m.own = t;
        barrier_make(shared_address(&m.q_full), 1);
        for (int i = 0; i < STAGES; i++) {
            barrier_make(shared_address(&m.k_full[i]), 1);
            barrier_make(shared_address(&m.k_empty[i]), GROUPS);
        }
        for (int i = 0; i < SLOTS; i++) {
            barrier_make(shared_address(&m.columns_full[i]), WARPS);
            barrier_make(shared_address(&m.columns_empty[i]), KEYS / 32);
        }
        barriers_made();
        publish_shared();
    }
    int n = threadIdx.x - GROUP;
    if (n >= 0 && n < GROUPS) m.seen[n] = look(c.g, s, row + n * OWN_ROWS);
    __syncthreads();
    if (threadIdx.x < GROUP) {
        registers_give<56>();
        help<T, D>(m, c, s, t);
    } else {
        registers_take<152>();
        int who = __shfl_sync(~0u, (int)threadIdx.x / GROUP, 0) - 1; /* or the compiler does not know that a warp has one */
        if (c.received_sums) compute_tile<T, D, true>(m, c, who);
        else compute_tile<T, D, false>(m, c, who);
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
