/* What the kernels for few rows and many keys have in common: which keys of which sequence a block has, scores, and rows in float64.
 *
 * A SHARE says how keys are shared by blocks: the keys of a tile, those of a block, and the method of its sequences (schedule.h). */
#ifndef MHA_CUDA_DECODE_CUH
#define MHA_CUDA_DECODE_CUH

#include "decode.h"
#include "exact.cuh"
#include "hopper.cuh"
#include "schedule.h"
#include <limits.h>

namespace
{

/* exp */
MHA_DEVICE float weight_of(float x) { return exp2_fast(x * 1.44269504f); }

/* Where piece `piece` (8 numbers) of a row lies in a tile of KEYS rows. */
template <int KEYS> MHA_DEVICE uint32_t piece_at(uint32_t tile, int row, int piece)
{
    return tile + piece / 8 * KEYS * ROW_BYTES + row * ROW_BYTES + ((piece % 8) ^ (row % 8)) * 16;
}

/* A block's part: keys [first, last) of a key head, from split `split` on, none if no row sees them; `parts` splits of the head have
 * keys, from split `lowest` on. */
struct part {
    sequence s;
    int g, head, split, first, last, lowest, parts; /* `head` of all sequences; -1: there is nothing for the block */
    int queries, rows;                              /* of a query head, and of the key head */
    int shift;                                      /* of the keys of a split, a power of two */
    int64_t base;                                   /* the number of the head's first split among all */
};

/* c.units splits of key head g of a sequence. */
template <typename SHARE> MHA_DEVICE part part_of(const mha_cuda_decode &c, const sequence &s, int g, int split, int64_t base)
{
    enum { KEYS = SHARE::TILE };
    /* Padding is written here, too. There is memory for it, or only for the rows that are no padding. */
    int queries = s.padded <= c.room / c.g.share ? s.padded : s.queries;
    part p = {s, g, s.b * c.g.G + g, split, 0, 0, 0, 0, queries, queries * c.g.share, 0, base};
    if (s.queries <= 0) return p;
    int low = visible_keys(c.g, s, 0).low, high = visible_keys(c.g, s, s.queries - 1).high;
    if (low >= high) return p;
    p.shift = __ffs(SHARE::keys(s.length)) - 1;
    p.first = max(split << p.shift, low / KEYS * KEYS), p.last = min((split + c.units) << p.shift, high);
    p.lowest = low >> p.shift, p.parts = ((high - 1) >> p.shift) - p.lowest + 1;
    return p;
}

/* That of a block, where each sequence has as many. */
template <typename SHARE> MHA_DEVICE part part_of(const mha_cuda_decode &c, int n)
{
    int head = c.first_head + n / c.blocks;
    return part_of<SHARE>(c, sequence_of(c.g, head / c.g.G), head % c.g.G, n % c.blocks * c.units, (int64_t)head * c.splits);
}

/* And where sequences lie packed: all threads of the block look for the sequence of its slot. */
template <typename SHARE> MHA_DEVICE part part_of_slot(const mha_cuda_decode &c, int n, int &found)
{
    const general &g = c.g;
    const int least = SHARE::keys(0), slot = n / g.G;
    if (threadIdx.x == 0) found = g.B;
    __syncthreads();
    bool falls = false;
    for (int b = threadIdx.x; b < g.B; b += blockDim.x) {
        sequence s = sequence_of(g, b);
        falls = falls || limit(integer(g.key_starts, b + 1), 0, g.k.size[2]) < s.key_row;
        int first = mha_cuda_first_slot(b, s.key_row, least, 0, true), count = max(1, (s.keys + least - 1) / least);
        if (slot >= first && slot < first + count) atomicMin(&found, b);
    }
    /* Where starts fall, sequences would have slots in common, and blocks of one would wait for others in vain, in this call and the next. */
    if (__syncthreads_or(falls) || found == g.B) return {{}, 0, -1};
    const sequence s = sequence_of(g, found);
    int first = mha_cuda_first_slot(found, s.key_row, least, 0, true);
    return part_of<SHARE>(c, s, n % g.G, slot - first, (int64_t)(n % g.G) * c.slots + first);
}

/* That of a block of a call whose sequences are alike: nothing is read to know it. */
template <typename SHARE> MHA_DEVICE part part_of_alike(const mha_cuda_decode &c, int n)
{
    const general &g = c.g;
    const int head = c.first_head + n / c.blocks, b = head / g.G;
    const sequence s = {b, g.Tq, g.Tk, g.Tq, g.Tk, b, b, 0, 0, g.align == 1 ? g.Tk - g.Tq : 0};
    return part_of<SHARE>(c, s, head % g.G, n % c.blocks * c.units, (int64_t)head * c.splits);
}

/* That of a block of another call. */
template <typename SHARE> static __device__ __noinline__ part find_part(const mha_cuda_decode &c, int &found)
{
    return c.slots ? part_of_slot<SHARE>(c, blockIdx.x, found) : part_of<SHARE>(c, blockIdx.x);
}

/* Whether a part is this launch's: one of its heads, of a sequence that is decoded. */
template <typename SHARE> MHA_DEVICE bool is_here(const mha_cuda_decode &c, const part &p)
{
    return p.head >= c.first_head && p.head < c.first_head + c.heads &&
           (c.alike || mha_cuda_method_of(c.limits, p.s.queries, p.s.length) == SHARE::METHOD);
}

/* A row of a key head: its query head, its place there, and the keys that it sees by position. */
struct row {
    int head, i;
    range visible;
};

MHA_DEVICE row row_of(const general &c, const part &p, int n)
{
    int i = n % p.queries;
    return {p.g * c.share + n / p.queries, i, n < p.rows ? visible_to_row(c, p.s, i) : range{0, 0}};
}

/* A score with options: a function, so that the loop over tiles stays short. */
__device__ __noinline__ float score_with_options(const general &c, int b, int64_t offset, row r, int key, float dot)
{
    sequence s = {};
    s.b = b, s.offset = offset;
    score<float> x = score_of<float>(c, s, r.head, r.i, key, r.visible, dot);
    return x.visible ? held(x.masked) : -INFINITY;
}

/* The score of a row and a key from their product: -infinity if it is not visible, NaN if float32 did not hold it. */
template <bool PLAIN> MHA_DEVICE float score_at(const general &c, const part &p, const row &r, int key, float dot)
{
    if (!PLAIN) return score_with_options(c, p.s.b, p.s.offset, r, key, dot);
    return key >= r.visible.low && key < r.visible.high ? held(dot * c.scale) : -INFINITY;
}

/* ---- Results ---------------------------------------------------------------------------------------------------- */

/* A row in float64, by a warp. */
template <int W> static __device__ __noinline__ void finish_exactly(const general &c, int b, int h, int i)
{
    const sequence s = sequence_of(c, b);
    int lane = threadIdx.x % 32;
    range r = visible_keys(c, s, i);
    double top = c.sinks.data ? (double)load(c.sinks, place(c.sinks, 0, h, 0, 0)) : -INFINITY, sink = top, sum = 0;
    double o[W / 32] = {};
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
            for (int e = 0; by != 0 && e < W / 32; e++)
                if (lane + 32 * e < c.E) o[e] += by * load(c.v, at + 32 * e);
        }
    }
    for (int n = 16; n; n /= 2) sum += __shfl_xor_sync(~0u, sum, n);
    if (c.sinks.data) sum += exp(sink - top);
    for (int e = 0; e < W / 32; e++)
        if (lane + 32 * e < c.E)
            store(c.out, place(c.out, s.query_batch, h, s.query_row + i, lane + 32 * e), o[e] / sum);
    if (lane == 0) store_softmax(c, s, h, i, {top, sum});
}

