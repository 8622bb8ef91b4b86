/* The rule for a window's edge, once for the host and for all kernels. A row at position p of its sequence, where keys stand at
 * 0, 1, ..., length - 1, sees the keys j with
 *
 *     p - window_left <= j <= p + window_right        0 <= j < length
 *
 * of which an edge below 0 is no edge (MHA_UNLIMITED), and a causal row has its right edge at p. Row i stands at i + offset. */
#ifndef MHA_CUDA_WINDOW_H
#define MHA_CUDA_WINDOW_H

#include <stdint.h>

#ifdef __CUDACC__
#define MHA_CUDA_SHARED static __device__ __forceinline__
#else
#define MHA_CUDA_SHARED static inline
#endif

MHA_CUDA_SHARED int64_t mha_cuda_limit(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* ---- By position: the keys [low, high) of one row, for kernels --------------------------------------------------- */

#ifdef __cplusplus

struct mha_cuda_keys {
    int low, high;
};

/* Of a sequence of a call that has a window, kept within [LEAST, length]: LEAST is 0, or less where the edges of later rows are found by
 * adding to these. */
template <int LEAST, typename CALL, typename SEQUENCE>
MHA_CUDA_SHARED mha_cuda_keys mha_cuda_visible_keys(const CALL &c, const SEQUENCE &s, int i)
{
    int64_t position = i + s.offset, low = LEAST, high = s.length;
    if (c.causal) high = mha_cuda_limit(position + 1, LEAST, high);
    if (c.window_right >= 0) high = mha_cuda_limit(position + c.window_right + 1, LEAST, high);
    if (c.window_left >= 0) low = mha_cuda_limit(position - c.window_left, LEAST, high);
    return {(int)low, (int)high};
}

#endif

/* ---- By row: row i sees the keys from i + left to i + right ----------------------------------------------------- */

/* The edges of a sequence, within [-queries, length], beyond which they make no difference. Its own queries, keys and offset alone decide,
 * and not the batch: whether slopes are ramps (forward_rows.cuh) follows from them. `window_right` is 0 if rows are causal. */
MHA_CUDA_SHARED int32_t mha_cuda_left_edge(int64_t offset, int64_t window_left, int32_t queries, int32_t length)
{
    return (int32_t)(window_left < 0 ? -queries : mha_cuda_limit(offset - window_left, -queries, length));
}

MHA_CUDA_SHARED int32_t mha_cuda_right_edge(int64_t offset, int64_t window_right, int32_t queries, int32_t length)
{
    return (int32_t)(window_right < 0 ? length : mha_cuda_limit(offset + window_right, -queries, length));
}

#ifndef __CUDACC__
#define MHA_CUDA_LARGER(x, y)  ((x) > (y) ? (x) : (y))
#define MHA_CUDA_SMALLER(x, y) ((x) < (y) ? (x) : (y))
#else
#define MHA_CUDA_LARGER(x, y)  max(x, y)
#define MHA_CUDA_SMALLER(x, y) min(x, y)
#endif

/* The first key that a row sees, the last one (below 0: it sees none), and where its keys end. */
MHA_CUDA_SHARED int32_t mha_cuda_first_key(int32_t row, int32_t left) { return MHA_CUDA_LARGER(0, row + left); }

MHA_CUDA_SHARED int32_t mha_cuda_last_key(int32_t length, int32_t row, int32_t right)
{
    return MHA_CUDA_SMALLER(length - 1, row + right);
}

MHA_CUDA_SHARED int32_t mha_cuda_end_of_keys(int32_t length, int32_t row, int32_t right)
{
    return MHA_CUDA_SMALLER(length, MHA_CUDA_LARGER(0, row + right + 1));
}

/* The first row that sees a key, and where the rows that see it end (at or before the first: there are none). */
MHA_CUDA_SHARED int32_t mha_cuda_first_row(int32_t key, int32_t right) { return MHA_CUDA_LARGER(0, key - right); }

MHA_CUDA_SHARED int32_t mha_cuda_end_of_rows(int32_t queries, int32_t key, int32_t left)
{
    return MHA_CUDA_SMALLER(queries, key - left + 1);
}

/* ---- Of tiles --------------------------------------------------------------------------------------------------- */

/* How many key blocks of `keys` keys end at or before the last one that a tile of `rows` rows from `row` on sees. Without a right edge
 * (`edge` is 0) all of them. */
MHA_CUDA_SHARED int32_t mha_cuda_blocks_seen(int32_t row, int32_t rows, int32_t keys, int32_t length, int32_t right,
                                             int edge)
{
    int32_t all = (length + keys - 1) / keys, seen = (row + rows + right + keys - 1) / keys;
    if (!edge || seen > all) return all;
    return seen > 0 ? seen : 0;
}

/* The first tile of query rows of which one sees a key from `key` on; the others do, too. At most `tiles`. */
MHA_CUDA_SHARED int32_t mha_cuda_first_rows(int32_t key, int32_t rows, int32_t tiles, int32_t right, int edge)
{
    int32_t first = edge && key > right ? (key - right) / rows : 0;
    return first < tiles ? first : tiles;
}

#endif
