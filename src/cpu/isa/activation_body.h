/* Activations and their slopes: the epilogue of the matrix product and the activation operations share these functions.
 * A slope that nobody reads is not computed. NaN gives NaN; infinities give what the function tends to. */

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
    case MHA_LINEAR:                               \
        function(MHA_LINEAR, __VA_ARGS__);         \
        break;                                     \
    }

enum { CURVES = VF == 16 ? 2 : 4 }; /* vectors under way at once: each is a chain of some forty operations */

/* Every vector of them goes through the same operations, so the bits of a number do not depend on its place. */
static inline __attribute__((always_inline)) void activate_numbers(const mha_activation activation, float *h,
                                                                   float *slope, const float *z, int64_t n)
{
    int64_t i = 0;
    for (; i + CURVES * VF <= n; i += CURVES * VF) {
        curve f[CURVES];
        REPEAT (u, CURVES) f[u] = vf_curve(activation, vf_load(z + i + u * VF));
        REPEAT (u, CURVES) vf_store(h + i + u * VF, f[u].value);
        if (slope)
            REPEAT (u, CURVES) vf_store(slope + i + u * VF, f[u].slope);
    }
    for (; i < n; i += VF) {
        curve f = vf_curve(activation, vf_load_some(z + i, n - i));
        vf_store_some(h + i, f.value, n - i);
        if (slope) vf_store_some(slope + i, f.slope, n - i);
    }
}

static __attribute__((noinline)) void activate(float *h, float *slope, const float *z, int64_t n,
                                               mha_activation activation)
{
    if (slope) WITH_ACTIVATION(activation, activate_numbers, h, slope, z, n)
    else WITH_ACTIVATION(activation, activate_numbers, h, NULL, z, n)
}

static inline __attribute__((always_inline)) void activate_gate(const mha_activation activation, float *h, float *da,
                                                                float *db, const float *a, const float *b, int64_t i,
                                                                int64_t left)
{
    curve f = vf_curve(activation, vf_load_some(a + i, left));
    vf other = vf_load_some(b + i, left);
    vf_store_some(h + i, vf_mul(f.value, other), left);
    if (!da) return;
    vf_store_some(da + i, vf_mul(f.slope, other), left);
    vf_store_some(db + i, f.value, left);
}

static inline __attribute__((always_inline)) void activate_gates(const mha_activation activation, float *h, float *da,
                                                                 float *db, const float *a, const float *b, int64_t n)
{
    int64_t i = 0;
    for (; i + CURVES * VF <= n; i += CURVES * VF)
        REPEAT (u, CURVES) activate_gate(activation, h, da, db, a, b, i + u * VF, VF);
    for (; i + VF <= n; i += VF) activate_gate(activation, h, da, db, a, b, i, VF);
    if (i < n) activate_gate(activation, h, da, db, a, b, i, n - i);
}

static void activate_gated(float *h, float *da, float *db, const float *a, const float *b, int64_t n,
                           mha_activation activation)
{
    if (da) WITH_ACTIVATION(activation, activate_gates, h, da, db, a, b, n)
    else WITH_ACTIVATION(activation, activate_gates, h, NULL, NULL, a, b, n)
}
