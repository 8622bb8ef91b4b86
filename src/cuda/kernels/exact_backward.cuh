/* Gradients of single rows and keys in float64, likewise (exact.cuh). */
#ifndef MHA_CUDA_EXACT_BACKWARD_CUH
#define MHA_CUDA_EXACT_BACKWARD_CUH

#include "exact.cuh"

/* A pair of a row and a key. */
template <typename number> struct pair_gradient {
    bool visible;
    number value; /* what multiplies dout in dv */
    number score; /* the gradient by the score */
    number slope; /* of cap and scale: by what it goes on to q . k */
};

/* In float64. */
static __device__ __noinline__ pair_gradient<double> exact_gradient_of_pair(const general &c, const sequence &s, int h, int i, int j)
{
    score<double> x = exact_score(c, s, h, i, j);
    if (!x.visible) return {false, 0, 0, 0};
    const double *row = numbers_of_row(c, s, h, i);
    double weight = exact_weight(c, s, h, i, j), kept = c.dropped ? kept_of(c, s.b, h, i, j) : 1, dlse = 0;
    double dw = exact_dot(c.dout, place(c.dout, s.query_batch, h, s.query_row + i, 0), c.v,
                          place(c.v, s.key_batch, h / c.share, s.key_row + j, 0), c.E);
    if (c.dlse.data) dlse = load(c.dlse, place(c.dlse, s.query_batch, h, s.query_row + i, 0));
    double by = dw * kept - row[MHA_CUDA_ROW_DELTA] + dlse;
    return {true, weight * kept, weight * by, x.slope * c.scale};
}

/* dq of a row in float64, and its part of the slope's gradient. */
template <int COUNT = THREADS>
MHA_DEVICE void finish_row_exactly(const general &c, workspace &w, const sequence &s, int h, int i, int first,
                                   int columns)
{
    range r = visible_keys(c, s, i);
    double sum = 0, slope = 0;
    for (int j = r.low; j < r.high; j += COUNT) {
        int key = j + threadIdx.x;
        __syncthreads();
        w.careful[threadIdx.x] = 0;
        if (key < r.high) {
            pair_gradient<double> m = exact_gradient_of_pair(c, s, h, i, key);
            if (m.visible) {
                w.careful[threadIdx.x] = m.score * m.slope;
                slope -= m.score * (double)llabs(i + s.offset - key);
            }
        }
        __syncthreads();
        for (int n = 0; threadIdx.x < columns && n < min(COUNT, r.high - j); n++)
            if (w.careful[n] != 0)
                sum += w.careful[n] *
                       load(c.k, place(c.k, s.key_batch, h / c.share, s.key_row + j + n, first + threadIdx.x));
    }
    slope = block_sum<COUNT>(w, slope);
    if (threadIdx.x < columns && c.dq.data)
        store(c.dq, place(c.dq, s.query_batch, h, s.query_row + i, first + threadIdx.x), sum);
    if (threadIdx.x == 0 && first == 0) numbers_of_row(c, s, h, i)[MHA_CUDA_ROW_SLOPE] = slope;
}

/* dk and dv of a key in float64. */
template <int COUNT = THREADS>
MHA_DEVICE void finish_key_exactly(const general &c, workspace &w, const sequence &s, int g, int j, int first,
                                   int columns)
{
    double dk = 0, dv = 0;
    int d = first + threadIdx.x;
    for (int h = g * c.share; h < (g + 1) * c.share; h++)
        for (int i = 0; i < s.queries; i += COUNT) {
            int row = i + threadIdx.x, rows = min(COUNT, s.queries - i);
            pair_gradient<double> m = {false, 0, 0, 0};
            if (row < s.queries) m = exact_gradient_of_pair(c, s, h, row, j);
            __syncthreads();
            w.careful[threadIdx.x] = m.value;
            __syncthreads();
            for (int n = 0; threadIdx.x < columns && d < c.E && n < rows; n++)
                if (w.careful[n] != 0)
                    dv += w.careful[n] * load(c.dout, place(c.dout, s.query_batch, h, s.query_row + i + n, d));
            __syncthreads();
            w.careful[threadIdx.x] = m.score * m.slope;
            __syncthreads();
            for (int n = 0; threadIdx.x < columns && d < c.D && n < rows; n++)
                if (w.careful[n] != 0)
                    dk += w.careful[n] * load(c.q, place(c.q, s.query_batch, h, s.query_row + i + n, d));
        }
    int64_t row = s.key_row + j;
    if (threadIdx.x < columns && d < c.D && c.dk.data) store(c.dk, place(c.dk, s.key_batch, g, row, d), dk);
    if (threadIdx.x < columns && d < c.E && c.dv.data) store(c.dv, place(c.dv, s.key_batch, g, row, d), dv);
}

#endif
