/* exp and the activations built on it, for 16 numbers at once, with the vector extension of gcc and clang: one AVX-512
 * register, two of AVX2, four of NEON or SSE2. A compiler also vectorizes the loops if they are written for one number,
 * but then each result is a chain of fifty operations, of which a Neoverse-V1 can overlap two; four interleaved chains
 * take two thirds of the time.
 *
 * There are no branches, calls, tables or fused multiply-adds (which not every x86-64 processor has), so all machines
 * give the same bits. Selections use bit masks, because gcc 12 splits comparisons of such vectors into scalar ones. NaN
 * gives NaN. Files that include this header are compiled with -Wno-psabi: everything is inlined, so the calling
 * convention of such vectors does not matter. */
#ifndef NN_OPS_FUNCTIONS_H
#define NN_OPS_FUNCTIONS_H

#include "ops/clones.h"
#include "ops/lanes.h"
#include <string.h>

/* clang does not accept such vectors as arguments of functions inlined into a clone: there, these loops use SSE2 on
 * x86-64. */
#if defined(__clang__)
#undef NN_CLONES
#define NN_CLONES
#endif

typedef float nn_floats __attribute__((vector_size(NN_LANES * sizeof(float))));
typedef int32_t nn_ints __attribute__((vector_size(NN_LANES * sizeof(int32_t))));

NN_INLINE nn_floats nn_load(const float *from)
{
    nn_floats x;
    memcpy(&x, from, sizeof x);
    return x;
}

NN_INLINE void nn_store(float *to, nn_floats x) { memcpy(to, &x, sizeof x); }

/* ---- Selection -------------------------------------------------------------------------------------------------- */

/* a where the mask is all ones, b where it is 0. */
NN_INLINE nn_floats nn_pick(nn_ints mask, nn_floats a, nn_floats b)
{
    return (nn_floats)(((nn_ints)a & mask) | ((nn_ints)b & ~mask));
}

NN_INLINE nn_floats nn_abs(nn_floats x) { return (nn_floats)((nn_ints)x & 0x7fffffff); }
NN_INLINE nn_ints nn_negative(nn_floats x) { return (nn_ints)x >> 31; } /* a mask, by the sign bit */

/* The smaller of x >= 0 and the float whose bits are `high`: non-negative floats are ordered like their bits. NaN gives
 * `high`, so callers must propagate NaN in another way. */
NN_INLINE nn_floats nn_at_most(nn_floats x, int32_t high)
{
    nn_ints above = (high - (nn_ints)x) >> 31, most = (nn_ints){0} + high;
    return nn_pick(above, (nn_floats)most, x);
}

/* ---- exp -------------------------------------------------------------------------------------------------------- */

/* exp(x) for -88.02969 <= x <= 0. With n the integer nearest to x / ln 2 it is 2^n exp(r), |r| <= ln(2)/2. Adding 1.5 *
 * 2^23 + 127 rounds to an integer and leaves it, with the bias of the exponent, in the low bits of the float. n ln 2 is
 * subtracted in two parts, the first with so few bits that n times it is exact; exp(r) is 1 + r + r^2 times a
 * polynomial with minimal relative error (3.1e-9). With all rounding the relative error is below 1e-7 down to
 * exp(-87.3); at the lower end n is -127, and the result 0. */
NN_INLINE nn_floats nn_exp_held(nn_floats x)
{
    const float round = 12583039.0f;
    nn_floats shifted = x * 1.44269504f + round, n = shifted - round, power = (nn_floats)((nn_ints)shifted << 23);
    nn_floats r = (x - n * 0x1.62e4p-1f) - n * 1.42860677e-6f, square = r * r;
    nn_floats low = r * 1.666652113e-01f + 4.999999404e-01f, high = r * 8.368745446e-03f + 4.166838899e-02f;
    high = square * 1.381454058e-03f + high;
    nn_floats y = square * (high * square + low) + r;
    return y * power + power;
}

/* exp(x) for any x <= 0 but -infinity, which gives NaN, as NaN does. */
NN_INLINE nn_floats nn_exp(nn_floats x)
{
    const int32_t far = 0x42b00f34; /* 88.02969 */
    return nn_exp_held(-nn_at_most(nn_abs(x), far)) + x * 0;
}

/* ---- Activations ------------------------------------------------------------------------------------------------ */

/* A function and its derivative; unused results are not computed. Far from 0 the argument of exp is clamped where the
 * tail is 1e-33 or less, which avoids slow subnormal numbers; the results are accurate for |x| <= 1e9. */
typedef struct nn_slope {
    nn_floats value, slope;
} nn_slope;

/* The tail of the normal distribution, 1 - Phi(a), over exp(-a^2/2), for 0 <= a <= 14: a polynomial in t = 1 / (1 +
 * 0.26 a) without constant term, with minimal relative error (2.5e-8). Estrin's scheme instead of Horner's: the
 * dependency chain is half as long. */
NN_INLINE nn_floats nn_normal_ratio(nn_floats a)
{
    nn_floats t = 1 / (a * 0.26f + 1), t2 = t * t, t4 = t2 * t2;
    nn_floats p01 = t * 0.1030167414f + 0.1037590604f, p23 = t * 0.05102746729f + 0.1030303139f;
    nn_floats p45 = t * -0.1509495356f + 0.1609483068f, p67 = t * -0.1528289951f + 0.2514917157f;
    nn_floats p03 = t2 * p23 + p01, p47 = t2 * p67 + p45;
    return ((t4 * 0.03050491283f + p47) * t4 + p03) * t;
}

/* x Phi(x), and Phi(x) + x phi(x). */
NN_INLINE nn_slope nn_gelu(nn_floats x)
{
    const int32_t far = 0x41400000; /* 12 */
    nn_floats a = nn_at_most(nn_abs(x), far), e = nn_exp_held(a * a * -0.5f), tail = nn_normal_ratio(a) * e;
    nn_floats phi = nn_pick(nn_negative(x), tail, 1 - tail);
    return (nn_slope){x * phi, phi + x * e * 0.3989422804f};
}

/* x s, and s + x u' s (1 - s), for s = 1 / (1 + exp(-u)): s from exp(-|u|), without cancellation on either side. */
NN_INLINE nn_slope nn_times_sigmoid(nn_floats x, nn_floats u, nn_floats du)
{
    const int32_t far = 0x42a00000; /* 80 */
    nn_floats one = (nn_floats){0} + 1, e = nn_exp_held(-nn_at_most(nn_abs(u), far)), by = 1 / (1 + e);
    nn_floats s = nn_pick(nn_negative(u), e, one) * by;
    return (nn_slope){x * s, s + x * du * (e * by * by)};
}

NN_INLINE nn_slope nn_silu(nn_floats x) { return nn_times_sigmoid(x, x, (nn_floats){0} + 1); }

/* x/2 (1 + tanh(v)) is x / (1 + exp(-2v)); u = 2v = sqrt(8/pi) (x + 0.044715 x^3). */
NN_INLINE nn_slope nn_gelu_tanh(nn_floats x)
{
    nn_floats square = x * x;
    return nn_times_sigmoid(x, x * (square * 0.07135481283f + 1.595769122f), square * 0.2140644385f + 1.595769122f);
}

/* max(x, 0), and 1 where that is above 0: NaN stays NaN. */
NN_INLINE nn_slope nn_relu(nn_floats x)
{
    nn_floats value = (x + nn_abs(x)) * 0.5f, one = (nn_floats){0} + 1;
    nn_ints above = (0 - (nn_ints)value) >> 31;
    return (nn_slope){value, (nn_floats)((nn_ints)one & above)};
}

#endif
