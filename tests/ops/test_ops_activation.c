/* The activations of mha_ops.h against libm's float64, over the whole line, with every instruction set.
 *
 * A value of GELU or SiLU is off by 2e-7, or by 3u of itself where it is
 * large: x, the distribution and their product are rounded. A slope is a sum of such a distribution, below 1, and of a
 * bump x phi(x), below 1/4, each with an exponential whose argument is rounded: 4e-7. */
#include "support/contexts.h"
#include "support/harness.h"
#include "support/numbers.h"
#include <mha_ops.h>

static const double u = 0x1p-24;

/* ---- The formulas ----------------------------------------------------------------------------------------------- */

static double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
static double normal(double x) { return erfc(-x / sqrt(2)) / 2; }

static double value(mha_activation f, double x)
{
    const double inner = 2 * sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x);
    if (f == MHA_LINEAR) return x;
    if (f == MHA_TANH) return tanh(x);
    if (f == MHA_QUICK_GELU) return x * sigmoid(1.702 * x);
    if (f == MHA_RELU_SQUARED) return x > 0 ? x * x : 0;
    return f == MHA_RELU ? (x > 0 ? x : 0) : f == MHA_GELU ? x * normal(x) : x * sigmoid(f == MHA_SILU ? x : inner);
}

/* By central differences: the formula of the slope is not written a second time. Their own error is below 1e-9. */
static double slope(mha_activation f, double x)
{
    const double step = 1e-5 * fmax(1, fabs(x));
    if (f == MHA_LINEAR) return 1;
    if (f == MHA_RELU) return x > 0;
    if (f == MHA_RELU_SQUARED) return x > 0 ? 2 * x : 0;
    return (value(f, x + step) - value(f, x - step)) / (2 * step);
}

/* ---- Calls ------------------------------------------------------------------------------------------------------ */

/* slope may be NULL. */
static void activate(mha_context *ctx, mha_activation f, float *h, float *slope, const float *z, int64_t count)
{
    mha_tensor none = MHA_NO_TENSOR, by = slope ? mha_tensor_2d(slope, MHA_FLOAT32, 1, count) : none;
    expect(!mha_activation_forward(ctx, mha_tensor_2d(h, MHA_FLOAT32, 1, count), by,
                                   mha_tensor_2d(z, MHA_FLOAT32, 1, count), f),
           "%s", mha_context_error(ctx));
}

static void gate(mha_context *ctx, mha_activation f, float *h, float *slope, const float *z, int64_t rows,
                 int64_t width)
{
    mha_tensor none = MHA_NO_TENSOR, by = slope ? mha_tensor_2d(slope, MHA_FLOAT32, rows, 2 * width) : none;
    expect(!mha_gated_forward(ctx, mha_tensor_2d(h, MHA_FLOAT32, rows, width), by,
                              mha_tensor_2d(z, MHA_FLOAT32, rows, 2 * width), f),
           "%s", mha_context_error(ctx));
}

/* ---- One number in ---------------------------------------------------------------------------------------------- */

static void check(mha_activation f, const float *z, const float *h, const float *d, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        double x = (double)z[i], want = value(f, x), by = slope(f, x);
        expect(fabs((double)h[i] - want) <= 2e-7 + 3 * u * fabs(want), "f%d(%.9g) is %.9g, not %.9g", (int)f, x,
               (double)h[i], want);
        if ((f != MHA_RELU && f != MHA_RELU_SQUARED) || x != 0)
            expect(fabs((double)d[i] - by) <= 4e-7 + u * fabs(by), "f%d'(%.9g) is %.9g, not %.9g", (int)f, x,
                   (double)d[i], by);
    }
}

TEST(activations_and_slopes)
{
    enum { COUNT = 40000 };
    float *z = array(COUNT, sizeof *z), *h = array(COUNT, sizeof *h), *d = array(COUNT, sizeof *d);
    const float far[] = {0, -0.0f, 40, -40, 12, -12, 12.1f, -12.1f, 80, -80, 81, -81, 1e4f, -1e4f, 1e9f, -1e9f, 1e-30f};
    for (int i = 0; i < COUNT; i++) z[i] = (float)(i - COUNT / 2) * (i % 2 ? 4e-4f : 1e-3f);
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) z[i * 37] = far[i];
    for_each_isa (isa) {
        mha_context *ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL);
        for (int f = MHA_LINEAR; f <= MHA_RELU_SQUARED; f++) {
            activate(ctx, (mha_activation)f, h, d, z, COUNT);
            check((mha_activation)f, z, h, d, COUNT);
        }
        mha_context_free(ctx);
    }
    free(z);
    free(h);
    free(d);
}

