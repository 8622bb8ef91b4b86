/* Attention forward on tensor cores, for bfloat16 and float16: the plain kernel, with keys up to Tk and, if CAUSAL, up to
 * the diagonal.
 *
 * A block of threads computes tiles of ROWS query rows. One warpgroup copies: it has the copy engine bring Q and, key
 * block by key block from right to left, K and V into rings of STAGES. The others compute 64 rows each. For a key block j
 * a warpgroup issues S(j) = Q K(j)^T and then O += P(j+1) V(j+1), and while the second product runs it turns S(j) into
 * P(j); the warpgroups take turns at issuing, so that one's exponentials run beside another's products.
 *
 * The weights of a row are relative to a reference, its largest score so far, in units of log 2. The reference moves
 * only when the largest score has grown by more than 8, and then the sums are rescaled; each row decides for itself, so
 * that its bits do not depend on its neighbours. */
#include "careful.cuh"
#include "forward.h"
#include "schedule.h"

namespace
{

enum { GROUP = 128, STAGES = 2 }; /* threads of a warpgroup; key blocks in flight */
enum { TURN = 1, OWN = 5 };       /* numbers of barriers: turns at issuing, and of each warpgroup's own threads */

/* Results leave through memory of their own, so that the next tile's Q can come while they do. */
template <typename T, int D, int CONSUMERS, int KEYS> struct shared_memory {
    enum { ROWS = 64 * CONSUMERS };
    alignas(1024) T q[ROWS * D];
    alignas(1024) T k[STAGES][KEYS * D];
    alignas(1024) T v[STAGES][KEYS * D];
    alignas(1024) T o[ROWS * D];
    int tile[STAGES]; /* numbers of tiles, from the warpgroup that copies to the others */
    alignas(8) uint64_t tile_full[STAGES],
        tile_empty[STAGES], q_full, q_empty, k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
};

/* A place in a ring of stages. */
struct place {
    uint32_t count = 0;
    MHA_DEVICE uint32_t stage(void) const { return count % STAGES; }
    MHA_DEVICE uint32_t parity(void) const { return count / STAGES % 2; }
    MHA_DEVICE void next(void) { count++; }
};

/* What rows see: all keys, those up to their position, or what options say. */
enum kind { FULL, CAUSAL, OPTIONS };

/* A tile: its first row, its head and sequence, how many key blocks it sees, and the first of them. */
struct tile {
    int row, head, batch, blocks, first;
};

template <int ROWS, int KEYS, kind KIND> MHA_DEVICE tile tile_of(const mha_cuda_forward &c, int n)
{
    mha_cuda_place p = mha_cuda_place_of(n, c.H * c.B, c.row_tiles, c.section);
    int row = (c.row_tiles - 1 - p.tile) * ROWS; /* the longest rows come first */
    int blocks = mha_cuda_blocks_seen(row, ROWS, KEYS, c.Tk, KIND == OPTIONS ? c.right : c.offset, KIND != FULL);
    int first = KIND == OPTIONS ? min(blocks, max(0, row + c.left) / KEYS) : 0;
    return {row, p.head % c.H, p.head / c.H, blocks - first, first};
}

/* ---- The warpgroup that copies ---------------------------------------------------------------------------------- */

template <typename S, int D, int KEYS>
MHA_DEVICE void copy_block(S &s, bool values, place p, const CUtensorMap *map, const tile &t, int j, int group)
{
    uint32_t full = shared_address(values ? &s.v_full[p.stage()] : &s.k_full[p.stage()]);
    uint32_t to = shared_address(values ? s.v[p.stage()] : s.k[p.stage()]);
    barrier_wait(shared_address(values ? &s.v_empty[p.stage()] : &s.k_empty[p.stage()]), p.parity() ^ 1);
    barrier_expect(full, KEYS * D * 2);
    for (int panel = 0; panel < D / PANEL; panel++)
        copy_in(to + panel * KEYS * ROW_BYTES, map, full, panel * PANEL, j * KEYS, t.head / group, t.batch);
}

template <typename S, int D, int ROWS, int KEYS, kind KIND>
MHA_DEVICE void copy_tiles(S &s, const mha_cuda_forward &c)
{
    place k, v, next;
    uint32_t turn = 0;
    for (int n = blockIdx.x;;) {
        barrier_wait(shared_address(&s.tile_empty[next.stage()]), next.parity() ^ 1);
        s.tile[next.stage()] = n;
        barrier_arrive(shared_address(&s.tile_full[next.stage()]));
        next.next();
        if (n >= c.tiles) break;
        tile t = tile_of<ROWS, KEYS, KIND>(c, n);
        n = atomicAdd(c.counter, 1) + gridDim.x;
        if (n == c.tiles + (int)gridDim.x - 1) *c.counter = 0; /* everybody has what it gets: ready for the next call */
        if (t.blocks == 0) continue;
        barrier_wait(shared_address(&s.q_empty), turn ^ 1);
        turn ^= 1;
        barrier_expect(shared_address(&s.q_full), ROWS * D * 2);
        for (int panel = 0; panel < D / PANEL; panel++)
            copy_in(shared_address(s.q) + panel * ROWS * ROW_BYTES, &c.q, shared_address(&s.q_full), panel * PANEL,
                    t.row, t.head, t.batch);
        for (int j = t.blocks; j >= 0; j--) {
            if (j > 0) copy_block<S, D, KEYS>(s, false, k, &c.k, t, t.first + j - 1, c.group), k.next();
            if (j < t.blocks) copy_block<S, D, KEYS>(s, true, v, &c.v, t, t.first + j, c.group), v.next();
        }
    }
}

/* ---- The warpgroups that compute -------------------------------------------------------------------------------- */

/* What a thread keeps of its two rows, r and r + 8 of its warp's 16. */
struct rows {
    float reference[2], sum[2];
};

/* Scores that are not visible become -infinity. `last` is the last key that the first of the two rows sees. */
template <int KEYS> MHA_DEVICE void hide(float (&s)[KEYS / 2], int first_key, const int (&last)[2])
{
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) {
        int key = first_key + i / 4 * 8 + i % 2;
        if (key > last[i / 2 % 2]) s[i] = -INFINITY;
    }
}

