/* Activations and their slopes: the epilogue of the matrix product and the activation operations share these functions.
 * NaN gives NaN; infinities give what the function tends to. */

typedef struct curve {
    vf value, slope;
} curve;

static inline vf vf_at_most(vf x, float high) /* NaN stays NaN */
{
    vf most = vf_set1(high);
    return vf_where_less(most, x, most, x);
}

/* The tail of the normal distribution, 1 - Phi(a), over exp(-a^2/2), for 0 <= a <= 14: a polynomial in
 * t = 1 / (1 + 0.26 a) without constant term, fitted to the least relative error (2.5e-8). Estrin's scheme, not Horner's:
 * the chain of dependent operations is half as long. */
static inline vf vf_normal_ratio(vf a)
{
    vf one = vf_set1(1.0f), t = vf_div(one, vf_fma(a, vf_set1(0.26f), one)), t2 = vf_mul(t, t), t4 = vf_mul(t2, t2);
    vf p01 = vf_fma(t, vf_set1(0.1030167414f), vf_set1(0.1037590604f));
    vf p23 = vf_fma(t, vf_set1(0.05102746729f), vf_set1(0.1030303139f));
    vf p45 = vf_fma(t, vf_set1(-0.1509495356f), vf_set1(0.1609483068f));
    vf p67 = vf_fma(t, vf_set1(-0.1528289951f), vf_set1(0.2514917157f));
    vf p03 = vf_fma(t2, p23, p01), p47 = vf_fma(t2, p67, p45);
    return vf_mul(vf_fma(vf_fma(t4, vf_set1(0.03050491283f), p47), t4, p03), t);
}

/* exp(-a^2/2). The exponent is taken in two parts, or its rounding error would grow with a^2. */
static inline vf vf_bell(vf a)
{
    vf half = vf_mul(a, vf_set1(-0.5f)), square = vf_mul(half, a);
    vf rest = vf_fma(half, a, vf_sub(vf_set1(0.0f), square)), e = vf_exp(square);
    return vf_fma(e, rest, e);
}

/* x Phi(x), and Phi(x) + x phi(x). Beyond 14 the tail is 0 in float32, and infinities stay out of the products. */
static inline curve vf_gelu(vf x)
{
    vf zero = vf_set1(0.0f), a = vf_at_most(vf_abs(x), 14.0f), e = vf_bell(a), tail = vf_mul(vf_normal_ratio(a), e);
    vf phi = vf_where_less(x, zero, tail, vf_sub(vf_set1(1.0f), tail));
    vf bump = vf_mul(vf_copysign(a, x), e);
    return (curve){vf_mul(vf_max(vf_set1(-14.0f), x), phi), vf_fma(bump, vf_set1(0.3989422804f), phi)};
}

/* x s, and s + x u' s (1 - s), for s = 1 / (1 + exp(-u)): s from exp(-|u|), without cancellation on either side. x is at
 * least -128, where s is 0; in the slope it is at most 128, where 1 - s is 0. */
static inline curve vf_times_sigmoid(vf x, vf u, vf du)
{
    vf one = vf_set1(1.0f), zero = vf_set1(0.0f), e = vf_exp(vf_sub(zero, vf_abs(u))), by = vf_div(one, vf_add(one, e));
    vf s = vf_mul(vf_where_less(u, zero, e, one), by), bump = vf_mul(vf_at_most(x, 128.0f), vf_mul(du, vf_mul(e, by)));
    return (curve){vf_mul(x, s), vf_fma(bump, by, s)};
}

static inline curve vf_silu(vf x)
{
    x = vf_max(vf_set1(-128.0f), x);
    return vf_times_sigmoid(x, x, vf_set1(1.0f));
}

/* x/2 (1 + tanh(v)) is x / (1 + exp(-2v)); u = 2v = sqrt(8/pi) (x + 0.044715 x^3). */
static inline curve vf_gelu_tanh(vf x)
{
    x = vf_max(vf_set1(-128.0f), x); /* -inf times 0 would be NaN */
    vf square = vf_mul(x, x), near = vf_at_most(square, 16384.0f), linear = vf_set1(1.595769122f);
    vf u = vf_mul(x, vf_fma(square, vf_set1(0.07135481283f), linear));
    return vf_times_sigmoid(x, u, vf_fma(near, vf_set1(0.2140644385f), linear));
}

static inline curve vf_quick_gelu(vf x)
{
    x = vf_max(vf_set1(-128.0f), x);
    vf by = vf_set1(1.702f);
    return vf_times_sigmoid(x, vf_mul(x, by), by);
}

static inline curve vf_hyperbolic(vf x)
{
    vf t = vf_tanh(x);
    return (curve){t, vf_sub(vf_set1(1.0f), vf_mul(t, t))};
}

