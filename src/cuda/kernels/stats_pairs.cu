/* Pairs of heads on tensor cores, for bfloat16 and float16: sums of u log u with u = p_a + p_b, and of p_a p_b.
 *
 * A block has a tile of 64 * GROUPS rows and eight heads, two fours of the call's. One warpgroup copies: Q of all eight,
 * which stays, and then K of all, 16 or 32 keys at a time. The others compute 64 rows each: the weights of eight heads for the
 * same rows and keys are in the registers of one thread, which compares all of them. As soon as a head has been compared with
 * all others, its next product begins in the same registers and runs beside the other comparisons. A pair takes one logarithm
 * for each two weights; with all pairs of eight heads that is 3.5 for each weight and its exponential, and they share a unit
 * that does 16 in a cycle.
 *
 * Sums are float32 over 2048 keys and float64 beyond. Tiles with scores that are not finite are left to stats_pairs. */
#include "stats.h"
#include "careful.cuh"
#include "general.cuh"

namespace
{

typedef mha_cuda_stats stats;

enum { GROUP = 128, HEADS = MHA_CUDA_STATS_HEADS, STAGES = 2, PAIRS = HEADS * (HEADS - 1) / 2, FLUSH = 2048, OWN = 1 };

template <typename T, int D, int GROUPS> struct shared_memory {
    enum { ROWS = 64 * GROUPS, KEYS = MHA_CUDA_STATS_PAIR_KEYS(D) };
    alignas(1024) T q[HEADS][ROWS * D];
    alignas(1024) T k[STAGES][HEADS][KEYS * D];
    float lse[HEADS][ROWS];
    double sums[4 * GROUPS][2 * PAIRS];
    alignas(8) uint64_t q_full, k_full[STAGES], k_empty[STAGES];
};

/* The heads of a pass: those of two fours, or of one. The last ones may be missing; then others stand in for them. */
struct pass {
    int one, other; /* the first heads; the same for one four */
    bool within;    /* heads of one four are compared as well */
    MHA_DEVICE int head(int n) const { return (n < 4 ? one : other) + n % 4; }
    MHA_DEVICE int heads(int H) const { return other == one ? min(4, H - one) : min((int)HEADS, 4 + H - other); }
};

/* Pass n of all: pairs of fours, and the last four alone if their number is odd. A four is compared with its own heads in the pass
 * with its neighbour. */
MHA_DEVICE pass pass_of(int n, int H)
{
    int fours = (H + 3) / 4;
    for (int a = 0; a < fours; a++) {
        int others = fours - 1 - a;
        if (n < others) return {4 * a, 4 * (a + 1 + n), n == 0 && a % 2 == 0};
        n -= others;
    }
    return {4 * (fours - 1), 4 * (fours - 1), true};
}

template <typename T, int D, int GROUPS>
MHA_DEVICE void copy_tiles(shared_memory<T, D, GROUPS> &m, const stats &c, const sequence &s, const pass &p, int row,
                           range blocks)
{
    enum { ROWS = 64 * GROUPS, KEYS = MHA_CUDA_STATS_PAIR_KEYS(D) };
    barrier_expect(shared_address(&m.q_full), HEADS * ROWS * D * 2);
    for (int n = 0; n < HEADS; n++)
        for (int panel = 0; panel < D / PANEL; panel++)
            copy_in(shared_address(m.q[n]) + panel * ROWS * ROW_BYTES, &c.q, shared_address(&m.q_full), panel * PANEL,
                    (int)s.query_row + row, min(p.head(n), c.g.H - 1), s.query_batch);
    for (int j = blocks.low, n = 0; j < blocks.high; j++, n++) {
        int stage = n % STAGES;
        uint32_t full = shared_address(&m.k_full[stage]);
        barrier_wait(shared_address(&m.k_empty[stage]), (n / STAGES + 1) % 2);
        barrier_expect(full, HEADS * KEYS * D * 2);
        for (int h = 0; h < HEADS; h++)
            for (int panel = 0; panel < D / PANEL; panel++)
                copy_in(shared_address(m.k[stage][h]) + panel * KEYS * ROW_BYTES, &c.k, full, panel * PANEL,
                        (int)s.key_row + j * KEYS, min(p.head(h), c.g.H - 1) / c.g.share, s.key_batch);
    }
}

struct pair_sums {
    float logs[PAIRS], dots[PAIRS];
};

/* A head and others: [first,last). */
template <int HEAD, int FIRST, int LAST, int COUNT> MHA_DEVICE void compare(const float (&p)[HEADS][COUNT], pair_sums &s)
{
#pragma unroll
    for (int b = FIRST; b < LAST; b++) {
        int n = b * (b - 1) / 2 + HEAD;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            float u = p[HEAD][i] + p[b][i];
            s.logs[n] = fmaf(u, log2_fast(u), s.logs[n]);
            s.dots[n] = fmaf(p[HEAD][i], p[b][i], s.dots[n]);
        }
    }
}

