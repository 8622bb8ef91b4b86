/* Attention of few rows against many keys, for bfloat16 and float16: what generating a token needs.
 *
 * The query heads of a key head read its keys together: up to 16 rows, the rows of one matrix product. A unit of work is 512
 * keys of a key head, and blocks stay and take every so many units. One warp copies: it has the copy engine bring keys and
 * values, 128 at a time, into rings of 192 KB together, and goes on to the next unit while this one is computed. Four warps
 * compute: each has 32 keys of a tile for the scores, and a quarter of the columns for the results. The others bring the rows
 * of the next unit.
 *
 * Units write their sums to memory. The last unit of a key head that is done adds them up in their order, whoever computed
 * them, so that bits depend on the number of keys alone. Memory is what limits it: every key and value is read once. */
#include "decode.h"
#include "general.cuh"
#include "hopper.cuh"

namespace
{

enum { WARPS = 4, HELPERS = 3, KEYS = MHA_CUDA_DECODE_TILE, ROWS = MHA_CUDA_DECODE_ROWS, COMPUTE = 32 * WARPS };
enum { PIECES = KEYS / WARPS / 8 }; /* eight keys each, of a warp */

template <typename T, int D> struct shared_memory {
    enum { STAGES = D == 128 ? 3 : 6, QUERY_PITCH = D + 8, WEIGHT_PITCH = KEYS + 8 };
    alignas(1024) T k[STAGES][KEYS * D];
    alignas(1024) T v[STAGES][KEYS * D];
    alignas(16) T q[2][ROWS * QUERY_PITCH];
    alignas(16) T weights[ROWS * WEIGHT_PITCH];
    float top[WARPS][ROWS], sum[WARPS][ROWS];
    int is_last;
    alignas(8) uint64_t k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES], q_full[2], q_empty[2];
};

