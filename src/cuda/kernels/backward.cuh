/* Attention backward on tensor cores, for bfloat16 and float16: the bodies of the kernels in backward*.cu.
 *
 * A block of threads owns KEYS keys and streams the query rows that see them, a tile of QUERIES rows after another, of all
 * query heads of its key head. One warpgroup copies; the other two have half of the keys each, and compute, transposed,
 *
 *     S = K Q^T    P = exp(scale S - lse)    dP = V dO^T    dS = P (dP - delta)    dV += P dO    dK += dS Q
 *
 * with dV and dK in registers, and together dQ of the tile from all their keys: dS goes through shared memory.
 *
 * Many blocks add to the same rows of dQ, in any order. Their sums are integers, so that the order does not matter: the
 * numbers of a row are multiples of a power of two, small enough that the largest sum possible fits 30 bits. That is
 * bounded by 2 |dO_i| max |V_j| max |K_jd|, because the weights of a row sum to 1.
 *
 * Zeroing and converting those integers, and the bounds, cost as much as the products where sequences are brief. There the
 * sums are float32, of key tile 0, 1, 2 and so on in this order: a block owns all keys of a head and takes one tile after
 * another (c.parts is 1), or, if there are few heads, blocks own a tile each and keep what they have to add (c.parts is the
 * number of tiles) for `convert`, which does the same additions. So the bits do not depend on the number of heads.
 *
 * Heads of other widths, multiples of 8, run on the next larger kernel: the copy engine fills tiles with zeros and cuts results.
 *
 * The kernels of a call start early (programmatic dependent launch): each waits for the one before it itself. */
#ifndef MHA_CUDA_BACKWARD_CUH
#define MHA_CUDA_BACKWARD_CUH

#include "backward.h"
#include "careful.cuh"
#include "schedule.h"

