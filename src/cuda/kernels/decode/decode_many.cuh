/* Attention of up to 128 rows of a key head against its keys, for bfloat16 and float16: generating tokens where many query heads share a
 * key head, and checking drafted ones.
 *
 * The keys of a head are split into 256 each, or more of a long sequence (mha_cuda_many_keys). A block has one or several splits, and all
 * rows, so that every key is read once. One warp copies tiles of 64 keys; one or two warpgroups compute 64 rows each, a product of
 * tensor cores having no fewer. The sums of every split go to memory, and a second kernel adds up those of each row in their order, a
 * warp for a row: the sums of 128 rows are too many for the block that is done last. So bits depend on the number of keys and the widths
 * alone, and how many splits a block has is chosen by how many there are in all.
 *
 * Kernels have D columns of keys and E of values; narrower rows are filled with zeros. */
#ifndef MHA_CUDA_DECODE_MANY_CUH
#define MHA_CUDA_DECODE_MANY_CUH

#include "decode.cuh"

namespace
{

constexpr float LOG2_E = 1.44269504f;
constexpr double LN_2 = 0.69314718055994531;
enum { KEYS = MHA_CUDA_MANY_TILE, GROUP = 128, MERGE_WARPS = MHA_CUDA_MERGE_ROWS };
enum { FETCHED = 4, FIRST_BLOCKS = 264 }; /* tiles, of blocks that the GPU may have at first */

/* How blocks share keys. */
struct many_rows {
    enum { TILE = KEYS, METHOD = MHA_CUDA_BY_DECODING_MANY };
    static MHA_DEVICE int keys(int length) { return mha_cuda_many_keys(length); }
};

template <typename T, int D, int E, int ROWS> struct shared_memory {
    enum { STAGES = MHA_CUDA_MANY_STAGES(D, E, ROWS), COMPUTE = ROWS / 64 * GROUP };
    alignas(1024) T q[ROWS * D];
    alignas(1024) T k[STAGES][KEYS * D];
    alignas(1024) T v[STAGES][KEYS * E];
    int found; /* the sequence of a slot */
    alignas(8) uint64_t k_full[STAGES], v_full[STAGES], empty[STAGES];
};

/* ---- Copies ----------------------------------------------------------------------------------------------------- */

/* A tile of COLUMNS columns, in panels. */
template <int COLUMNS>
MHA_DEVICE void copy_tile(uint32_t to, const CUtensorMap *map, uint32_t full, const part &p, int key)
{
    barrier_expect(full, KEYS * COLUMNS * 2);
#pragma unroll
    for (int panel = 0; panel < COLUMNS / PANEL; panel++)
        copy_in_once(to + panel * KEYS * ROW_BYTES, map, full, panel * PANEL, (int)p.s.key_row + key, p.g, p.s.key_batch);
}

/* Copies tiles n to n + count - 1, as many of them as there are. */
template <typename T, int D, int E, int ROWS>
MHA_DEVICE void copy_tiles(shared_memory<T, D, E, ROWS> &s, const mha_cuda_decode &c, const part &p, int n, int count)
{
    enum { STAGES = shared_memory<T, D, E, ROWS>::STAGES };
    for (int j = p.first + n * KEYS; count && j < p.last; n++, count--, j += KEYS) {
        int stage = n % STAGES;
        barrier_wait(shared_address(&s.empty[stage]), n / STAGES % 2 ^ 1);
        copy_tile<D>(shared_address(s.k[stage]), &c.k, shared_address(&s.k_full[stage]), p, j);
        copy_tile<E>(shared_address(s.v[stage]), &c.v, shared_address(&s.v_full[stage]), p, j);
    }
}

/* Brings the first tiles of a block into the second cache, which may be done while the kernel before this one is at work: what it writes
 * to them is seen there. */
template <int D, int E> MHA_DEVICE void fetch_tiles(const mha_cuda_decode &c, const part &p)
{
#pragma unroll 1
    for (int j = p.first; j < min(p.last, p.first + FETCHED * KEYS); j += KEYS) {
        for (int panel = 0; panel < D / PANEL; panel++) fetch_box(&c.k, panel * PANEL, j, p.g, p.s.key_batch);
        for (int panel = 0; panel < E / PANEL; panel++) fetch_box(&c.v, panel * PANEL, j, p.g, p.s.key_batch);
    }
}

/* Eight numbers of a row of q that do not lie side by side, or zeros. */
static __device__ __noinline__ uint4 collect_piece(const uint16_t *from, int64_t stride, bool there)
{
    uint32_t x[4] = {};
    for (int n = 0; there && n < 4; n++) x[n] = from[2 * n * stride] | (uint32_t)from[(2 * n + 1) * stride] << 16;
    return make_uint4(x[0], x[1], x[2], x[3]);
}

/* The rows of a key head, with zeros up to D columns. A warp has a row at a time, all of which are under way together; those that no warp
 * weighs stay as they are. */
template <typename T, int D, int ROWS> MHA_DEVICE void bring_rows(uint32_t to, const general &g, const part &p)
{
    enum { WARPS = ROWS / 16, ALIGNED = 8 };
    const int piece = threadIdx.x % 32;
    const int64_t *stride = g.q.stride;
    const bool whole = stride[3] == 1 && ((uintptr_t)g.q.data % 16 | (uint64_t)(stride[0] | stride[1] | stride[2]) % ALIGNED) == 0;
    const uint16_t *first = (const uint16_t *)g.q.data + place(g.q, p.s.query_batch, p.g * g.share, p.s.query_row, 8 * piece);
    const int64_t head_stride = stride[1], row_stride = stride[2];
    const float heads = 1.0f / (float)p.queries; /* of a row: up to 128 of them are counted exactly, without a division for each */
#pragma unroll 4
    for (int r = threadIdx.x / 32; r < (p.rows + 15) / 16 * 16; r += WARPS) {
        const int head = (int)(((float)r + 0.5f) * heads), i = r - head * p.queries;
        const bool there = r < p.rows && i < p.s.queries && 8 * piece < g.D;
        const uint16_t *from = there ? first + head * head_stride + i * row_stride : (const uint16_t *)g.q.data;
        if (piece >= D / 8) continue;
        if (whole) copy_piece(piece_at<ROWS>(to, r, piece), from, there);
        else put_piece(piece_at<ROWS>(to, r, piece), collect_piece(from, stride[3], there));
    }
    pieces_come();
    publish_shared();
}

/* ---- Sums of a block -------------------------------------------------------------------------------------------- */

/* The products of a thread's two rows and the keys of a tile from `key` on become scores, in units of log 2. */
template <bool PLAIN>
MHA_DEVICE void score_tile(float (&x)[KEYS / 2], const general &g, const part &p, const row (&rows)[2], int key)
{
    const int first = key + threadIdx.x % 4 * 2;
    const float scale = g.scale * LOG2_E;
    bool inside = true;
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) {
        if (PLAIN) x[i] = held(x[i] * scale);
        else x[i] = score_at<false>(g, p, rows[i / 2 % 2], first + i / 4 * 8 + i % 2, x[i]) * LOG2_E;
    }
#pragma unroll
    for (int h = 0; h < 2; h++) inside = inside && key >= rows[h].visible.low && key + KEYS <= rows[h].visible.high;
    if (PLAIN && !inside) {
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) {
            const range &seen = rows[i / 2 % 2].visible;
            if ((unsigned)(first + i / 4 * 8 + i % 2 - seen.low) >= (unsigned)(seen.high - seen.low)) x[i] = -INFINITY;
        }
    }
}