MHA_DEVICE void load_matrices(uint32_t (&x)[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
}

MHA_DEVICE void load_matrices_turned(uint32_t (&x)[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
}

/* sums (16,8) += a (16,16) b (16,8). */
template <typename T> MHA_DEVICE void multiply(float (&s)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

template <> MHA_DEVICE void multiply<__nv_bfloat16>(float (&s)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <> MHA_DEVICE void multiply<__half>(float (&s)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* exp */
MHA_DEVICE float weight_of(float x) { return exp2_fast(x * 1.44269504f); }

/* Where piece `piece` (8 numbers) of a row lies in a tile of KEYS rows. */
MHA_DEVICE uint32_t piece_at(uint32_t tile, int row, int piece)
{
    return tile + piece / 8 * KEYS * ROW_BYTES + row * ROW_BYTES + ((piece % 8) ^ (row % 8)) * 16;
}

/* ---- Units of work ---------------------------------------------------------------------------------------------- */

/* Keys [first, last) of a key head, none if a row sees none of them; `parts` units of the head have keys, from `lowest` on. */
struct unit {
    sequence s;
    int g, split, first, last, rows, lowest, parts;
};

MHA_DEVICE unit unit_of(const mha_cuda_decode &c, int n)
{
    enum { EACH = MHA_CUDA_DECODE_KEYS };
    const general &g = c.g;
    int head = c.first_head + n / c.splits, split = n % c.splits;
    unit u = {sequence_of(g, head / g.G), head % g.G, split, 0, 0, g.share * g.Tq, 0, 0};
    if (u.s.queries <= 0) return u;
    int low = visible_keys(g, u.s, 0).low, high = visible_keys(g, u.s, u.s.queries - 1).high;
    if (low >= high) return u;
    u.first = max(split * EACH, low / KEYS * KEYS), u.last = min((split + 1) * EACH, high);
    u.lowest = low / EACH, u.parts = (high - 1) / EACH - u.lowest + 1;
    return u;
}

/* Whether a unit has keys. */
MHA_DEVICE bool has_keys(const unit &u) { return u.first < u.last; }

/* Runs `body` for the units of this block. */
template <typename F> MHA_DEVICE void for_each_unit(const mha_cuda_decode &c, F body)
{
    for (int n = blockIdx.x; n < c.units; n += gridDim.x) body(n, unit_of(c, n));
}

/* ---- The warp that copies --------------------------------------------------------------------------------------- */

/* Keys and values are read once: they need not stay in the cache. */
MHA_DEVICE void copy_in_once(uint32_t to, const CUtensorMap *map, uint32_t barrier, int column, int row, int head, int batch)
{
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
                 "[%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch), "l"(policy)
                 : "memory");
}

template <int D>
MHA_DEVICE void copy_tile(uint32_t to, const CUtensorMap *map, uint64_t *full, uint64_t *empty, uint32_t parity,
                          const unit &u, int key)
{
    barrier_wait(shared_address(empty), parity ^ 1);
    barrier_expect(shared_address(full), KEYS * D * 2);
    for (int panel = 0; panel < D / PANEL; panel++)
        copy_in_once(to + panel * KEYS * ROW_BYTES, map, shared_address(full), panel * PANEL, (int)u.s.key_row + key, u.g,
                     u.s.key_batch);
}

template <typename S, int D> MHA_DEVICE void copy_units(S &s, const mha_cuda_decode &c)
{
    uint32_t n = 0;
    for_each_unit(c, [&](int, const unit &u) {
        for (int j = u.first; j < u.last; n++, j += KEYS) {
            uint32_t stage = n % S::STAGES, parity = n / S::STAGES % 2;
            copy_tile<D>(shared_address(s.k[stage]), &c.k, &s.k_full[stage], &s.k_empty[stage], parity, u, j);
            copy_tile<D>(shared_address(s.v[stage]), &c.v, &s.v_full[stage], &s.v_empty[stage], parity, u, j);
        }
    });
}

/* ---- The warps that bring rows ---------------------------------------------------------------------------------- */

template <typename T, int D, typename S> MHA_DEVICE void bring_rows(S &s, const mha_cuda_decode &c, int thread)
{
    const general &g = c.g;
    uint32_t n = 0;
    for_each_unit(c, [&](int, const unit &u) {
        if (!has_keys(u)) return;
        T *to = s.q[n % 2];
        barrier_wait(shared_address(&s.q_empty[n % 2]), n / 2 % 2 ^ 1);
#pragma unroll 8
        for (int at = thread; at < ROWS * D; at += 32 * HELPERS) {
            int r = at / D, d = at % D, i = r % g.Tq;
            T x = T(0.0f);
            if (r < u.rows && i < u.s.queries)
                x = ((const T *)g.q.data)[place(g.q, u.s.query_batch, u.g * g.share + r / g.Tq, u.s.query_row + i, d)];
            to[r * S::QUERY_PITCH + d] = x;
        }
        __syncwarp();
        if (thread % 32 == 0) barrier_arrive(shared_address(&s.q_full[n % 2]));
        n++;
    });
}

/* ---- Scores ----------------------------------------------------------------------------------------------------- */

/* A row of a key head: its query head, its place there, and the keys that it sees by position. */
struct row {
    int head, i;
    range visible;
};

MHA_DEVICE row row_of(const general &c, const unit &u, int n)
{
    int i = n % c.Tq;
    return {u.g * c.share + n / c.Tq, i, n < u.rows ? visible_to_row(c, u.s, i) : range{0, 0}};
}

/* Whether scores are products times the scale, and visible by position alone. */
MHA_DEVICE bool is_plain(const general &c)
{
    return !c.mask.data && !c.bias.data && !c.slopes.data && c.softcap == 0;
}

/* The score of a row and a key from their product: -infinity if it is not visible, NaN if float32 did not hold it. */
MHA_DEVICE float score_at(const general &c, const unit &u, const row &r, int key, float dot, bool plain)
{
    if (plain) return key >= r.visible.low && key < r.visible.high ? fmaf(dot, 0.0f, dot * c.scale) : -INFINITY;
    score<float> x = score_of<float>(c, u.s, r.head, r.i, key, r.visible, dot);
    return x.visible ? x.masked : -INFINITY;
}

/* ---- The warps that compute ------------------------------------------------------------------------------------- */

/* What a thread has of rows lane / 4 and lane / 4 + 8: their reference, which is the same in all warps; the sum of this
 * thread's weights; and results of D / 32 pieces of eight columns. */
template <int D> struct progress {
    float reference[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, o[D / 32][4] = {};
};

/* Scores of this warp's keys of a tile become weights, in shared memory, relative to the largest score of all warps. */
template <typename T, int D>
MHA_DEVICE void weigh(shared_memory<T, D> &s, float (&x)[PIECES][4], progress<D> &p)
{
    typedef shared_memory<T, D> S;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = -INFINITY;
#pragma unroll
        for (int i = 0; i < PIECES; i++) top = fmaxf(top, fmaxf(x[i][2 * h], x[i][2 * h + 1]));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        if (lane % 4 == 0) s.top[warp][lane / 4 + 8 * h] = top;
    }
    group_sync(1, COMPUTE);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = s.top[0][lane / 4 + 8 * h];
#pragma unroll
        for (int i = 1; i < WARPS; i++) top = fmaxf(top, s.top[i][lane / 4 + 8 * h]);
        if (top > p.reference[h]) {
            float by = weight_of(p.reference[h] - top);
            p.reference[h] = top;
            p.sum[h] *= by;
#pragma unroll
            for (int i = 0; i < D / 32; i++) p.o[i][2 * h] *= by, p.o[i][2 * h + 1] *= by;
        }
        float less = p.reference[h] == -INFINITY ? 0 : p.reference[h];
        T *to = s.weights + (lane / 4 + 8 * h) * S::WEIGHT_PITCH + warp * 8 * PIECES + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            float a = weight_of(x[i][2 * h] - less), b = weight_of(x[i][2 * h + 1] - less);
            p.sum[h] += a + b;
            *(uint32_t *)(to + 8 * i) = pack<T>(a, b);
        }
    }
}

/* Values of this warp's keys behind the last one may be anything: they become zeros. */
template <int D> MHA_DEVICE void clear_values(uint32_t v, int own, int valid)
{
    for (int i = threadIdx.x % 32; i < 8 * PIECES * D / 8; i += 32) {
        int key = own + i % (8 * PIECES);
        if (key >= valid)
            asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(piece_at(v, key, i / (8 * PIECES))), "r"(0)
                         : "memory");
    }
    publish_shared();
}

template <typename T, int D>
MHA_DEVICE void compute_tile(shared_memory<T, D> &s, const general &g, const unit &u, int n, int j,
                             const uint32_t (&q)[D / 16][4], const row (&rows)[2], bool plain, progress<D> &p)
{
    typedef shared_memory<T, D> S;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = warp * 8 * PIECES, stage = n % S::STAGES;
    uint32_t k = shared_address(s.k[stage]), v = shared_address(s.v[stage]), parity = n / S::STAGES % 2;
    float x[PIECES][4] = {};
    barrier_wait(shared_address(&s.k_full[stage]), parity);
#pragma unroll
    for (int i = 0; i < D / 16; i++)
#pragma unroll
        for (int m = 0; m < PIECES; m += 2) { /* matrices: keys 0-7 and columns 0-7, 8-15; keys 8-15, likewise */
            uint32_t b[4];
            load_matrices(b, piece_at(k, own + 8 * m + lane / 16 * 8 + lane % 8, 2 * i + lane / 8 % 2));
            multiply<T>(x[m], q[i], b[0], b[1]);
            multiply<T>(x[m + 1], q[i], b[2], b[3]);
        }
    __syncwarp();
    if (lane == 0) barrier_arrive(shared_address(&s.k_empty[stage]));
#pragma unroll
    for (int i = 0; i < 4 * PIECES; i++) {
        float &y = x[i / 4][i % 4];
        y = score_at(g, u, rows[i / 2 % 2], j + own + i / 4 * 8 + lane % 4 * 2 + i % 2, y, plain);
    }
    weigh<T, D>(s, x, p);
    barrier_wait(shared_address(&s.v_full[stage]), parity);
    if (j + KEYS > u.s.length) clear_values<D>(v, own, u.s.length - j);
    group_sync(1, COMPUTE);
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++) {
        uint32_t w[4];
        load_matrices(w, shared_address(&s.weights[lane % 16 * S::WEIGHT_PITCH + 16 * i + lane / 16 * 8]));
#pragma unroll
        for (int m = 0; m < D / 32; m += 2) { /* matrices: keys 0-7 and 8-15 of columns 0-7; of columns 8-15 */
            uint32_t b[4];
            load_matrices_turned(
                b, piece_at(v, 16 * i + lane / 8 % 2 * 8 + lane % 8, warp * (D / 32) + m + lane / 16));
            multiply<T>(p.o[m], w, b[0], b[1]);
            multiply<T>(p.o[m + 1], w, b[2], b[3]);
        }
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(shared_address(&s.v_empty[stage]));
}

/* The sums of a unit to memory. Returns whether it is the last one of its head to come there. */
template <typename T, int D>
MHA_DEVICE bool put_sums(shared_memory<T, D> &s, const mha_cuda_decode &c, const unit &u, int n, progress<D> &p)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t first = ((int64_t)c.first_head * c.splits + n) * u.rows;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int r = lane / 4 + 8 * h;
        p.sum[h] += __shfl_xor_sync(~0u, p.sum[h], 1);
        p.sum[h] += __shfl_xor_sync(~0u, p.sum[h], 2);
        if (lane % 4 == 0) s.sum[warp][r] = p.sum[h];
        if (r >= u.rows) continue;
        float *to = c.sums + (first + r) * D + warp * (D / WARPS) + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < D / 32; i++) *(float2 *)(to + 8 * i) = make_float2(p.o[i][2 * h], p.o[i][2 * h + 1]);
    }
    group_sync(1, COMPUTE);
    if (warp == 0) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int r = lane / 4 + 8 * h;
            float sum = s.sum[0][r] + s.sum[1][r] + s.sum[2][r] + s.sum[3][r];
            if (r < u.rows && lane % 4 == 0) ((float2 *)c.softmax)[first + r] = make_float2(p.reference[h], sum);
        }
        __syncwarp();
        if (lane == 0) {
            int *counter = c.counters + n / c.splits;
            __threadfence();
            s.is_last = atomicAdd(counter, 1) == u.parts - 1;
            if (s.is_last) *counter = 0; /* ready for the next call */
            __threadfence();
        }
    }
    group_sync(1, COMPUTE);
    return s.is_last;
}

