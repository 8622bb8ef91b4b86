/* Normalisation, RMS or with the mean subtracted, and its gradients. A unit is what is normalised together: a row, or all
 * heads of a position. Small units are taken by a warp each, others by a block; sums are float64, in an order that depends on
 * the size of the unit alone.
 *
 * Backward, with h = (x - mean) * by, by = the inverse root, g = gain * dy:
 *
 *     dx = by * (g - mean(g) - h * mean(g h))        without mean(g) for an RMS norm
 *     dgain = sum over units of dy * h               dbias = sum over units of dy
 *
 * norm_about finds the numbers of every unit, norm_columns sums over units in chunks of rows, and norm_back, which may write
 * over dy, comes last. A unit whose dy is zero gets and gives nothing, even if x is NaN. */
#include "elements.cuh"
#include "ops.h"

namespace
{

typedef mha_cuda_norm norm;
enum { THREADS = MHA_CUDA_THREADS };

/* Where number e of row n lies. */
MHA_DEVICE int64_t place_in_row(const view &t, int64_t n, int64_t e)
{
    int64_t H = t.size[1], h = n % H, i = n / H % t.size[2], b = n / H / t.size[2];
    return place(t, b, h, i, e);
}

/* Number e of a unit: its row and its place in the row. */
struct number {
    int64_t row;
    int column;
    MHA_DEVICE number(const norm &c, int64_t unit, int e)
    {
        int D = (int)c.from.size[3];
        row = c.together == 1 ? unit : unit * c.together + e / D;
        column = c.together == 1 ? e : e % D;
    }
};

MHA_DEVICE int64_t gain_of(const norm &c, const number &n)
{
    return n.column + (c.own ? n.row % c.from.size[1] * c.own : 0);
}

/* The sum over a group of threads, in each of them. */
template <int GROUP> MHA_DEVICE double group_sum(double x)
{
    __shared__ double parts[THREADS / 32];
#pragma unroll
    for (int mask = 16; mask; mask >>= 1) x += __shfl_xor_sync(~0u, x, mask);
    if (GROUP == 32) return x;
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    for (int n = 0; n < THREADS / 32; n++) x += parts[n];
    return x;
}

template <int GROUP> MHA_DEVICE void group_wait(void)
{
    if (GROUP == 32) __syncwarp();
    else __syncthreads();
}

struct moments {
    float mean, by;
};

/* The mean is computed from x - x[0]: numbers that are all the same then give exactly their bias. */
template <int GROUP> MHA_DEVICE moments measure(const norm &c, int64_t unit, int count)
{
    int who = threadIdx.x % GROUP;
    moments m = {0, 0};
    double sum = 0;
    if (c.centred) {
        number zero(c, unit, 0);
        float first = load(c.from, place_in_row(c.from, zero.row, zero.column));
        for (int e = who; e < count; e += GROUP) {
            number n(c, unit, e);
            sum += (double)load(c.from, place_in_row(c.from, n.row, n.column)) - (double)first;
        }
        m.mean = (float)((double)first + group_sum<GROUP>(sum) / count);
        sum = 0;
    }
    for (int e = who; e < count; e += GROUP) {
        number n(c, unit, e);
        double x = (double)load(c.from, place_in_row(c.from, n.row, n.column)) - (double)m.mean;
        sum += x * x;
    }
    m.by = (float)(1 / sqrt(group_sum<GROUP>(sum) / count + (double)c.epsilon));
    return m;
}

template <int GROUP> MHA_DEVICE void normalize(const norm &c)
{
    int who = threadIdx.x % GROUP, count = c.together * (int)c.from.size[3];
    int64_t unit = blockIdx.x * (int64_t)(THREADS / GROUP) + threadIdx.x / GROUP;
    if (unit >= c.units) return;
    for (int e = who; c.residual.data && e < count; e += GROUP) {
        number n(c, unit, e);
        int64_t at = place_in_row(c.from, n.row, n.column);
        store(c.from, at, load(c.from, at) + load(c.residual, place_in_row(c.residual, n.row, n.column)));
    }
    group_wait<GROUP>();
    moments m = measure<GROUP>(c, unit, count);
    group_wait<GROUP>(); /* all have read the first number */
    for (int e = who; e < count; e += GROUP) {
        number n(c, unit, e);
        int64_t g = gain_of(c, n);
        float h = (load(c.from, place_in_row(c.from, n.row, n.column)) - m.mean) * m.by;
        store(c.to, place_in_row(c.to, n.row, n.column), c.bias ? fmaf(h, c.gain[g], c.bias[g]) : h * c.gain[g]);
    }
    if (c.kept && who == 0) c.kept[2 * unit] = m.mean, c.kept[2 * unit + 1] = m.by;
}

template <int GROUP> MHA_DEVICE void find_about(const norm &c)
{
    int who = threadIdx.x % GROUP, count = c.together * (int)c.from.size[3];
    int64_t unit = blockIdx.x * (int64_t)(THREADS / GROUP) + threadIdx.x / GROUP;
    if (unit >= c.units) return;
    moments m;
    if (c.kept) m.mean = c.kept[2 * unit], m.by = c.kept[2 * unit + 1];
    else m = measure<GROUP>(c, unit, count);
    double sum = 0, dot = 0, other = 0;
    for (int e = who; e < count; e += GROUP) {
        number n(c, unit, e);
        float dy = load(c.dy, place_in_row(c.dy, n.row, n.column)), g = dy * c.gain[gain_of(c, n)];
        float h = (load(c.from, place_in_row(c.from, n.row, n.column)) - m.mean) * m.by;
        sum += (double)g, dot += (double)g * (double)h, other += dy != 0;
    }
    sum = group_sum<GROUP>(sum), dot = group_sum<GROUP>(dot), other = group_sum<GROUP>(other);
    if (who) return;
    float *to = c.about + 4 * unit;
    bool zero = other == 0;
    to[0] = zero ? 0 : m.mean, to[1] = zero ? -1 : m.by;
    to[2] = zero || !c.centred ? 0 : (float)(sum / count), to[3] = zero ? 0 : (float)(dot / count);
}

} // namespace

