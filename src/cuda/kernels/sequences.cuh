/* Where the sequences of a batch lie: the same rules as attention/problem.c, with numbers from device memory kept inside
 * their tensors. */
#ifndef MHA_CUDA_SEQUENCES_CUH
#define MHA_CUDA_SEQUENCES_CUH

#include "elements.cuh"
#include "window.h"

MHA_DEVICE int64_t integer(const view &t, int64_t n)
{
    if (t.type == INT32) return ((const int32_t *)t.data)[n * t.stride[0]];
    return ((const int64_t *)t.data)[n * t.stride[0]];
}

MHA_DEVICE int64_t limit(int64_t x, int64_t low, int64_t high) { return mha_cuda_limit(x, low, high); }

struct sequence {
    int b, queries, length;   /* without padding */
    int padded, keys;         /* with it */
    int query_batch, key_batch;
    int64_t query_row, key_row, offset;
};

/* Of a call that has offsets, lengths and starts; `query_rows` and `key_rows` are the sizes of axis 2 of q and k. */
template <typename C> MHA_DEVICE sequence find_sequence(const C &c, int64_t query_rows, int64_t key_rows, int b)
{
    sequence s = {b, 0, 0, c.Tq, c.Tk, b, b, 0, 0, 0};
    if (c.query_starts.data) {
        s.query_batch = 0;
        s.query_row = limit(integer(c.query_starts, b), 0, query_rows);
        s.padded = (int)(limit(integer(c.query_starts, b + 1), s.query_row, query_rows) - s.query_row);
    }
    if (c.key_starts.data) {
        s.key_batch = 0;
        s.key_row = limit(integer(c.key_starts, b), 0, key_rows);
        s.keys = (int)(limit(integer(c.key_starts, b + 1), s.key_row, key_rows) - s.key_row);
    }
    s.padded = min(s.padded, c.Tq), s.keys = min(s.keys, c.Tk);
    s.queries = c.query_lengths.data ? (int)limit(integer(c.query_lengths, b), 0, s.padded) : s.padded;
    s.length = c.key_lengths.data ? (int)limit(integer(c.key_lengths, b), 0, s.keys) : s.keys;
    if (c.align == 1) s.offset = s.length - s.queries;
    if (c.align == 2) s.offset = limit(integer(c.offsets, b), -(1ll << 40), 1ll << 40);
    return s;
}

#endif
