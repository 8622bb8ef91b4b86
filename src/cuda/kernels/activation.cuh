/* Activations and their slopes. NaN gives NaN; infinities give what the function tends to. */
#ifndef MHA_CUDA_ACTIVATION_CUH
#define MHA_CUDA_ACTIVATION_CUH

#include "inline.cuh"
#include <math.h>

enum { LINEAR, RELU, GELU, GELU_TANH, SILU, TANH, QUICK_GELU, RELU_SQUARED }; /* mha_activation */

struct curve {
    float value, slope;
};

MHA_DEVICE float at_most(float x, float high) { return x > high ? high : x; } /* NaN stays NaN */
MHA_DEVICE float at_least(float x, float low) { return x < low ? low : x; }

/* x Phi(x), and Phi(x) + x phi(x). From 14 on the tail counts as 0, and infinities stay out of the products. */
MHA_DEVICE curve gelu(float x)
{
    float a = at_most(fabsf(x), 14.0f);
    double tail = 0.5 * erfc((double)a * 0.70710678118654752440), bell = exp(-0.5 * (double)a * (double)a);
    if (a == 14.0f) tail = bell = 0;
    float phi = (float)(x < 0 ? tail : 1 - tail);
    if (x != x) phi = x;
    return {at_least(x, -14.0f) * phi, (float)((double)phi + copysign((double)a, (double)x) * bell * 0.39894228040143267794)};
}

/* x s, and s + x u' s (1 - s), for s = 1 / (1 + exp(-u)): s from exp(-|u|), without cancellation on either side. x is at
 * least -128, where s is 0; in the slope it is at most 128, where 1 - s is 0. */
MHA_DEVICE curve times_sigmoid(float x, float u, float du)
{
    float e = expf(-fabsf(u)), by = 1.0f / (1.0f + e), s = (u < 0 ? e : 1.0f) * by;
    float bump = at_most(x, 128.0f) * (du * (e * by));
    return {x * s, fmaf(bump, by, s)};
}

MHA_DEVICE curve silu(float x)
{
    x = at_least(x, -128.0f);
    return times_sigmoid(x, x, 1.0f);
}

/* x/2 (1 + tanh(v)) is x / (1 + exp(-2v)); u = 2v = sqrt(8/pi) (x + 0.044715 x^3). */
MHA_DEVICE curve gelu_tanh(float x)
{
    x = at_least(x, -128.0f); /* -inf times 0 would be NaN */
    float square = x * x, near = at_most(square, 16384.0f);
    float u = x * fmaf(square, 0.07135481283f, 1.595769122f);
    return times_sigmoid(x, u, fmaf(near, 0.2140644385f, 1.595769122f));
}

MHA_DEVICE curve quick_gelu(float x)
{
    x = at_least(x, -128.0f);
    return times_sigmoid(x, x * 1.702f, 1.702f);
}

MHA_DEVICE curve hyperbolic(float x)
{
    float t = tanhf(x);
    return {t, fmaf(-t, t, 1.0f)};
}

MHA_DEVICE curve curve_of(int activation, float x)
{
    float above = x > 0 || x != x ? x : 0.0f;
    if (activation == RELU) return {above, x > 0 ? 1.0f : 0.0f};
    if (activation == RELU_SQUARED) return {above * above, above + above};
    if (activation == TANH) return hyperbolic(x);
    if (activation == QUICK_GELU) return quick_gelu(x);
    if (activation == GELU) return gelu(x);
    if (activation == GELU_TANH) return gelu_tanh(x);
    if (activation == SILU) return silu(x);
    return {x, 1.0f};
}

#endif
