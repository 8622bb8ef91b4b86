/* Attention of few rows against many keys, for bfloat16 and float16: what generating a token needs.
 *
 * The query heads of a key head read its keys together: up to 8 rows, and at most the 16 of one matrix product. A block has 256 to 1024
 * keys of a key head (mha_cuda_decode_keys); one warp copies them, four compute, with 16 keys of every tile each. Blocks write their
 * sums to memory; the last block of a key head that is done adds them up in their order, so that bits depend on the number of keys
 * and the width alone. Memory is what limits it: every key and value is read once. Where sequences are not alike, those with more rows
 * are left to other kernels.
 *
 * Kernels have W = 64, 128 or 256 columns. Narrower rows are filled with zeros: those of keys and values by the copy engine, those of
 * q when they are brought. With 256 columns, tiles have 32 keys, so that two blocks fit into a multiprocessor, and two warps share 16
 * keys: both compute their scores, and each has half of the columns of values, because sums of all of them and the rest would need
 * more registers than two blocks leave. */
#include "decode.cuh"

namespace
{

enum { WARPS = 4, ROWS = MHA_CUDA_DECODE_ROWS, COMPUTE = 32 * WARPS };
enum { FETCHED = 2, FIRST_BLOCKS = 396 }; /* tiles, of blocks that the GPU may have at first */

/* How blocks share keys. */
template <int W> struct few_rows {
    enum { TILE = MHA_CUDA_DECODE_TILE(W), METHOD = MHA_CUDA_BY_DECODING };
    static MHA_DEVICE int keys(int length) { return mha_cuda_decode_keys(W, length); }
};

/* Tiles of KEYS keys; GROUPS of warps with 16 keys each, and in a group a warp for each of SIDES, COLUMNS of the values. */
template <typename T, int W> struct shared_memory {
    enum { KEYS = MHA_CUDA_DECODE_TILE(W), GROUPS = KEYS / 16, SIDES = WARPS / GROUPS, COLUMNS = W / SIDES };
    enum { STAGES = MHA_CUDA_DECODE_STAGES(W), QUERY_PITCH = W + 8 };
    alignas(1024) T k[STAGES][KEYS * W];
    alignas(1024) T v[STAGES][KEYS * W];
    alignas(16) T q[ROWS * QUERY_PITCH];
    float reference[GROUPS][ROWS], sum[GROUPS][ROWS];
    int is_last, found; /* found: the sequence of a slot */
    unsigned lost; /* rows that have to be computed in float64 */
    alignas(8) uint64_t full[STAGES], empty[STAGES];
};

/* Copies tiles n to n + count - 1, as many of them as there are. */
template <typename T, int W>
MHA_DEVICE void copy_tiles(shared_memory<T, W> &s, const mha_cuda_decode &c, const part &p, int n, int count)
{
    typedef shared_memory<T, W> S;
    enum { KEYS = S::KEYS };
    for (int j = p.first + n * KEYS; count && j < p.last; n++, count--, j += KEYS) {
        int stage = n % S::STAGES;
        uint32_t full = shared_address(&s.full[stage]);
        barrier_wait(shared_address(&s.empty[stage]), n / S::STAGES % 2 ^ 1);
        barrier_expect(full, 2 * KEYS * W * 2);
        for (int panel = 0; panel < W / PANEL; panel++) {
            uint32_t at = panel * KEYS * ROW_BYTES;
            int row = (int)p.s.key_row + j;
            copy_in_once(shared_address(s.k[stage]) + at, &c.k, full, panel * PANEL, row, p.g, p.s.key_batch);
            copy_in_once(shared_address(s.v[stage]) + at, &c.v, full, panel * PANEL, row, p.g, p.s.key_batch);
        }
    }
}

/* Brings the first tiles of a block into the second cache, which may be done while the kernel before this one is at work: what it writes
 * to them is seen there. */
template <int W> MHA_DEVICE void fetch_tiles(const mha_cuda_decode &c, const part &p)
{
    enum { KEYS = MHA_CUDA_DECODE_TILE(W) };
#pragma unroll 1
    for (int j = p.first; j < min(p.last, p.first + FETCHED * KEYS); j += KEYS)
        for (int panel = 0; panel < W / PANEL; panel++) {
            fetch_box(&c.k, panel * PANEL, j, p.g, p.s.key_batch);
            fetch_box(&c.v, panel * PANEL, j, p.g, p.s.key_batch);
        }
}

/* The rows of a key head; zeros up to ROWS, and up to W columns. A warp has a row at a time. */
template <typename T, int W> MHA_DEVICE void bring_rows(shared_memory<T, W> &s, const general &g, const part &p)
{
#pragma unroll
    for (int r = threadIdx.x / 32; r < ROWS; r += WARPS) {
        int head = p.queries == 1 ? r : r / p.queries, i = r - head * p.queries;
        bool there = r < p.rows && i < p.s.queries;
        int64_t from = there ? place(g.q, p.s.query_batch, p.g * g.share + head, p.s.query_row + i, 0) : 0;
#pragma unroll
        for (int d = threadIdx.x % 32; d < W; d += 32)
            s.q[r * shared_memory<T, W>::QUERY_PITCH + d] =
                there && d < g.D ? ((const T *)g.q.data)[from + d * g.q.stride[3]] : T(0.0f);
    }
}

template <typename T, int W, bool PLAIN>
MHA_DEVICE void compute_tiles(shared_memory<T, W> &s, const mha_cuda_decode &c, const part &p)
{
    typedef shared_memory<T, W> S;
    enum { KEYS = S::KEYS, GROUPS = S::GROUPS, COLUMNS = S::COLUMNS, KEEPS_ROWS = W <= 128 };
    const general &g = c.g;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = S::SIDES > 1 ? warp % GROUPS : warp;
    int side = S::SIDES > 1 ? warp / GROUPS : 0, pieces = side * COLUMNS / 8; /* the first piece of the side's columns */
    uint32_t query = shared_address(&s.q[lane % 16 * S::QUERY_PITCH + lane / 16 * 8]);
    const row rows[2] = {row_of(g, p, lane / 4), row_of(g, p, lane / 4 + 8)};
    float o[COLUMNS / 8][4], reference[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
    uint32_t q[KEEPS_ROWS ? W / 16 : 1][4];
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++) o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0;
#pragma unroll
    for (int n = 0; KEEPS_ROWS && n < W / 16; n++) load_matrices(q[n], query + 32 * n);

    for (int n = 0, j = p.first; j < p.last; n++, j += KEYS) {
        int stage = n % S::STAGES, own = group * 16, key = j + own;
        uint32_t k = shared_address(s.k[stage]), v = shared_address(s.v[stage]), w[4];
        float x[2][4] = {}, odd[2][4] = {}, by[2] = {1, 1};
        barrier_wait(shared_address(&s.full[stage]), n / S::STAGES % 2);
#pragma unroll
        for (int i = 0; i < W / 16; i++) { /* matrices: keys 0-7 and columns 0-7, 8-15; keys 8-15, likewise */
            uint32_t b[4], (&a)[4] = q[KEEPS_ROWS ? i : 0];
            if (!KEEPS_ROWS) load_matrices(a, query + 32 * i);
            load_matrices(b, piece_at<KEYS>(k, own + lane / 16 * 8 + lane % 8, 2 * i + lane / 8 % 2));
            multiply<T>(i % 2 ? odd[0] : x[0], a, b[0], b[1]); /* two short chains */
            multiply<T>(i % 2 ? odd[1] : x[1], a, b[2], b[3]);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) x[i / 4][i % 4] += odd[i / 4][i % 4];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float top = -INFINITY;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float &y = x[i / 2][2 * h + i % 2];
                y = score_at<PLAIN>(g, p, rows[h], key + i / 2 * 8 + lane % 4 * 2 + i % 2, y);
                top = fmaxf(top, y);
            }
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
            if (top > reference[h]) {
                by[h] = weight_of(reference[h] - top);
                reference[h] = top;
                sum[h] *= by[h];
            }
            float less = reference[h] == -INFINITY ? 0 : reference[h];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float &y = x[i / 2][2 * h + i % 2];
                y = weight_of(y - less);
                sum[h] += y;
            }
        }
        if (__any_sync(~0u, by[0] != 1 || by[1] != 1)) {
#pragma unroll
            for (int i = 0; i < COLUMNS / 8; i++)
                o[i][0] *= by[0], o[i][1] *= by[0], o[i][2] *= by[1], o[i][3] *= by[1];
        }
        w[0] = pack<T>(x[0][0], x[0][1]), w[1] = pack<T>(x[0][2], x[0][3]);
        w[2] = pack<T>(x[1][0], x[1][1]), w[3] = pack<T>(x[1][2], x[1][3]);
        if (key + 16 > p.s.length) { /* values behind the last key may be anything */
            for (int i = lane; i < 16 * COLUMNS / 8; i += 32)
                if (key + i % 16 >= p.s.length)
                    clear_piece(piece_at<KEYS>(v, own + i % 16, pieces + i / 16));
            publish_shared();
            __syncwarp();
        }