static inline curve vf_relu_squared(vf x)
{
    vf above = vf_max(vf_set1(0.0f), x);
    return (curve){vf_mul(above, above), vf_add(above, above)};
}

static inline curve vf_relu(vf x)
{
    vf zero = vf_set1(0.0f);
    return (curve){vf_max(zero, x), vf_where_less(zero, x, vf_set1(1.0f), zero)};
}

static inline __attribute__((always_inline)) curve vf_curve(const mha_activation activation, vf x)
{
    switch (activation) {
    case MHA_RELU:
        return vf_relu(x);
    case MHA_GELU:
        return vf_gelu(x);
    case MHA_GELU_TANH:
        return vf_gelu_tanh(x);
    case MHA_SILU:
        return vf_silu(x);
    case MHA_TANH:
        return vf_hyperbolic(x);
    case MHA_QUICK_GELU:
        return vf_quick_gelu(x);
    case MHA_RELU_SQUARED:
        return vf_relu_squared(x);
    default:
        return (curve){x, vf_set1(1.0f)};
    }
}

/* Calls the function with the activation as a constant, so that its loops have no branches. */
#define WITH_ACTIVATION(activation, function, ...) \
    switch (activation) {                          \
    case MHA_RELU:                                 \
        function(MHA_RELU, __VA_ARGS__);           \
        break;                                     \
    case MHA_GELU:                                 \
        function(MHA_GELU, __VA_ARGS__);           \
        break;                                     \
    case MHA_GELU_TANH:                            \
        function(MHA_GELU_TANH, __VA_ARGS__);      \
        break;                                     \
    case MHA_SILU:                                 \
        function(MHA_SILU, __VA_ARGS__);           \
        break;                                     \
    case MHA_TANH:                                 \
        function(MHA_TANH, __VA_ARGS__);           \
        break;                                     \
    case MHA_QUICK_GELU:                           \
        function(MHA_QUICK_GELU, __VA_ARGS__);     \
        break;                                     \
    case MHA_RELU_SQUARED:                         \
        function(MHA_RELU_SQUARED, __VA_ARGS__);   \
        break;                                     \
    case MHA_LINEAR:                               \
        function(MHA_LINEAR, __VA_ARGS__);         \
        break;                                     \
    }

enum { CURVES = VF == 4 ? 4 : 2 }; /* vectors under way at once: each is a chain of some forty operations */

/* n is a multiple of CURVES vectors. Each of them goes through the same operations, so the bits of a number do not depend
 * on its place. */
static inline __attribute__((always_inline)) void activate_numbers(const mha_activation activation, float *h,
                                                                   float *slope, const float *z, int64_t n)
{
    for (int64_t i = 0; i < n; i += CURVES * VF) {
        curve f[CURVES];
        REPEAT (u, CURVES) f[u] = vf_curve(activation, vf_load(z + i + u * VF));
        REPEAT (u, CURVES) vf_store(h + i + u * VF, f[u].value);
        if (slope)
            REPEAT (u, CURVES) vf_store(slope + i + u * VF, f[u].slope);
    }
}

static ALONE void activate_whole(float *h, float *slope, const float *z, int64_t n, mha_activation activation)
{
    WITH_ACTIVATION(activation, activate_numbers, h, slope, z, n)
}

/* The last numbers by way of the stack, with zeros behind them. */
static void activate(float *h, float *slope, const float *z, int64_t n, mha_activation activation)
{
    enum { WIDE = CURVES * VF };
    int64_t whole = n - n % WIDE, rest = n - whole;
    activate_whole(h, slope, z, whole, activation);
    if (!rest) return;
    float value[WIDE], by[WIDE], x[WIDE] = {0};
    memcpy(x, z + whole, (size_t)rest * sizeof *x);
    activate_whole(value, by, x, WIDE, activation);
    memcpy(h + whole, value, (size_t)rest * sizeof *value);
    if (slope) memcpy(slope + whole, by, (size_t)rest * sizeof *by);
}

/* A few numbers at a time, whose values and slopes stay in L1. */
static void activate_gated(float *h, float *da, float *db, const float *a, const float *b, int64_t n,
                           mha_activation activation)
{
    enum { WIDE = 256 };
    float value[WIDE], slope[WIDE];
    for (int64_t i = 0; i < n; i += WIDE) {
        int64_t count = n - i < WIDE ? n - i : WIDE;
        activate(value, da ? slope : NULL, a + i, count, activation);
        for (int64_t k = 0; k < count; k += VF) {
            int64_t left = count - k;
            vf other = vf_load_some(b + i + k, left), y = vf_load_some(value + k, left);
            vf_store_some(h + i + k, vf_mul(y, other), left);
            if (!da) continue;
            vf_store_some(da + i + k, vf_mul(vf_load_some(slope + k, left), other), left);
            vf_store_some(db + i + k, y, left);
        }
    }
}
