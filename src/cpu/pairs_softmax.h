/* One tile of a streaming softmax whose exponentials become a right factor of the engines of x86 on the spot.
 *
 * exp(x) = 2^n 2^f with n the integer nearest to x / ln 2 and |f| <= 1/2, and 2^f a polynomial of degree 5 fitted to the
 * least relative error (7.5e-8): two operations less than in softmax_body.h, for it shows in nothing but the sum.
 *
 * A maximum is kept while no score exceeds it by more than SLACK: then nothing fades, and sums need not be touched. */
#include "cpu/pairs_body.h"
#include "cpu/repeat.h"

enum { GROUP = 8, SLACK = 8 }; /* keys whose exponentials are under way at once */

static inline vf exp_weight(vf x) /* x <= SLACK */
{
    const vf round = vf_set1(12583039.0f), log2e = vf_set1(1.44269504f); /* 1.5 * 2^23 + 127: see softmax_body.h */
    x = vf_max(vf_set1(-88.02969f), x);
    vf shifted = vf_fma(x, log2e, round), f = vf_fma(x, log2e, vf_sub(round, shifted));
    vf y = vf_fma(f, vf_set1(1.327635837e-3f), vf_set1(9.675655514e-3f));
    y = vf_fma(f, y, vf_set1(5.550714582e-2f));
    y = vf_fma(f, y, vf_set1(2.402211726e-1f));
    y = vf_fma(f, y, vf_set1(6.931469440e-1f));
    y = vf_fma(f, y, vf_set1(1.000000119f));
    return vf_mul(y, vf_pow2(shifted));
}

/* The first `left` keys of a group, zeros for the others. */
static inline __attribute__((always_inline)) vf weigh_group(uint16_t *to, float *s, int64_t lds, int64_t left, vf top,
                                                            vf total)
{
    vf x[GROUP];
    REPEAT (i, GROUP) {
        x[i] = vf_set1(0.0f);
        if (i >= left) continue;
        x[i] = exp_weight(vf_sub(vf_load(s + i * lds), top));
        vf_store(s + i * lds, x[i]);
        total = vf_add(total, x[i]);
    }
    REPEAT (i, GROUP / 2) _mm512_storeu_si512(to + i * DEEP, round_pairs(x[2 * i], x[2 * i + 1]));
    return total;
}

/* The largest of each lane, or the old one if that is large enough; a NaN that was there stays. */
static inline vf find_top(const float *s, int64_t lds, int64_t count, vf old)
{
    vf top[GROUP]; /* as many chains, or they would wait for each other */
    int64_t j = 0;
    REPEAT (i, GROUP) top[i] = old;
    for (; j + GROUP <= count; j += GROUP)
        REPEAT (i, GROUP) top[i] = vf_max(vf_load(s + (j + i) * lds), top[i]);
    for (; j < count; j++) top[0] = vf_max(vf_load(s + j * lds), top[0]);
    REPEAT (i, GROUP - 1) top[0] = vf_max(top[i + 1], top[0]);
    return vf_where_less(vf_add(old, vf_set1(SLACK)), top[0], top[0], old);
}

static void softmax(uint16_t *to, float *s, int64_t lds, int64_t count, int64_t k, int64_t n, float *max, float *sum,
                    float *fade)
{
    for (int64_t i = 0; i < n; i += SIDE, s += SIDE) {
        vf old = vf_load(max + i), top = find_top(s, lds, count, old), total = vf_set1(0.0f);
        vf_store(max + i, top);
        top = vf_where_equal(top, vf_set1(-INFINITY), total, top); /* -inf - -inf would be NaN */
        vf_store(fade + i, exp_weight(vf_sub(old, top)));
        int64_t j = 0, deep = tiles(k) * DEEP;
        for (; j + GROUP <= count; j += GROUP, to += GROUP * SIDE)
            total = weigh_group(to, s + j * lds, lds, GROUP, top, total);
        for (; j < deep; j += GROUP, to += GROUP * SIDE)
            total = weigh_group(to, s + j * lds, lds, count - j, top, total);
        vf_store(sum + i, vf_fma(vf_load(sum + i), vf_load(fade + i), total));
    }
}