/* The same where `first` is the first key that a row sees. */
template <int KEYS>
MHA_DEVICE void hide(float (&s)[KEYS / 2], int first_key, const int (&first)[2], const int (&last)[2])
{
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) {
        int key = first_key + i / 4 * 8 + i % 2;
        if (key > last[i / 2 % 2] || key < first[i / 2 % 2]) s[i] = -INFINITY;
    }
}

/* Products become scores, in units of log 2, with cap and slope. `ahead` is how far the first row stands before the first
 * of this thread's keys. Returns whether a product is not finite, which the cap would cover. */
template <int KEYS> MHA_DEVICE bool modify(float (&s)[KEYS / 2], const mha_cuda_forward &c, float slope, float ahead)
{
    float zero = 0;
    if (c.cap != 0) {
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) {
            zero = fmaf(s[i], 0.0f, zero);
            s[i] = fmaf(-2 * c.cap, inverse_fast(1 + exp2_fast(s[i] * c.cap_inverse)), c.cap);
        }
    } else {
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) s[i] *= c.scale;
    }
    if (slope != 0) {
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++)
            s[i] = fmaf(-slope, fabsf(ahead + (i / 2 % 2 * 8 - i / 4 * 8 - i % 2)), s[i]);
    }
    return zero != 0;
}

