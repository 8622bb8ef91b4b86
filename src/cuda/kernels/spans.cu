/* The tiles of rows of a batch whose sequences are not alike, for the forward kernels. */
#include "sequences.cuh"
#include "spans.h"

enum { THREADS = MHA_CUDA_SPAN_THREADS, LISTS = MHA_CUDA_SPAN_LISTS, CHUNK = 2048, METHODS = 8 };

namespace
{

MHA_DEVICE sequence sequence_of(const mha_cuda_spans &c, int b)
{
    return find_sequence(c, c.query_rows, c.key_rows, b);
}

MHA_DEVICE mha_cuda_span span_of(const mha_cuda_spans &c, const sequence &s, int row)
{
    const int64_t far = 1 << 30;
    const int64_t right = c.causal ? 0 : c.window_right;
    mha_cuda_span x;
    x.row = row, x.batch = s.b;
    x.queries = s.queries, x.padded = s.padded, x.length = s.length;
    x.query_row = (int32_t)s.query_row, x.key_row = (int32_t)s.key_row;
    x.query_batch = s.query_batch, x.key_batch = s.key_batch;
    x.offset = (int32_t)limit(s.offset, -far, far);
    x.left = mha_cuda_left_edge(s.offset, c.window_left, s.queries, s.length);
    x.right = mha_cuda_right_edge(s.offset, right, s.queries, s.length);
    return x;
}

} // namespace

/* A thread has one tile: number `level` of sequence b. Those with a larger number come before it in their list, so that the longest rows
 * of a causal call and the longest sequences are begun first. The threads of a block read all sequences together. */
extern "C" __global__ void __launch_bounds__(THREADS) forward_spans(const __grid_constant__ mha_cuda_spans c)
{
    static_assert(MHA_CUDA_BY_TILES < LISTS && MHA_CUDA_BY_ONE_TILE < LISTS && MHA_CUDA_METHODS < METHODS, "numbers of methods");
    __shared__ int about[CHUNK]; /* sequences: their tiles, times METHODS, and their method */
    const int64_t n = blockIdx.x * (int64_t)THREADS + threadIdx.x, flags = (int64_t)c.B * c.H * c.row_tiles * (c.rows / 64);
    const int b = (int)(n % c.B), level = (int)(n / c.B);
    int before[LISTS] = {}, all[MHA_CUDA_METHODS] = {}, own = 0;
    /* Nothing is lost of a tile that is not there, or that other kernels compute. */
    for (int64_t i = n; i < flags; i += (int64_t)gridDim.x * THREADS) c.lost[i] = 0;
    for (int first = 0; first < c.B; first += CHUNK) {
        const int count = min((int)CHUNK, c.B - first);
        __syncthreads(); /* the last ones have been read */
        for (int i = threadIdx.x; i < count; i += THREADS) {
            const sequence s = sequence_of(c, first + i);
            about[i] = (s.padded + c.rows - 1) / c.rows * METHODS + mha_cuda_method_of(c.limits, s.queries, s.length);
        }
        __syncthreads();
        for (int i = 0; i < count; i++) {
            const int tiles = about[i] / METHODS, method = about[i] % METHODS;
#pragma unroll
            for (int k = 0; k < MHA_CUDA_METHODS; k++) all[k] += method != k ? 0 : k < LISTS ? tiles : 1;
#pragma unroll
            for (int k = 0; k < LISTS; k++)
                before[k] += method == k ? max(0, tiles - level - 1) + (first + i < b && tiles > level) : 0;
        }
        if (b >= first && b < first + count) own = about[b - first];
    }
#pragma unroll
    for (int k = 0; k < MHA_CUDA_METHODS; k++)
        if (n == 0) c.counts[k] = all[k];
    if (n == 0) c.counts[MHA_CUDA_SPAN_LOST] = 0;
    const int method = own % METHODS;
    if (method < LISTS && level < own / METHODS)
        c.lists[method][method ? before[1] : before[0]] = span_of(c, sequence_of(c, b), level * c.rows);
}
