/* Exponentials, and one tile of a streaming softmax.
 *
 * exp(x) = 2^n exp(r) with n the integer nearest to x / ln 2 and |r| <= ln(2)/2. Adding 1.5 * 2^23 rounds to an integer
 * and leaves it in the low bits of the float, where vf_pow2 wants it. ln 2 is taken off in two parts, of which the
 * first has so few bits that n times it is exact. exp(r) is 1 + r + r^2 times a polynomial fitted to the least relative
 * error (3.1e-9); with all rounding the result is within 1 unit in the last place down to exp(-87.3), where degree 5
 * instead of 6 would give 2.3. Below -127 ln 2 the result is 0, so that -inf gives 0; NaN gives NaN. */

static inline vf vf_exp(vf x) /* x <= 0 */
{
    const vf round = vf_set1(12582912.0f);
    x = vf_max(vf_set1(-88.02969f), x);
    vf shifted = vf_fma(x, vf_set1(1.44269504f), round), n = vf_sub(shifted, round);
    vf r = vf_fma(n, vf_set1(-0x1.62e4p-1f), x);
    r = vf_fma(n, vf_set1(-1.42860677e-6f), r);
    vf y = vf_fma(r, vf_set1(1.381454058e-03f), vf_set1(8.368745446e-03f));
    y = vf_fma(y, r, vf_set1(4.166838899e-02f));
    y = vf_fma(y, r, vf_set1(1.666652113e-01f));
    y = vf_fma(y, r, vf_set1(4.999999404e-01f));
    y = vf_fma(vf_mul(r, r), y, r);
    return vf_mul(vf_add(y, vf_set1(1.0f)), vf_pow2(shifted));
}

static inline float row_max(const float *s, int64_t n)
{
    vf a = vf_load(s), b = a;
    int64_t j = VF;
    for (; j + 2 * VF <= n; j += 2 * VF) {
        a = vf_max(a, vf_load(s + j));
        b = vf_max(b, vf_load(s + j + VF));
    }
    for (; j < n; j += VF) a = vf_max(a, vf_load(s + j));
    return vf_reduce_max(vf_max(a, b));
}

/* s = exp(s - max); returns the sum. The lanes of the sum are fixed by the column alone, so columns that are hidden
 * (and add an exact 0) at either end do not move its bits. */
static inline float row_exp(float *s, int64_t n, float max)
{
    vf shift = vf_set1(max), total = vf_set1(0.0f);
    for (int64_t j = 0; j < n; j += VF) {
        vf p = vf_exp(vf_sub(vf_load(s + j), shift));
        vf_store(s + j, p);
        total = vf_add(total, p);
    }
    return vf_reduce_add(total);
}

/* Two sweeps, not one: the maximum must be final before the first exp, or every early term needs a rescale. The fades
 * of all rows are computed side by side in between, for an exp of one number costs as much as of a vector. */
static void softmax(float *s, int64_t lds, int64_t rows, int64_t n, float *max, float *sum, float *fade)
{
    for (int64_t r = 0; r < rows; r++) {
        float old = max[r], top = row_max(s + r * lds, n);
        max[r] = top > old || top != top ? top : old;
        fade[r] = max[r] == -INFINITY ? 0.0f : old - max[r]; /* -inf - -inf would be NaN */
    }
    for (int64_t r = 0; r < rows; r += VF) vf_store(fade + r, vf_exp(vf_load(fade + r)));
    for (int64_t r = 0; r < rows; r++)
        sum[r] = sum[r] * fade[r] + row_exp(s + r * lds, n, max[r] == -INFINITY ? 0.0f : max[r]);
}

static void exponentials(float *s, int64_t n, float max, float factor)
{
    vf shift = vf_set1(max), times = vf_set1(factor);
    for (int64_t j = 0; j < n; j += VF) vf_store(s + j, vf_mul(vf_exp(vf_sub(vf_load(s + j), shift)), times));
}
