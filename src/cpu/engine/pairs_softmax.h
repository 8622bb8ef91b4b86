/* One tile of a streaming softmax whose exponentials become a right factor of the engines of x86 on the spot.
 *
 * exp(x) = 2^n 2^f with n the integer nearest to x / ln 2 and |f| <= 1/2, and 2^f a polynomial of degree 5 fitted to
 * the least relative error (9.2e-8) that is 1 at 0: two operations less than in softmax_body.h, for it shows in nothing
 * but the sum.
 *
 * A maximum is kept while no score exceeds it by more than SLACK: then nothing fades, and sums need not be touched. */
#include "cpu/engine/pairs_body.h"
#include "cpu/isa/repeat.h"

enum {
    GROUP = 8, /* keys whose exponentials are under way at once */
    SLACK = 8
};

static inline vf exp_weight(vf x) /* x <= SLACK */
{
    const vf round = vf_set1(12583039.0f), log2e = vf_set1(1.44269504f); /* 1.5 * 2^23 + 127: see softmax_body.h */
    x = vf_max(vf_set1(-88.02969f), x);
    vf shifted = vf_fma(x, log2e, round), f = vf_fma(x, log2e, vf_sub(round, shifted));
    vf y = vf_fma(f, vf_set1(1.326459111e-3f), vf_set1(9.671619162e-3f));
    y = vf_fma(f, y, vf_set1(5.550735071e-2f));
    y = vf_fma(f, y, vf_set1(2.402224094e-1f));
    y = vf_fma(f, y, vf_set1(6.931470037e-1f));
    y = vf_fma(f, y, vf_set1(1.0f));
    return vf_mul(y, vf_pow2(shifted));
}

/* The first `left` keys of a group, zeros for the others; returns their exponentials added to `total`. */
static inline __attribute__((always_inline)) vf weigh_group(const mha_weighing *w, const bool plain, uint16_t *to,
                                                            float *s, const int64_t left, vf top, vf total)
{
    vf x[GROUP];
    REPEAT (i, GROUP) {
        x[i] = vf_set1(0.0f);
        if (i >= left) continue;
        vf score = vf_load(s + i * w->lds);
        if (!plain) score = vf_mul(score, vf_set1(w->scale)); /* rounded as the maximum was */
        x[i] = exp_weight(vf_sub(score, top));
        if (!plain && w->kept) vf_store(s + i * w->lds, x[i]);
        total = vf_add(total, x[i]);
    }
    REPEAT (i, GROUP / 2) _mm512_storeu_si512(to + i * DEEP, round_pairs(x[2 * i], x[2 * i + 1]));
    return total;
}

/* The largest of each lane, or the old one if that is large enough; a NaN that was there stays. */
static inline vf find_top(const mha_weighing *w, const float *s, vf old)
{
    vf top[GROUP]; /* as many chains, or they would wait for each other */
    int64_t j = 0;
    REPEAT (i, GROUP) top[i] = vf_set1(-INFINITY);
    for (; j + GROUP <= w->count; j += GROUP)
        REPEAT (i, GROUP) top[i] = vf_max(vf_load(s + (j + i) * w->lds), top[i]);
    for (; j < w->count; j++) top[0] = vf_max(vf_load(s + j * w->lds), top[0]);
    REPEAT (i, GROUP - 1) top[0] = vf_max(top[i + 1], top[0]);
    top[0] = vf_mul(top[0], vf_set1(w->scale));
    return vf_where_less(vf_add(old, vf_set1(SLACK)), top[0], top[0], old);
}

/* Groups that a tile has. */
static inline int64_t count_groups(const mha_weighing *w) { return w->n / SIDE * (tiles(w->k) * DEEP / GROUP); }

/* The tile (`plain` if it has neither scale nor keeps anything), with one call of `step` for each of its groups. */
static inline __attribute__((always_inline)) void weigh_lanes(const mha_weighing *w, const bool plain,
                                                              void (*step)(void *), void *state)
{
    uint16_t *to = w->to;
    for (int64_t i = 0; i < w->n; i += SIDE) {
        float *s = w->s + i;
        vf old = vf_load(w->max + i), top = find_top(w, s, old), total = vf_set1(0.0f);
        vf_store(w->max + i, top);
        top = vf_where_equal(top, vf_set1(-INFINITY), total, top); /* -inf - -inf would be NaN */
        vf_store(w->fade + i, exp_weight(vf_sub(old, top)));
        int64_t j = 0, deep = tiles(w->k) * DEEP;
        for (; j + GROUP <= w->count; j += GROUP, to += GROUP * SIDE) {
            step(state);
            total = weigh_group(w, plain, to, s + j * w->lds, GROUP, top, total);
        }
        for (; j < deep; j += GROUP, to += GROUP * SIDE) {
            step(state);
            total = weigh_group(w, plain, to, s + j * w->lds, w->count - j, top, total);
        }
        vf_store(w->sum + i, vf_fma(vf_load(w->sum + i), vf_load(w->fade + i), total));
    }
}

static inline __attribute__((always_inline)) void weigh_tile(const mha_weighing *w, void (*step)(void *), void *state)
{
    if (w->scale == 1.0f && !w->kept) weigh_lanes(w, true, step, state);
    else weigh_lanes(w, false, step, state);
}
