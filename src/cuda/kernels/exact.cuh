/* Single pairs and rows in float64, for results that float32 cannot hold. All COUNT threads of a block take part, a power of two. */
#ifndef MHA_CUDA_EXACT_CUH
#define MHA_CUDA_EXACT_CUH

#include "general.cuh"

MHA_DEVICE double exact_dot(const view &a, int64_t at, const view &b, int64_t from, int width)
{
    double sum = 0;
    for (int d = 0; d < width; d++) sum += (double)load(a, at + d * a.stride[3]) * load(b, from + d * b.stride[3]);
    return sum;
}

static __device__ __noinline__ score<double> exact_score(const general &c, const sequence &s, int h, int i, int j)
{
    double dot = exact_dot(c.q, place(c.q, s.query_batch, h, s.query_row + i, 0), c.k,
                           place(c.k, s.key_batch, h / c.share, s.key_row + j, 0), c.D);
    return score_of<double>(c, s, h, i, j, visible_to_row(c, s, i), dot);
}

/* A weight before dropout from what is known of the row: as the products of tiles have it, or in float64 where float32
 * cannot hold the score or its reference. */
static __device__ __noinline__ double exact_weight(const general &c, const sequence &s, int h, int i, int j)
{
    const double *row = numbers_of_row(c, s, h, i);
    double reference = row[MHA_CUDA_ROW_REFERENCE], sum = row[MHA_CUDA_ROW_SUM];
    int64_t at = place(c.q, s.query_batch, h, s.query_row + i, 0);
    int64_t from = place(c.k, s.key_batch, h / c.share, s.key_row + j, 0);
    float dot = 0;
    for (int d = 0; d < c.D; d++)
        dot = fmaf(load(c.q, at + d * c.q.stride[3]), load(c.k, from + d * c.k.stride[3]), dot);
    score<float> x = score_of<float>(c, s, h, i, j, visible_to_row(c, s, i), dot);
    if (isfinite(x.masked) && (double)(float)reference == reference) return exp(x.masked - reference) / sum;
    return exp(exact_score(c, s, h, i, j).masked - reference) / sum;
}

/* The largest over a block, for all of its threads; NaN is left out. */
template <int COUNT> MHA_DEVICE double block_max(workspace &w, double x)
{
    __syncthreads();
    w.careful[threadIdx.x] = x;
    for (int half = COUNT / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) w.careful[threadIdx.x] = fmax(w.careful[threadIdx.x], w.careful[threadIdx.x + half]);
    }
    __syncthreads();
    x = w.careful[0];
    __syncthreads();
    return x;
}

template <int COUNT = THREADS> MHA_DEVICE double block_sum(workspace &w, double x)
{
    __syncthreads();
    w.careful[threadIdx.x] = x;
    for (int half = COUNT / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) w.careful[threadIdx.x] += w.careful[threadIdx.x + half];
    }
    __syncthreads();
    x = w.careful[0];
    __syncthreads();
    return x;
}

/* The largest score of a row, the sink included, and the sum of exponentials. All threads of a block take part. */
struct softmax {
    double reference, sum;
};

template <int COUNT = THREADS>
static __device__ __noinline__ softmax exact_softmax(const general &c, workspace &w, const sequence &s, int h, int i)
{
    range r = visible_keys(c, s, i);
    double top = -INFINITY, sum = 0;
    bool sees = false;
    for (int j = r.low + threadIdx.x; j < r.high; j += COUNT) {
        score<double> x = exact_score(c, s, h, i, j);
        if (x.visible) top = fmax(top, x.masked), sees = true;
    }
    if (!__syncthreads_or(sees)) return {-INFINITY, 0};
    top = block_max<COUNT>(w, top);
    double sink = c.sinks.data ? (double)load(c.sinks, place(c.sinks, 0, h, 0, 0)) : -INFINITY;
    top = fmax(top, sink);
    for (int j = r.low + threadIdx.x; j < r.high; j += COUNT) {
        score<double> x = exact_score(c, s, h, i, j);
        if (x.visible) sum += exp(x.masked - top);
    }
    sum = block_sum<COUNT>(w, sum);
    return {top, c.sinks.data ? sum + exp(sink - top) : sum};
}