/* Adds what the lanes of a warp have to its sums in float64; a lane has a pair. Returns whether its own are not finite. */
MHA_DEVICE bool flush(double *to, pair_sums &s)
{
    int own = threadIdx.x % 32;
    float logs = 0, dots = 0;
#pragma unroll
    for (int n = 0; n < PAIRS; n++) {
        float x = s.logs[n], y = s.dots[n];
        for (int lane = 16; lane; lane /= 2) x += __shfl_xor_sync(~0u, x, lane), y += __shfl_xor_sync(~0u, y, lane);
        if (own == n) logs = x, dots = y;
        s.logs[n] = s.dots[n] = 0;
    }
    if (own < PAIRS) to[2 * own] += logs, to[2 * own + 1] += dots;
    return !isfinite(logs + dots);
}

/* Scores of a head become weights, and infinite or NaN if they are not finite: also that of -infinity, which may be a sum that overflowed
 * on its way. A tiny part of their logarithm on top keeps logarithms of weights finite that are 0 otherwise. */
template <bool MASKED, int COUNT>
MHA_DEVICE void weigh(float (&x)[COUNT], float scale, const float (&lse)[2], const range (&keys)[2], int first)
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        int h = i / 2 % 2, key = first + i / 4 * 8 + i % 2;
        float e = fmaf(x[i], scale, -lse[h]);
        if (MASKED && (key >= keys[h].high || key < keys[h].low)) e = -1e4f;
        x[i] = fmaf(e, -0x1p-110f, exp2_fast(e));
    }
}

/* Of all heads; the next head's lse of a row is `pitch` numbers behind. */
template <int COUNT>
MHA_DEVICE void weigh_heads(float (&p)[HEADS][COUNT], float scale, const float *lse, int pitch, const range (&keys)[2],
                            int first, bool whole)
{
    float own[HEADS][2];
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        touch(p[h]);
        own[h][0] = lse[h * pitch], own[h][1] = lse[h * pitch + 8];
    }
    if (whole) {
#pragma unroll
        for (int h = 0; h < HEADS; h++) weigh<false>(p[h], scale, own[h], keys, first);
    } else {
#pragma unroll
        for (int h = 0; h < HEADS; h++) weigh<true>(p[h], scale, own[h], keys, first);
    }
}

template <typename T, int D, int GROUPS>
MHA_DEVICE void put_sums(shared_memory<T, D, GROUPS> &m, const stats &c, const sequence &s, const pass &p, int tile,
                         int who)
{
    int H = c.g.H, heads = p.heads(H);
    double *to = c.pair_sums + ((int64_t)s.b * c.pair_tiles + tile) * H * H * 2;
    for (int n = threadIdx.x % GROUP; n < PAIRS; n += GROUP) {
        int b = 1;
        while (b * (b + 1) / 2 <= n) b++;
        int a = n - b * (b - 1) / 2, x = p.head(a), y = p.head(b);
        if ((a / 4 == b / 4 && !p.within) || b >= heads) continue;
        for (int k = 0; k < 2; k++) {
            double sum = 0;
            for (int warp = 0; warp < 4; warp++) sum += m.sums[4 * who + warp][2 * n + k];
            to[(x * H + y) * 2 + k] = k ? sum : sum * 0.69314718055994530942;
        }
    }
}

