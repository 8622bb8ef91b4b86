/* Attention of few rows against many keys, for bfloat16 and float16: what generating a token needs.
 *
 * The query heads of a key head read its keys together: up to 16 rows, the rows of one matrix product. A block has 512 keys
 * of a key head; one warp copies them, four compute, with 16 keys of every tile each. A second kernel (decode_combine) adds
 * up the blocks of a row in their order. Memory is what limits it: every key and value is read once. */
#include "decode.h"
#include "general.cuh"
#include "hopper.cuh"

namespace
{

enum { WARPS = 4, KEYS = MHA_CUDA_DECODE_TILE, ROWS = MHA_CUDA_DECODE_ROWS };

template <typename T, int D> struct shared_memory {
    enum { STAGES = D == 128 ? 3 : 6, QUERY_PITCH = D + 8 };
    alignas(1024) T k[STAGES][KEYS * D];
    alignas(1024) T v[STAGES][KEYS * D];
    alignas(16) T q[ROWS * QUERY_PITCH];
    float reference[WARPS][ROWS], sum[WARPS][ROWS];
    alignas(8) uint64_t full[STAGES], empty[STAGES];
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

/* A block's part: keys [first, last) of a key head. */
struct part {
    sequence s;
    int g, split, first, last, rows;
};

/* Copies tiles n to n + count - 1, as many of them as there are. */
template <typename S, int D>
MHA_DEVICE void copy_tiles(S &s, const mha_cuda_decode &c, const part &p, int n, int count)
{
    for (int j = p.first + n * KEYS; count && j < p.last; n++, count--, j += KEYS) {
        int stage = n % S::STAGES;
        uint32_t full = shared_address(&s.full[stage]);
        barrier_wait(shared_address(&s.empty[stage]), n / S::STAGES % 2 ^ 1);
        barrier_expect(full, 2 * KEYS * D * 2);
        for (int panel = 0; panel < D / PANEL; panel++) {
            uint32_t at = panel * KEYS * ROW_BYTES;
            int row = (int)p.s.key_row + j;
            copy_in(shared_address(s.k[stage]) + at, &c.k, full, panel * PANEL, row, p.g, p.s.key_batch);
            copy_in(shared_address(s.v[stage]) + at, &c.v, full, panel * PANEL, row, p.g, p.s.key_batch);
        }
    }
}

/* The rows of a key head; zeros up to ROWS. A warp has a row at a time. */
template <typename T, int D> MHA_DEVICE void bring_rows(shared_memory<T, D> &s, const general &g, const part &p)
{
    for (int r = threadIdx.x / 32; r < ROWS; r += WARPS) {
        int i = r % g.Tq;
        bool there = r < p.rows && i < p.s.queries;
        int64_t from = there ? place(g.q, p.s.query_batch, p.g * g.share + r / g.Tq, p.s.query_row + i, 0) : 0;
#pragma unroll
        for (int d = threadIdx.x % 32; d < D; d += 32)
            s.q[r * shared_memory<T, D>::QUERY_PITCH + d] =
                there ? ((const T *)g.q.data)[from + d * g.q.stride[3]] : T(0.0f);
    }
}

/* A row of a key head: its query head, its place there, and the keys that it sees by position. */
struct row {
    int head, i;
    range visible;
};

MHA_DEVICE row row_of(const general &c, const part &p, int n)
{
    int i = n % c.Tq;
    return {p.g * c.share + n / c.Tq, i, n < p.rows ? visible_to_row(c, p.s, i) : range{0, 0}};
}

/* Whether scores are products times the scale, and visible by position alone. */
MHA_DEVICE bool is_plain(const general &c)
{
    return !c.mask.data && !c.bias.data && !c.slopes.data && c.softcap == 0;
}

/* A score with options: a function, so that the loop over tiles stays short. */
__device__ __noinline__ float score_with_options(const general &c, int b, int64_t offset, row r, int key, float dot)
{
    sequence s = {};
    s.b = b, s.offset = offset;
    score<float> x = score_of<float>(c, s, r.head, r.i, key, r.visible, dot);
    return x.visible ? x.masked : -INFINITY;
}

/* The score of a row and a key from their product: -infinity if it is not visible, NaN if float32 did not hold it. */
template <bool PLAIN> MHA_DEVICE float score_at(const general &c, const part &p, const row &r, int key, float dot)
{
    if (!PLAIN) return score_with_options(c, p.s.b, p.s.offset, r, key, dot);
    return key >= r.visible.low && key < r.visible.high ? fmaf(dot, 0.0f, dot * c.scale) : -INFINITY;
}

template <typename T, int D, bool PLAIN>
MHA_DEVICE void compute_tiles(shared_memory<T, D> &s, const mha_cuda_decode &c, const part &p)
{
    typedef shared_memory<T, D> S;
    const general &g = c.g;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const row rows[2] = {row_of(g, p, lane / 4), row_of(g, p, lane / 4 + 8)};
    float o[D / 8][4], reference[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
    uint32_t q[D / 16][4];
#pragma unroll
    for (int n = 0; n < D / 8; n++) o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0;
#pragma unroll
    for (int n = 0; n < D / 16; n++)
        load_matrices(q[n], shared_address(&s.q[lane % 16 * S::QUERY_PITCH + 16 * n + lane / 16 * 8]));

    for (int n = 0, j = p.first; j < p.last; n++, j += KEYS) {
        int stage = n % S::STAGES, own = warp * 16, key = j + own;
        uint32_t k = shared_address(s.k[stage]), v = shared_address(s.v[stage]), w[4];
        float x[2][4] = {}, odd[2][4] = {}, by[2] = {1, 1};
        barrier_wait(shared_address(&s.full[stage]), n / S::STAGES % 2);
#pragma unroll
        for (int i = 0; i < D / 16; i++) { /* matrices: keys 0-7 and columns 0-7, 8-15; keys 8-15, likewise */
            uint32_t b[4];
            load_matrices(b, piece_at(k, own + lane / 16 * 8 + lane % 8, 2 * i + lane / 8 % 2));
            multiply<T>(i % 2 ? odd[0] : x[0], q[i], b[0], b[1]); /* two short chains */
            multiply<T>(i % 2 ? odd[1] : x[1], q[i], b[2], b[3]);
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
            for (int i = 0; i < D / 8; i++)
                o[i][0] *= by[0], o[i][1] *= by[0], o[i][2] *= by[1], o[i][3] *= by[1];
        }
        w[0] = pack<T>(x[0][0], x[0][1]), w[1] = pack<T>(x[0][2], x[0][3]);
        w[2] = pack<T>(x[1][0], x[1][1]), w[3] = pack<T>(x[1][2], x[1][3]);
        if (key + 16 > p.s.length) { /* values behind the last key may be anything */
            for (int i = lane; i < 16 * D / 8; i += 32)
                if (key + i % 16 >= p.s.length)
                    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(piece_at(v, own + i % 16, i / 16)), "r"(0)
                                 : "memory");
            publish_shared();
            __syncwarp();
        }
#pragma unroll
        for (int i = 0; i < D / 16; i++) { /* matrices: keys 0-7 and 8-15 of columns 0-7; of columns 8-15 */
            uint32_t b[4];
            load_matrices_turned(b, piece_at(v, own + lane / 8 % 2 * 8 + lane % 8, 2 * i + lane / 16));
            multiply<T>(o[2 * i], w, b[0], b[1]);
            multiply<T>(o[2 * i + 1], w, b[2], b[3]);
        }
        __syncwarp();
        if (lane == 0) barrier_arrive(shared_address(&s.empty[stage]));
    }

    /* The warps' results, relative to the largest reference, go through memory that the tiles no longer need. */
    float *results = (float *)s.k;
    group_sync(1, WARPS * 32);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
        sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
        if (lane % 4 == 0) s.reference[warp][lane / 4 + 8 * h] = reference[h], s.sum[warp][lane / 4 + 8 * h] = sum[h];
#pragma unroll
        for (int i = 0; i < D / 8; i++)
            *(float2 *)(results + (warp * ROWS + lane / 4 + 8 * h) * D + 8 * i + lane % 4 * 2) =
                make_float2(o[i][2 * h], o[i][2 * h + 1]);
    }
    group_sync(1, WARPS * 32);
    int64_t first = (((int64_t)p.s.b * g.G + p.g) * c.splits + p.split) * p.rows;
    for (int n = threadIdx.x; n < p.rows * D; n += WARPS * 32) {
        int r = n / D;
        float top = -INFINITY, all = 0, x = 0;
        for (int i = 0; i < WARPS; i++) top = fmaxf(top, s.reference[i][r]);
        for (int i = 0; i < WARPS; i++) {
            float part = s.sum[i][r] == 0 ? 0 : weight_of(s.reference[i][r] - top);
            all += part * s.sum[i][r];
            if (part != 0) x += part * results[i * ROWS * D + n];
        }
        c.sums[first * D + n] = x;
        if (n % D == 0) c.softmax[2 * (first + r)] = top, c.softmax[2 * (first + r) + 1] = all;
    }
}

template <typename T, int D> MHA_DEVICE void decode(const mha_cuda_decode &c)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    typedef shared_memory<T, D> S;
    S &s = *(S *)memory;
    const general &g = c.g;
    int split = blockIdx.x % c.splits, b = blockIdx.x / c.splits / g.G;
    part p = {sequence_of(g, b), (int)(blockIdx.x / c.splits % g.G), split};
    p.rows = g.share * g.Tq;
    /* Of the block's keys those that a row sees by position. */
    int low = p.s.length, high = 0;
    for (int i = 0; i < p.s.queries; i++) {
        range r = visible_keys(g, p.s, i);
        if (r.low < r.high) low = min(low, r.low), high = max(high, r.high);
    }
    p.first = max(split * MHA_CUDA_DECODE_KEYS, low / KEYS * KEYS);
    p.last = min((split + 1) * MHA_CUDA_DECODE_KEYS, high);
    if (p.first >= p.last) {
        int64_t first = (((int64_t)b * g.G + p.g) * c.splits + split) * p.rows;
        for (int r = threadIdx.x; r < p.rows; r += blockDim.x)
            c.softmax[2 * (first + r)] = -INFINITY, c.softmax[2 * (first + r) + 1] = 0;
        return;
    }
    if (threadIdx.x == 32 * WARPS) { /* the first tiles are on their way before anything else is done */
        for (int i = 0; i < S::STAGES; i++) {
            barrier_make(shared_address(&s.full[i]), 1);
            barrier_make(shared_address(&s.empty[i]), WARPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        publish_shared();
        copy_tiles<S, D>(s, c, p, 0, S::STAGES);
    } else if (threadIdx.x < 32 * WARPS) bring_rows<T, D>(s, g, p);
    __syncthreads();
    if (threadIdx.x == 32 * WARPS) copy_tiles<S, D>(s, c, p, S::STAGES, MHA_CUDA_DECODE_KEYS / KEYS);
    else if (threadIdx.x > 32 * WARPS) return;
    else if (is_plain(g)) compute_tiles<T, D, true>(s, c, p);
    else compute_tiles<T, D, false>(s, c, p);
}

} // namespace

#define KERNEL(NAME, T, D)                                                                                          \
    extern "C" __global__ void __launch_bounds__(32 * (WARPS + 1), 2) NAME(const __grid_constant__ mha_cuda_decode c) \
    {                                                                                                               \
        decode<T, D>(c);                                                                                            \
    }

KERNEL(decode_bf16_64, __nv_bfloat16, 64)
KERNEL(decode_bf16_128, __nv_bfloat16, 128)
KERNEL(decode_f16_64, __half, 64)
KERNEL(decode_f16_128, __half, 128)