/* Scores become weights; returns by how much the sums so far have to be multiplied. */
template <int KEYS> MHA_DEVICE void soften(float (&s)[KEYS / 2], rows &r, float (&by)[2], float scale)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float a = s[2 * h], b = s[2 * h + 1];
#pragma unroll
        for (int i = 4; i < KEYS / 2; i += 4) a = fmaxf(a, s[i + 2 * h]), b = fmaxf(b, s[i + 2 * h + 1]);
        float top = fmaxf(a, b);
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2)) * scale;
        by[h] = 1;
        if (top > r.reference[h] + 8) {
            by[h] = exp2_fast(r.reference[h] - top);
            r.reference[h] = top;
            r.sum[h] *= by[h];
        }
        float less = r.reference[h] == -INFINITY ? 0 : r.reference[h], c = 0, d = 0;
#pragma unroll
        for (int i = 0; i < KEYS / 2; i += 4) {
            s[i + 2 * h] = exp2_fast(fmaf(s[i + 2 * h], scale, -less));
            s[i + 2 * h + 1] = exp2_fast(fmaf(s[i + 2 * h + 1], scale, -less));
            c += s[i + 2 * h];
            d += s[i + 2 * h + 1];
        }
        r.sum[h] += c + d;
    }
}

template <typename T, int KEYS> MHA_DEVICE void pack_all(uint32_t (&p)[KEYS / 4], const float (&s)[KEYS / 2])
{
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++) p[i] = pack<T>(s[2 * i], s[2 * i + 1]);
}

template <int COUNT> MHA_DEVICE void rescale(float (&o)[COUNT], const float (&by)[2])
{
    if (!__any_sync(~0u, by[0] != 1 || by[1] != 1)) return;
#pragma unroll
    for (int i = 0; i < COUNT; i++) o[i] *= by[i / 2 % 2];
}

/* The 16 rows of a warp from `first` on, to the tile at `to`, whose row `at` is the first. */
template <typename T, int D, int ROWS, kind KIND>
__device__ __noinline__ void finish_carefully(const mha_cuda_forward &c, tile t, int first, uint32_t to, int at)
{
    int head = t.head / c.group;
    double scale = (double)c.scale * 0.69314718055994530942;
    for (int row = first; row < min(first + 16, c.Tq); row++) {
        int keys = KIND == CAUSAL ? min(c.Tk, max(0, row + c.offset + 1)) : c.Tk;
        double top = -INFINITY, sum = 0;
        careful_row<D> o = {{0}}, q = careful_load<T, D>(c.queries, t.batch, t.head, row);
        for (int j = 0; j < keys; j++)
            top = fmax(top, careful_score(scale, q, careful_load<T, D>(c.keys, t.batch, head, j)));
        for (int j = 0; j < keys; j++) {
            double p = exp(careful_score(scale, q, careful_load<T, D>(c.keys, t.batch, head, j)) - top);
            careful_add(o, p, careful_load<T, D>(c.values, t.batch, head, j));
            sum += p;
        }
        for (int i = 0; keys && i < D / 32; i++) o.x[i] /= sum;
        careful_put<T>(to, ROWS * ROW_BYTES, at + row - first, o);
        if (c.lse && threadIdx.x % 32 == 0)
            c.lse[((int64_t)t.batch * c.H + t.head) * c.Tq + row] = (float)(top + log(sum));
    }
}

