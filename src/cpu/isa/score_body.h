/* What happens to a tile of scores between the product and the softmax: softcap, ALiBi, bias and mask, range; and to
 * its weights after it: dropout. */

/* tanh. Below 0.625 an odd polynomial (relative error 4e-9 before rounding), because 1 - 2/(e^2x + 1) cancels there;
 * above it (1 - e) / (1 + e) with e = exp(-2|x|). */
static inline vf vf_tanh(vf x)
{
    vf y = vf_mul(x, x), size = vf_abs(x), one = vf_set1(1.0f);
    vf p = vf_fma(y, vf_set1(-5.717045162e-03f), vf_set1(2.065058798e-02f));
    p = vf_fma(p, y, vf_set1(-5.374349654e-02f));
    p = vf_fma(p, y, vf_set1(1.333149076e-01f));
    p = vf_fma(p, y, vf_set1(-3.333328366e-01f));
    p = vf_fma(vf_mul(p, y), x, x);
    vf e = vf_exp(vf_mul(size, vf_set1(-2.0f)));
    vf far = vf_copysign(vf_div(vf_sub(one, e), vf_add(one, e)), x);
    return vf_where_less(size, vf_set1(0.625f), p, far);
}

static void softcap(float *s, int64_t lds, int64_t count, int64_t n, float cap)
{
    vf high = vf_set1(cap), low = vf_set1(1.0f / cap);
    for (int64_t j = 0; j < count; j++)
        for (int64_t i = 0; i < n; i += VF) {
            float *at = s + j * lds + i;
            vf_store(at, vf_mul(high, vf_tanh(vf_mul(vf_load(at), low))));
        }
}

static inline vf biased(vf s, vf bias)
{
    vf none = vf_set1(-INFINITY);
    return vf_where_equal(bias, none, none, vf_add(s, bias));
}

static void add_bias(float *s, int64_t lds, int64_t count, int64_t n, const float *bias, int64_t ldb)
{
    for (int64_t j = 0; j < count; j++)
        for (int64_t i = 0; i < n; i += VF) {
            float *at = s + j * lds + i;
            vf_store(at, biased(vf_load(at), vf_load(bias + j * ldb + i)));
        }
}

/* VF x VF pieces of the bias are transposed in registers; what is left over goes number by number. */
static void add_bias_rows(float *s, int64_t lds, int64_t count, int64_t n, const float *bias, int64_t ldb)
{
    for (int64_t i = 0; i < n; i += VF) {
        int64_t j = 0;
        for (; n - i >= VF && j + VF <= count; j += VF) {
            vf x[VF];
            REPEAT (v, VF) x[v] = vf_load(bias + (i + v) * ldb + j);
            vf_transpose(x);
            REPEAT (v, VF) {
                float *at = s + (j + v) * lds + i;
                vf_store(at, biased(vf_load(at), x[v]));
            }
        }
        for (; j < count; j++)
            for (int64_t r = i; r < i + VF && r < n; r++) {
                float b = bias[r * ldb + j], *at = s + j * lds + r;
                *at = b == -INFINITY ? b : *at + b;
            }
    }
}

static void hide(float *s, int64_t lds, int64_t count, int64_t n, const uint8_t *seen, int64_t ldm)
{
    vf none = vf_set1(-INFINITY);
    for (int64_t j = 0; j < count; j++)
        for (int64_t i = 0; i < n; i += VF) {
            float *at = s + j * lds + i;
            vf_store(at, vf_where_set(seen + j * ldm + i, vf_load(at), none));
        }
}

static void add_slopes(float *s, int64_t lds, int64_t count, int64_t n, const float *slope, const float *distance)
{
    vf zero = vf_set1(0.0f);
    for (int64_t i = 0; i < n; i += VF) {
        vf by = vf_sub(zero, vf_load(slope + i)), to = vf_load(distance + i);
        for (int64_t j = 0; j < count; j++) {
            float *at = s + j * lds + i;
            vf_store(at, vf_fma(by, vf_abs(vf_sub(to, vf_set1((float)j))), vf_load(at)));
        }
    }
}