/* The first and the last of any number of them, in place, with and without slopes, and nothing beside them. */
TEST(any_count)
{
    const int64_t counts[] = {0, 1, 7, 15, 16, 17, 31, 64, 65, 1000, 4095, 4096, 4097, 12289};
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
        for (int f = MHA_RELU; f <= MHA_RELU_SQUARED; f++) {
            int64_t n = counts[k];
            float *z = array(n + 1, sizeof *z), *h = array(n + 1, sizeof *h), *d = array(n + 1, sizeof *d);
            rng r = rng_make((uint64_t)n, 1);
            for (int64_t i = 0; i < n; i++) d[i] = z[i] = (float)(6 * rng_uniform(&r) - 3);
            h[n] = d[n] = 77;
            activate(ctx, (mha_activation)f, h, d, d, n);
            check((mha_activation)f, z, h, d, n);
            expect(h[n] == 77 && d[n] == 77, "wrote beside %d numbers", (int)n);
            float *alone = array(n + 1, sizeof *alone), *dh = array(n + 1, sizeof *dh);
            activate(ctx, (mha_activation)f, alone, NULL, z, n);
            expect(!memcmp(alone, h, (size_t)n * sizeof *h), "without slopes, %d numbers differ", (int)n);
            for (int64_t i = 0; i <= n; i++) dh[i] = (float)i - 5;
            expect(!mha_activation_backward(ctx, mha_tensor_2d(dh, MHA_FLOAT32, 1, n),
                                            mha_tensor_2d(d, MHA_FLOAT32, 1, n)),
                   "%s", mha_context_error(ctx));
            for (int64_t i = 0; i <= n; i++)
                expect(dh[i] == ((float)i - 5) * (i < n ? d[i] : 1), "dz[%d] of %d", (int)i, (int)n);
            free(z), free(h), free(d), free(alone), free(dh);
        }
    mha_context_free(ctx);
}

/* NaN stays NaN; at infinity functions and slopes have their limits. */
TEST(not_finite)
{
    for_each_isa (isa) {
        mha_context *ctx = context_make(isa, 1, (mha_parallel){NULL, NULL}, NULL);
        for (int f = MHA_LINEAR; f <= MHA_RELU_SQUARED; f++) {
            float z[5] = {1, NAN, -NAN, INFINITY, -INFINITY}, h[5], d[5];
            activate(ctx, (mha_activation)f, h, d, z, 5);
            expect(!isnan(h[0]) && isnan(h[1]) && isnan(h[2]), "%s: activation %d hides NaN", isa, f);
            bool squared = f == MHA_RELU_SQUARED;
            expect(f == MHA_TANH ? h[3] == 1 && d[3] == 0 : h[3] == INFINITY && d[3] == (squared ? INFINITY : 1),
                   "%s: activation %d of inf: %g, %g", isa, f, (double)h[3], (double)d[3]);
            expect(f == MHA_TANH ? h[4] == -1 && d[4] == 0
                   : f           ? h[4] == 0 && d[4] == 0
                                 : h[4] == -INFINITY,
                   "%s: activation %d of -inf: %g, %g", isa, f, (double)h[4], (double)d[4]);
        }
        mha_context_free(ctx);
    }
}

/* ---- Gates ------------------------------------------------------------------------------------------------------ */

/* One product more than the activation: 2e-7 of b, 4u of the result. */
static void check_gated(mha_context *ctx, mha_activation f, int64_t rows, int64_t width)
{
    int64_t n = rows * width;
    float *z = array(2 * n + 1, sizeof *z), *kept = array(2 * n + 1, sizeof *kept), *h = array(n + 1, sizeof *h);
    float *dh = array(n + 1, sizeof *dh), *alone = array(n + 1, sizeof *alone);
    rng r = rng_make((uint64_t)n, 2);
    for (int64_t i = 0; i < 2 * n; i++) kept[i] = z[i] = (float)(20 * rng_uniform(&r) - 10);
    for (int64_t i = 0; i < n; i++) dh[i] = (float)(2 * rng_uniform(&r) - 1);
    h[n] = z[2 * n] = 77;
    gate(ctx, f, alone, NULL, z, rows, width);
    gate(ctx, f, h, z, z, rows, width);
    expect(!mha_gated_backward(ctx, mha_tensor_2d(z, MHA_FLOAT32, rows, 2 * width),
                               mha_tensor_2d(dh, MHA_FLOAT32, rows, width)),
           "%s", mha_context_error(ctx));
    expect(h[n] == 77 && z[2 * n] == 77, "wrote beside (%d,%d)", (int)rows, (int)width);
    expect(!memcmp(alone, h, (size_t)n * sizeof *h), "without slopes, (%d,%d) differs", (int)rows, (int)width);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i / width * 2 * width + i % width;
        double a = (double)kept[at], b = (double)kept[at + width], d = (double)dh[i], by = value(f, a);
        double da = d * b * slope(f, a), db = d * by;
        expect(fabs((double)h[i] - by * b) <= 2e-7 * fabs(b) + 4 * u * fabs(by * b), "f%d: h[%d] is %.9g, not %.9g",
               (int)f, (int)i, (double)h[i], by * b);
        expect(fabs((double)z[at] - da) <= 4e-7 * fabs(b * d) + 4 * u * fabs(da), "f%d: da[%d] is %.9g, not %.9g",
               (int)f, (int)i, (double)z[at], da);
        expect(fabs((double)z[at + width] - db) <= 2e-7 * fabs(d) + 4 * u * fabs(db), "f%d: db[%d]", (int)f, (int)i);
    }
    free(z), free(kept), free(h), free(dh), free(alone);
}

TEST(gates_of_all_activations)
{
    const int64_t rows[] = {0, 1, 63, 64, 65, 300}, widths[] = {1, 7, 16, 64, 65, 131};
    for_each_isa (isa) {
        mha_context *ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL);
        for (int f = MHA_LINEAR; f <= MHA_RELU_SQUARED; f++) {
            for (int i = 0; i < 6; i++)
                for (int j = 0; j < 6; j++)
                    if (sampled()) check_gated(ctx, (mha_activation)f, rows[i], widths[j]);
            check_gated(ctx, (mha_activation)f, 3, 1000);
        }
        mha_context_free(ctx);
    }
}