/* The sums, divided, to shared memory and from there to the tensor; and the logarithms of the sums of exponentials. */
template <typename T, int D, int ROWS, kind KIND, typename S>
MHA_DEVICE void finish(S &s, const mha_cuda_forward &c, const tile &t, float (&o)[D / 2], rows &r, const bool (&sees)[2],
                       bool lost, int who)
{
    int thread = threadIdx.x % GROUP, lane = thread % 32, warp = thread / 32;
    uint32_t to = shared_address(s.o) + who * 64 * ROW_BYTES;
    float by[2];
    lost = lost || is_lost(o);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = r.sum[h];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        by[h] = sum > 0 ? 1 / sum : 0;
        lost = lost || (sees[h] && !(sum > 0 && sum < INFINITY));
        int row = t.row + who * 64 + warp * 16 + h * 8 + lane / 4;
        if (c.lse && lane % 4 == 0 && row < c.Tq)
            c.lse[((int64_t)t.batch * c.H + t.head) * c.Tq + row] =
                sees[h] ? (r.reference[h] + __log2f(sum)) * 0.6931471806f : -INFINITY;
    }
    if (thread == 0) copies_read();
    group_sync(OWN + who, GROUP);
    if (KIND == OPTIONS) lost = __any_sync(~0u, lost) && (sees[0] || sees[1]);
    if (KIND != OPTIONS && __any_sync(~0u, lost)) finish_carefully<T, D, ROWS, KIND>(c, t, t.row + who * 64 + warp * 16, to, warp * 16);
    else {
        int row = warp * 16 + lane / 8 % 2 * 8 + lane % 8;
#pragma unroll
        for (int b = 0; b < D / 8; b += 2) {
            int piece = b + lane / 16;
            uint32_t at = to + piece / 8 * ROWS * ROW_BYTES + row * ROW_BYTES + ((piece % 8) ^ (row % 8)) * 16;
            const float *x = o + 4 * b;
            store_matrices(at, pack<T>(x[0] * by[0], x[1] * by[0]), pack<T>(x[2] * by[1], x[3] * by[1]),
                           pack<T>(x[4] * by[0], x[5] * by[0]), pack<T>(x[6] * by[1], x[7] * by[1]));
        }
    }
    publish_shared();
    if (KIND == OPTIONS) {
        int any = group_any(OWN + who, GROUP, lost);
        if (thread == 0) c.lost[((int64_t)(t.batch * c.H + t.head) * c.row_tiles * ROWS + t.row) / 64 + who] = any;
    } else group_sync(OWN + who, GROUP);
    if (thread == 0) {
        for (int panel = 0; panel < D / PANEL; panel++)
            copy_out(&c.o, to + panel * ROWS * ROW_BYTES, panel * PANEL, t.row + who * 64, t.head, t.batch);
        copies_commit();
    }
}