static void limit(float *s, int64_t lds, int64_t count, int64_t n, const float *low, const float *high)
{
    vf none = vf_set1(-INFINITY);
    for (int64_t i = 0; i < n; i += VF) {
        vf from = vf_load(low + i), to = vf_load(high + i);
        for (int64_t j = 0; j < count; j++) {
            float *at = s + j * lds + i;
            vf here = vf_set1((float)j), x = vf_where_less(here, to, vf_load(at), none);
            vf_store(at, vf_where_less(here, from, none, x));
        }
    }
}

static void dot_lanes(float *sum, const float *a, const float *b, int64_t ld, int64_t k, int64_t n)
{
    for (int64_t i = 0; i < n; i += VF) {
        vf all = vf_set1(0.0f);
        for (int64_t j = 0; j < k; j++) all = vf_fma(vf_load(a + j * ld + i), vf_load(b + j * ld + i), all);
        vf_store(sum + i, all);
    }
}

static void gradient(float *ds, const float *p, const float *dp, int64_t lds, int64_t count, int64_t n,
                     const float *delta, float kept)
{
    vf zero = vf_set1(0.0f), by = vf_set1(kept);
    for (int64_t i = 0; i < n; i += VF) {
        vf minus = vf_sub(zero, vf_load(delta + i));
        for (int64_t j = 0; j < count; j++) {
            int64_t at = j * lds + i;
            vf weight = vf_load(p + at), x = vf_mul(weight, vf_fma(vf_load(dp + at), by, minus));
            vf_store(ds + at, vf_where_equal(weight, zero, zero, x));
        }
    }
}

static void uncap(float *ds, const float *s, int64_t lds, int64_t count, int64_t n, float cap)
{
    vf low = vf_set1(1.0f / cap), zero = vf_set1(0.0f), one = vf_set1(1.0f);
    for (int64_t j = 0; j < count; j++)
        for (int64_t i = 0; i < n; i += VF) {
            vf x = vf_mul(vf_load(s + j * lds + i), low), d = vf_load(ds + j * lds + i);
            vf y = vf_mul(d, vf_fma(vf_sub(zero, x), x, one));
            vf_store(ds + j * lds + i, vf_where_equal(d, zero, zero, y)); /* a hidden score may be NaN */
        }
}

static void add_distances(float *sum, const float *ds, int64_t lds, int64_t count, int64_t n, const float *distance)
{
    for (int64_t i = 0; i < n; i += VF) {
        vf total = vf_set1(0.0f), to = vf_load(distance + i);
        for (int64_t j = 0; j < count; j++)
            total = vf_fma(vf_load(ds + j * lds + i), vf_abs(vf_sub(to, vf_set1((float)j))), total);
        vf_store(sum + i, vf_add(vf_load(sum + i), total));
    }
}

/* One counter gives four keys of one lane; the counters of sixteen lanes go side by side in plain loops that the
 * compiler turns into vectors. */
static void drop(float *p, int64_t lds, int64_t count, int64_t n, int64_t first, const mha_drop *drop)
{
    enum { SIDE = 16 };
    for (int64_t i = 0; i < n; i += SIDE)
        for (int64_t j = 0; j < count; j += 4) {
            uint32_t c[4][SIDE], k0 = (uint32_t)drop->seed, k1 = (uint32_t)(drop->seed >> 32);
            for (int u = 0; u < SIDE; u++) {
                c[0][u] = (uint32_t)((first + j) / 4);
                c[1][u] = drop->query[i + u];
                c[2][u] = drop->head[i + u];
                c[3][u] = drop->stream;
            }
            for (int round = 0; round < MHA_PHILOX_ROUNDS; round++) {
                for (int u = 0; u < SIDE; u++) mha_philox_round(&c[0][u], &c[1][u], &c[2][u], &c[3][u], k0, k1);
                k0 += MHA_PHILOX_W0;
                k1 += MHA_PHILOX_W1;
            }
            for (int64_t t = 0; t < 4 && j + t < count; t++)
                for (int64_t u = 0; u < SIDE && i + u < n; u++)
                    if (c[t][u] < drop->threshold) p[(j + t) * lds + i + u] = 0.0f;
        }
}
