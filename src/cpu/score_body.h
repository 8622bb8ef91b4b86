/* What happens to a row of scores between the product and the softmax: softcap, bias, ALiBi, mask; and to its weights
 * after it: dropout. */

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

static void softcap(float *s, int64_t n, float cap)
{
    vf high = vf_set1(cap), low = vf_set1(1.0f / cap);
    for (int64_t j = 0; j < n; j += VF) vf_store(s + j, vf_mul(high, vf_tanh(vf_mul(vf_load(s + j), low))));
}

static void add_bias(float *s, const float *bias, int64_t n)
{
    vf none = vf_set1(-INFINITY);
    for (int64_t j = 0; j < n; j += VF) {
        vf b = vf_load(bias + j);
        vf_store(s + j, vf_where_equal(b, none, none, vf_add(vf_load(s + j), b)));
    }
}

static void add_slope(float *s, int64_t n, float slope, float distance)
{
    vf by = vf_set1(-slope), to = vf_set1(distance), step = vf_set1((float)VF), at = vf_iota();
    for (int64_t j = 0; j < n; j += VF) {
        vf_store(s + j, vf_fma(by, vf_abs(vf_sub(to, at)), vf_load(s + j)));
        at = vf_add(at, step);
    }
}

static void hide(float *s, const uint8_t *mask, int64_t n)
{
    vf none = vf_set1(-INFINITY);
    for (int64_t j = 0; j < n; j += VF) vf_store(s + j, vf_where_mask(mask + j, vf_load(s + j), none));
}

/* Four counters side by side, which is sixteen keys: plain loops over them that the compiler turns into vectors. */
static void drop(float *p, int64_t n, int64_t first, const mha_drop_row *row)
{
    enum { SIDE = MHA_PAD / 4 };
    for (int64_t j = 0; j < n; j += MHA_PAD) {
        uint32_t c0[SIDE], c1[SIDE], c2[SIDE], c3[SIDE], k0 = (uint32_t)row->seed, k1 = (uint32_t)(row->seed >> 32);
        for (int u = 0; u < SIDE; u++) {
            c0[u] = (uint32_t)((first + j) / 4 + u);
            c1[u] = row->query;
            c2[u] = row->head;
            c3[u] = row->stream;
        }
        for (int round = 0; round < MHA_PHILOX_ROUNDS; round++) {
            for (int u = 0; u < SIDE; u++) mha_philox_round(&c0[u], &c1[u], &c2[u], &c3[u], k0, k1);
            k0 += MHA_PHILOX_W0;
            k1 += MHA_PHILOX_W1;
        }
        for (int u = 0; u < SIDE; u++) {
            float *to = p + j + 4 * u;
            if (c0[u] < row->threshold) to[0] = 0.0f;
            if (c1[u] < row->threshold) to[1] = 0.0f;
            if (c2[u] < row->threshold) to[2] = 0.0f;
            if (c3[u] < row->threshold) to[3] = 0.0f;
        }
    }
}