template <typename T, int D, int CONSUMERS, int KEYS, kind KIND>
MHA_DEVICE void compute_tiles(shared_memory<T, D, CONSUMERS, KEYS> &s, const mha_cuda_forward &c, int who)
{
    enum { ROWS = 64 * CONSUMERS };
    int thread = threadIdx.x % GROUP, lane = thread % 32, warp = thread / 32;
    place kp, vp, next;
    uint32_t turn = 0;
    uint64_t q = factor(shared_address(s.q) + who * 64 * ROW_BYTES, 0);
    if (CONSUMERS > 1 && who == CONSUMERS - 1) group_arrive(TURN, 2 * GROUP); /* the first one may begin */
    for (;;) {
        barrier_wait(shared_address(&s.tile_full[next.stage()]), next.parity());
        int n = s.tile[next.stage()];
        group_sync(OWN + who, GROUP);
        if (thread == 0) barrier_arrive(shared_address(&s.tile_empty[next.stage()]));
        next.next();
        if (n >= c.tiles) break;
        tile t = tile_of<ROWS, KEYS, KIND>(c, n);
        float o[D / 2], x[KEYS / 2], by[2];
        uint32_t p[KEYS / 4];
        rows r = {{-INFINITY, -INFINITY}, {0, 0}};
        int row = t.row + who * 64 + warp * 16 + lane / 4, last[2] = {c.Tk - 1, c.Tk - 1}, first = lane % 4 * 2;
        int start[2] = {0, 0}, reach = KIND == OPTIONS ? c.right : c.offset;
        if (KIND != FULL) last[0] = min(last[0], row + reach), last[1] = min(last[1], row + 8 + reach);
        if (KIND == OPTIONS) start[0] = max(0, row + c.left), start[1] = max(0, row + 8 + c.left);
        /* Key blocks from `closed` on and below `whole` are visible to all rows of the tile. */
        int whole = KIND != FULL ? min(c.Tk, max(0, t.row + reach + 1)) / KEYS : c.Tk / KEYS;
        int closed = KIND == OPTIONS ? (max(0, t.row + ROWS - 1 + c.left) + KEYS - 1) / KEYS : 0;
        const bool sees[2] = {last[0] >= start[0], last[1] >= start[1]};
        bool lost = false;
        float slope = 0, scale = c.scale;
        if (KIND == OPTIONS) {
            if (c.modified) scale = 1;
            if (c.slopes) slope = c.slopes[t.batch * c.slope_batch + t.head * c.slope_head] * 1.4426950409f;
            if (c.sinks) {
                float sink = c.sinks[t.head * c.sink_head] * 1.4426950409f;
                r.reference[0] = r.reference[1] = sink;
                r.sum[0] = r.sum[1] = sink > -INFINITY && lane % 4 == 0 ? 1 : 0;
            }
        }
#pragma unroll
        for (int i = 0; i < D / 2; i++) o[i] = 0;

        auto scores = [&](void) {
            products_begin();
            uint64_t k = factor(shared_address(s.k[kp.stage()]), 0);
#pragma unroll
            for (int i = 0; i < D / 16; i++)
                product_shared<T>(x, q + i / 4 * (ROWS * ROW_BYTES >> 4) + i % 4 * 2,
                                  k + i / 4 * (KEYS * ROW_BYTES >> 4) + i % 4 * 2, i > 0);
            products_commit();
        };
        auto results = [&](void) {
            products_begin();
            uint64_t v = factor(shared_address(s.v[vp.stage()]), KEYS * ROW_BYTES);
#pragma unroll
            for (int i = 0; i < KEYS / 16; i++) product_registers<T>(o, p + 4 * i, v + i * (16 * ROW_BYTES >> 4), 1);
            products_commit();
        };

        if (t.blocks > 0) {
            barrier_wait(shared_address(&s.q_full), turn);
            turn ^= 1;
            barrier_wait(shared_address(&s.k_full[kp.stage()]), kp.parity());
            scores();
            products_wait<0>();
            touch(x);
            if (thread == 0) barrier_arrive(shared_address(&s.k_empty[kp.stage()]));
            kp.next();
            int j = t.first + t.blocks - 1;
            auto mask = [&](void) {
                if (KIND != OPTIONS) {
                    hide<KEYS>(x, j * KEYS + first, last);
                    return;
                }
                if (c.modified) lost |= modify<KEYS>(x, c, slope, (float)(row + c.offset - j * KEYS - first));
                if (j >= whole || j < closed) hide<KEYS>(x, j * KEYS + first, start, last);
            };
            if (KIND == OPTIONS || j >= whole) mask();
            soften<KEYS>(x, r, by, scale);
            pack_all<T, KEYS>(p, x);

            auto step = [&](bool masked) {
                barrier_wait(shared_address(&s.k_full[kp.stage()]), kp.parity());
                if (CONSUMERS > 1) group_sync(TURN + who, 2 * GROUP);
                scores();
                barrier_wait(shared_address(&s.v_full[vp.stage()]), vp.parity());
                results();
                if (CONSUMERS > 1) group_arrive(TURN + (who + 1) % CONSUMERS, 2 * GROUP);
                products_wait<1>();
                touch(x);
                if (thread == 0) barrier_arrive(shared_address(&s.k_empty[kp.stage()]));
                kp.next();
                if (masked) mask();
                soften<KEYS>(x, r, by, scale);
                products_wait<0>();
                touch(o);
                if (thread == 0) barrier_arrive(shared_address(&s.v_empty[vp.stage()]));
                vp.next();
                pack_all<T, KEYS>(p, x);
                rescale(o, by);
            };
            if (KIND == OPTIONS) {
                for (j--; j >= t.first; j--) step(true);
            } else {
                for (j--; j >= 0 && j >= whole; j--) step(true);
                for (; j >= 0; j--) step(false);
            }

            if (thread == 0) barrier_arrive(shared_address(&s.q_empty));
            barrier_wait(shared_address(&s.v_full[vp.stage()]), vp.parity());
            results();
            products_wait<0>();
            touch(o);
            if (thread == 0) barrier_arrive(shared_address(&s.v_empty[vp.stage()]));
            vp.next();
        }
        finish<T, D, ROWS, KIND>(s, c, t, o, r, sees, lost, who);
    }
    if (thread == 0) copies_read();
}

