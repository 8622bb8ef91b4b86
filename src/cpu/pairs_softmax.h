/* One tile of a streaming softmax whose exponentials become a right factor of the engines of x86 on the spot.
 *
 * Vectors are eight floats wide here, not sixteen: a core that has used its AMX unit within the last microsecond runs
 * 512-bit operations on one port instead of two, 256-bit ones on all of theirs.
 *
 * exp(x) = 2^n 2^f with n the integer nearest to x / ln 2 and |f| <= 1/2, and 2^f a polynomial of degree 5 fitted to the
 * least relative error (9.2e-8) that is 1 at 0: two operations less than in softmax_body.h, for it shows in nothing but
 * the sum.
 *
 * A maximum is kept while no score exceeds it by more than SLACK: then nothing fades, and sums need not be touched. */
#include "cpu/pairs_body.h"
#include "cpu/repeat.h"

typedef __m256 v8;

enum { GROUP = 8, SLACK = 8 }; /* keys whose exponentials are under way at once */

static inline v8 v8_exp(v8 x) /* x <= SLACK */
{
    const v8 round = _mm256_set1_ps(12583039.0f), log2e = _mm256_set1_ps(1.44269504f); /* see softmax_body.h */
    x = _mm256_max_ps(_mm256_set1_ps(-88.02969f), x);
    v8 shifted = _mm256_fmadd_ps(x, log2e, round), f = _mm256_fmadd_ps(x, log2e, _mm256_sub_ps(round, shifted));
    v8 y = _mm256_fmadd_ps(f, _mm256_set1_ps(1.326459111e-3f), _mm256_set1_ps(9.671619162e-3f));
    y = _mm256_fmadd_ps(f, y, _mm256_set1_ps(5.550735071e-2f));
    y = _mm256_fmadd_ps(f, y, _mm256_set1_ps(2.402224094e-1f));
    y = _mm256_fmadd_ps(f, y, _mm256_set1_ps(6.931470037e-1f));
    y = _mm256_fmadd_ps(f, y, _mm256_set1_ps(1.0f));
    return _mm256_mul_ps(y, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(shifted), 23)));
}

/* Eight pairs of rounded numbers, the first of each from `low` and the second from `high`. */
static inline __m256i v8_pairs(v8 low, v8 high)
{
    const __m256i pairs = _mm256_setr_epi16(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    return _mm256_permutexvar_epi16(pairs, (__m256i)_mm256_cvtne2ps_pbh(high, low));
}

/* The first `left` keys of a group in eight lanes, zeros for the others; returns their exponentials added to `total`. */
static inline __attribute__((always_inline)) v8 weigh_group(const mha_weighing *w, uint16_t *to, float *s,
                                                            const int64_t left, v8 top, v8 total)
{
    v8 x[GROUP];
    REPEAT (i, GROUP) {
        x[i] = _mm256_setzero_ps();
        if (i >= left) continue;
        v8 score = _mm256_loadu_ps(s + i * w->lds);
        if (w->scale != 1.0f) score = _mm256_mul_ps(score, _mm256_set1_ps(w->scale)); /* rounded as the maximum was */
        x[i] = v8_exp(_mm256_sub_ps(score, top));
        if (w->kept) _mm256_storeu_ps(s + i * w->lds, x[i]);
        total = _mm256_add_ps(total, x[i]);
    }
    REPEAT (i, GROUP / 2) _mm256_storeu_si256((__m256i *)(to + i * DEEP), v8_pairs(x[2 * i], x[2 * i + 1]));
    return total;
}

/* The largest of each lane, or the old one if that is large enough; a NaN that was there stays. */
static inline v8 find_top(const mha_weighing *w, const float *s, v8 old)
{
    v8 top[GROUP]; /* as many chains, or they would wait for each other */
    int64_t j = 0;
    REPEAT (i, GROUP) top[i] = _mm256_set1_ps(-INFINITY);
    for (; j + GROUP <= w->count; j += GROUP)
        REPEAT (i, GROUP) top[i] = _mm256_max_ps(_mm256_loadu_ps(s + (j + i) * w->lds), top[i]);
    for (; j < w->count; j++) top[0] = _mm256_max_ps(_mm256_loadu_ps(s + j * w->lds), top[0]);
    REPEAT (i, GROUP - 1) top[0] = _mm256_max_ps(top[i + 1], top[0]);
    top[0] = _mm256_mul_ps(top[0], _mm256_set1_ps(w->scale));
    __mmask8 above = _mm256_cmp_ps_mask(_mm256_add_ps(old, _mm256_set1_ps(SLACK)), top[0], _CMP_LT_OQ);
    return _mm256_mask_blend_ps(above, old, top[0]);
}

/* Groups that a tile has. */
static inline int64_t count_groups(const mha_weighing *w) { return w->n / 8 * (tiles(w->k) * DEEP / GROUP); }

/* The tile, with one call of `step` for each of its groups. */
static inline __attribute__((always_inline)) void weigh_tile(const mha_weighing *w, void (*step)(void *), void *state)
{
    int64_t deep = tiles(w->k) * DEEP;
    for (int64_t i = 0; i < w->n; i += 8) {
        uint16_t *to = w->to + i / SIDE * SIDE * deep + i % SIDE * 2;
        float *s = w->s + i;
        v8 old = _mm256_loadu_ps(w->max + i), top = find_top(w, s, old), total = _mm256_setzero_ps();
        _mm256_storeu_ps(w->max + i, top);
        __mmask8 none = _mm256_cmp_ps_mask(top, _mm256_set1_ps(-INFINITY), _CMP_EQ_OQ);
        top = _mm256_mask_blend_ps(none, top, total); /* -inf - -inf would be NaN */
        v8 fade = v8_exp(_mm256_sub_ps(old, top));
        _mm256_storeu_ps(w->fade + i, fade);
        int64_t j = 0;
        for (; j + GROUP <= w->count; j += GROUP, to += GROUP * SIDE) {
            step(state);
            total = weigh_group(w, to, s + j * w->lds, GROUP, top, total);
        }
        for (; j < deep; j += GROUP, to += GROUP * SIDE) {
            step(state);
            total = weigh_group(w, to, s + j * w->lds, w->count - j, top, total);
        }
        _mm256_storeu_ps(w->sum + i, _mm256_fmadd_ps(_mm256_loadu_ps(w->sum + i), fade, total));
    }
}
