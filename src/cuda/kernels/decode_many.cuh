/* Attention of up to 128 rows of a key head against its keys, for bfloat16 and float16: generating tokens where many query heads share a
 * key head, and checking drafted ones.
 *
 * Blocks share the keys of a head: each has 256 of them, or more of a long sequence (mha_cuda_many_keys), and all rows, so that every key is
 * read once. One warp copies tiles of 64 keys; one or two warpgroups compute 64 rows each, a product of tensor cores having no fewer.
 * Blocks write their sums to memory, and a second kernel adds up those of each row in their order, a warp for a row: the sums of 128 rows
 * are too many for the block that is done last. So bits depend on the number of keys and the widths alone.
 *
 * Kernels have D columns of keys and E of values; narrower rows are filled with zeros. */
#ifndef MHA_CUDA_DECODE_MANY_CUH
#define MHA_CUDA_DECODE_MANY_CUH

#include "decode.cuh"

namespace
{

enum { KEYS = MHA_CUDA_MANY_TILE, GROUP = 128, MERGE_WARPS = MHA_CUDA_MERGE_ROWS };
enum { FETCHED = 2, FIRST_BLOCKS = 264 }; /* tiles, of blocks that the GPU may have at first */

/* How blocks share keys. */
struct many_rows {
    enum { TILE = KEYS, WAY = MHA_CUDA_BY_DECODING_MANY };
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
template <int D, int E> MHA_DEVICE void fetch_tiles(const mha_cuda_decode &c)
{
    const part p = part_of<many_rows>(c, blockIdx.x);
#pragma unroll 1
    for (int j = p.first; j < min(p.last, p.first + FETCHED * KEYS); j += KEYS) {
        for (int panel = 0; panel < D / PANEL; panel++) fetch_box(&c.k, panel * PANEL, j, p.g, p.s.key_batch);
        for (int panel = 0; panel < E / PANEL; panel++) fetch_box(&c.v, panel * PANEL, j, p.g, p.s.key_batch);
    }
}

/* Eight numbers of a row of q from a column on. */
template <typename T> MHA_DEVICE uint4 load_piece(const general &g, int64_t at)
{
    const T *from = (const T *)g.q.data + at;
    if (g.q.stride[3] == 1 && (uintptr_t)from % 16 == 0) return *(const uint4 *)from;
    alignas(16) T x[8];
#pragma unroll
    for (int n = 0; n < 8; n++) x[n] = from[n * g.q.stride[3]];
    return *(const uint4 *)x;
}

/* The rows of a key head; zeros up to ROWS, and up to D columns. */
template <typename T, int D, int ROWS> MHA_DEVICE void bring_rows(uint32_t to, const general &g, const part &p)
{
    enum { PIECES = D / 8, THREADS_OF_ROWS = ROWS / 64 * GROUP };
#pragma unroll 4
    for (int n = threadIdx.x; n < ROWS * PIECES; n += THREADS_OF_ROWS) {
        int r = n / PIECES, piece = n % PIECES, i = r % p.queries;
        bool there = r < p.rows && i < p.s.queries && 8 * piece < g.D;
        uint4 x = make_uint4(0, 0, 0, 0);
        if (there) x = load_piece<T>(g, place(g.q, p.s.query_batch, p.g * g.share + r / p.queries, p.s.query_row + i, 8 * piece));
        put_piece(piece_at<ROWS>(to, r, piece), x);
    }
    publish_shared();
}

/* ---- Sums of a block -------------------------------------------------------------------------------------------- */

/* The products of a thread's two rows and 64 keys from `key` on become scores, and then weights relative to the largest score so far;
 * `by` is what sums so far are to be multiplied by. */
template <bool PLAIN>
MHA_DEVICE void weigh(float (&x)[KEYS / 2], const general &g, const part &p, const row (&rows)[2], int key, float (&reference)[2],
                      float (&sum)[2], float (&by)[2])
{
    const int first = key + threadIdx.x % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const bool inside = PLAIN && key >= rows[h].visible.low && key + KEYS <= rows[h].visible.high;
        float top = -INFINITY, less;
        by[h] = 1;
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            float &y = x[i / 2 * 4 + 2 * h + i % 2];
            if (inside) y = held(y * g.scale);
            else y = score_at<PLAIN>(g, p, rows[h], first + i / 2 * 8 + i % 2, y);
            top = fmaxf(top, y);
        }
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        if (top > reference[h]) {
            by[h] = weight_of(reference[h] - top);
            reference[h] = top;
            sum[h] *= by[h];
        }
        less = reference[h] == -INFINITY ? 0 : reference[h];
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            float &y = x[i / 2 * 4 + 2 * h + i % 2];
            y = weight_of(y - less);
            sum[h] += y;
        }
    }
}