#pragma unroll
        for (int i = 0; i < COLUMNS / 16; i++) { /* matrices: keys 0-7 and 8-15 of columns 0-7; of columns 8-15 */
            uint32_t b[4];
            load_matrices_transposed(b, piece_at<KEYS>(v, own + lane / 8 % 2 * 8 + lane % 8, pieces + 2 * i + lane / 16));
            multiply<T>(o[2 * i], w, b[0], b[1]);
            multiply<T>(o[2 * i + 1], w, b[2], b[3]);
        }
        finish_loads();
        __syncwarp();
        if (lane == 0) barrier_arrive(shared_address(&s.empty[stage]));
    }

    /* The warps' results, relative to the largest reference, go through memory that the tiles no longer need; rows are 8 numbers
     * longer than they must be, so that those of a warp lie in different banks. */
    enum { PITCH = W + 8 };
    static_assert(GROUPS * ROWS * PITCH * sizeof(float) <= sizeof s.k, "results have more room than they need");
    float *results = (float *)s.k;
    group_sync(1, COMPUTE);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int r = lane / 4 + 8 * h;
        sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
        sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
        if (r >= p.rows) continue;
        if (lane % 4 == 0 && side == 0) s.reference[group][r] = reference[h], s.sum[group][r] = sum[h];