#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)

KERNEL norm_forward(const __grid_constant__ mha_cuda_norm c) { normalize<32>(c); }
KERNEL norm_forward_wide(const __grid_constant__ mha_cuda_norm c) { normalize<THREADS>(c); }
KERNEL norm_about(const __grid_constant__ mha_cuda_norm c) { find_about<32>(c); }
KERNEL norm_about_wide(const __grid_constant__ mha_cuda_norm c) { find_about<THREADS>(c); }

/* A block takes 256 gains and a chunk of lines: rows or, where each head has gains of its own, positions. */
KERNEL norm_columns(const __grid_constant__ mha_cuda_norm c)
{
    int64_t chunk = blockIdx.x % c.chunks, gain = blockIdx.x / c.chunks * THREADS + threadIdx.x;
    int64_t H = c.from.size[1], rows = c.from.size[0] * c.from.size[2] * H, lines = c.own ? rows / H : rows;
    int64_t first = chunk * MHA_CUDA_CHUNK, end = min(first + MHA_CUDA_CHUNK, lines);
    if (gain >= c.gains) return;
    int head = c.own ? (int)(gain / c.own) : 0, column = c.own ? (int)(gain % c.own) : (int)gain;
    double dgain = 0, dbias = 0;
    for (int64_t line = first; line < end; line++) {
        int64_t row = c.own ? line * H + head : line;
        const float *about = c.about + 4 * (row / c.together);
        if (about[1] < 0) continue;
        double dy = (double)load(c.dy, place_in_row(c.dy, row, column));
        dgain += dy * (double)((load(c.from, place_in_row(c.from, row, column)) - about[0]) * about[1]);
        dbias += dy;
    }
    float *to = c.partials + chunk * c.pitch + gain;
    to[0] = (float)dgain;
    if (c.pitch > c.gains) to[c.gains] = (float)dbias;
}

KERNEL norm_back(const __grid_constant__ mha_cuda_norm c)
{
    int64_t D = c.from.size[3], count = c.from.size[0] * c.from.size[1] * c.from.size[2] * D;
    for (int64_t n = blockIdx.x * (int64_t)THREADS + threadIdx.x; n < count; n += gridDim.x * (int64_t)THREADS) {
        int64_t row = n / D, e = n % D, at = place_in_row(c.to, row, e);
        const float *about = c.about + 4 * (row / c.together);
        float dx = 0;
        if (about[1] >= 0) {
            float h = (load(c.from, place_in_row(c.from, row, e)) - about[0]) * about[1];
            float gain = c.gain[e + (c.own ? row % c.from.size[1] * c.own : 0)];
            dx = about[1] * (load(c.dy, place_in_row(c.dy, row, e)) * gain - about[2] - h * about[3]);
        }
        store(c.to, at, c.add ? load(c.to, at) + dx : dx);
    }
}
