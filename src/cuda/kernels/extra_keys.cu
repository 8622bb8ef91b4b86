/* Keys that every row sees beside those of attention, mixed into its results: the learned one of bias_kv, the zeros of
 * zero_kv. The mathematics are in src/cpu/rows/extra_keys.c; all of it is float64. A warp takes a row. */
#include "general.cuh"
#include "ops.h"

namespace
{

typedef mha_cuda_extra_keys extra;
enum { MOST = 2, WARPS = THREADS / 32 };

/* One row, and how it sees the extra keys. */
struct row {
    int h, g, i;
    int64_t batch, at;
    double score[MOST], kept[MOST];
};

MHA_DEVICE double warp_sum(double x)
{
#pragma unroll
    for (int mask = 16; mask; mask >>= 1) x += __shfl_xor_sync(~0u, x, mask);
    return x;
}

MHA_DEVICE double get(const view &t, const row &r, int d) { return (double)load(t, place(t, r.batch, r.h, r.at, d)); }

MHA_DEVICE double dot(const view &t, const row &r, const float *y, int n)
{
    double sum = 0;
    for (int d = threadIdx.x % 32; d < n; d += 32) sum += get(t, r, d) * (double)y[d];
    return warp_sum(sum);
}

MHA_DEVICE bool is_learned(const extra &c, int n) { return n == 0 && c.bias_k; }

MHA_DEVICE row look(const extra &c, const sequence &s, int h, int i)
{
    row r = {h, h / c.g.share, i, s.query_batch, s.query_row + i};
    double cap = (double)c.g.softcap;
#pragma unroll
    for (int n = 0; n < MOST; n++) {
        if (n >= c.count) break;
        double score = is_learned(c, n) ? (double)c.g.scale * dot(c.g.q, r, c.bias_k + r.g * c.g.D, c.g.D) : 0;
        r.score[n] = cap > 0 ? cap * tanh(score / cap) : score;
        r.kept[n] = c.g.dropped ? (double)kept_of(c.g, s.b, h, i, s.length + n) : 1;
    }
    return r;
}

/* The sequence, head and query of this warp; false if there is none. */
MHA_DEVICE bool find_row(const extra &c, sequence &s, int &h, int &i)
{
    int64_t n = blockIdx.x * (int64_t)WARPS + threadIdx.x / 32, rows = c.weights.data ? max((int64_t)c.g.Tq, c.weights.size[2]) : c.g.Tq;
    i = (int)(n % rows), h = (int)(n / rows % c.g.H);
    if (n / rows / c.g.H >= c.g.B) return false;
    s = sequence_of(c.g, (int)(n / rows / c.g.H));
    return true;
}

MHA_DEVICE void put_weights(const extra &c, const sequence &s, int h, int i, double fade, double first, double second)
{
    int64_t Tk = c.weights.size[3] - c.count;
    for (int64_t j = threadIdx.x % 32; j < c.weights.size[3]; j += 32) {
        int64_t at = place(c.weights, s.b, h, i, j);
        store(c.weights, at, j < Tk ? fade * (double)load(c.weights, at) : j == Tk ? first : second);
    }
}

MHA_DEVICE void mix(const extra &c, const sequence &s, const row &r)
{
    int64_t at = place(c.g.softmax, r.batch, r.h, r.at, 0), next = at + c.g.softmax.stride[3];
    double max = (double)load(c.g.softmax, at), old = (double)load(c.g.softmax, next);
    if (old == 0 && c.g.sinks.data) max = (double)load(c.g.sinks, place(c.g.sinks, 0, r.h, 0, 0)), old = 1;
    __syncwarp();
    if (max == INFINITY) { /* scores beyond float32: next to them no other counts */
        if (c.weights.data) put_weights(c, s, r.h, r.i, 1, 0, 0);
        return;
    }
    double top = max, sum = 0, weight[MOST] = {0, 0};
#pragma unroll
    for (int n = 0; n < MOST; n++)
        if (n < c.count) top = fmax(top, r.score[n]);
#pragma unroll
    for (int n = 0; n < MOST; n++)
        if (n < c.count) sum += exp(r.score[n] - top);
    double before = old > 0 ? exp(max - top) * old : 0, all = before + sum, fade = before / all;
#pragma unroll
    for (int n = 0; n < MOST; n++)
        if (n < c.count) weight[n] = exp(r.score[n] - top) / all * r.kept[n];
    const float *value = is_learned(c, 0) ? c.bias_v + r.g * c.g.E : NULL;
    for (int d = threadIdx.x % 32; d < c.g.E; d += 32) {
        double rest = fade > 0 ? fade * get(c.g.out, r, d) : 0;
        store(c.g.out, place(c.g.out, r.batch, r.h, r.at, d), rest + (value ? weight[0] * (double)value[d] : 0));
    }
    if (c.weights.data) put_weights(c, s, r.h, r.i, fade, weight[0], weight[1]);
    if (threadIdx.x % 32) return;
    float reference = (float)fmax(fmin(top, 3.402823466e38), -3.402823466e38);
    store(c.g.softmax, at, reference);
    store(c.g.softmax, next, all * fmin(exp(top - (double)reference), 1e30));
    if (c.g.lse.data) store(c.g.lse, place(c.g.lse, r.batch, r.h, r.at, 0), top + log(all));
}

} // namespace

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)