/* Scores become weights relative to the largest so far; `by` is what sums so far are to be multiplied by. */
MHA_DEVICE void weigh(float (&x)[KEYS / 2], float (&reference)[2], float (&sum)[2], float (&by)[2])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = reference[h], less;
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) top = fmaxf(top, x[i / 2 * 4 + 2 * h + i % 2]);
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        less = top == -INFINITY ? 0 : top;
        by[h] = exp2_fast(reference[h] - less);
        sum[h] *= by[h];
        reference[h] = top;
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            float &y = x[i / 2 * 4 + 2 * h + i % 2];
            y = exp2_fast(y - less);
            sum[h] += y;
        }
    }
}

/* Sums of a split, to memory. */
template <int E>
MHA_DEVICE void store_sums(const mha_cuda_decode &c, const part &p, int split, int row, const float (&o)[E / 2], const float (&reference)[2],
                           const float (&sum)[2])
{
    const int64_t first = (p.base + split) * c.room;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = row + 8 * h;
        float all = sum[h] + __shfl_xor_sync(~0u, sum[h], 1);
        all += __shfl_xor_sync(~0u, all, 2);
        if (r >= p.rows) continue;
        if (lane % 4 == 0) *(float2 *)(c.softmax + 2 * (first + r)) = make_float2(reference[h], all);
#pragma unroll
        for (int i = 0; i < E / 8; i++)
            *(float2 *)(c.sums + (first + r) * E + 8 * i + lane % 4 * 2) = make_float2(o[4 * i + 2 * h], o[4 * i + 2 * h + 1]);
    }
}

