/* Attention for every type, width, layout and option: tiles of 64 rows and 64 keys, products in float32 as chains of fused
 * multiply-adds, and a float64 path for single rows and keys whose results float32 cannot hold.
 *
 * A block has 256 threads in 16 lines of 16: thread (y,x) has rows 4y to 4y + 3 and keys 4x to 4x + 3 of a tile. The order
 * of every sum depends on the place in its sequence alone, so that bits do not depend on the batch. */
#ifndef MHA_CUDA_GENERAL_CUH
#define MHA_CUDA_GENERAL_CUH

#include "general.h"
#include "hopper.cuh"
#include "sequences.cuh"

typedef mha_cuda_general general;

enum { TILE = MHA_CUDA_GENERAL_TILE, THREADS = MHA_CUDA_GENERAL_THREADS, STEP = 32, PITCH = TILE + 4 };
enum { SCALED, CAPPED, MASKED, SOFTMAX, DROPPED }; /* mha_stage */

/* ---- Sequences -------------------------------------------------------------------------------------------------- */

MHA_DEVICE sequence sequence_of(const general &c, int b) { return find_sequence(c, c.q.size[2], c.k.size[2], b); }

/* Keys [low,high) that row i may see by position. */
typedef mha_cuda_keys range;

MHA_DEVICE range visible_keys(const general &c, const sequence &s, int i)
{
    return mha_cuda_visible_keys<0>(c, s, i);
}

/* The same for any i: rows of padding see none. */
MHA_DEVICE range visible_to_row(const general &c, const sequence &s, int i)
{
    return i < s.queries ? visible_keys(c, s, i) : range{0, 0};
}

/* The keys that one of the rows from i on, at most TILE of them, may see. */
MHA_DEVICE range visible_to_rows(const general &c, const sequence &s, int i)
{
    if (i >= s.queries) return {0, 0};
    range first = visible_keys(c, s, i), last = visible_keys(c, s, min(i + TILE, s.queries) - 1);
    return {first.low, last.high};
}

/* The number of a row in `rows`. */
MHA_DEVICE double *numbers_of_row(const general &c, const sequence &s, int h, int i)
{
    return c.rows + (((int64_t)s.query_batch * c.H + h) * c.rows_of_q + s.query_row + i) * MHA_CUDA_ROW_NUMBERS;
}

/* ---- Pieces of work --------------------------------------------------------------------------------------------- */

/* A tile of a head, and a slice of the columns of its results; and how many there are. */
struct piece {
    int tile, slice, head, b;
};

/* Whether a call computes it: one that repairs results leaves out what is not lost. */
MHA_DEVICE bool is_wanted(const general &c, const piece &all, const piece &p)
{
    return !c.only || c.only[((int64_t)p.b * all.head + p.head) * c.only_tiles + (p.tile >> c.only_shift)];
}

MHA_DEVICE piece piece_at(const piece &all, unsigned n)
{
    unsigned rest = n / all.tile, head = rest / all.slice;
    return {(int)(n % all.tile), (int)(rest % all.slice), (int)(head % all.head), (int)(head / all.head)};
}

/* Whether the block has anything to do: all of its threads look. */
MHA_DEVICE bool has_work(const general &c, const piece &all)
{
    if (c.any && !*c.any) return false;
    if (!c.only) return true;
    bool wanted = false;
    for (unsigned n = blockIdx.x + threadIdx.x * gridDim.x;; n += THREADS * gridDim.x) {
        piece p = piece_at(all, n);
        if (p.b >= all.b) break;
        wanted = wanted || is_wanted(c, all, p);
    }
    return __syncthreads_or(wanted);
}

/* Calls `compute` for the pieces of this block: one, or, if the call repairs results, every gridDim.x-th. Such a call mostly has
 * nothing to do, and its kernel may be started early: nothing is read before it waits. */