template <typename T, int D, int E, int ROWS, bool PLAIN>
MHA_DEVICE void compute_tiles(shared_memory<T, D, E, ROWS> &s, const mha_cuda_decode &c, const part &p)
{
    typedef shared_memory<T, D, E, ROWS> S;
    const general &g = c.g;
    const int thread = threadIdx.x % GROUP, who = (int)uniform(threadIdx.x / GROUP), lane = thread % 32;
    const int first_row = who * 64 + (int)uniform(thread / 32) * 16, own_row = first_row + lane / 4;
    const row rows[2] = {row_of(g, p, own_row), row_of(g, p, own_row + 8)};
    const uint64_t q = factor(shared_address(s.q) + who * 64 * ROW_BYTES, 0);
    float o[E / 2], x[KEYS / 2], reference[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, by[2] = {1, 1};
    uint32_t w[KEYS / 4];
#pragma unroll
    for (int n = 0; n < E / 2; n++) o[n] = 0;
#pragma unroll
    for (int n = 0; n < KEYS / 4; n++) w[n] = 0;

    for (int n = 0, j = p.first; j < p.last; n++, j += KEYS) {
        const int stage = n % S::STAGES, before = (n + S::STAGES - 1) % S::STAGES;
        const uint64_t k = factor(shared_address(s.k[stage]), 0), v = factor(shared_address(s.v[stage]), KEYS * ROW_BYTES);
        barrier_wait(shared_address(&s.k_full[stage]), n / S::STAGES % 2);
        products_begin();
#pragma unroll
        for (int i = 0; i < D / 16; i++)
            product_shared<T>(x, q + i / 4 * (ROWS * ROW_BYTES >> 4) + i % 4 * 2, k + i / 4 * (KEYS * ROW_BYTES >> 4) + i % 4 * 2, i > 0);
        products_commit();
        products_wait<0>(); /* and for the results of the tile before, which are free */
        touch(x);
        touch(o);
        if (n && thread == 0) barrier_arrive(shared_address(&s.empty[before]));
        if (first_row < p.rows) { /* others have weights of 0 */
            weigh<PLAIN>(x, g, p, rows, j, reference, sum, by);
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

    int64_t first = (p.base + p.split) * c.room;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = own_row + 8 * h;
        sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
        sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
        if (r >= p.rows) continue;
        if (lane % 4 == 0) *(float2 *)(c.softmax + 2 * (first + r)) = make_float2(reference[h], sum[h]);
#pragma unroll
        for (int i = 0; i < E / 8; i++)
            *(float2 *)(c.sums + (first + r) * E + 8 * i + lane % 4 * 2) = make_float2(o[4 * i + 2 * h], o[4 * i + 2 * h + 1]);
    }
}

template <typename T, int D, int E, int ROWS> MHA_DEVICE void decode(const mha_cuda_decode &c)
{
    typedef shared_memory<T, D, E, ROWS> S;
    S &s = *(S *)dynamic_memory<1024>();
    let_next_start();
    if (threadIdx.x == S::COMPUTE) {
        fetch_map(&c.k), fetch_map(&c.v);
        if (c.alike && blockIdx.x < FIRST_BLOCKS) fetch_tiles<D, E>(c);
    }
    wait_for_last();
    if (c.count && *c.count == 0) return;
    const part p = c.slots ? part_of_slot<many_rows>(c, blockIdx.x, s.found) : part_of<many_rows>(c, blockIdx.x);
    if (!is_here<many_rows>(c, p) || p.first >= p.last) return;
    if (threadIdx.x == S::COMPUTE) { /* the first tiles are on their way before anything else is done */
        for (int i = 0; i < S::STAGES; i++) {
            barrier_make(shared_address(&s.k_full[i]), 1);
            barrier_make(shared_address(&s.v_full[i]), 1);
            barrier_make(shared_address(&s.empty[i]), ROWS / 64);
        }
        barriers_made();
        publish_shared();
        copy_tiles(s, c, p, 0, S::STAGES);
    } else if (threadIdx.x < S::COMPUTE) bring_rows<T, D, ROWS>(shared_address(s.q), c.g, p);
    __syncthreads();
    if (threadIdx.x >= S::COMPUTE) {
        if (ROWS > 64) registers_give<24>();
        if (threadIdx.x == S::COMPUTE) copy_tiles(s, c, p, S::STAGES, INT_MAX);
    } else {
        if (ROWS > 64) registers_take<240>();
        if (is_plain(c.g)) compute_tiles<T, D, E, ROWS, true>(s, c, p);
        else compute_tiles<T, D, E, ROWS, false>(s, c, p);
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

/* Adds up what blocks have found for row r of a key head, in their order. A lane has pairs of columns, 64 apart, and brings those of
 * AT_ONCE blocks before it needs one. */
template <int E> MHA_DEVICE void merge_row(const mha_cuda_decode &c, const part &p, int r)
{
    enum { PAIRS = E / 64, AT_ONCE = E > 128 ? 8 : 16, LINE = 128 };
    const general &g = c.g;
    const int lane = threadIdx.x % 32, i = r % p.queries, h = p.g * g.share + r / p.queries;
    const int64_t first = (p.base + p.lowest) * c.room + r;
    const float2 *parts = (const float2 *)c.softmax + first, *sums = (const float2 *)c.sums + first * (E / 2) + lane;
    float top = -INFINITY, sum = 0, sink = -INFINITY;
    float2 o[PAIRS] = {}, x[AT_ONCE][PAIRS];
    bool sees = false;
    if (i >= p.s.padded) return;
    auto bring = [&](int k) {
#pragma unroll
        for (int n = 0; n < AT_ONCE; n++)
#pragma unroll
            for (int f = 0; f < PAIRS; f++)
                if (k + n < p.parts) x[n][f] = __ldcg(sums + (k + n) * c.room * (E / 2) + 32 * f);
    };
    bring(0);
    for (int k = lane; k < p.parts; k += 32) {
        float2 part = __ldcg(parts + k * c.room);
        if (part.y != 0) top = fmaxf(top, part.x), sees = true;
    }
    for (int k = 16; k; k /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, k));
    sees = __any_sync(~0u, sees);
    if (g.sinks.data) sink = load(g.sinks, place(g.sinks, 0, h, 0, 0));
    top = fmaxf(top, sink);
#pragma unroll 1
    for (int k = 0; k < p.parts; k += AT_ONCE) {
        if (k) bring(k);
        float2 part = make_float2(0, 0); /* of one of these blocks */
        if (lane < AT_ONCE && k + lane < p.parts) part = __ldcg(parts + (k + lane) * c.room);
        float by = part.y == 0 ? 0 : weight_of(part.x - top);
#pragma unroll
        for (int n = 0; n < AT_ONCE; n++) {
            float its = __shfl_sync(~0u, by, n);
            sum = fmaf(its, __shfl_sync(~0u, part.y, n), sum); /* NaN stays, whatever it is multiplied by */
            if (k + n >= p.parts || its == 0) continue;
#pragma unroll
            for (int f = 0; f < PAIRS; f++) o[f].x = fmaf(its, x[n][f].x, o[f].x), o[f].y = fmaf(its, x[n][f].y, o[f].y);
        }
    }
    if (sink > -INFINITY) sum += weight_of(sink - top);
    bool lost = !(sum > 0 && sum < INFINITY);
#pragma unroll
    for (int f = 0; f < PAIRS; f++) lost = lost || !isfinite(o[f].x + o[f].y);
    lost = __any_sync(~0u, sees && lost);
    /* These sums need not go from the cache to memory. */
    for (int k = lane; k < p.parts * (4 * E / LINE); k += 32)
        forget_line((uintptr_t)c.sums + ((first + k / (4 * E / LINE) * (int64_t)c.room) * E * 4 + k % (4 * E / LINE) * LINE));
    if (lost) {
        finish_exactly<E>(g, p.s.b, h, i);
        return;
    }
    const float by = sees ? 1 / sum : 0;
#pragma unroll
    for (int f = 0; f < PAIRS; f++) put(g, p, h, i, 2 * lane + 64 * f, {o[f].x * by, o[f].y * by});
    if (lane == 0) store_softmax(g, p.s, h, i, sees ? softmax{top, sum} : softmax{-INFINITY, 0});
}

template <int E> MHA_DEVICE void merge(const mha_cuda_decode &c)
{
    let_next_start();
    wait_for_last();
    if (c.count && *c.count == 0) return;
    const int chunks = (c.room + MERGE_WARPS - 1) / MERGE_WARPS, chunk = blockIdx.x % chunks;
    const part p = part_of_head(c, blockIdx.x / chunks);
    const int r = chunk * MERGE_WARPS + threadIdx.x / 32;
    if (!is_here<many_rows>(c, p)) return;
    if (chunk == 0) clear_padding<MERGE_WARPS * 32>(c, p);
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
