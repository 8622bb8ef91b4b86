/* Exponentials, and one tile of a streaming softmax.
 *
 * exp(x) = 2^n exp(r) with n the integer nearest to x / ln 2 and |r| <= ln(2)/2. Adding 1.5 * 2^23 + 127 rounds to an
 * integer and leaves it, with the bias of the exponent, in the low bits of the float, where vf_pow2 wants it. ln 2 is
 * taken off in two parts, of which the first has so few bits that n times it is exact. exp(r) is 1 + r + r^2 times a
 * polynomial fitted to the least relative error (3.1e-9); with all rounding the result is within 1 unit in the last
 * place down to exp(-87.3), where degree 5 instead of 6 would give 2.3. Below -127 ln 2 the result is 0, so that -inf
 * gives 0; NaN gives NaN. */

static inline vf vf_exp(vf x) /* x <= 80; mostly x <= 0 */
{
    const vf round = vf_set1(12583039.0f);
    x = vf_max(vf_set1(-88.02969f), x);
    vf shifted = vf_fma(x, vf_set1(1.44269504f), round), n = vf_sub(shifted, round), power = vf_pow2(shifted);
    vf r = vf_fma(n, vf_set1(-0x1.62e4p-1f), x);
    r = vf_fma(n, vf_set1(-1.42860677e-6f), r);
    vf square = vf_mul(r, r), low = vf_fma(r, vf_set1(1.666652113e-01f), vf_set1(4.999999404e-01f));
    vf high = vf_fma(r, vf_set1(8.368745446e-03f), vf_set1(4.166838899e-02f));
    high = vf_fma(square, vf_set1(1.381454058e-03f), high);
    vf y = vf_fma(square, vf_fma(high, square, low), r);
    return vf_fma(y, power, power);
}

/* Exponentials that are under way at once, to hide their latency; and how many of them lie side by side in a block. */
enum { EXPS = 8, EXP_SIDE = MHA_BLOCK / VF < EXPS ? MHA_BLOCK / VF : EXPS };

/* `side` vectors of lanes, EXPS / side keys at a time. Two sweeps, not one: the maximum must be final before the first
 * exp, or every early term needs a rescale. */
static inline __attribute__((always_inline)) void softmax_lanes(const int side, float *s, int64_t lds, int64_t count,
                                                                float *max, float *sum, float *fade)
{
    const int deep = EXPS / side;
    vf tops[EXPS], top[EXP_SIDE], total[EXP_SIDE];
    const vf none = vf_set1(-INFINITY);
    int64_t j = 0;
    REPEAT (i, EXPS) tops[i] = vf_load(max + i % side * VF); /* as many chains, or they would wait for each other */
    for (; j + deep <= count; j += deep)
        REPEAT (i, EXPS) tops[i] = vf_max(vf_load(s + (j + i / side) * lds + i % side * VF), tops[i]);
    for (; j < count; j++)
        REPEAT (v, side) tops[v] = vf_max(vf_load(s + j * lds + v * VF), tops[v]);
    REPEAT (v, side) {
        vf old = vf_load(max + v * VF);
        top[v] = tops[v];
        REPEAT (u, deep - 1) top[v] = vf_max(tops[(u + 1) * side + v], top[v]);
        vf_store(max + v * VF, top[v]);
        top[v] = vf_where_equal(top[v], none, vf_set1(0.0f), top[v]); /* -inf - -inf would be NaN */
        vf_store(fade + v * VF, vf_exp(vf_sub(old, top[v])));
        total[v] = vf_set1(0.0f);
    }
    for (j = 0; j + deep <= count; j += deep)
        REPEAT (u, deep)
            REPEAT (v, side) {
                vf p = vf_exp(vf_sub(vf_load(s + (j + u) * lds + v * VF), top[v]));
                vf_store(s + (j + u) * lds + v * VF, p);
                total[v] = vf_add(total[v], p);
            }
    for (; j < count; j++)
        REPEAT (v, side) {
            vf p = vf_exp(vf_sub(vf_load(s + j * lds + v * VF), top[v]));
            vf_store(s + j * lds + v * VF, p);
            total[v] = vf_add(total[v], p);
        }
    REPEAT (v, side) vf_store(sum + v * VF, vf_fma(vf_load(sum + v * VF), vf_load(fade + v * VF), total[v]));
}