template <typename function> MHA_DEVICE void for_each_piece(const general &c, const piece &all, function compute)
{
    let_next_start();
    wait_for_last();
    if (!has_work(c, all)) return;
    for (unsigned n = blockIdx.x;; n += gridDim.x) {
        piece p = piece_at(all, n);
        if (p.b >= all.b) return;
        if (is_wanted(c, all, p)) compute(p);
        __syncthreads(); /* shared memory is used again */
    }
}

/* ---- Scores ----------------------------------------------------------------------------------------------------- */

/* A score on its way. */
template <typename number> struct score {
    bool visible;
    number scaled, capped, masked;
    number slope; /* of the cap */
};

MHA_DEVICE float rounded_product(float a, float b) { return __fmul_rn(a, b); }
MHA_DEVICE double rounded_product(double a, double b) { return __dmul_rn(a, b); }
MHA_DEVICE float rounded_sum(float a, float b) { return __fadd_rn(a, b); }
MHA_DEVICE double rounded_sum(double a, double b) { return __dadd_rn(a, b); }

/* NaN instead of what float32 does not hold, so that whoever uses it notices. */
MHA_DEVICE float held(float x) { return fmaf(x, 0.0f, x); }

/* From q . k, for a row that sees keys of the range. Rounded after every step, so that whoever computes a score again gets
 * the same bits. */
template <typename number>
MHA_DEVICE score<number> score_of(const general &c, const sequence &s, int h, int i, int j, range r, number dot)
{
    score<number> x = {j >= r.low && j < r.high, rounded_product((number)c.scale, dot)};
    x.capped = x.scaled, x.slope = 1;
    if (c.softcap > 0) {
        number t = tanh(x.scaled / (number)c.softcap);
        x.capped = rounded_product((number)c.softcap, t);
        x.slope = 1 - t * t;
    }
    x.masked = isfinite(x.scaled) ? x.capped : (number)NAN; /* what overflowed may be anything */
    if (!x.visible) return x;
    if (c.mask.data) x.visible = ((const uint8_t *)c.mask.data)[place(c.mask, s.b, h, i, j)] != 0;
    if (c.bias.data) {
        number bias = load(c.bias, place(c.bias, s.b, h, i, j));
        x.visible = x.visible && bias != (number)-INFINITY;
        x.masked = rounded_sum(x.masked, bias);
    }
    if (c.slopes.data) {
        number distance = (number)llabs(i + s.offset - j), slope = load(c.slopes, place(c.slopes, s.b, h, 0, 0));
        x.masked = rounded_sum(x.masked, -rounded_product(slope, distance));
    }
    return x;
}

/* Whether scores are products times the scale, and visible by position alone. */
MHA_DEVICE bool is_plain(const general &c) { return !c.mask.data && !c.bias.data && !c.slopes.data && c.softcap == 0; }

/* Which of the weights of four keys from j on, a multiple of four, dropout keeps: bit n for key j + n. */
MHA_DEVICE unsigned kept_of_four(const general &c, int b, int h, int i, int j)
{
    if (!c.dropped) return 15;
    uint64_t stream = c.stream + (uint64_t)b, key = c.seed + (stream >> 32) * 0x9E3779B97F4A7C15ull;
    uint32_t x0 = (uint32_t)j / 4, x1 = (uint32_t)i, x2 = (uint32_t)h, x3 = (uint32_t)stream;
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = 0xD2511F53ull * x0, p1 = 0xCD9E8D57ull * x2;
        x0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0, x1 = (uint32_t)p1;
        x2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1, x3 = (uint32_t)p0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return (x0 >= c.dropped) | (x1 >= c.dropped) << 1 | (x2 >= c.dropped) << 2 | (x3 >= c.dropped) << 3;
}

/* What multiplies the weight of key j: 0, or 1/(1 - dropout). */
MHA_DEVICE float kept_of(const general &c, int b, int h, int i, int j)
{
    return kept_of_four(c, b, h, i, j & ~3) >> (j & 3) & 1 ? c.kept : 0;
}