/* ---- The kernel ------------------------------------------------------------------------------------------------- */

template <typename T, int D, int CONSUMERS, int KEYS, kind KIND> MHA_DEVICE void run(const mha_cuda_forward &c)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    typedef shared_memory<T, D, CONSUMERS, KEYS> layout;
    layout &s = *(layout *)memory;
    if (threadIdx.x == 0) {
        barrier_make(shared_address(&s.q_full), 1);
        barrier_make(shared_address(&s.q_empty), CONSUMERS);
        for (int i = 0; i < STAGES; i++) {
            barrier_make(shared_address(&s.tile_full[i]), 1);
            barrier_make(shared_address(&s.tile_empty[i]), CONSUMERS);
            barrier_make(shared_address(&s.k_full[i]), 1);
            barrier_make(shared_address(&s.v_full[i]), 1);
            barrier_make(shared_address(&s.k_empty[i]), CONSUMERS);
            barrier_make(shared_address(&s.v_empty[i]), CONSUMERS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        publish_shared();
    }
    __syncthreads();
    if (threadIdx.x < GROUP) {
        registers_give<CONSUMERS == 2 ? 24 : 32>();
        if (threadIdx.x == 0) copy_tiles<layout, D, 64 * CONSUMERS, KEYS, KIND>(s, c);
    } else {
        registers_take<CONSUMERS == 2 ? 240 : 160>();
        compute_tiles<T, D, CONSUMERS, KEYS, KIND>(s, c, threadIdx.x / GROUP - 1);
    }
}

} // namespace

#define KERNEL(NAME, T, D, CONSUMERS, KEYS, KIND)                           \
    extern "C" __global__ void __launch_bounds__(GROUP *(CONSUMERS + 1), 1) \
        NAME(const __grid_constant__ mha_cuda_forward c)                    \
    {                                                                       \
        run<T, D, CONSUMERS, KEYS, KIND>(c);                                \
    }

KERNEL(forward_bf16_64, __nv_bfloat16, 64, 3, 128, FULL)
KERNEL(forward_bf16_64_causal, __nv_bfloat16, 64, 3, 128, CAUSAL)
KERNEL(forward_bf16_64_few, __nv_bfloat16, 64, 2, 128, FULL)
KERNEL(forward_bf16_64_causal_few, __nv_bfloat16, 64, 2, 128, CAUSAL)
KERNEL(forward_bf16_64_options, __nv_bfloat16, 64, 2, 128, OPTIONS)
KERNEL(forward_bf16_128, __nv_bfloat16, 128, 2, 128, FULL)
KERNEL(forward_bf16_128_causal, __nv_bfloat16, 128, 2, 128, CAUSAL)
KERNEL(forward_bf16_128_options, __nv_bfloat16, 128, 2, 128, OPTIONS)
KERNEL(forward_f16_64, __half, 64, 3, 128, FULL)
KERNEL(forward_f16_64_causal, __half, 64, 3, 128, CAUSAL)
KERNEL(forward_f16_64_few, __half, 64, 2, 128, FULL)
KERNEL(forward_f16_64_causal_few, __half, 64, 2, 128, CAUSAL)
KERNEL(forward_f16_64_options, __half, 64, 2, 128, OPTIONS)
KERNEL(forward_f16_128, __half, 128, 2, 128, FULL)
KERNEL(forward_f16_128_causal, __half, 128, 2, 128, CAUSAL)
KERNEL(forward_f16_128_options, __half, 128, 2, 128, OPTIONS)