/* What a warpgroup's product of head H needs: the places of Q and K of the first head in shared memory, divided by 16. */
template <typename T, int D, int GROUPS, int H, int COUNT> MHA_DEVICE void multiply(float (&x)[COUNT], uint32_t q, uint32_t k)
{
    enum { ROWS = 64 * GROUPS, KEYS = 2 * COUNT };
    products_begin();
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        product_shared<T>(x, factor_at(q + ((H * ROWS * D * 2 + i / 4 * ROWS * ROW_BYTES) >> 4) + i % 4 * 2),
                          factor_at(k + ((H * KEYS * D * 2 + i / 4 * KEYS * ROW_BYTES) >> 4) + i % 4 * 2), i > 0);
    products_commit();
}

/* Which heads a pass compares: those within a four, those of two; or all, which is known when the kernel is compiled: branches
 * between comparisons would keep the compiler from mixing them. */
struct some_pairs {
    bool within, across;
};
struct all_pairs {
    enum { within = true, across = true };
};

/* A head is compared with the later ones, and its next product begins: no later comparison needs its weights. */
template <typename T, int D, int GROUPS, int H, int COUNT, typename WHICH>
MHA_DEVICE void compare_and_go_on(float (&p)[HEADS][COUNT], pair_sums &s, WHICH which, uint32_t q, uint32_t k)
{
    if constexpr (H % 4 != 3)
        if (which.within) compare<H, H + 1, H / 4 * 4 + 4>(p, s);
    if constexpr (H < 4)
        if (which.across) compare<H, 4, HEADS>(p, s);
    make_opaque(q), make_opaque(k); /* or the compiler keeps the places of all factors in registers */
    multiply<T, D, GROUPS, H>(p[H], q, k);
    if constexpr (H + 1 < HEADS) compare_and_go_on<T, D, GROUPS, H + 1>(p, s, which, q, k);
}

template <typename T, int D, int GROUPS>
MHA_DEVICE void compute_tile(shared_memory<T, D, GROUPS> &m, const stats &c, const sequence &s, const pass &p, int row,
                             range blocks, int who)
{
    enum { KEYS = MHA_CUDA_STATS_PAIR_KEYS(D) };
    int thread = threadIdx.x % GROUP, lane = thread % 32, warp = thread / 32, top = row + who * 64;
    int at = who * 64 + warp * 16 + lane / 4, bad = 0;
    float scale = (float)(c.g.scale * 1.4426950408889634), p_all[HEADS][KEYS / 2] = {};
    const range keys[2] = {visible_to_row(c.g, s, row + at), visible_to_row(c.g, s, row + at + 8)};
    range every = visible_to_row(c.g, s, top); /* what all rows of the warpgroup see */
    every.low = visible_to_row(c.g, s, min(top + 64, s.queries) - 1).low;
    pair_sums sums = {};
    bool across = p.heads(c.g.H) > 4;
    uint32_t q = (shared_address(m.q) + who * 64 * ROW_BYTES) >> 4;
    auto go_on = [&](auto which, int next) {
        barrier_wait(shared_address(&m.k_full[next % STAGES]), next / STAGES % 2);
        compare_and_go_on<T, D, GROUPS, 0>(p_all, sums, which, q, shared_address(m.k[next % STAGES]) >> 4);
    };
    auto go_through = [&](auto which) {
        for (int j = blocks.low, n = 0; j < blocks.high; j++, n++) {
            int first = j * KEYS + lane % 4 * 2,
                next = j + 1 < blocks.high ? n + 1 : n; /* behind the last block, products that nobody reads */
            bool whole = top + 64 <= s.queries && j * KEYS >= every.low && (j + 1) * KEYS <= every.high;
            products_wait<0>();
            if (thread == 0) barrier_arrive(shared_address(&m.k_empty[n % STAGES]));
            weigh_heads(p_all, scale, &m.lse[0][at], 64 * GROUPS, keys, first, whole);
            go_on(which, next);
            if (n % (FLUSH / KEYS) == FLUSH / KEYS - 1) bad |= flush(m.sums[4 * who + warp], sums);
        }
    };
    if (blocks.low < blocks.high) {
        barrier_wait(shared_address(&m.q_full), 0);
        go_on(some_pairs{false, false}, 0);
    }
    if (p.within && across) go_through(all_pairs());
    else go_through(some_pairs{p.within, across});
    products_wait<0>();
    bad |= flush(m.sums[4 * who + warp], sums);
    bad = group_any(OWN + who, GROUP, bad);
    if (top / 64 >= c.pair_tiles) return;
    put_sums(m, c, s, p, top / 64, who);
    if (bad && thread == 0) c.lost_pairs[(int64_t)s.b * c.pair_tiles + top / 64] = 1;
}