/* ---- Products of tiles ------------------------------------------------------------------------------------------ */

/* Rows of a tensor: `count` of them from element `at` on, the rest of a tile is zeros. */
struct lines {
    const view &t;
    int64_t at;
    int count;
};

MHA_DEVICE lines query_lines(const general &c, const view &t, const sequence &s, int h, int i)
{
    return {t, place(t, s.query_batch, h, s.query_row + i, 0), min(TILE, s.queries - i)};
}

MHA_DEVICE lines key_lines(const general &c, const view &t, const sequence &s, int g, int j)
{
    return {t, place(t, s.key_batch, g, s.key_row + j, 0), min(TILE, s.length - j)};
}

struct workspace {
    union {
        float pair[2][STEP][PITCH];                 /* columns of two tensors */
        float rows[STEP][MHA_CUDA_GENERAL_COLUMNS]; /* rows of one */
        double careful[THREADS + 1];
        double sums[TILE / 2][TILE];
    };
    float weights[TILE][PITCH];
    float reference[TILE], sum[TILE]; /* of rows */
    range keys[TILE];                 /* that rows may see */
    bool sees[TILE], lost[TILE];      /* rows that see a key; rows or keys that have to be computed in float64 */
};

/* COUNT numbers on their way from memory, as they lie there. Their type is asked once, not for each. */
template <int COUNT> struct on_their_way {
    uint32_t x[COUNT];

    /* `count` of them from element `at` on, each `step` elements behind the last; the others are zeros. */
    MHA_DEVICE void load(const view &t, int64_t at, int64_t step, int count)
    {
        if (t.type == FLOAT32) load((const uint32_t *)t.data + at, step, count);
        else load((const uint16_t *)t.data + at, step, count);
    }

    template <typename bits> MHA_DEVICE void load(const bits *from, int64_t step, int count)
    {
#pragma unroll
        for (int n = 0; n < COUNT; n++, from += step) x[n] = n < count ? *from : 0;
    }

    /* Calls `use(n, number)` for all of them. */
    template <typename function> MHA_DEVICE void arrive(int type, function use) const
    {
        if (type == FLOAT32)
#pragma unroll
            for (int n = 0; n < COUNT; n++) use(n, __uint_as_float(x[n]));
        else
#pragma unroll
            for (int n = 0; n < COUNT; n++)
                use(n, type == BFLOAT16 ? __uint_as_float(x[n] << 16)
                                        : __half2float(__ushort_as_half((unsigned short)x[n])));
    }
};

/* STEP columns of a tile of rows, from `first` on: on their way, and then in shared memory as [column][row]. A warp brings eight
 * columns of four rows at a time, which lie in different banks. */
struct columns_on_their_way {
    enum { LINES = 4, COUNT = TILE * STEP / THREADS };
    on_their_way<COUNT> x;

    static MHA_DEVICE int column(void) { return threadIdx.x / 32 % 4 * 8 + threadIdx.x % 8; }
    static MHA_DEVICE int row(void) { return threadIdx.x / 128 * (TILE / 2) + threadIdx.x / 8 % LINES; }

    MHA_DEVICE void load(const lines &A, int first, int width)
    {
        int d = first + column(), count = (A.count - row() + LINES - 1) / LINES;
        x.load(A.t, A.at + row() * A.t.stride[2] + d * A.t.stride[3], LINES * A.t.stride[2], d < width ? count : 0);
    }

    MHA_DEVICE void put(float (*to)[PITCH], int type) const
    {
        x.arrive(type, [&](int n, float y) { to[column()][row() + LINES * n] = y; });
    }
};