namespace
{

enum { GROUP = 128, CONSUMERS = 2, KEYS = 128, STAGES = 3, ALL = 1 };
enum { LSE, DELTA, POWER, ROW_KINDS };
enum { BOUND_KEYS = 512 }; /* keys of a partial bound */

template <typename T, int D, int QUERIES> struct shared_memory {
    alignas(1024) T k[KEYS * D];
    alignas(1024) T v[KEYS * D];
    alignas(1024) T q[STAGES][QUERIES * D];
    alignas(1024) T d_out[STAGES][QUERIES * D];
    alignas(1024) T ds[2][QUERIES * KEYS];
    alignas(128) float rows[STAGES][ROW_KINDS * QUERIES];
    alignas(8) uint64_t keys_full, full[STAGES], empty[STAGES], ds_full[2], ds_empty[2], keys_empty;
};

/* What a block works on: keys from `first` on of a head, and the tiles of rows [from, from + count) of each query head,
 * beginning with `start` and around. */
struct work {
    int first, head, batch, from, count, start;
};

/* What rows see: all keys, those up to their position, or what options say. */
enum kind { FULL, CAUSAL, OPTIONS };

/* How dQ is summed: in integers, or in the order of key tiles. */
enum sums { INTEGERS, ORDERED };

/* The kernel before this one in the stream has ended; the one after it may start. */
MHA_DEVICE void wait_for_last(void) { asm volatile("griddepcontrol.wait;" ::: "memory"); }
MHA_DEVICE void let_next_start(void) { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

template <int QUERIES, kind KIND> MHA_DEVICE work work_of(const mha_cuda_backward &c)
{
    mha_cuda_place p = mha_cuda_place_of(blockIdx.x, c.G * c.B, c.key_tiles, c.section);
    work w = {p.tile * KEYS, p.head % c.G, p.head / c.G, 0, c.row_tiles, 0};
    w.from = mha_cuda_first_rows(w.first, QUERIES, c.row_tiles, KIND == OPTIONS ? c.right : c.offset, KIND != FULL);
    w.count = c.row_tiles - w.from;
    if (KIND == OPTIONS) {
        int last = w.first + KEYS - 1 - c.left; /* the last row that sees one of the keys */
        w.count = last < 0 ? 0 : max(0, min(c.row_tiles, last / QUERIES + 1) - w.from);
    }
    if (KIND == FULL) w.start = (int)((int64_t)(p.tile - p.tile % c.together) * c.row_tiles / c.key_tiles);
    return w;
}

/* Key tile `tile` of a head, if dQ is summed in order. The first one writes all rows. */
template <int QUERIES, kind KIND> MHA_DEVICE work work_in_order(const mha_cuda_backward &c, int head, int tile)
{
    work w = {tile * KEYS, head % c.G, head / c.G, 0, c.row_tiles, 0};
    if (tile) w.from = mha_cuda_first_rows(w.first, QUERIES, c.row_tiles, c.offset, KIND == CAUSAL);
    w.count = c.row_tiles - w.from;
    return w;
}

/* The last key tile that adds to a tile of rows, in order. */
template <int QUERIES> MHA_DEVICE int last_part(const mha_cuda_backward &c, int tile, bool causal)
{
    int last = tile * QUERIES + QUERIES - 1 + c.offset;
    return causal ? max(0, min(c.key_tiles - 1, last / KEYS)) : c.key_tiles - 1;
}

MHA_DEVICE int tile_at(const work &w, int i)
{
    int at = w.start + i;
    return w.from + (at >= w.count ? at - w.count : at);
}

MHA_DEVICE void copy_bytes(uint32_t to, const void *from, int bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

MHA_DEVICE void store_matrices_turned(uint32_t row, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(a), "r"(b),
                 "r"(c), "r"(d)
                 : "memory");
}

template <int N> MHA_DEVICE void keep(const uint32_t (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" ::"r"(x[i]) : "memory");
}

/* ---- The warpgroup that copies ---------------------------------------------------------------------------------- */

template <typename T, int D, int QUERIES>
MHA_DEVICE void copy_keys(shared_memory<T, D, QUERIES> &s, const mha_cuda_backward &c, const work &w)
{
    uint32_t full = shared_address(&s.keys_full);
    barrier_expect(full, 2 * KEYS * D * 2);
    for (int panel = 0; panel < D / PANEL; panel++) {
        copy_in(shared_address(s.k) + panel * KEYS * ROW_BYTES, &c.k, full, panel * PANEL, w.first, w.head, w.batch);
        copy_in(shared_address(s.v) + panel * KEYS * ROW_BYTES, &c.v, full, panel * PANEL, w.first, w.head, w.batch);
    }
}

/* Tile n of a block: one of query head `head`. */
template <typename T, int D, int QUERIES>
MHA_DEVICE void copy_rows(shared_memory<T, D, QUERIES> &s, const mha_cuda_backward &c, int batch, int head, int tile,
                          uint32_t n)
{
    int stage = n % STAGES;
    uint32_t q = shared_address(s.q[stage]), d_out = shared_address(s.d_out[stage]), full = shared_address(&s.full[stage]);
    barrier_wait(shared_address(&s.empty[stage]), n / STAGES % 2 ^ 1);
    barrier_expect(full, 2 * QUERIES * D * 2 + ROW_KINDS * QUERIES * 4);
    copy_bytes(shared_address(s.rows[stage]),
               c.rows + (((int64_t)batch * c.H + head) * c.row_tiles + tile) * ROW_KINDS * QUERIES,
               ROW_KINDS * QUERIES * 4, full);
    for (int panel = 0; panel < D / PANEL; panel++) {
        int at = panel * QUERIES * ROW_BYTES;
        copy_in(q + at, &c.q, full, panel * PANEL, tile * QUERIES, head, batch);
        copy_in(d_out + at, &c.d_out, full, panel * PANEL, tile * QUERIES, head, batch);
    }
}

template <typename T, int D, int QUERIES>
MHA_DEVICE void copy_all(shared_memory<T, D, QUERIES> &s, const mha_cuda_backward &c, const work &w)
{
    uint32_t n = 0;
    int group = c.H / c.G;
    copy_keys(s, c, w);
    for (int h = 0; h < group; h++)
        for (int i = 0; i < w.count; i++, n++) copy_rows(s, c, w.batch, w.head * group + h, tile_at(w, i), n);
}

/* The same for number `turn` of the key tiles of a block, which has copied `base` tiles of rows before. The first tile of
 * rows comes before the keys, for which it need not wait. */
template <typename T, int D, int QUERIES>
MHA_DEVICE void copy_turn(shared_memory<T, D, QUERIES> &s, const mha_cuda_backward &c, const work &w, uint32_t base,
                          int turn)
{
    int group = c.H / c.G, total = group * w.count;
    for (int n = 0; n <= max(1, total); n++) {
        if (n == 1) {
            barrier_wait(shared_address(&s.keys_empty), turn % 2 ^ 1);
            copy_keys(s, c, w);
        }
        if (n < total) copy_rows(s, c, w.batch, w.head * group + n / w.count, tile_at(w, n % w.count), base + n);
    }
}

/* The power of two that a key head's numbers have in the integers of dQ. */
MHA_DEVICE float power_of(const mha_cuda_backward &c, int head, int batch)
{
    const float *bounds = c.bounds + 2 * ((int64_t)batch * c.G + head) * c.bound_tiles;
    float norm = 0, number = 0;
    for (int i = 0; i < c.bound_tiles; i++) {
        norm = fmaxf(norm, bounds[2 * i]);
        if (bounds[2 * i + 1] < INFINITY) number = fmaxf(number, bounds[2 * i + 1]);
    }
    int exponent;
    frexpf(norm * number, &exponent);
    return exp2f((float)min(100, max(-100, 28 - exponent)));
}

/* ---- The warpgroups that compute -------------------------------------------------------------------------------- */

/* s (64 keys, N rows) = a (64,D) b (N,D)^T, of a tile of ROWS rows. */
template <typename T, int D, int N, int ROWS = N> MHA_DEVICE void scores(float (&s)[N / 2], uint64_t a, uint64_t b)
{
    products_begin();
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        product_shared<T>(s, a + i / 4 * (KEYS * ROW_BYTES >> 4) + i % 4 * 2,
                          b + i / 4 * (ROWS * ROW_BYTES >> 4) + i % 4 * 2, i > 0);
    products_commit();
}

/* sums (64 keys, D) += x (64, N rows) of registers times rows (N,D). */
template <typename T, int D, int N>
MHA_DEVICE void add_rows(float (&sums)[D / 2], const uint32_t (&x)[N / 4], uint64_t rows)
{
    products_begin();
#pragma unroll
    for (int i = 0; i < N / 16; i++) product_registers<T>(sums, x + 4 * i, rows + i * (16 * ROW_BYTES >> 4), 1);
    products_commit();
}

template <typename T, int D>
MHA_DEVICE void put_rows(const mha_cuda_backward &c, const work &w, int who, bool values, uint32_t to,
                         const float (&x)[D / 2], float by)
{
    int thread = threadIdx.x % GROUP, lane = thread % 32, warp = thread / 32;
    int row = warp * 16 + lane / 8 % 2 * 8 + lane % 8;
    to += who * 64 * ROW_BYTES;
    if (is_lost(x)) {
        c.lost_keys[(w.batch * c.G + w.head) * c.key_tiles + w.first / KEYS] = 1;
        if (c.any) *c.any = 1;
    }
#pragma unroll
    for (int b = 0; b < D / 8; b += 2) {
        int piece = b + lane / 16;
        const float *y = x + 4 * b;
        store_matrices(to + piece / 8 * KEYS * ROW_BYTES + row * ROW_BYTES + ((piece % 8) ^ (row % 8)) * 16,
                       pack<T>(y[0] * by, y[1] * by), pack<T>(y[2] * by, y[3] * by), pack<T>(y[4] * by, y[5] * by),
                       pack<T>(y[6] * by, y[7] * by));
    }
    publish_shared();
    group_sync(ALL + 1 + who, GROUP);
    if (thread == 0) {
        for (int panel = 0; panel < D / PANEL; panel++)
            copy_out(values ? &c.dv : &c.dk, to + panel * KEYS * ROW_BYTES, panel * PANEL, w.first + who * 64, w.head,
                     w.batch);
        copies_commit();
    }
}

/* 64 columns of dQ of 16 rows, as the lanes of a warp hold them, to memory. Four lanes have a row together, two numbers each
 * of every eight: they exchange them for eight in a row. */
template <typename T, int QUERIES>
MHA_DEVICE void put_dq(const mha_cuda_backward &c, const uint32_t (&x)[16], int batch, int head, int tile, int who, int warp)
{
    int lane = threadIdx.x % 32, row = (QUERIES == 128 ? who * 64 : 0) + warp * 16 + lane / 4;
    T *dq = (T *)c.dq.data + batch * c.dq.batch + head * c.dq.head;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int own = tile * QUERIES + row + 8 * half;
#pragma unroll
        for (int i = 0; i < 8; i += 4) {
            uint32_t y[4];
#pragma unroll
            for (int step = 0; step < 4; step++) {
                /* Lane l sends what lane l ^ step stores: its part of eight i + (l ^ step). */
                int to = lane % 4 ^ step;
                uint32_t mine = to == 0   ? x[2 * i + half]
                                : to == 1 ? x[2 * i + 2 + half]
                                : to == 2 ? x[2 * i + 4 + half]
                                          : x[2 * i + 6 + half];
                y[step] = __shfl_xor_sync(~0u, mine, step);
            }
            /* y[step] comes from lane l ^ step and is its place in the eight. */
            uint32_t z[4];
#pragma unroll
            for (int place = 0; place < 4; place++) {
                int step = place ^ lane % 4;
                z[place] = step == 0 ? y[0] : step == 1 ? y[1] : step == 2 ? y[2] : y[3];
            }
            int column = (QUERIES == 128 ? 0 : who * 64) + (i + lane % 4) * 8;
            if (own < c.Tq && column < c.D) *(uint4 *)(dq + own * c.dq.row + column) = make_uint4(z[0], z[1], z[2], z[3]);
        }
    }
}

/* What a thread of the kernels with options knows of a tile: how far its first row stands before the first of its keys and
 * before the one 8 after it, and the slope. */
struct options_of_tile {
    float ahead[2], slope; /* -infinity for keys that are not there */
    bool hidden;           /* some of it */
};

/* Element i of a tile, whose product is x: its weight, and by what it goes on to dS: the slope of the cap. */
struct element {
    float weight, capped;
};

template <bool CAP>
MHA_DEVICE element weigh_with_options(const mha_cuda_backward &c, const options_of_tile &t, int i, float x, float lse)
{
    float s = x * c.scale_log2, by = 1, distance = t.ahead[i / 2 % 2] + (i / 4 * 8 + i % 2);
    if (CAP) {
        float r = inverse_fast(1 + exp2_fast(x * c.cap_inverse));
        s = fmaf(c.cap_twice, r, fmaf(x, 0.0f, c.cap)); /* NaN if the product overflowed, which the cap would cover */
        by = 4 * r * (1 - r);
    }
    float weight = exp2_fast(fmaf(-t.slope, fabsf(distance), s) - lse);
    if (t.hidden && !(distance >= c.nearest && distance <= c.farthest)) weight = 0;
    return {weight, weight * by};
}

/* Products x = S and y = dP of 64 rows become weights p and dS. */
template <typename T, int QUERIES, bool CAP>
MHA_DEVICE void meet_with_options(const float (&x)[32], const float (&y)[32], uint32_t *p, uint32_t *ds,
                                  const mha_cuda_backward &c, const float *rows, const options_of_tile &t)
{
    rows += threadIdx.x % 4 * 2;
#pragma unroll
    for (int b = 0; b < 8; b++) {
        float2 lse = *(const float2 *)(rows + LSE * QUERIES + 8 * b), delta = *(const float2 *)(rows + DELTA * QUERIES + 8 * b);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int at = 4 * b + 2 * i;
            element even = weigh_with_options<CAP>(c, t, at, x[at], lse.x);
            element odd = weigh_with_options<CAP>(c, t, at + 1, x[at + 1], lse.y);
            p[2 * b + i] = pack<T>(even.weight, odd.weight);
            ds[2 * b + i] = pack<T>(even.capped * (y[at] - delta.x), odd.capped * (y[at + 1] - delta.y));
        }
    }
}

/* dQ of tile n - 1 is computed in the step of tile n, so that the warpgroups need not wait for each other's dS, and leaves
 * while dV and dK of tile n run. (In the first step its products are those of whatever the memory holds, and are not used.) */
template <typename T, int D, int QUERIES, kind KIND, sums WAY>
MHA_DEVICE void compute_all(shared_memory<T, D, QUERIES> &s, const mha_cuda_backward &c, const work &w, int who,
                            uint32_t base, int turn)
{
    enum { SUMS = QUERIES * D / CONSUMERS };
    int thread = threadIdx.x % GROUP, lane = thread % 32, warp = thread / 32;
    int key = w.first + who * 64 + warp * 16 + lane / 4, group = c.H / c.G, total = group * w.count;
    float dk[D / 2], dv[D / 2], power[2], scale = c.scale * 1.44269504f;
    float head_power = WAY == INTEGERS ? power_of(c, w.head, w.batch) : 1;
    bool tail = w.first + KEYS > c.Tk;
    uint32_t p[QUERIES / 4], ds[QUERIES / 4];
    uint64_t k = factor(shared_address(s.k) + who * 64 * ROW_BYTES, 0);
    uint64_t v = factor(shared_address(s.v) + who * 64 * ROW_BYTES, 0);
    int number = 0, last_head = 0, last_tile = 0; /* of the last tile: among all; where it is */
#pragma unroll
    for (int i = 0; i < D / 2; i++) dk[i] = dv[i] = 0;

    /* dQ of tile n: 64 rows of it and 64 columns for each warpgroup. */
    auto issue_dq = [&](float(&dq)[32], uint32_t n) {
        uint64_t a = factor(shared_address(s.ds[n % 2]) + (QUERIES == 128 ? who * 64 * ROW_BYTES : 0), 0);
        uint64_t b = factor(shared_address(s.k) + (QUERIES == 128 ? 0 : who * KEYS * ROW_BYTES), KEYS * ROW_BYTES);
        barrier_wait(shared_address(&s.ds_full[n % 2]), n / 2 % 2);
        products_begin();
#pragma unroll
        for (int i = 0; i < KEYS / 16; i++)
            product_turned<T>(dq, a + i / 4 * (QUERIES * ROW_BYTES >> 4) + i % 4 * 2, b + i * (16 * ROW_BYTES >> 4),
                              i > 0);
        products_commit();
    };
    /* In order: dQ of a tile is added to what key tiles before this one have, or is the first; the last one writes it. */
    auto send_in_order = [&](float(&dq)[32]) {
        int part = w.first / KEYS;
        bool split = c.parts > 1, done = !split && part == last_part<QUERIES>(c, last_tile, KIND == CAUSAL);
        int64_t tiles = (int64_t)c.B * c.H * c.row_tiles,
                at = ((split ? part * tiles : 0) + number) * QUERIES * D + who * SUMS;
        float4 *sums = (float4 *)((float *)c.sums + at) + thread;
        if (!split && part > 0) {
#pragma unroll
            for (int i = 0; i < 32; i += 4) {
                float4 old = sums[i / 4 * GROUP];
                dq[i] += old.x, dq[i + 1] += old.y, dq[i + 2] += old.z, dq[i + 3] += old.w;
            }
        }
        if (!done) {
#pragma unroll
            for (int i = 0; i < 32; i += 4)
                sums[i / 4 * GROUP] = make_float4(dq[i], dq[i + 1], dq[i + 2], dq[i + 3]);
            return;
        }
        if (is_lost(dq)) c.lost_rows[number] = 1;
        uint32_t x[16];
#pragma unroll
        for (int i = 0; i < 16; i++) x[i] = pack<T>(dq[2 * i] * c.scale, dq[2 * i + 1] * c.scale);
        put_dq<T, QUERIES>(c, x, w.batch, last_head, last_tile, who, warp);
    };
    auto send_dq = [&](float(&dq)[32]) {
        if (WAY == ORDERED) {
            send_in_order(dq);
            return;
        }
        unsigned long long *to = (unsigned long long *)(c.sums + (int64_t)number * QUERIES * D + who * SUMS) + thread;
#pragma unroll
        for (int i = 0; i < 32; i += 2) {
            int low = __float2int_rn(dq[i] * power[i / 2 % 2]), high = __float2int_rn(dq[i + 1] * power[i / 2 % 2]);
            atomicAdd(to + i / 2 * GROUP,
                      ((unsigned long long)(unsigned)high << 32) + (unsigned long long)(long long)low);
        }
    };

    auto step = [&](uint32_t n) {
        uint32_t at = base + n; /* among all tiles of the block */
        int stage = at % STAGES, head = w.head * group + n / w.count, tile = tile_at(w, n % w.count),
            q0 = tile * QUERIES;
        const float *rows = s.rows[stage];
        float dq[32];
        barrier_wait(shared_address(&s.full[stage]), at / STAGES % 2);
        auto last_is_done = [&](void) { /* dK of the last tile */
            products_wait<1>();
            touch(dk);
            keep(ds);
            if (n > 0 && thread == 0) barrier_arrive(shared_address(&s.empty[(at - 1) % STAGES]));
        };
        if (KIND == OPTIONS) {
            float slope = c.slopes ? c.slopes[w.batch * c.slope_batch + head * c.slope_head] * 1.44269504f : 0;
#pragma unroll
            for (int half = 0; half < QUERIES / 64; half++) {
                float x[32], y[32];
                int first = q0 + 64 * half;
                scores<T, D, 64, QUERIES>(x, k, factor(shared_address(s.q[stage]) + half * 64 * ROW_BYTES, 0));
                if (half == 0) last_is_done();
                scores<T, D, 64, QUERIES>(y, v, factor(shared_address(s.d_out[stage]) + half * 64 * ROW_BYTES, 0));
                products_wait<0>();
                touch(x), touch(y);
                bool hidden = tail || w.first + KEYS - 1 > first + c.right || w.first < first + 63 + c.left;
                float ahead = (float)(first + lane % 4 * 2 + c.offset - key);
                options_of_tile t = {
                    {key < c.Tk ? ahead : -INFINITY, key + 8 < c.Tk ? ahead - 8 : -INFINITY}, slope, hidden};
                if (c.cap != 0)
                    meet_with_options<T, QUERIES, true>(x, y, p + 16 * half, ds + 16 * half, c, rows + 64 * half, t);
                else meet_with_options<T, QUERIES, false>(x, y, p + 16 * half, ds + 16 * half, c, rows + 64 * half, t);
            }
        } else {
            float x[QUERIES / 2], y[QUERIES / 2];
            scores<T, D, QUERIES>(x, k, factor(shared_address(s.q[stage]), 0));
            last_is_done();
            scores<T, D, QUERIES>(y, v, factor(shared_address(s.d_out[stage]), 0));
            products_wait<1>();
            touch(x);
#pragma unroll
            for (int b = 0; b < QUERIES / 8; b++) {
                float2 lse = *(const float2 *)(rows + LSE * QUERIES + 8 * b + lane % 4 * 2);
#pragma unroll
                for (int i = 0; i < 4; i++) x[4 * b + i] = exp2_fast(fmaf(x[4 * b + i], scale, -(i % 2 ? lse.y : lse.x)));
            }
            if (tail || (KIND == CAUSAL && w.first + KEYS - 1 > q0 + c.offset)) {
#pragma unroll
                for (int i = 0; i < QUERIES / 2; i++) {
                    int own = key + i / 2 % 2 * 8, last = KIND == CAUSAL ? q0 + i / 4 * 8 + lane % 4 * 2 + i % 2 + c.offset : c.Tk;
                    if (own >= c.Tk || own > last) x[i] = 0;
                }
            }
#pragma unroll
            for (int i = 0; i < QUERIES / 4; i++) p[i] = pack<T>(x[2 * i], x[2 * i + 1]);
            products_wait<0>();
            touch(y);
#pragma unroll
            for (int b = 0; b < QUERIES / 8; b++) {
                float2 delta = *(const float2 *)(rows + DELTA * QUERIES + 8 * b + lane % 4 * 2);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float2 weight = pair_of<T>::get(p[2 * b + i]);
                    ds[2 * b + i] =
                        pack<T>(weight.x * (y[4 * b + 2 * i] - delta.x), weight.y * (y[4 * b + 2 * i + 1] - delta.y));
                }
            }
        }
        barrier_wait(shared_address(&s.ds_empty[at % 2]), at / 2 % 2 ^ 1);
        uint32_t row = shared_address(s.ds[at % 2]) + who * QUERIES * ROW_BYTES +
                       (lane / 16 * 8 + lane % 8) * ROW_BYTES + ((warp * 2 + lane / 8 % 2) ^ (lane % 8)) * 16;
#pragma unroll
        for (int b = 0; b < QUERIES / 8; b += 2)
            store_matrices_turned(row + b * 8 * ROW_BYTES, ds[2 * b], ds[2 * b + 1], ds[2 * b + 2], ds[2 * b + 3]);
        publish_shared();
        __syncwarp();
        if (lane == 0) barrier_arrive(shared_address(&s.ds_full[at % 2]));
        issue_dq(dq, at - 1);
        add_rows<T, D, QUERIES>(dv, p, factor(shared_address(s.d_out[stage]), QUERIES * ROW_BYTES));
        add_rows<T, D, QUERIES>(dk, ds, factor(shared_address(s.q[stage]), QUERIES * ROW_BYTES));
        products_wait<2>();
        touch(dq);
        if (n > 0) {
            if (lane == 0) barrier_arrive(shared_address(&s.ds_empty[(at - 1) % 2]));
            send_dq(dq);
        }
        products_wait<1>();
        touch(dv);
        keep(p);
        if (WAY == INTEGERS) {
            const float *own = rows + POWER * QUERIES + (QUERIES == 128 ? who * 64 : 0) + warp * 16 + lane / 4;
            power[0] = own[0] * head_power, power[1] = own[8] * head_power;
        } else last_head = head, last_tile = tile;
        number = (w.batch * c.H + head) * c.row_tiles + tile;
    };