#pragma unroll
        for (int i = 0; i < COLUMNS / 8; i++)
            *(float2 *)(results + (group * ROWS + r) * PITCH + 8 * (pieces + i) + lane % 4 * 2) =
                make_float2(o[i][2 * h], o[i][2 * h + 1]);
    }
    group_sync(1, COMPUTE);
    int64_t first = (p.base + p.split) * c.room;
    for (int n = threadIdx.x; n < p.rows * W; n += COMPUTE) {
        int r = n / W;
        float top = -INFINITY, all = 0, x = 0;
        for (int i = 0; i < GROUPS; i++) top = fmaxf(top, s.reference[i][r]);
        for (int i = 0; i < GROUPS; i++) {
            float part = s.sum[i][r] == 0 ? 0 : weight_of(s.reference[i][r] - top);
            all += part * s.sum[i][r];
            if (part != 0) x += part * results[(i * ROWS + r) * PITCH + n % W];
        }
        c.sums[first * W + n] = x;
        if (n % W == 0) c.softmax[2 * (first + r)] = top, c.softmax[2 * (first + r) + 1] = all;
    }
}

/* ---- Results ---------------------------------------------------------------------------------------------------- */

MHA_DEVICE void add(float4 &to, float by, float4 x)
{
    to.x = fmaf(by, x.x, to.x), to.y = fmaf(by, x.y, to.y), to.z = fmaf(by, x.z, to.z), to.w = fmaf(by, x.w, to.w);
}

/* Adds up what the blocks of a key head have found, in their order, but for rows that are lost. LANES threads have a row together, FOURS
 * times four columns each, and bring the sums of AT_ONCE blocks before they need one. These may have been written by other
 * multiprocessors: they are read past the first cache. */