static void softmax(float *s, int64_t lds, int64_t count, int64_t n, float *max, float *sum, float *fade)
{
    int64_t i = 0;
    for (; i + EXP_SIDE * VF <= n; i += EXP_SIDE * VF)
        softmax_lanes(EXP_SIDE, s + i, lds, count, max + i, sum + i, fade + i);
    for (; i + 2 * VF <= n; i += 2 * VF) softmax_lanes(2, s + i, lds, count, max + i, sum + i, fade + i);
    for (; i < n; i += VF) softmax_lanes(1, s + i, lds, count, max + i, sum + i, fade + i);
}

/* The largest of x and the lanes of top; a NaN in either stays. */
static inline float max_lane(vf top, float x)
{
    float lanes[VF];
    vf_store(lanes, top);
    for (int i = 0; i < VF; i++) x = lanes[i] > x || lanes[i] != lanes[i] ? lanes[i] : x;
    return x;
}

static inline float sum_lanes(vf total)
{
    float lanes[VF], sum = 0.0f;
    vf_store(lanes, total);
    for (int i = 0; i < VF; i++) sum += lanes[i];
    return sum;
}

/* One row of at most MHA_KEYS scores, in whole vectors. */
static void softmax_row(float *s, int64_t count, float *max, float *sum, float *fade)
{
    int64_t whole = (count + VF - 1) / VF * VF;
    float lanes[VF], old = *max;
    vf top = vf_set1(-INFINITY), total = vf_set1(0.0f);
    for (int64_t j = count; j < whole; j++) s[j] = -INFINITY;
    for (int64_t j = 0; j < whole; j += VF) top = vf_max(vf_load(s + j), top);
    *max = max_lane(top, old);
    vf base = vf_set1(*max == -INFINITY ? 0.0f : *max); /* -inf - -inf would be NaN */
    vf_store(lanes, vf_exp(vf_sub(vf_set1(old), base)));
    *fade = lanes[0];
    for (int64_t j = 0; j < whole; j += VF) {
        vf p = vf_exp(vf_sub(vf_load(s + j), base));
        vf_store(s + j, p);
        total = vf_add(total, p);
    }
    vf_store(lanes, vf_fma(vf_set1(*sum), vf_set1(*fade), vf_set1(sum_lanes(total))));
    *sum = lanes[0];
}

static void softmax_rows(float *s, int64_t lds, int64_t rows, int64_t count, float *max, float *sum, float *fade)
{
    for (int64_t r = 0; r < rows; r++) softmax_row(s + r * lds, count, max + r, sum + r, fade + r);
}

static void weights(float *s, int64_t lds, int64_t count, int64_t n, const float *max, const float *factor)
{
    for (int64_t i = 0; i < n; i += VF)
        for (int64_t j = 0; j < count; j++) {
            float *at = s + j * lds + i;
            vf_store(at, vf_mul(vf_exp(vf_sub(vf_load(at), vf_load(max + i))), vf_load(factor + i)));
        }
}

/* What two stretches of keys are multiplied by when they become one. */
typedef struct shares {
    vf top, first, second;
} shares;

static inline shares share_out(vf first, vf second)
{
    vf top = vf_max(second, first), zero = vf_set1(0.0f);
    vf base = vf_where_equal(top, vf_set1(-INFINITY), zero, top); /* -inf - -inf would be NaN */
    return (shares){top, vf_exp(vf_sub(first, base)), vf_exp(vf_sub(second, base))};
}

static inline vf mix(shares by, vf first, vf second) { return vf_fma(first, by.first, vf_mul(second, by.second)); }

static void fold(float *all_sums, float *all_max, float *all_total, const float *sums, const float *max,
                 const float *total, int64_t lds, int64_t m, int64_t n)
{
    for (int64_t i = 0; i < n; i += VF) {
        shares by = share_out(vf_load(all_max + i), vf_load(max + i));
        vf_store(all_max + i, by.top);
        vf_store(all_total + i, mix(by, vf_load(all_total + i), vf_load(total + i)));
        for (int64_t r = 0; r < m; r++) {
            float *at = all_sums + r * lds + i;
            vf_store(at, mix(by, vf_load(at), vf_load(sums + r * lds + i)));
        }
    }
}

static void fold_row(float *all_sums, float *all_max, float *all_total, const float *sums, float max, float total,
                     int64_t n)
{
    shares by = share_out(vf_set1(*all_max), vf_set1(max));
    float lanes[VF];
    vf_store(lanes, mix(by, vf_set1(*all_total), vf_set1(total)));
    *all_total = lanes[0];
    vf_store(lanes, by.top);
    *all_max = lanes[0];
    for (int64_t i = 0; i < n; i += VF) vf_store(all_sums + i, mix(by, vf_load(all_sums + i), vf_load(sums + i)));
}