KERNEL extra_keys(const __grid_constant__ mha_cuda_extra_keys c)
{
    sequence s;
    int h, i;
    if (!find_row(c, s, h, i)) return;
    if (i < s.queries) mix(c, s, look(c, s, h, i));
    else if (c.weights.data && i < c.weights.size[2]) /* rows of padding, or past the end of a ragged sequence */
        for (int64_t j = c.weights.size[3] - c.count + threadIdx.x % 32; j < c.weights.size[3]; j += 32)
            store(c.weights, place(c.weights, s.b, h, i, j), 0.0f);
}

/* Adds what the learned key gives to dq, and keeps what it gets of each row. */
KERNEL extra_keys_rows(const __grid_constant__ mha_cuda_extra_keys c)
{
    sequence s;
    int h, i;
    if (!find_row(c, s, h, i) || i >= s.queries) return;
    row r = look(c, s, h, i);
    const float *key = c.bias_k + r.g * c.g.D, *value = c.bias_v + r.g * c.g.E;
    int64_t at = place(c.g.softmax, r.batch, r.h, r.at, 0);
    double delta = 0, cap = (double)c.g.softcap;
    for (int d = threadIdx.x % 32; d < c.g.E; d += 32) delta += get(c.g.dout, r, d) * get(c.g.out, r, d);
    delta = warp_sum(delta);
    double weight = exp(r.score[0] - (double)load(c.g.softmax, at)) / (double)load(c.g.softmax, at + c.g.softmax.stride[3]);
    weight = fmin(weight, 1.0);
    double dscore = weight * (dot(c.g.dout, r, value, c.g.E) * r.kept[0] - delta);
    if (cap > 0) dscore *= 1 - r.score[0] / cap * (r.score[0] / cap);
    dscore *= (double)c.g.scale;
    for (int d = threadIdx.x % 32; c.g.dq.data && d < c.g.D; d += 32) {
        int64_t to = place(c.g.dq, r.batch, r.h, r.at, d);
        store(c.g.dq, to, (double)load(c.g.dq, to) + dscore * (double)key[d]);
    }
    if (threadIdx.x % 32 || !c.shares) return;
    double *share = c.shares + 2 * ((r.batch * c.g.H + r.h) * c.g.rows_of_q + r.at);
    share[0] = dscore, share[1] = weight * r.kept[0];
}

/* A block takes 32 of the D + E columns of a key head; each of its 8 warps every eighth row. */
KERNEL extra_keys_columns(const __grid_constant__ mha_cuda_extra_keys c)
{
    __shared__ double parts[WARPS][32];
    int lane = threadIdx.x % 32, line = threadIdx.x / 32, each = (c.g.D + c.g.E + 31) / 32;
    int g = blockIdx.x / each, column = blockIdx.x % each * 32 + lane;
    bool value = column >= c.g.D;
    int d = value ? column - c.g.D : column;
    double sum = 0;
    for (int b = 0; b < c.g.B; b++) {
        sequence s = sequence_of(c.g, b);
        for (int64_t n = line; n < (int64_t)c.g.share * s.queries; n += WARPS) {
            row r = {g * c.g.share + (int)(n / s.queries), g, (int)(n % s.queries), s.query_batch, s.query_row + n % s.queries};
            const double *share = c.shares + 2 * ((r.batch * c.g.H + r.h) * c.g.rows_of_q + r.at);
            if (column < c.g.D + c.g.E) sum += share[value] * get(value ? c.g.dout : c.g.q, r, d);
        }
    }
    parts[line][lane] = sum;
    __syncthreads();
    if (line || column >= c.g.D + c.g.E) return;
    sum = 0;
    for (int n = 0; n < WARPS; n++) sum += parts[n][lane];
    float *to = value ? c.dbias_v + g * c.g.E + d : c.dbias_k + g * c.g.D + d;
    *to = (float)((double)*to + sum);
}