/* How it is kept in float32: the reference is infinite where that type cannot hold it. */
MHA_DEVICE void store_softmax(const general &c, const sequence &s, int h, int i, softmax x)
{
    int64_t row = s.query_row + i;
    if (c.lse.data) {
        double lse = x.sum > 0 || x.sum != x.sum ? x.reference + log(x.sum) : -INFINITY;
        ((float *)c.lse.data)[place(c.lse, s.query_batch, h, row, 0)] = (float)lse;
    }
    if (c.rows) {
        double *to = numbers_of_row(c, s, h, i);
        to[MHA_CUDA_ROW_REFERENCE] = x.reference, to[MHA_CUDA_ROW_SUM] = x.sum;
    }
    if (c.softmax.data) {
        float reference = (float)x.reference, *to = (float *)c.softmax.data;
        double off = x.reference - reference;
        bool held = x.sum == 0 || fabs(off) <= 4;
        to[place(c.softmax, s.query_batch, h, row, 0)] = held ? reference : INFINITY;
        to[place(c.softmax, s.query_batch, h, row, 1)] =
            (float)(held && off != 0 && x.sum != 0 ? x.sum * exp(off) : x.sum);
    }
}

/* The softmax of the forward call, for a tile of rows; anew where float32 did not hold it, and where it is an lse, with a sum
 * of 1, beyond `most`, of which float32 has lost too many bits. */
MHA_DEVICE void take_softmax(const general &c, workspace &w, const sequence &s, int h, int first, float most)
{
    int i = first + threadIdx.x;
    if (threadIdx.x < TILE) {
        w.lost[threadIdx.x] = false;
        if (i < s.queries) {
            double *row = numbers_of_row(c, s, h, i);
            const float *from = (const float *)c.softmax.data + place(c.softmax, s.query_batch, h, s.query_row + i, 0);
            float reference = from[0], sum = from[c.softmax.stride[3]];
            row[MHA_CUDA_ROW_REFERENCE] = reference, row[MHA_CUDA_ROW_SUM] = sum;
            w.lost[threadIdx.x] = sum != 0 && (!isfinite(reference) || (sum == 1 && fabsf(reference) > most));
        }
    }
    __syncthreads();
    for (int n = 0; n < TILE; n++) {
        if (!w.lost[n]) continue;
        softmax exact = exact_softmax(c, w, s, h, first + n);
        if (threadIdx.x == 0) {
            double *row = numbers_of_row(c, s, h, first + n);
            row[MHA_CUDA_ROW_REFERENCE] = exact.reference, row[MHA_CUDA_ROW_SUM] = exact.sum;
        }
    }
    __syncthreads();
}

/* A row of results in float64: the columns of this block's slice. */
template <int COUNT = THREADS>
static __device__ __noinline__ void finish_exactly(const general &c, workspace &w, const sequence &s, int h, int i, int first,
                                                   int columns)
{
    softmax row = exact_softmax<COUNT>(c, w, s, h, i);
    range r = visible_keys(c, s, i);
    double sum = 0;
    for (int j = r.low; j < r.high; j += COUNT) {
        int key = j + threadIdx.x;
        __syncthreads();
        w.careful[threadIdx.x] = 0;
        if (key < r.high) {
            score<double> x = exact_score(c, s, h, i, key);
            if (x.visible) w.careful[threadIdx.x] = exp(x.masked - row.reference) * kept_of(c, s.b, h, i, key);
        }
        __syncthreads();
        for (int n = 0; threadIdx.x < columns && n < min(COUNT, r.high - j); n++)
            if (w.careful[n] != 0)
                sum += w.careful[n] *
                       load(c.v, place(c.v, s.key_batch, h / c.share, s.key_row + j + n, first + threadIdx.x));
    }
    __syncthreads();
    if (threadIdx.x < columns)
        store(c.out, place(c.out, s.query_batch, h, s.query_row + i, first + threadIdx.x),
              row.sum != 0 ? sum / row.sum : 0);
    if (threadIdx.x == 0 && first == 0) store_softmax(c, s, h, i, row);
}

#endif