/* COUNT columns of a row of `out`, which is of a type of 16 bits, from `column` on; none from E on, a multiple of 8. */
template <int COUNT> MHA_DEVICE void put(const general &g, const part &p, int h, int i, int column, const float (&x)[COUNT])
{
    if (column >= g.E) return;
    int64_t at = place(g.out, p.s.query_batch, h, p.s.query_row + i, column);
    if (g.out.type == BFLOAT16) {
#pragma unroll
        for (int n = 0; n < COUNT; n++) ((__nv_bfloat16 *)g.out.data)[at + n * g.out.stride[3]] = __float2bfloat16_rn(x[n]);
    } else {
#pragma unroll
        for (int n = 0; n < COUNT; n++) ((__half *)g.out.data)[at + n * g.out.stride[3]] = __float2half_rn(x[n]);
    }
}

/* Rows of padding that there is no memory for, by COUNT threads. */
template <int COUNT> MHA_DEVICE void clear_padding(const mha_cuda_decode &c, const part &p)
{
    const general &g = c.g;
    for (int h = p.g * g.share; h < (p.g + 1) * g.share; h++)
        for (int64_t n = threadIdx.x; n < (int64_t)(p.s.padded - p.queries) * (g.E / 4); n += COUNT) {
            int i = p.queries + (int)(n / (g.E / 4)), column = (int)(n % (g.E / 4)) * 4;
            put(g, p, h, i, column, {0, 0, 0, 0});
            if (column == 0) store_softmax(g, p.s, h, i, softmax{-INFINITY, 0});
        }
}

} // namespace

#endif
