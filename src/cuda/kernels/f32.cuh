/* Products of float32 tiles as multiply-adds, since tensor cores round float32 to 11 bits.
 *
 * A warp has 16 lines (rows of Q, or keys) and needs nothing of the others. Its thread (y,x), 2 by 16, has lines y + 2a. It multiplies
 * them with lines x + 16b of a tile of 64 others, and the numbers that come of that, weights of 32 others at a time, with
 * columns 4x to 4x + 3 of each 64 columns of a tile. So 8 by 4 sums, or 8 by 8 of 128 columns, take numbers from shared memory in pieces of 16
 * bytes: neighbours in a warp read the same one of the other tile, so that 16 lanes read 128 bytes. */
#ifndef MHA_CUDA_F32_CUH
#define MHA_CUDA_F32_CUH

#include "careful.cuh"
#include "general.cuh"

enum {
    OTHERS = MHA_CUDA_F32_TILE,
    OWN_LINES = 8,
    OWN_OTHERS = 4,
    CHUNK = 32, /* others whose weights are in shared memory */
    WEIGHTS = CHUNK + 16
};

MHA_DEVICE int first_line(void) { return threadIdx.x / 32 * 16 + threadIdx.x % 2; }
MHA_DEVICE int own_lane(void) { return threadIdx.x % 32 / 2; }

/* Over the 16 threads that have the same lines. */
MHA_DEVICE float sum_of_line(float x)
{
    for (int lanes = 16; lanes > 1; lanes /= 2) x += __shfl_xor_sync(~0u, x, lanes);
    return x;
}

MHA_DEVICE float max_of_line(float x)
{
    for (int lanes = 16; lanes > 1; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, lanes));
    return x;
}

MHA_DEVICE bool any_of_line(bool x) { return __ballot_sync(~0u, x) & 0x55555555u << threadIdx.x % 2; }

/* Rows of a tensor from element `at` on, `there` of them, and zeros behind them, on their way: each of the BLOCK threads brings pieces
 * of 16 bytes of one column. */
template <int BLOCK, int COUNT, int PITCH>
MHA_DEVICE void bring(float (&to)[COUNT][PITCH], const view &t, int64_t at, int there, int width)
{
    enum { PIECES = PITCH / 16 * 4, LINES = BLOCK / PIECES };
    int column = threadIdx.x % PIECES * 4, row = threadIdx.x / PIECES, count = column < width ? there : 0;
    const float *from = (const float *)t.data + at + row * t.stride[2] + column;
    const int64_t step = LINES * t.stride[2];
    uint32_t address = shared_address(&to[row][column]);
#pragma unroll
    for (int n = 0; n < COUNT; n += LINES, from += step) copy_piece(address + n * PITCH * 4, from, row + n < count);
}

/* The same of rows of a head from row i on, and of keys of a key head from key j on. */
template <int BLOCK, int COUNT, int PITCH>
MHA_DEVICE void bring_queries(float (&to)[COUNT][PITCH], const view &t, const sequence &s, int h, int i, int width)
{
    bring<BLOCK>(to, t, place(t, s.query_batch, h, s.query_row + i, 0), s.queries - i, width);
}

template <int BLOCK, int COUNT, int PITCH>
MHA_DEVICE void bring_keys(float (&to)[COUNT][PITCH], const view &t, const sequence &s, int g, int j, int width)
{
    bring<BLOCK>(to, t, place(t, s.key_batch, g, s.key_row + j, 0), s.length - j, width);
}

template <int COLUMNS> MHA_DEVICE void clear(float (&x)[OWN_LINES][COLUMNS])
{
#pragma unroll
    for (int a = 0; a < OWN_LINES; a++)
#pragma unroll
        for (int e = 0; e < COLUMNS; e++) x[a][e] = 0;
}

/* x[a][b] = own line a . other line b, over `width` columns and zeros behind them. */
template <int COUNT, int PITCH>
MHA_DEVICE void multiply_lines(const float (&own)[COUNT][PITCH], const float (&others)[OTHERS][PITCH],
                               float (&x)[OWN_LINES][OWN_OTHERS], int width)
{
    enum { STEP = 16 };
    const float *p = own[first_line()], *q = others[own_lane()];
    clear(x);
#pragma unroll 1
    for (int first = 0; first < width; first += STEP, p += STEP, q += STEP)
#pragma unroll
        for (int d = 0; d < STEP; d += 4) {
            float4 right[OWN_OTHERS];
#pragma unroll
            for (int b = 0; b < OWN_OTHERS; b++) right[b] = *(const float4 *)(q + 16 * b * PITCH + d);
#pragma unroll
            for (int a = 0; a < OWN_LINES; a++) {
                float4 left = *(const float4 *)(p + 2 * a * PITCH + d);
#pragma unroll
                for (int b = 0; b < OWN_OTHERS; b++) x[a][b] = fmaf(left.x, right[b].x, x[a][b]);
#pragma unroll
                for (int b = 0; b < OWN_OTHERS; b++) x[a][b] = fmaf(left.y, right[b].y, x[a][b]);
#pragma unroll
                for (int b = 0; b < OWN_OTHERS; b++) x[a][b] = fmaf(left.z, right[b].z, x[a][b]);
#pragma unroll
                for (int b = 0; b < OWN_OTHERS; b++) x[a][b] = fmaf(left.w, right[b].w, x[a][b]);
            }
        }
}

