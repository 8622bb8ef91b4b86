/* The tiles of rows of a batch whose sequences are not alike, for the forward kernels. */
#include "sequences.cuh"
#include "spans.h"

enum { THREADS = MHA_CUDA_SPAN_THREADS, LISTS = MHA_CUDA_SPAN_LISTS, CHUNK = 2048 };

namespace
{

MHA_DEVICE sequence sequence_of(const mha_cuda_spans &c, int b)
{
    return find_sequence(c, c.query_rows, c.key_rows, b);
}

/* The number of a sequence's list, by its way; LISTS if there are no tiles for it. */
MHA_DEVICE int list_of(const mha_cuda_spans &c, const sequence &s)
{
    static_assert(MHA_CUDA_BY_TILES == 0 && MHA_CUDA_BY_SHORT_TILES == 1, "the first ways have lists");
    return min((int)mha_cuda_way_of(c.ways, s.queries, s.length), (int)LISTS);
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

/* Nothing of a tile that is not there, or that other kernels compute, is lost. */
MHA_DEVICE void clear_lost(const mha_cuda_spans &c, int b, int level)
{
    int groups = c.rows / 64; /* of rows that have a number together */
    for (int h = 0; h < c.H; h++)
        for (int n = 0; n < groups; n++) c.lost[(((int64_t)b * c.H + h) * c.row_tiles + level) * groups + n] = 0;
}

} // namespace

/* A thread has one tile: number `level` of sequence b. Those with a larger number come before it in their list, so that the longest rows
 * of a causal call and the longest sequences are begun first. The threads of a block read all sequences together. */
extern "C" __global__ void __launch_bounds__(THREADS) forward_spans(const __grid_constant__ mha_cuda_spans c)
{
    __shared__ int tiles[CHUNK]; /* of sequences, times LISTS + 1, and their list */
    int64_t n = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    int b = (int)(n % c.B), level = (int)(n / c.B), before[LISTS] = {}, all[LISTS] = {}, own = 0;
    for (int first = 0; first < c.B; first += CHUNK) {
        int count = min((int)CHUNK, c.B - first);
        __syncthreads(); /* the last ones have been read */
        for (int i = threadIdx.x; i < count; i += THREADS) {
            const sequence s = sequence_of(c, first + i);
            tiles[i] = (s.padded + c.rows - 1) / c.rows * (LISTS + 1) + list_of(c, s);
        }
        __syncthreads();
        for (int i = 0; i < count; i++) {
            int has = tiles[i] / (LISTS + 1), list = tiles[i] % (LISTS + 1);
#pragma unroll
            for (int k = 0; k < LISTS; k++) {
                before[k] += list == k ? max(0, has - level - 1) + (first + i < b && has > level) : 0;
                all[k] += list == k ? has : 0;
            }
        }
        if (b >= first && b < first + count) own = tiles[b - first];
    }
#pragma unroll
    for (int k = 0; k < LISTS; k++)
        if (n == 0 && c.lists[k].count) *c.lists[k].count = all[k];
    if (level >= c.row_tiles) return;
    const int list = own % (LISTS + 1);
    if (list == LISTS || level >= own / (LISTS + 1)) clear_lost(c, b, level);
    else c.lists[list].spans[list ? before[1] : before[0]] = span_of(c, sequence_of(c, b), level * c.rows);
}