/* ---- Results ---------------------------------------------------------------------------------------------------- */

/* A row in float64, by a warp. */
template <int D> __device__ __noinline__ void finish_exactly(const general &c, const sequence &s, int h, int i)
{
    int lane = threadIdx.x % 32;
    range r = visible_keys(c, s, i);
    double top = c.sinks.data ? (double)load(c.sinks, place(c.sinks, 0, h, 0, 0)) : -INFINITY, sink = top, sum = 0;
    double o[D / 32] = {};
    for (int j = r.low + lane; j < r.high; j += 32) {
        score<double> x = exact_score(c, s, h, i, j);
        if (x.visible) top = fmax(top, x.masked);
    }
    for (int n = 16; n; n /= 2) top = fmax(top, __shfl_xor_sync(~0u, top, n));
    for (int j = r.low; j < r.high; j += 32) {
        double own = 0;
        if (j + lane < r.high) {
            score<double> x = exact_score(c, s, h, i, j + lane);
            if (x.visible) own = exp(x.masked - top);
        }
        sum += own;
        for (int n = 0; n < min(32, r.high - j); n++) {
            double by = __shfl_sync(~0u, own, n);
            int64_t at = place(c.v, s.key_batch, h / c.share, s.key_row + j + n, lane);
            for (int e = 0; by != 0 && e < D / 32; e++) o[e] += by * load(c.v, at + 32 * e);
        }
    }
    for (int n = 16; n; n /= 2) sum += __shfl_xor_sync(~0u, sum, n);
    if (c.sinks.data) sum += exp(sink - top);
    for (int e = 0; e < D / 32; e++)
        store(c.out, place(c.out, s.query_batch, h, s.query_row + i, lane + 32 * e), o[e] / sum);
    if (lane == 0) store_softmax(c, s, h, i, {top, sum});
}