/* part[a] += weights of line a times CHUNK lines of a tile, from column `column` on. */
template <int UNROLLED = 2, int COUNT, int PITCH, int COLUMNS>
MHA_DEVICE void multiply_chunk(const float (&weights)[COUNT][WEIGHTS], const float (*others)[PITCH],
                               float (&part)[OWN_LINES][COLUMNS], int column = 0)
{
    const float *p = weights[first_line()], *q = &others[0][column + 4 * own_lane()];
#pragma unroll(UNROLLED)
    for (int k = 0; k < CHUNK; k += 4) {
        float4 right[4][COLUMNS / 4];
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int e = 0; e < COLUMNS / 4; e++) right[n][e] = *(const float4 *)(q + (k + n) * PITCH + 64 * e);
#pragma unroll
        for (int a = 0; a < OWN_LINES; a++) {
            float4 four = *(const float4 *)(p + 2 * a * WEIGHTS + k);
            const float left[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int e = 0; e < COLUMNS / 4; e++) {
                    part[a][4 * e] = fmaf(left[n], right[n][e].x, part[a][4 * e]);
                    part[a][4 * e + 1] = fmaf(left[n], right[n][e].y, part[a][4 * e + 1]);
                    part[a][4 * e + 2] = fmaf(left[n], right[n][e].z, part[a][4 * e + 2]);
                    part[a][4 * e + 3] = fmaf(left[n], right[n][e].w, part[a][4 * e + 3]);
                }
        }
    }
}

/* Weights of a warp's lines, of chunk `half` of a tile, from registers to shared memory. */
template <int COUNT>
MHA_DEVICE void put_weights(float (&weights)[COUNT][WEIGHTS], const float (&x)[OWN_LINES][OWN_OTHERS], int half)
{
    __syncwarp();
#pragma unroll
    for (int a = 0; a < OWN_LINES; a++)
#pragma unroll
        for (int b = 0; b < 2; b++) weights[first_line() + 2 * a][own_lane() + 16 * b] = x[a][2 * half + b];
    __syncwarp();
}

/* part[a] = weights of line a times a tile. */
template <int COUNT, int PITCH, int COLUMNS>
MHA_DEVICE void multiply_tile(float (&weights)[COUNT][WEIGHTS], const float (&x)[OWN_LINES][OWN_OTHERS],
                              const float (&others)[OTHERS][PITCH], float (&part)[OWN_LINES][COLUMNS])
{
    clear(part);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        put_weights(weights, x, half);
        multiply_chunk(weights, others + half * CHUNK, part);
    }
}

/* e^x; 1 for 0. */
MHA_DEVICE float exp_fast(float x) { return exp2_fast(x * 1.44269504f); }

/* Whether own line a and other line b, of a tile whose keys begin at j, are a row and a key that it sees. */
template <bool ROWS> MHA_DEVICE bool is_seen(const range *keys, int j, int a, int b)
{
    int line = first_line() + 2 * a, other = own_lane() + 16 * b, key = j + (ROWS ? other : line);
    range r = keys[ROWS ? line : other];
    return key >= r.low && key < r.high;
}

/* A weight of 0 does not hide what is not finite. So where some rows of a tile do not see some of its keys, pieces of lines that are
 * not finite become zeros once they have come: every thread looks at those that it brought. `lost`: the lines that had some, or had
 * some `before`, when the same threads wrote this of a tile of the same shape. */
template <int BLOCK, int COUNT, int PITCH>
MHA_DEVICE void clear_lost(float (&tile)[COUNT][PITCH], bool (&lost)[COUNT], bool before = false)
{
    enum { PIECES = PITCH / 16 * 4, LINES = BLOCK / PIECES };
    const uint32_t lanes = PIECES == 32 ? ~0u : 0xffffu << (threadIdx.x & 16);
    int column = threadIdx.x % PIECES * 4;
#pragma unroll 1
    for (int n = threadIdx.x / PIECES; n < COUNT; n += LINES) {
        float4 *at = (float4 *)&tile[n][column], four = *at;
        const float piece[4] = {four.x, four.y, four.z, four.w};
        bool is = is_lost(piece);
        if (is) *at = make_float4(0, 0, 0, 0);
        is = __ballot_sync(~0u, is) & lanes;
        if (column == 0) lost[n] = is || (before && lost[n]);
    }
}

/* What sees a lost line is lost as well: its weights become NaN. */
template <bool ROWS>
MHA_DEVICE void lose_lines(const bool *lost, const range *keys, int j, float (&x)[OWN_LINES][OWN_OTHERS])
{
#pragma unroll
    for (int b = 0; b < OWN_OTHERS; b++) {
        if (!lost[own_lane() + 16 * b]) continue;
#pragma unroll
        for (int a = 0; a < OWN_LINES; a++)
            if (is_seen<ROWS>(keys, j, a, b)) x[a][b] = NAN;
    }
}

/* The keys that all rows of a tile see that are not padding. Padding is zeros that weigh nothing, or is not stored. */
MHA_DEVICE range seen_by_all(const general &c, const sequence &s, int i, int rows)
{
    if (i >= s.queries) return {0, 0};
    return {visible_keys(c, s, min(i + rows, s.queries) - 1).low, visible_keys(c, s, i).high};
}

#endif