template <int W, int LANES> MHA_DEVICE unsigned merge(const mha_cuda_decode &c, const part &p)
{
    enum { FOURS = W / 4 / LANES, LINES = COMPUTE / LANES, AT_ONCE = 16 / FOURS };
    static_assert(LANES % AT_ONCE == 0, "a lane has the softmax of one block of those that are added up together");
    const general &g = c.g;
    int lane = threadIdx.x % LANES;
    unsigned members = ~0u >> (32 - LANES) << threadIdx.x % 32 / LANES * LANES, lost_rows = 0;
    for (int from = 0; from < p.rows; from += LINES) {
        int r = from + threadIdx.x / LANES, head = p.queries == 1 ? r : r / p.queries, i = r - head * p.queries;
        int h = p.g * g.share + head;
        bool there = r < p.rows && i < p.s.padded, sees = false;
        int64_t first = (p.base + p.lowest) * c.room + min(r, p.rows - 1);
        const float2 *parts = (const float2 *)c.softmax + first;
        const float4 *sums = (const float4 *)c.sums + first * (W / 4) + lane;
        float top = -INFINITY, sum = 0, sink = -INFINITY;
        float4 o[FOURS] = {}, x[AT_ONCE][FOURS];
        auto bring = [&](int k) {
#pragma unroll
            for (int n = 0; n < AT_ONCE; n++)
#pragma unroll
                for (int f = 0; f < FOURS; f++)
                    if (k + n < p.parts) x[n][f] = __ldcg(sums + (k + n) * c.room * (W / 4) + LANES * f);
        };
        auto part_at = [&](int k) { return k < p.parts ? __ldcg(parts + k * c.room) : make_float2(0, 0); };
        bring(0);
        float2 own = part_at(lane);
        for (int k = lane; k < p.parts; k += LANES) {
            float2 part = k == lane ? own : part_at(k);
            if (part.y != 0) top = fmaxf(top, part.x), sees = true;
        }
        for (int k = LANES / 2; k; k /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, k));
        sees = __ballot_sync(~0u, sees) & members;
        if (g.sinks.data && there) sink = load(g.sinks, place(g.sinks, 0, h, 0, 0));
        top = fmaxf(top, sink);
        float by = 0;
#pragma unroll 1
        for (int k = 0; k < p.parts; k += AT_ONCE) {
            if (k) bring(k);
            if (k && k % LANES == 0) own = part_at(k + lane);
            if (k % LANES == 0) by = own.y == 0 ? 0 : weight_of(own.x - top);
#pragma unroll
            for (int n = 0; n < AT_ONCE; n++) {
                float its = __shfl_sync(~0u, by, k % LANES + n, LANES);
                sum = fmaf(its, __shfl_sync(~0u, own.y, k % LANES + n, LANES), sum); /* NaN stays, whatever it is multiplied by */
                if (k + n >= p.parts || its == 0) continue;
#pragma unroll
                for (int f = 0; f < FOURS; f++) add(o[f], its, x[n][f]);
            }
        }
        if (sink > -INFINITY) sum += weight_of(sink - top);
        bool lost = !(sum > 0 && sum < INFINITY);
#pragma unroll
        for (int f = 0; f < FOURS; f++) lost = lost || !isfinite(o[f].x + o[f].y + o[f].z + o[f].w);
        if (__ballot_sync(~0u, there && sees && lost) & members) {
            lost_rows |= 1u << r;
            continue;
        }
        if (!there) continue;
        by = sees ? 1 / sum : 0;
#pragma unroll
        for (int f = 0; f < FOURS; f++)
            put(g, p, h, i, 4 * (lane + LANES * f), {o[f].x * by, o[f].y * by, o[f].z * by, o[f].w * by});
        if (lane == 0) store_softmax(g, p.s, h, i, sees ? softmax{top, sum} : softmax{-INFINITY, 0});
    }
    return lost_rows;
}

/* So many threads have a row that all rows are added up together, if they can be: each waits for memory. */
template <int W> MHA_DEVICE unsigned merge(const mha_cuda_decode &c, const part &p)
{
    enum { LANES = W < 128 ? 16 : 32, LINES = COMPUTE / LANES };
    if (p.rows <= LINES) return merge<W, LANES>(c, p);
    return 2 * LINES >= ROWS || p.rows <= 2 * LINES ? merge<W, LANES / 2>(c, p) : merge<W, LANES / 4>(c, p);
}

/* Whether this block is the last one of its head to come here, with its sums in memory. */
template <typename S> MHA_DEVICE bool is_last(S &s, const mha_cuda_decode &c, const part &p)
{
    group_sync(1, COMPUTE);
    if (threadIdx.x == 0) {
        int *counter = c.counters + (p.head - c.first_head);
        s.is_last = count_one(counter) == p.parts - 1;
        if (s.is_last) *counter = 0; /* ready for the next call */
    }
    group_sync(1, COMPUTE);
    return s.is_last;
}