MHA_DEVICE void add(float4 &to, float by, float4 x)
{
    to.x = fmaf(by, x.x, to.x), to.y = fmaf(by, x.y, to.y), to.z = fmaf(by, x.z, to.z), to.w = fmaf(by, x.w, to.w);
}

/* Adds up what the units of a key head have found, in their order; LANES threads have a row together, four columns each. The
 * sums may have been written by other multiprocessors: they are read past the first cache. */
template <int D> MHA_DEVICE void merge(const mha_cuda_decode &c, const unit &u, int n)
{
    enum { LANES = D / 4, LINES = COMPUTE / LANES };
    const general &g = c.g;
    int lane = threadIdx.x % LANES, own = threadIdx.x % 32 / LANES * LANES;
    unsigned members = LANES == 32 ? ~0u : 0xffffu << own;
    int64_t first = ((int64_t)(c.first_head + n / c.splits) * c.splits + u.lowest) * u.rows;
    for (int from = 0; from < u.rows; from += LINES) {
        int r = from + threadIdx.x / LANES, i = r % g.Tq, h = u.g * g.share + r / g.Tq;
        bool there = r < u.rows && i < u.s.padded, sees = false;
        const float2 *parts = (const float2 *)c.softmax + first + min(r, u.rows - 1);
        const float4 *sums = (const float4 *)c.sums + (first + min(r, u.rows - 1)) * LANES + lane;
        float top = -INFINITY, sum = 0, sink = -INFINITY;
        float4 o = make_float4(0, 0, 0, 0);
        for (int k = lane; k < u.parts; k += LANES) {
            float2 part = __ldcg(parts + (int64_t)k * u.rows);
            if (part.y != 0) top = fmaxf(top, part.x), sees = true;
        }
        for (int k = LANES / 2; k; k /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, k));
        sees = __ballot_sync(~0u, sees) & members;
        if (g.sinks.data && there) sink = load(g.sinks, place(g.sinks, 0, h, 0, 0));
        top = fmaxf(top, sink);
#pragma unroll 8
        for (int k = 0; k < u.parts; k++) {
            float2 part = __ldcg(parts + (int64_t)k * u.rows);
            float4 x = __ldcg(sums + (int64_t)k * u.rows * LANES);
            float by = part.y == 0 ? 0 : weight_of(part.x - top);
            if (by != 0) add(o, by, x), sum = fmaf(by, part.y, sum);
        }
        if (sink > -INFINITY) sum += weight_of(sink - top);
        bool lost = !isfinite(o.x + o.y + o.z + o.w) || !(sum > 0 && sum < INFINITY);
        unsigned rows_lost = __ballot_sync(~0u, there && sees && lost);
        if (there && !(rows_lost & members)) {
            float by = sees ? 1 / sum : 0;
            int64_t at = place(g.out, u.s.query_batch, h, u.s.query_row + i, 4 * lane);
            store(g.out, at, o.x * by), store(g.out, at + g.out.stride[3], o.y * by);
            store(g.out, at + 2 * g.out.stride[3], o.z * by), store(g.out, at + 3 * g.out.stride[3], o.w * by);
            if (lane == 0) store_softmax(g, u.s, h, i, sees ? softmax{top, sum} : softmax{-INFINITY, 0});
        }
        for (int k = 0; k < 32; k += LANES) {
            int lost_row = from + (threadIdx.x - threadIdx.x % 32 + k) / LANES;
            if (rows_lost >> k & (members >> own))
                finish_exactly<D>(g, u.s, u.g * g.share + lost_row / g.Tq, lost_row % g.Tq);
        }
    }
}