template <typename T, int D, int E, int ROWS, bool PLAIN>
MHA_DEVICE void compute_tiles(shared_memory<T, D, E, ROWS> &s, const mha_cuda_decode &c, const part &p, const row (&rows)[2])
{
    typedef shared_memory<T, D, E, ROWS> S;
    const general &g = c.g;
    const int thread = threadIdx.x % GROUP, who = (int)uniform(threadIdx.x / GROUP), lane = thread % 32;
    const int first_row = (int)uniform(threadIdx.x / 32) * 16, own_row = first_row + lane / 4;
    const uint64_t q = factor(shared_address(s.q) + who * 64 * ROW_BYTES, 0);
    float o[E / 2], x[KEYS / 2], reference[2], sum[2], by[2] = {1, 1};
    uint32_t w[KEYS / 4];
#pragma unroll
    for (int n = 0; n < KEYS / 4; n++) w[n] = 0;

    for (int n = 0, j = p.first; j < p.last;) {
        const int split = j >> p.shift, end = min((split + 1) << p.shift, p.last);
        reference[0] = reference[1] = -INFINITY, sum[0] = sum[1] = 0;
#pragma unroll
        for (int i = 0; i < E / 2; i++) o[i] = 0;
        for (; j < end; n++, j += KEYS) {
            const int stage = n % S::STAGES, before = (n + S::STAGES - 1) % S::STAGES;
            const uint64_t k = factor(shared_address(s.k[stage]), 0), v = factor(shared_address(s.v[stage]), KEYS * ROW_BYTES);
            barrier_wait(shared_address(&s.k_full[stage]), n / S::STAGES % 2);
            products_begin();
#pragma unroll
            for (int i = 0; i < D / 16; i++)
                product_shared<T>(x, q + i / 4 * (ROWS * ROW_BYTES >> 4) + i % 4 * 2, k + i / 4 * (KEYS * ROW_BYTES >> 4) + i % 4 * 2, i > 0);
            products_commit();
            products_wait<0>(); /* and for the results of the tile before, which is free then */
            touch(x);
            touch(o);
            if (n && thread == 0) barrier_arrive(shared_address(&s.empty[before]));
            if (first_row < p.rows) { /* others have weights of 0 */
                score_tile<PLAIN>(x, g, p, rows, j);
                weigh(x, reference, sum, by);
#pragma unroll
                for (int i = 0; i < KEYS / 4; i++) w[i] = pack<T>(x[2 * i], x[2 * i + 1]);
                if (__any_sync(~0u, by[0] != 1 || by[1] != 1)) {
#pragma unroll
                    for (int i = 0; i < E / 2; i++) o[i] *= by[i / 2 % 2];
                }
            }
            barrier_wait(shared_address(&s.v_full[stage]), n / S::STAGES % 2);
            if (j + KEYS > p.s.length) { /* values behind the last key may be anything */
                const int from = p.s.length - j;
                for (int i = threadIdx.x; i < (KEYS - from) * E / 8; i += S::COMPUTE)
                    clear_piece(piece_at<KEYS>(shared_address(s.v[stage]), from + i % (KEYS - from), i / (KEYS - from)));
                publish_shared();
                group_sync(1, S::COMPUTE);
            }
            products_begin();
#pragma unroll
            for (int i = 0; i < KEYS / 16; i++) product_registers<T>(o, w + 4 * i, v + i * (16 * ROW_BYTES >> 4), 1);
            products_commit();
        }
        products_wait<0>();
        touch(o);
        store_sums<E>(c, p, split, own_row, o, reference, sum);
    }
}

/* A row of a part as a thread weighs it; one that there is not sees all keys, and its results go nowhere. */
MHA_DEVICE row weighed_row(const general &g, const part &p, int n)
{
    return n < p.rows ? row_of(g, p, n) : row{0, 0, {0, INT_MAX}};
}