/* Sums that have been added up need not go from the cache to memory, where these short writes, amid a stream of reads, would take five
 * times as long as their bytes. A line that other key heads share stays. */
template <int W> MHA_DEVICE void forget_sums(const mha_cuda_decode &c, const part &p)
{
    enum { LINE = 128 };
    const float *sums = c.sums + (p.base + p.lowest) * c.room * W;
    uintptr_t at = ((uintptr_t)sums + LINE - 1) / LINE * LINE, end = (uintptr_t)(sums + (int64_t)p.parts * c.room * W) / LINE * LINE;
    for (at += threadIdx.x * LINE; at < end; at += COMPUTE * LINE) forget_line(at);
}

template <typename T, int W> MHA_DEVICE void decode(const mha_cuda_decode &c)
{
    unsigned char *memory = dynamic_memory<1024>();
    typedef shared_memory<T, W> S;
    S &s = *(S *)memory;
    const general &g = c.g;
    part p = {};
    let_next_start();
    /* What can be known before the last kernel has ended: a small call waits for what comes behind that. */
    if (c.alike) p = part_of_alike<few_rows<W>>(c, blockIdx.x);
    if (threadIdx.x == COMPUTE) {
        for (int i = 0; i < S::STAGES; i++) {
            barrier_make(shared_address(&s.full[i]), 1);
            barrier_make(shared_address(&s.empty[i]), WARPS);
        }
        barriers_made();
        publish_shared();
        fetch_map(&c.k), fetch_map(&c.v);
        if (c.alike && blockIdx.x < FIRST_BLOCKS) fetch_tiles<W>(c, p);
    }
    wait_for_last();
    if (!c.alike) {
        if (c.count && *c.count == 0) return;
        p = find_part<few_rows<W>>(c, s.found);
        if (!is_here<few_rows<W>>(c, p)) return;
    }
    if (threadIdx.x == 0) s.lost = 0;
    if (p.first < p.last) {
        if (threadIdx.x == COMPUTE) copy_tiles<T, W>(s, c, p, 0, S::STAGES); /* before anything else is done */
        else if (threadIdx.x < COMPUTE) bring_rows<T, W>(s, g, p);
        __syncthreads();
        if (threadIdx.x == COMPUTE) copy_tiles<T, W>(s, c, p, S::STAGES, INT_MAX);
        if (threadIdx.x >= COMPUTE) return;
        if (is_plain(g)) compute_tiles<T, W, true>(s, c, p);
        else compute_tiles<T, W, false>(s, c, p);
        if (!is_last(s, c, p)) return;
    } else if (p.parts || p.split > 0 || threadIdx.x >= COMPUTE) return; /* where no row sees a key, the first block says so */
    unsigned lost = merge<W>(c, p);
    clear_padding<COMPUTE>(c, p);
    bool any_lost = group_any(1, COMPUTE, lost);
    forget_sums<W>(c, p);
    if (!any_lost) return;
    if (lost) atomicOr(&s.lost, lost);
    group_sync(1, COMPUTE);
    for (int r = threadIdx.x / 32; r < p.rows; r += WARPS)
        if (s.lost >> r & 1) finish_exactly<W>(g, p.s.b, p.g * g.share + r / p.queries, r % p.queries);
}

} // namespace

#define KERNEL(NAME, T, W)                                                \
    extern "C" __global__ void                                            \
        __launch_bounds__(COMPUTE + 32, MHA_CUDA_DECODE_BLOCKS(W))        \
            NAME(const __grid_constant__ mha_cuda_decode c)               \
    {                                                                     \
        decode<T, W>(c);                                                  \
    }

KERNEL(decode_bf16_64, __nv_bfloat16, 64)
KERNEL(decode_bf16_128, __nv_bfloat16, 128)
KERNEL(decode_bf16_256, __nv_bfloat16, 256)
KERNEL(decode_f16_64, __half, 64)
KERNEL(decode_f16_128, __half, 128)
KERNEL(decode_f16_256, __half, 256)
