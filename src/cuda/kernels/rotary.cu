/* Rotary position embedding: pairs of numbers turn by angles that come from tables or, beyond them, from frequencies. The
 * angle of position p and pair i is p * step(i); the step is kept as the sum of two float64 numbers, as on the CPU, so that
 * angles are exact enough up to position 2^40. */
#include "elements.cuh"
#include "ops.h"

namespace
{

enum { THREADS = MHA_CUDA_THREADS };

struct step {
    double high, low;
};

MHA_DEVICE step multiply(step a, step b)
{
    double product = __dmul_rn(a.high, b.high);
    double error = __dadd_rn(fma(a.high, b.high, -product), a.high * b.low + a.low * b.high);
    double high = __dadd_rn(product, error);
    return {high, __dsub_rn(error, __dsub_rn(high, product))};
}

/* The step of pair i. */
MHA_DEVICE step step_of(const mha_cuda_angles &a, int i)
{
    if (a.values.data) return {(double)load(a.values, i * a.values.stride[0]), 0};
    step x = {a.high, a.low}, result = {1, 0};
    for (int n = i; n; n >>= 1, x = multiply(x, x))
        if (n & 1) result = multiply(result, x);
    return result;
}

/* The angle is a + t, where a is a float64 number and t what it lacks. */
MHA_DEVICE float2 angle_of(const mha_cuda_angles &f, int i, int64_t position)
{
    step s = step_of(f, i);
    double p = (double)position, a = __dmul_rn(p, s.high), t = fma(p, s.high, -a) + p * s.low, c, d, less, more;
    sincos(a, &d, &c);
    sincos(t, &more, &less);
    return make_float2((float)(f.multiplier * (c * less - d * more)), (float)(f.multiplier * (d * less + c * more)));
}

MHA_DEVICE float2 look_up(const mha_cuda_rotary &c, int64_t b, int64_t t, int i)
{
    if (c.rows) /* sizes of 1 have the stride 0 */
        return make_float2(load(c.cos, place(c.cos, c.cos.size[0] > 1 ? b : 0, t, i, 0)),
                           load(c.sin, place(c.sin, c.sin.size[0] > 1 ? b : 0, t, i, 0)));
    int64_t at = c.places.data ? ((const int64_t *)c.places.data)[place(c.places, b, t, 0, 0)] : c.first + t;
    at = max((long long)at, 0ll);
    if (at >= c.cos.size[0] && c.angles.known) return angle_of(c.angles, i, min((long long)at, 1ll << 40));
    at = min((long long)at, (long long)c.cos.size[0] - 1);
    return make_float2(load(c.cos, place(c.cos, at, i, 0, 0)), load(c.sin, place(c.sin, at, i, 0, 0)));
}

} // namespace

/* A thread takes a pair, or a number that does not turn. */
extern "C" __global__ void __launch_bounds__(THREADS) rotary(const __grid_constant__ mha_cuda_rotary c)
{
    int64_t H = c.from.size[1], T = c.from.size[2], D = c.from.size[3], each = D - c.pairs;
    int64_t count = c.from.size[0] * H * T * each;
    for (int64_t n = blockIdx.x * (int64_t)THREADS + threadIdx.x; n < count; n += gridDim.x * (int64_t)THREADS) {
        int64_t i = n % each, t = n / each % T, h = n / each / T % H, b = n / each / T / H;
        if (i >= c.pairs) {
            int64_t e = i + c.pairs;
            store(c.to, place(c.to, b, h, t, e), load(c.from, place(c.from, b, h, t, e)));
            continue;
        }
        int64_t first = c.interleaved ? 2 * i : i, second = c.interleaved ? 2 * i + 1 : i + c.pairs;
        float2 angle = look_up(c, b, t, (int)i);
        if (c.inverse) angle.y = -angle.y;
        float u = load(c.from, place(c.from, b, h, t, first)), v = load(c.from, place(c.from, b, h, t, second));
        store(c.to, place(c.to, b, h, t, first), __fsub_rn(__fmul_rn(u, angle.x), __fmul_rn(v, angle.y)));
        store(c.to, place(c.to, b, h, t, second), __fadd_rn(__fmul_rn(u, angle.y), __fmul_rn(v, angle.x)));
    }
}

/* Cosines and sines (P,pairs). */
extern "C" __global__ void __launch_bounds__(THREADS) rotary_tables(const __grid_constant__ mha_cuda_rotary c)
{
    int64_t pairs = c.cos.size[1], count = c.cos.size[0] * pairs;
    for (int64_t n = blockIdx.x * (int64_t)THREADS + threadIdx.x; n < count; n += gridDim.x * (int64_t)THREADS) {
        int64_t p = n / pairs, i = n % pairs;
        float2 angle = angle_of(c.angles, (int)i, p);
        store(c.cos, place(c.cos, p, i, 0, 0), angle.x);
        store(c.sin, place(c.sin, p, i, 0, 0), angle.y);
    }
}