/* The lse of a row in units of log 2; NaN where float32 does not hold it, so that the tile is computed again. */
MHA_DEVICE float lse_of(const general &c, const sequence &s, int h, int i)
{
    if (i >= s.queries || h >= c.H) return 1e4f;
    const double *numbers = numbers_of_row(c, s, h, i);
    double reference = numbers[MHA_CUDA_ROW_REFERENCE], sum = numbers[MHA_CUDA_ROW_SUM];
    if (sum == 0) return 1e4f;
    bool held = fabs(reference) <= MHA_CUDA_STATS_MOST;
    return held ? (float)((reference + log(sum)) * 1.4426950408889634) : NAN;
}

template <typename T, int D, int GROUPS> MHA_DEVICE void run(const stats &c)
{
    unsigned char *memory = dynamic_memory<1024>();
    enum { ROWS = 64 * GROUPS, KEYS = MHA_CUDA_STATS_PAIR_KEYS(D), THREADS_ALL = GROUP * (GROUPS + 1) };
    shared_memory<T, D, GROUPS> &m = *(shared_memory<T, D, GROUPS> *)memory;
    int fours = (c.g.H + 3) / 4, passes = fours * (fours - 1) / 2 + fours % 2;
    int tiles = gridDim.x / (passes * c.g.B); /* the longest rows come first */
    int row = (tiles - 1 - blockIdx.x / (passes * c.g.B)) * ROWS;
    pass p = pass_of(blockIdx.x % passes, c.g.H);
    sequence s = sequence_of(c.g, blockIdx.x / passes % c.g.B);
    range seen = {0, 0};
    if (row < s.queries) {
        seen.low = visible_keys(c.g, s, row).low;
        seen.high = visible_keys(c.g, s, min(row + ROWS, s.queries) - 1).high;
    }
    range blocks = {seen.low / KEYS, max(seen.low / KEYS, (seen.high + KEYS - 1) / KEYS)};
    for (int n = threadIdx.x; n < HEADS * ROWS; n += THREADS_ALL)
        m.lse[n / ROWS][n % ROWS] = lse_of(c.g, s, min(p.head(n / ROWS), c.g.H - 1), row + n % ROWS);
    for (int n = threadIdx.x; n < 4 * GROUPS * 2 * PAIRS; n += THREADS_ALL)
        m.sums[n / (2 * PAIRS)][n % (2 * PAIRS)] = 0;
    if (threadIdx.x == 0) {
        barrier_make(shared_address(&m.q_full), 1);
        for (int i = 0; i < STAGES; i++) {
            barrier_make(shared_address(&m.k_full[i]), 1);
            barrier_make(shared_address(&m.k_empty[i]), GROUPS);
        }
        barriers_made();
        publish_shared();
    }
    __syncthreads();
    if (threadIdx.x < GROUP) {
        registers_give<40>();
        if (threadIdx.x == 0 && blocks.low < blocks.high) copy_tiles<T, D, GROUPS>(m, c, s, p, row, blocks);
    } else {
        registers_take<232>();
        int who = __shfl_sync(~0u, (int)threadIdx.x / GROUP, 0) - 1; /* or the compiler does not know that a warp has one */
        compute_tile<T, D, GROUPS>(m, c, s, p, row, blocks, who);
    }
}

} // namespace

#define KERNEL(NAME, T, D, GROUPS)                                       \
    extern "C" __global__ void __launch_bounds__(GROUP *(GROUPS + 1), 1) \
        NAME(const __grid_constant__ mha_cuda_stats c)                   \
    {                                                                    \
        run<T, D, GROUPS>(c);                                            \
    }

KERNEL(stats_pairs_bf16_64, __nv_bfloat16, 64, 2)
KERNEL(stats_pairs_bf16_128, __nv_bfloat16, 128, 1)
KERNEL(stats_pairs_f16_64, __half, 64, 2)
KERNEL(stats_pairs_f16_128, __half, 128, 1)
