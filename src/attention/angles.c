#include "attention/angles.h"

mha_step mha_step_multiply(mha_step a, mha_step b)
{
    double product = a.high * b.high;
    double error = fma(a.high, b.high, -product) + (a.high * b.low + a.low * b.high);
    double high = product + error;
    return (mha_step){high, error - (high - product)};
}

static mha_step power(mha_step x, int64_t n)
{
    mha_step result = {1, 0};
    for (;; x = mha_step_multiply(x, x)) {
        if (n & 1) result = mha_step_multiply(result, x);
        n >>= 1;
        if (!n) return result;
    }
}

/* One step of Newton's method from the root in float64: with root^n base = 1 + e, the exact one is root (1 - e/n). */
mha_step mha_step_ratio(double base, int64_t n)
{
    double root = pow(base, -1.0 / (double)n);
    mha_step one = mha_step_multiply(power((mha_step){root, 0}, n), (mha_step){base, 0});
    double excess = one.high - 1 + one.low;
    if (!(fabs(excess) < 1)) return (mha_step){root, 0}; /* root^n is no float64 number */
    return mha_step_multiply((mha_step){root, 0}, (mha_step){1, -excess / (double)n});
}

/* The angle is a + t, where a is a float64 number, which libm reduces exactly, and t is what it lacks. */
mha_angle mha_angle_get(mha_step step, int64_t position, double multiplier)
{
    double p = (double)position, a = p * step.high, t = fma(p, step.high, -a) + p * step.low;
    double c = cos(a), s = sin(a), less = cos(t), more = sin(t);
    return (mha_angle){(float)(multiplier * (c * less - s * more)), (float)(multiplier * (s * less + c * more))};
}