/* STEP rows of 64 N columns from `first` on, likewise, as [row][column]. */
template <int N> struct rows_on_their_way {
    enum { COLUMNS = TILE * N, LINES = THREADS / COLUMNS, COUNT = STEP / LINES };
    on_their_way<COUNT> x;

    MHA_DEVICE void load(const lines &B, int row, int first, int width)
    {
        int e = first + threadIdx.x % COLUMNS, r = row + threadIdx.x / COLUMNS,
            count = (B.count - r + LINES - 1) / LINES;
        x.load(B.t, B.at + r * B.t.stride[2] + e * B.t.stride[3], LINES * B.t.stride[2], e < width ? count : 0);
    }

    /* Returns whether one of the numbers is infinite or NaN. */
    MHA_DEVICE bool put(float (*to)[MHA_CUDA_GENERAL_COLUMNS], int type) const
    {
        float zero = 0;
        x.arrive(type, [&](int n, float y) {
            to[threadIdx.x / COLUMNS + n * LINES][threadIdx.x % COLUMNS] = y;
            zero = fmaf(y, 0.0f, zero);
        });
        return zero != 0;
    }
};

/* acc[a][b] += row 4y + a of A times row 4x + b of B, over `width` columns. The next columns come while these are multiplied. */
MHA_DEVICE void multiply_rows(workspace &w, float (&acc)[4][4], const lines &A, const lines &B, int width)
{
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    columns_on_their_way next_a, next_b;
    next_a.load(A, 0, width), next_b.load(B, 0, width);
#pragma unroll 1
    for (int column = 0; column < width; column += STEP) {
        __syncthreads();
        next_a.put(w.pair[0], A.t.type), next_b.put(w.pair[1], B.t.type);
        __syncthreads();
        if (column + STEP < width) next_a.load(A, column + STEP, width), next_b.load(B, column + STEP, width);
#pragma unroll 8
        for (int d = 0; d < STEP; d++) {
            float4 a = *(const float4 *)&w.pair[0][d][4 * y], b = *(const float4 *)&w.pair[1][d][4 * x];
            const float p[4] = {a.x, a.y, a.z, a.w}, q[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) acc[i][j] = fmaf(p[i], q[j], acc[i][j]);
        }
    }
}

/* The same for STEP rows in shared memory. If they hold infinity or NaN, rows whose weight is 0 are left out. */
template <int N, bool GUARDED> MHA_DEVICE void multiply_step(const workspace &w, float (&acc)[4][4 * N], int row)
{
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    float part[4][4 * N] = {};
#pragma unroll 8
    for (int r = 0; r < STEP; r++) {
        float4 a = *(const float4 *)&w.weights[row + r][4 * y];
        const float p[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
        for (int n = 0; n < N; n++) {
            float4 b = *(const float4 *)&w.rows[r][TILE * n + 4 * x];
            const float q[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (!GUARDED || p[i] != 0) part[i][4 * n + j] = fmaf(p[i], q[j], part[i][4 * n + j]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4 * N; j++) acc[i][j] += part[i][j];
}

/* acc[a][4n + b] += sum over r of weights[r][4y + a] * (row r of B)[first + 64n + 4x + b]. Sums of STEP rows are added up,
 * so that long rows lose little. */
template <int N>
MHA_DEVICE void multiply_weights(workspace &w, float (&acc)[4][4 * N], const lines &B, int first, int width)
{
    rows_on_their_way<N> next;
    next.load(B, 0, first, width);
#pragma unroll 1
    for (int row = 0; row < B.count; row += STEP) {
        __syncthreads();
        bool bad = __syncthreads_or(next.put(w.rows, B.t.type));
        next.load(B, row + STEP, first, width);
        if (bad) multiply_step<N, true>(w, acc, row);
        else multiply_step<N, false>(w, acc, row);
    }
}

/* Over the 16 threads of a line. */
MHA_DEVICE float line_sum(float x)
{
    for (int lane = 8; lane; lane /= 2) x += __shfl_xor_sync(~0u, x, lane);
    return x;
}

MHA_DEVICE float line_max(float x)
{
    for (int lane = 8; lane; lane /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, lane));
    return x;
}

MHA_DEVICE bool line_any(bool x) { return __ballot_sync(~0u, x) >> (threadIdx.x & 16) & 0xffff; }

#endif