template <typename T, int D, int E, int ROWS> MHA_DEVICE void decode(const mha_cuda_decode &c)
{
    typedef shared_memory<T, D, E, ROWS> S;
    S &s = *(S *)dynamic_memory<1024>();
    part p = {};
    row rows[2] = {};
    const int own_row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    let_next_start();
    /* What can be known before the last kernel has ended, and as few instructions as can be behind that: a small call waits for them. */
    if (c.alike) {
        p = part_of_alike<many_rows>(c, blockIdx.x);
        rows[0] = weighed_row(c.g, p, own_row), rows[1] = weighed_row(c.g, p, own_row + 8);
    }
    if (threadIdx.x == S::COMPUTE) {
        for (int i = 0; i < S::STAGES; i++) {
            barrier_make(shared_address(&s.k_full[i]), 1);
            barrier_make(shared_address(&s.v_full[i]), 1);
            barrier_make(shared_address(&s.empty[i]), ROWS / 64);
        }
        barriers_made();
        publish_shared();
        fetch_map(&c.k), fetch_map(&c.v);
        if (c.alike && blockIdx.x < FIRST_BLOCKS) fetch_tiles<D, E>(c, p);
    }
    wait_for_last();
    if (!c.alike) {
        if (c.count && *c.count == 0) return;
        p = find_part<many_rows>(c, s.found);
        if (!is_here<many_rows>(c, p)) return;
        rows[0] = weighed_row(c.g, p, own_row), rows[1] = weighed_row(c.g, p, own_row + 8);
    }
    if (p.first >= p.last) return;
    if (threadIdx.x == S::COMPUTE) copy_tiles(s, c, p, 0, S::STAGES); /* before anything else is done */
    else if (threadIdx.x < S::COMPUTE) bring_rows<T, D, ROWS>(shared_address(s.q), c.g, p);
    __syncthreads();
    if (threadIdx.x >= S::COMPUTE) {
        if (ROWS > 64) registers_give<24>();
        if (threadIdx.x == S::COMPUTE) copy_tiles(s, c, p, S::STAGES, INT_MAX);
    } else {
        if (ROWS > 64) registers_take<240>();
        if (is_plain(c.g)) compute_tiles<T, D, E, ROWS, true>(s, c, p, rows);
        else compute_tiles<T, D, E, ROWS, false>(s, c, p, rows);
    }
}

/* ---- Results ---------------------------------------------------------------------------------------------------- */

/* Key head n of the launch. */
MHA_DEVICE part part_of_head(const mha_cuda_decode &c, int n)
{
    const int head = c.first_head + n, g = head % c.g.G;
    const sequence s = sequence_of(c.g, head / c.g.G);
    const int64_t base = c.slots ? (int64_t)g * c.slots + mha_cuda_first_slot(s.b, s.key_row, many_rows::keys(0), 0, true)
                                 : (int64_t)head * c.splits;
    return part_of<many_rows>(c, s, g, 0, base);
}

/* What other multiprocessors have written, past the first cache: 8 or 16 bytes. */
template <typename T> MHA_DEVICE T load_past(const float *from)
{
    T x;
    if (sizeof(T) == 16) *(float4 *)&x = __ldcg((const float4 *)from);
    else *(float2 *)&x = __ldcg((const float2 *)from);
    return x;
}

/* Adds up what blocks have found for row r of a key head, in their order. A lane has EACH columns side by side, and brings those of AT_ONCE
 * blocks before it needs one. */
template <int E> MHA_DEVICE void merge_row(const mha_cuda_decode &c, const part &p, int r)
{
    enum { EACH = E % 128 ? 2 : 4, COUNT = E / 32 / EACH, AT_ONCE = E > 128 ? 8 : 16, LINE = 128, LINES = 4 * E / LINE };
    struct alignas(4 * EACH) piece {
        float x[EACH];
    };
    const general &g = c.g;
    const int lane = threadIdx.x % 32, head = p.queries == 1 ? r : r / p.queries, i = r - head * p.queries, h = p.g * g.share + head;
    const int64_t first = (p.base + p.lowest) * c.room + r;
    const float2 *parts = (const float2 *)c.softmax + first;
    const float *sums = c.sums + first * E + EACH * lane;
    float top = -INFINITY, sum = 0, sink = -INFINITY, o[COUNT][EACH] = {};
    piece x[AT_ONCE][COUNT];
    bool sees = false, lost;
    if (i >= p.s.padded) return;
    auto bring = [&](int k) {
#pragma unroll
        for (int n = 0; n < AT_ONCE; n++)
#pragma unroll
            for (int f = 0; f < COUNT; f++)
                if (k + n < p.parts) x[n][f] = load_past<piece>(sums + (int64_t)(k + n) * c.room * E + 32 * EACH * f);
    };
    auto part_at = [&](int k) { return k < p.parts ? __ldcg(parts + (int64_t)k * c.room) : make_float2(0, 0); };
    bring(0);
    float2 own = part_at(lane);
    for (int k = lane; k < p.parts; k += 32) {
        float2 part = k == lane ? own : part_at(k);
        if (part.y != 0) top = fmaxf(top, part.x), sees = true;
    }
    for (int k = 16; k; k /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, k));
    sees = __any_sync(~0u, sees);
    if (g.sinks.data) sink = load(g.sinks, place(g.sinks, 0, h, 0, 0)) * LOG2_E;
    top = fmaxf(top, sink);
    float by = 0;