template <typename T, int D> MHA_DEVICE void compute_units(shared_memory<T, D> &s, const mha_cuda_decode &c)
{
    typedef shared_memory<T, D> S;
    const general &g = c.g;
    int lane = threadIdx.x % 32;
    bool plain = is_plain(g);
    uint32_t tiles = 0, units = 0;
    for_each_unit(c, [&](int n, const unit &u) {
        if (!u.parts && u.split == 0) merge<D>(c, u, n); /* no row sees a key */
        if (!has_keys(u)) return;
        const row rows[2] = {row_of(g, u, lane / 4), row_of(g, u, lane / 4 + 8)};
        progress<D> p;
        uint32_t q[D / 16][4];
        barrier_wait(shared_address(&s.q_full[units % 2]), units / 2 % 2);
#pragma unroll
        for (int i = 0; i < D / 16; i++)
            load_matrices(q[i], shared_address(&s.q[units % 2][lane % 16 * S::QUERY_PITCH + 16 * i + lane / 16 * 8]));
        __syncwarp();
        if (lane == 0) barrier_arrive(shared_address(&s.q_empty[units % 2]));
        units++;
        for (int j = u.first; j < u.last; j += KEYS) compute_tile<T, D>(s, g, u, tiles++, j, q, rows, plain, p);
        if (put_sums<T, D>(s, c, u, n, p)) merge<D>(c, u, n);
    });
}

