/* The tiles of rows of a batch whose sequences are not alike, for the forward kernels. */
#include "sequences.cuh"
#include "spans.h"

enum { THREADS = MHA_CUDA_SPAN_THREADS };

namespace
{

MHA_DEVICE sequence sequence_of(const mha_cuda_spans &c, int b)
{
    return find_sequence(c, c.query_rows, c.key_rows, b);
}

MHA_DEVICE mha_cuda_way way_of(const mha_cuda_spans &c, const sequence &s)
{
    return mha_cuda_way_of(c.ways, s.queries, s.length);
}

MHA_DEVICE int tiles_of(const mha_cuda_spans &c, int b)
{
    const sequence s = sequence_of(c, b);
    return way_of(c, s) == c.way ? (s.padded + c.rows - 1) / c.rows : 0;
}

/* Nothing of a tile that no kernel computes is lost. */
MHA_DEVICE void clear_lost(const mha_cuda_spans &c, int b, int level)
{
    const mha_cuda_way way = way_of(c, sequence_of(c, b));
    if (!c.lost || way == MHA_CUDA_BY_TILES || way == MHA_CUDA_BY_SHORT_TILES) return;
    for (int h = 0; h < c.H; h++)
        for (int n = 0; n < c.rows / 64; n++) c.lost[(((int64_t)b * c.H + h) * c.row_tiles + level) * (c.rows / 64) + n] = 0;
}

MHA_DEVICE mha_cuda_span span_of(const mha_cuda_spans &c, const sequence &s, int row)
{
    const int64_t far = 1 << 30;
    int64_t right = c.causal ? 0 : c.window_right;
    mha_cuda_span x;
    x.row = row, x.batch = s.b;
    x.queries = s.queries, x.padded = s.padded, x.length = s.length;
    x.query_row = (int32_t)s.query_row, x.key_row = (int32_t)s.key_row;
    x.query_batch = s.query_batch, x.key_batch = s.key_batch;
    x.offset = (int32_t)limit(s.offset, -far, far);
    x.left = (int32_t)(c.window_left < 0 ? -c.Tq : limit(s.offset - c.window_left, -c.Tq, c.Tk));
    x.right = (int32_t)(right < 0 ? c.Tk : limit(s.offset + right, -c.Tq, c.Tk));
    return x;
}

} // namespace

/* A thread has one tile: number `level` of sequence b. Those with a larger number come before it, so that the longest rows
 * of a causal call and the longest sequences are begun first. */
extern "C" __global__ void __launch_bounds__(THREADS) forward_spans(const __grid_constant__ mha_cuda_spans c)
{
    int64_t n = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    int b = (int)(n % c.B), level = (int)(n / c.B), before = 0, all = 0;
    if (level >= c.row_tiles) return;
    for (int other = 0; other < c.B; other++) {
        int tiles = tiles_of(c, other);
        before += max(0, tiles - level - 1) + (other < b && tiles > level);
        all += tiles;
    }
    if (n == 0) *c.count = all;
    clear_lost(c, b, level);
    if (level < tiles_of(c, b)) c.spans[before] = span_of(c, sequence_of(c, b), level * c.rows);
}