#pragma unroll 1
    for (int k = 0; k < p.parts; k += AT_ONCE) {
        if (k) bring(k);
        if (k && k % 32 == 0) own = part_at(k + lane);
        if (k % 32 == 0) by = own.y == 0 ? 0 : exp2_fast(own.x - top);
#pragma unroll
        for (int n = 0; n < AT_ONCE; n++) {
            float its = __shfl_sync(~0u, by, k % 32 + n);
            sum = fmaf(its, __shfl_sync(~0u, own.y, k % 32 + n), sum); /* NaN stays, whatever it is multiplied by */
#pragma unroll
            for (int f = 0; f < COUNT * EACH; f++)
                if (its != 0) o[f / EACH][f % EACH] = fmaf(its, x[n][f / EACH].x[f % EACH], o[f / EACH][f % EACH]);
        }
    }
    if (sink > -INFINITY) sum += exp2_fast(sink - top);
    lost = !(sum > 0 && sum < INFINITY);
#pragma unroll
    for (int f = 0; f < COUNT * EACH; f++) lost = lost || !isfinite(o[f / EACH][f % EACH]);
    lost = __any_sync(~0u, sees && lost);
    /* These sums need not go from the cache to memory: lines that no other row has a part of. */
    for (int k = lane; k < p.parts * LINES; k += 32) {
        const uintptr_t from = (uintptr_t)(c.sums + (first + k / LINES * (int64_t)c.room) * E), end = from + E * sizeof(float);
        const uintptr_t at = (from + LINE - 1) / LINE * LINE + k % LINES * LINE;
        if (at + LINE <= end) forget_line(at);
    }
    if (lost) {
        finish_exactly<E>(g, p.s.b, h, i);
        return;
    }
    by = sees ? 1 / sum : 0;
#pragma unroll
    for (int f = 0; f < COUNT * EACH; f++) o[f / EACH][f % EACH] *= by;
#pragma unroll
    for (int f = 0; f < COUNT; f++) put(g, p, h, i, EACH * lane + 32 * EACH * f, o[f]);
    if (lane == 0) store_softmax(g, p.s, h, i, sees ? softmax{top * LN_2, sum} : softmax{-INFINITY, 0});
}

template <int E> MHA_DEVICE void merge(const mha_cuda_decode &c)
{
    const int chunks = (c.room + MERGE_WARPS - 1) / MERGE_WARPS, chunk = blockIdx.x % chunks, head = blockIdx.x / chunks;
    const int r = chunk * MERGE_WARPS + threadIdx.x / 32;
    part p = {};
    let_next_start();
    if (c.alike) p = part_of_alike<many_rows>(c, head * c.blocks);
    wait_for_last();
    if (!c.alike) {
        if (c.count && *c.count == 0) return;
        p = part_of_head(c, head);
        if (!is_here<many_rows>(c, p)) return;
        if (chunk == 0) clear_padding<MERGE_WARPS * 32>(c, p);
    }
    if (r < p.rows) merge_row<E>(c, p, r);
}

} // namespace

#define KERNEL(NAME, T, D, E, ROWS)                                                   \
    extern "C" __global__ void                                                        \
        __launch_bounds__(MHA_CUDA_MANY_THREADS(ROWS), MHA_CUDA_MANY_BLOCKS(D, ROWS)) \
            NAME(const __grid_constant__ mha_cuda_decode c)                           \
    {                                                                                 \
        decode<T, D, E, ROWS>(c);                                                     \
    }
#define WIDTH(NAME, T, D, E)  \
    KERNEL(NAME, T, D, E, 64) \
    KERNEL(NAME##_128_rows, T, D, E, 128)
#define WIDTHS(NAME, T)               \
    WIDTH(NAME##_64, T, 64, 64)       \
    WIDTH(NAME##_128, T, 128, 128)    \
    WIDTH(NAME##_192_128, T, 192, 128) \
    WIDTH(NAME##_192, T, 192, 192)    \
    WIDTH(NAME##_256, T, 256, 256)

#endif