template <typename T, int D> MHA_DEVICE void decode(const mha_cuda_decode &c)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    typedef shared_memory<T, D> S;
    S &s = *(S *)memory;
    int warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::STAGES; i++) {
            barrier_make(shared_address(&s.k_full[i]), 1);
            barrier_make(shared_address(&s.v_full[i]), 1);
            barrier_make(shared_address(&s.k_empty[i]), WARPS);
            barrier_make(shared_address(&s.v_empty[i]), WARPS);
        }
        for (int i = 0; i < 2; i++) {
            barrier_make(shared_address(&s.q_full[i]), HELPERS);
            barrier_make(shared_address(&s.q_empty[i]), WARPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        publish_shared();
    }
    if (threadIdx.x == COMPUTE)
        asm volatile("prefetch.tensormap [%0];\nprefetch.tensormap [%1];" ::"l"(&c.k), "l"(&c.v) : "memory");
    __syncthreads();
    if (warp < WARPS) compute_units<T, D>(s, c);
    else if (warp > WARPS) bring_rows<T, D>(s, c, threadIdx.x - COMPUTE - 32);
    else if (threadIdx.x == COMPUTE) copy_units<S, D>(s, c);
}

} // namespace

#define KERNEL(NAME, T, D)                                                                                            \
    extern "C" __global__ void __launch_bounds__(MHA_CUDA_DECODE_THREADS, 1)                                          \
        NAME(const __grid_constant__ mha_cuda_decode c)                                                               \
    {                                                                                                                 \
        decode<T, D>(c);                                                                                              \
    }

KERNEL(decode_bf16_64, __nv_bfloat16, 64)
KERNEL(decode_bf16_128, __nv_bfloat16, 128)
KERNEL(decode_f16_64, __half, 64)
KERNEL(decode_f16_128, __half, 128)