    barrier_wait(shared_address(&s.keys_full), turn % 2);
    if (total > 0) {
        float dq[32];
        uint32_t last = base + total - 1;
        for (int n = 0; n < total; n++) step(n);
        issue_dq(dq, last);
        products_wait<0>();
        touch(dk), touch(dq);
        keep(ds);
        if (WAY == ORDERED) {
            if (thread == 0) barrier_arrive(shared_address(&s.empty[last % STAGES]));
            if (lane == 0) barrier_arrive(shared_address(&s.ds_empty[last % 2]));
        }
        send_dq(dq);
        group_sync(ALL, CONSUMERS * GROUP);
    }
    if (WAY == ORDERED && thread == 0) barrier_arrive(shared_address(&s.keys_empty));
    /* Results leave through the memory of K and V, or of dS where the next keys are on their way. */
    put_rows<T, D>(c, w, who, false, shared_address(WAY == ORDERED ? s.ds[0] : s.k), dk, c.scale);
    put_rows<T, D>(c, w, who, true, WAY == ORDERED ? shared_address(s.ds[0]) + KEYS * D * 2 : shared_address(s.v), dv, 1);
    if (WAY == INTEGERS) {
        if (thread == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    } else {
        if (thread == 0) copies_read();
        group_sync(ALL, CONSUMERS * GROUP);
    }
}

/* A block without its threads' roles: the key tiles of a head in order, or one of them. */
template <typename T, int D, int QUERIES, kind KIND, typename F> MHA_DEVICE void in_order(const mha_cuda_backward &c, F each)
{
    int group = c.H / c.G, count = c.parts > 1 ? 1 : c.key_tiles;
    int head = c.parts > 1 ? blockIdx.x / c.key_tiles : blockIdx.x, first = c.parts > 1 ? blockIdx.x % c.key_tiles : 0;
    uint32_t base = 0;
    for (int turn = 0; turn < count; turn++) {
        work w = work_in_order<QUERIES, KIND>(c, head, first + turn);
        each(w, base, turn);
        base += group * w.count;
    }
}

template <typename T, int D, int QUERIES, kind KIND, sums WAY = INTEGERS> MHA_DEVICE void run(const mha_cuda_backward &c)
{
    static_assert(WAY == INTEGERS || 2 * KEYS * D <= 2 * QUERIES * KEYS, "dK and dV fit dS");
    extern __shared__ __align__(1024) unsigned char memory[];
    typedef shared_memory<T, D, QUERIES> layout;
    layout &s = *(layout *)memory;
    if (threadIdx.x == 0) {
        barrier_make(shared_address(&s.keys_full), 1);
        barrier_make(shared_address(&s.keys_empty), CONSUMERS);
        for (int i = 0; i < STAGES; i++) {
            barrier_make(shared_address(&s.full[i]), 1);
            barrier_make(shared_address(&s.empty[i]), CONSUMERS);
        }
        for (int i = 0; i < 2; i++) {
            barrier_make(shared_address(&s.ds_full[i]), CONSUMERS * GROUP / 32);
            barrier_make(shared_address(&s.ds_empty[i]), CONSUMERS * GROUP / 32);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        publish_shared();
    }
    __syncthreads();
    let_next_start();
    wait_for_last();
    if constexpr (WAY == ORDERED) {
        if (threadIdx.x < GROUP) {
            registers_give<24>();
            if (threadIdx.x == 0)
                in_order<T, D, QUERIES, KIND>(
                    c, [&](const work &w, uint32_t base, int turn) { copy_turn<T, D, QUERIES>(s, c, w, base, turn); });
        } else {
            registers_take<240>();
            in_order<T, D, QUERIES, KIND>(c, [&](const work &w, uint32_t base, int turn) {
                compute_all<T, D, QUERIES, KIND, ORDERED>(s, c, w, threadIdx.x / GROUP - 1, base, turn);
            });
            if (threadIdx.x % GROUP == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
        }
        return;
    }
    work w = work_of<QUERIES, KIND>(c);
    if (threadIdx.x < GROUP) {
        registers_give<24>();
        if (threadIdx.x == 0) copy_all<T, D, QUERIES>(s, c, w);
    } else {
        registers_take<240>();
        compute_all<T, D, QUERIES, KIND, INTEGERS>(s, c, w, threadIdx.x / GROUP - 1, 0, 0);
    }
}

/* ---- Before and after ------------------------------------------------------------------------------------------- */

/* Up to which key a row sees keys. */
MHA_DEVICE int keys_seen(const mha_cuda_backward &c, int row)
{
    if (c.any) return min(c.Tk, max(0, row + c.right + 1));
    return c.causal ? min(c.Tk, max(0, row + c.offset + 1)) : c.Tk;
}

MHA_DEVICE bool sees_any(const mha_cuda_backward &c, int row)
{
    return keys_seen(c, row) > (c.any ? max(0, row + c.left) : 0);
}

/* Whether lse has lost the sum of exponentials beside a large score, or is infinite because scores are. */
MHA_DEVICE bool is_far(float lse) { return !(fabsf(lse) <= 1e5f); }

/* Of a row that sees a key. */
template <typename T, int D>
__device__ __noinline__ double careful_lse(const mha_cuda_backward &c, int batch, int head, int row,
                                           const careful_row<D> &q)
{
    int own = head / (c.H / c.G), keys = keys_seen(c, row);
    float lse = c.lse[((int64_t)batch * c.H + head) * c.Tq + row];
    double top = -INFINITY, sum = 0;
    if (!is_far(lse)) return (double)lse;
    for (int j = 0; j < keys; j++)
        top = fmax(top, careful_score((double)c.scale, q, careful_load<T, D>(c.keys, batch, own, j, c.D)));
    for (int j = 0; j < keys; j++)
        sum += exp(careful_score((double)c.scale, q, careful_load<T, D>(c.keys, batch, own, j, c.D)) - top);
    return top + log(sum);
}

/* A weight and its part of dS, from rows alone. */
struct careful_pair {
    double p, ds;
};

template <typename T, int D>
MHA_DEVICE careful_pair careful_weight(const mha_cuda_backward &c, int batch, int head, int row, double lse,
                                       const careful_row<D> &q, const careful_row<D> &k, const careful_row<D> &d,
                                       const careful_row<D> &v)
{
    double p = exp(careful_score((double)c.scale, q, k) - lse);
    return {p, p * (careful_dot(d, v) - careful_dot(d, careful_load<T, D>(c.out, batch, head, row, c.E)))};
}

/* Eight numbers of 16 bits, and as float. */
template <typename T> MHA_DEVICE void widen(float (&to)[8], uint4 from)
{
    const uint32_t x[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 both = pair_of<T>::get(x[i]);
        to[2 * i] = both.x, to[2 * i + 1] = both.y;
    }
}

/* Over the LANES that hold a row together. */
template <int LANES> MHA_DEVICE float sum_lanes(float x)
{
    for (int lane = LANES / 2; lane; lane /= 2) x += __shfl_xor_sync(~0u, x, lane);
    return x;
}

/* Zeros behind the last column. */
template <typename T>
MHA_DEVICE uint4 load_eight(const mha_cuda_rows &t, int batch, int head, int row, int column, int width)
{
    if (column >= width) return make_uint4(0, 0, 0, 0);
    return *(const uint4 *)((const T *)t.data + batch * t.batch + head * t.head + row * t.row + column);
}

/* A block for BOUND_KEYS keys of a head: the largest norm of their values, without numbers that are not finite, and the
 * largest number of the keys, infinite if one is not finite. */
template <typename T, int D> MHA_DEVICE void bound_keys(const mha_cuda_backward &c, int block, int head, int batch)
{
    enum { LANES = D / 8, ROWS = 256 / LANES };
    __shared__ float norms[8], numbers[8];
    float norm = 0, number = 0, k[8], v[8];
    int lane = threadIdx.x % LANES;
#pragma unroll 4
    for (int r = 0; r < BOUND_KEYS; r += ROWS) {
        int key = block * BOUND_KEYS + r + threadIdx.x / LANES;
        float squares = 0;
        if (key < c.Tk) {
            widen<T>(k, load_eight<T>(c.keys, batch, head, key, lane * 8, c.D));
            widen<T>(v, load_eight<T>(c.values, batch, head, key, lane * 8, c.E));
            for (int i = 0; i < 8; i++) {
                number = fmaxf(number, fabsf(k[i]) < INFINITY ? fabsf(k[i]) : INFINITY);
                if (fabsf(v[i]) < INFINITY) squares += v[i] * v[i];
            }
        }
        norm = fmaxf(norm, sum_lanes<LANES>(squares));
    }
    for (int i = 16; i; i /= 2) {
        norm = fmaxf(norm, __shfl_xor_sync(~0u, norm, i));
        number = fmaxf(number, __shfl_xor_sync(~0u, number, i));
    }
    for (int tile = block * BOUND_KEYS / KEYS + threadIdx.x; tile < min(c.key_tiles, (block + 1) * BOUND_KEYS / KEYS);
         tile += 256)
        c.lost_keys[(batch * c.G + head) * c.key_tiles + tile] = 0;
    if (threadIdx.x % 32 == 0) norms[threadIdx.x / 32] = norm, numbers[threadIdx.x / 32] = number;
    __syncthreads();
    if (threadIdx.x) return;
    for (int i = 1; i < 8; i++) norm = fmaxf(norm, norms[i]), number = fmaxf(number, numbers[i]);
    float *to = c.bounds + 2 * (((int64_t)batch * c.G + head) * c.bound_tiles + block);
    to[0] = sqrtf(norm), to[1] = number;
}

/* The lse of a row: from the softmax of the forward call, and then for others, too; or as another kernel wrote it. */
MHA_DEVICE float lse_of(const mha_cuda_backward &c, int batch, int head, int row)
{
    float &lse = c.lse[((int64_t)batch * c.H + head) * c.Tq + row];
    if (!c.softmax.data) return lse;
    const int64_t *stride = c.softmax.stride;
    const float *from = (const float *)c.softmax.data + batch * stride[0] + head * stride[1] + row * stride[2];
    float sum = from[stride[3]];
    return lse = sum > 0 ? from[0] + logf(sum) : -INFINITY;
}

/* A block for a tile of query rows. */
template <typename T, int D, int QUERIES, sums WAY>
MHA_DEVICE void prepare_rows(const mha_cuda_backward &c, int tile, int head, int batch)
{
    enum { LANES = D / 8, ROWS = 256 / LANES, PASSES = QUERIES / ROWS };
    int64_t number = ((int64_t)batch * c.H + head) * c.row_tiles + tile;
    int lane = threadIdx.x % LANES, own = threadIdx.x / LANES, first = tile * QUERIES;
    float *rows = c.rows + number * ROW_KINDS * QUERIES, o[8], d[8];
    uint4 both[PASSES][2];
#pragma unroll
    for (int r = 0; r < PASSES; r++) {
        int row = first + r * ROWS + own;
        if (row >= c.Tq) continue;
        both[r][0] = load_eight<T>(c.out, batch, head, row, lane * 8, c.E);
        both[r][1] = load_eight<T>(c.d_o, batch, head, row, lane * 8, c.E);
    }
    if (WAY == INTEGERS) { /* zeros for the warps of which a row is there */
        int4 *sums = (int4 *)(c.sums + number * QUERIES * D);
        int warp = threadIdx.x % (GROUP / 2) / 16;
#pragma unroll
        for (int i = 0; i < QUERIES * D / 4; i += 256) {
            int above = (QUERIES == 128 ? i / (QUERIES * D / 8) * 64 : 0) + warp * 16;
            if (first + above < c.Tq) sums[i + threadIdx.x] = make_int4(0, 0, 0, 0);
        }
    } else if (threadIdx.x == 0) c.lost_rows[number] = 0;
#pragma unroll
    for (int r = 0; r < PASSES; r++) {
        int row = first + r * ROWS + own;
        float delta = 0, squares = 0, lse = -INFINITY;
        if (row < c.Tq) {
            widen<T>(o, both[r][0]);
            widen<T>(d, both[r][1]);
            for (int i = 0; i < 8; i++) delta += o[i] * d[i], squares += d[i] * d[i];
            if (lane == 0) lse = lse_of(c, batch, head, row);
        }
        delta = sum_lanes<LANES>(delta);
        if (WAY == INTEGERS) squares = sum_lanes<LANES>(squares);
        if (lane) continue;
        int exponent, at = r * ROWS + own;
        frexpf(sqrtf(squares), &exponent);
        /* The weights of a row that sees nothing are 0; NaN makes its gradients be computed carefully. */
        rows[LSE * QUERIES + at] = row >= c.Tq || !sees_any(c, row) ? INFINITY
                                   : is_far(lse)                    ? NAN
                                                                    : lse * 1.44269504f;
        rows[DELTA * QUERIES + at] = delta;
        if (WAY == INTEGERS) rows[POWER * QUERIES + at] = exp2f((float)-exponent);
    }
}

template <typename T, int D, int QUERIES> MHA_DEVICE void prepare(const mha_cuda_backward &c)
{
    int n = blockIdx.x, keys = c.G * c.B * c.bound_tiles;
    let_next_start();
    if (n == 0 && threadIdx.x == 0 && c.any) *c.any = 0;
    if (n < keys) bound_keys<T, D>(c, n % c.bound_tiles, n / c.bound_tiles % c.G, n / c.bound_tiles / c.G);
    else {
        n -= keys;
        prepare_rows<T, D, QUERIES, INTEGERS>(c, n % c.row_tiles, n / c.row_tiles % c.H, n / c.row_tiles / c.H);
    }
}

template <typename T, int D, int QUERIES> MHA_DEVICE void prepare_in_order(const mha_cuda_backward &c)
{
    int n = blockIdx.x, head = n / c.row_tiles, group = c.H / c.G;
    let_next_start();
    if (n % c.row_tiles == 0 && head % group == 0)
        for (int tile = threadIdx.x; tile < c.key_tiles; tile += 256) c.lost_keys[head / group * c.key_tiles + tile] = 0;
    prepare_rows<T, D, QUERIES, ORDERED>(c, n % c.row_tiles, head % c.H, head / c.H);
}

/* Numbers of a row to memory. */
template <typename T, int D>
MHA_DEVICE void careful_store(const mha_cuda_rows &t, int batch, int head, int row, const careful_row<D> &x, int width)
{
    T *to = (T *)t.data + batch * t.batch + head * t.head + row * t.row + threadIdx.x % 32 * 2;
    for (int k = 0; k < D / 64; k++)
        if ((int)threadIdx.x % 32 * 2 + 64 * k < width)
            *(uint32_t *)(to + 64 * k) = pack<T>((float)x.x[2 * k], (float)x.x[2 * k + 1]);
}

/* dQ of a tile of rows, a warp for each. */
template <typename T, int D, int QUERIES>
__device__ __noinline__ void rows_carefully(const mha_cuda_backward &c, int tile, int head, int batch)
{
    int own = head / (c.H / c.G);
    for (int row = tile * QUERIES + threadIdx.x / 32; row < min(c.Tq, (tile + 1) * QUERIES); row += 8) {
        int keys = keys_seen(c, row);
        careful_row<D> sum = {{0}}, q = careful_load<T, D>(c.queries, batch, head, row, c.D);
        careful_row<D> d = careful_load<T, D>(c.d_o, batch, head, row, c.E);
        double lse = keys ? careful_lse<T, D>(c, batch, head, row, q) : 0;
        for (int j = 0; j < keys; j++) {
            careful_row<D> k = careful_load<T, D>(c.keys, batch, own, j, c.D),
                           v = careful_load<T, D>(c.values, batch, own, j, c.E);
            careful_add(sum, careful_weight<T, D>(c, batch, head, row, lse, q, k, d, v).ds * (double)c.scale, k);
        }
        careful_store<T>(c.dq, batch, head, row, sum, c.D);
    }
}

/* dK and dV of a tile of keys, a warp for each. */
template <typename T, int D>
__device__ __noinline__ void keys_carefully(const mha_cuda_backward &c, int tile, int head, int batch)
{
    int group = c.H / c.G;
    for (int key = tile * KEYS + threadIdx.x / 32; key < min(c.Tk, (tile + 1) * KEYS); key += 8) {
        careful_row<D> dk = {{0}}, dv = {{0}}, k = careful_load<T, D>(c.keys, batch, head, key, c.D);
        careful_row<D> v = careful_load<T, D>(c.values, batch, head, key, c.E);
        for (int n = head * group; n < (head + 1) * group; n++)
            for (int row = c.causal ? max(0, key - c.offset) : 0; row < c.Tq; row++) {
                careful_row<D> q = careful_load<T, D>(c.queries, batch, n, row, c.D);
                careful_row<D> d = careful_load<T, D>(c.d_o, batch, n, row, c.E);
                double lse = careful_lse<T, D>(c, batch, n, row, q);
                careful_pair x = careful_weight<T, D>(c, batch, n, row, lse, q, k, d, v);
                careful_add(dk, x.ds * (double)c.scale, q);
                careful_add(dv, x.p, d);
            }
        careful_store<T>(c.grad_k, batch, head, key, dk, c.D);
        careful_store<T>(c.grad_v, batch, head, key, dv, c.E);
    }
}

/* Whether dQ of a tile of rows may be lost: one of the keys up to the last that it sees is not finite, or one of their
 * gradients, as it is where dS is. The same for all threads of the block. */
template <int QUERIES, sums WAY> MHA_DEVICE bool is_lost_tile(const mha_cuda_backward &c, int tile, int head, int batch)
{
    int64_t own = (int64_t)batch * c.G + head / (c.H / c.G);
    int keys = keys_seen(c, min(c.Tq, (tile + 1) * QUERIES) - 1), lost = 0;
    for (int i = threadIdx.x; i * KEYS < keys; i += 256) lost |= c.lost_keys[own * c.key_tiles + i];
    for (int i = threadIdx.x; WAY == INTEGERS && i * BOUND_KEYS < keys; i += 256)
        lost |= !(c.bounds[2 * (own * c.bound_tiles + i) + 1] < INFINITY);
    if (WAY == ORDERED) lost |= c.lost_rows[((int64_t)batch * c.H + head) * c.row_tiles + tile];
    return __syncthreads_or(lost);
}

/* dQ from its integers, which lie as the threads of a block held them: pairs, of which the first has borrowed from the
 * second if it is negative. */
template <typename T, int D, int QUERIES> MHA_DEVICE void convert(const mha_cuda_backward &c)
{
    int64_t number = blockIdx.x;
    int keys = c.G * c.B * c.key_tiles, lane = threadIdx.x % 32;
    wait_for_last();
    if (number < keys) {
        if (c.lost_keys[number] && !c.any)
            keys_carefully<T, D>(c, number % c.key_tiles, number / c.key_tiles % c.G, number / c.key_tiles / c.G);
        return;
    }
    number -= keys;
    int tile = number % c.row_tiles, head = number / c.row_tiles % c.H, batch = number / c.row_tiles / c.H;
    int who = threadIdx.x / GROUP, warp = threadIdx.x % GROUP / 32,
        row = (QUERIES == 128 ? who * 64 : 0) + warp * 16 + lane / 4;
    const long long *sums = (const long long *)(c.sums + number * QUERIES * D) + who * 16 * GROUP + threadIdx.x % GROUP;
    const float *power = c.rows + number * ROW_KINDS * QUERIES + POWER * QUERIES + row;
    bool there = tile * QUERIES + row - lane / 4 < c.Tq; /* the same for a warp */
    long long both[16];
    float own[2] = {power[0], power[8]};
#pragma unroll
    for (int i = 0; i < 16; i++) both[i] = there ? sums[i * GROUP] : 0;
    bool lost = is_lost_tile<QUERIES, INTEGERS>(c, tile, head, batch);
    if (c.any && threadIdx.x == 0) {
        c.lost_rows[number] = lost;
        if (lost) *c.any = 1;
    }
    if (lost) {
        if (!c.any) rows_carefully<T, D, QUERIES>(c, tile, head, batch);
        return;
    }
    if (!there) return;
    float head_power = power_of(c, head / (c.H / c.G), batch);
    float by[2] = {c.scale / (own[0] * head_power), c.scale / (own[1] * head_power)};
    uint32_t x[16];
#pragma unroll
    for (int i = 0; i < 16; i++) {
        int low = (int)both[i], high = (int)((both[i] - low) >> 32);
        x[i] = pack<T>((float)low * by[i % 2], (float)high * by[i % 2]);
    }
    put_dq<T, QUERIES>(c, x, batch, head, tile, who, warp);
}

/* A tile of rows, in order: its sum over key tiles, if blocks have kept them apart; carefully if it is lost. */
template <typename T, int D, int QUERIES>
MHA_DEVICE void finish_rows(const mha_cuda_backward &c, int tile, int head, int batch)
{
    int who = threadIdx.x / GROUP, warp = threadIdx.x % GROUP / 32;
    int64_t tiles = (int64_t)c.B * c.H * c.row_tiles, number = ((int64_t)batch * c.H + head) * c.row_tiles + tile;
    if (c.parts > 1) {
        float dq[32] = {0};
        bool there = tile * QUERIES + (QUERIES == 128 ? who * 64 : 0) + warp * 16 < c.Tq;
        const float4 *sums = (const float4 *)((const float *)c.sums + (number * QUERIES * D + who * QUERIES * D / 2)) +
                             threadIdx.x % GROUP;
        for (int part = 0; there && part <= last_part<QUERIES>(c, tile, c.causal); part++)
#pragma unroll
            for (int i = 0; i < 32; i += 4) {
                float4 x = sums[part * tiles * QUERIES * D / 4 + i / 4 * GROUP];
                if (part) dq[i] += x.x, dq[i + 1] += x.y, dq[i + 2] += x.z, dq[i + 3] += x.w;
                else dq[i] = x.x, dq[i + 1] = x.y, dq[i + 2] = x.z, dq[i + 3] = x.w;
            }
        if (is_lost(dq)) c.lost_rows[number] = 1;
        uint32_t x[16];
#pragma unroll
        for (int i = 0; i < 16; i++) x[i] = pack<T>(dq[2 * i] * c.scale, dq[2 * i + 1] * c.scale);
        if (there) put_dq<T, QUERIES>(c, x, batch, head, tile, who, warp);
        __syncthreads();
    }
    if (is_lost_tile<QUERIES, ORDERED>(c, tile, head, batch)) rows_carefully<T, D, QUERIES>(c, tile, head, batch);
}

/* What is left of a call in order: a block for a key head, or, if blocks have kept sums apart, for a tile of keys or rows. */
template <typename T, int D, int QUERIES> MHA_DEVICE void convert_in_order(const mha_cuda_backward &c)
{
    int n = blockIdx.x, keys = c.G * c.B * c.key_tiles, group = c.H / c.G, lost = 0;
    wait_for_last();
    if (c.parts > 1) {
        int row = n - keys;
        if (row >= 0) finish_rows<T, D, QUERIES>(c, row % c.row_tiles, row / c.row_tiles % c.H, row / c.row_tiles / c.H);
        else if (c.lost_keys[n]) keys_carefully<T, D>(c, n % c.key_tiles, n / c.key_tiles % c.G, n / c.key_tiles / c.G);
        return;
    }
    for (int i = threadIdx.x; i < c.key_tiles; i += 256) lost |= c.lost_keys[n * c.key_tiles + i];
    for (int i = threadIdx.x; i < group * c.row_tiles; i += 256) lost |= c.lost_rows[n * group * c.row_tiles + i];
    if (!__syncthreads_or(lost)) return;
    for (int tile = 0; tile < c.key_tiles; tile++)
        if (c.lost_keys[n * c.key_tiles + tile]) keys_carefully<T, D>(c, tile, n % c.G, n / c.G);
    for (int i = 0; i < group * c.row_tiles; i++)
        finish_rows<T, D, QUERIES>(c, i % c.row_tiles, n % c.G * group + i / c.row_tiles, n / c.G);
}

} // namespace

#endif
