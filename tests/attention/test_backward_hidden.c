/* What a row does not see never reaches a gradient, whatever lies there; what nobody sees has gradients of zero; and
 * finite numbers of any size make no NaN. */
#include "support/gradients.h"
#include "support/harness.h"

#include <float.h>

static mha_context *context(const char *isa) { return context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL); }

/* ---- Every way to hide a key ------------------------------------------------------------------------------------ */

/* The poisoned problem is the clean one with NaN and infinity wherever nobody looks, dout and dlse of rows that see no
 * key among them. Bounds are zero where no row and key meet, so that the oracle's zeros are exact. */
TEST(what_is_not_visible_may_be_anything)
{
    for (int way = 0; way < 8; way++)
        for (int n = 0; n < 8; n++) {
            if (!sampled()) continue;
            gradient_case c = gradient_plain(case_plain(3, 4, 2, n % 2 ? 1 : 20, 4 + 31 * (n % 5), 16, 16));
            const char *name = case_hide(&c.forward, way);
            c.forward.sinks = n % 2;
            c.forward.alibi = n % 3;
            c.forward.data_seed = (uint64_t)n;
            gradients *clean = gradients_make(&c);
            c.forward.poison = true;
            gradients *poisoned = gradients_make(&c);
            for_each_isa (isa) {
                char why[300] = "";
                size_t size;
                mha_context *ctx = context(isa);
                expect(!gradients_run(clean, ctx) && !gradients_run(poisoned, ctx), "%s", mha_context_error(ctx));
                gradients_solve(poisoned);
                expect(gradients_check(poisoned, why, sizeof why), "%s, %s, poisoned: %s", isa, name, why);
                unsigned char *want = gradients_bytes(clean, &size), *got = gradients_bytes(poisoned, &size);
                expect(!memcmp(want, got, size), "%s, %s, %d: hidden numbers moved bits of a gradient", isa, name, n);
                free(want);
                free(got);
                mha_context_free(ctx);
            }
            gradients_free(clean);
            gradients_free(poisoned);
        }
}

/* Nobody sees anything, in every way that this can come about. */
TEST(all_gradients_of_nothing_are_zero)
{
    for (int way = 0; way < 4; way++) {
        gradient_case c = gradient_plain(case_plain(2, 4, 2, 9, 70, 8, 8));
        c.forward.bias = (broadcast){3, 15};
        c.forward.alibi = 1;
        c.forward.sinks = true;
        if (way == 1) c.forward.lengths = true;
        if (way == 2) c.forward.mask = (broadcast){1, 0};
        if (way == 3) {
            c.forward.causal = true;
            c.forward.align = MHA_ALIGN_OFFSET;
            c.forward.offset = -100;
        }
        gradients *g = gradients_make(&c);
        if (way == 0)
            for (size_t at = 0; at < g->p->bias.size; at += 4)
                element_set(g->p->bias.bytes + at, MHA_FLOAT32, -INFINITY);
        if (way == 1) g->p->key_lengths[0] = g->p->key_lengths[1] = 0;
        if (way == 2) store_set(&g->p->mask, 0, 0, 0, 0, 0);
        for (int64_t b = 0; b < 2; b++)
            for (int64_t i = 0; i < 9; i++) store_set(&g->dout, b, 1, i, 3, NAN);
        gradients_refresh(g);
        for_each_isa (isa) {
            size_t size;
            mha_context *ctx = context(isa);
            expect(!gradients_run(g, ctx), "%s", mha_context_error(ctx));
            unsigned char *got = gradients_bytes(g, &size);
            for (size_t at = 0; at + 4 <= size; at += 4) {
                double x = element_get(got + at, MHA_FLOAT32);
                if (!expect(x == 0, "%s, way %d: a gradient is %g", isa, way, x)) break;
            }
            free(got);
            mha_context_free(ctx);
        }
        gradients_free(g);
    }
}

/* ---- Seen by one row, hidden from its neighbours ---------------------------------------------------------------- */

enum { ROWS = 9, KEYS = 150, BAD_ROW = 4, BAD_HEAD = 1, FIRST = 60, LAST = 79, BAD_KEY = 70 };

/* Row BAD_ROW of head BAD_HEAD sees the keys FIRST to LAST; all other rows see all keys but BAD_KEY. */
static gradients *divided(uint64_t seed)
{
    gradient_case c = gradient_plain(case_plain(1, 4, 2, ROWS, KEYS, 16, 16));
    c.forward.mask = (broadcast){4, 15};
    c.forward.bias = (broadcast){4, 15};
    c.forward.data_seed = seed;
    gradients *g = gradients_make(&c);
    for (int64_t h = 0; h < 4; h++)
        for (int64_t i = 0; i < ROWS; i++)
            for (int64_t j = 0; j < KEYS; j++) {
                bool bad = h == BAD_HEAD && i == BAD_ROW;
                store_set(&g->p->mask, 0, h, i, j, bad ? j >= FIRST && j <= LAST : j != BAD_KEY);
            }
    gradients_refresh(g);
    return g;
}

/* Whether element (h,n) of a gradient owes nothing to the bad row. */
static bool apart(int which, int64_t h, int64_t n)
{
    if (which == GRAD_Q || which == GRAD_BIAS) return h != BAD_HEAD || n != BAD_ROW;
    return h != 0 || n < FIRST || n > LAST; /* heads 0 and 1 share the keys of group 0 */
}

/* The spoilt problem must give what the oracle says of the clean one, away from the bad row and its keys. */
static void expect_contained(const gradients *clean, const gradients *spoilt, const char *isa, const char *what)
{
    for (int which = GRAD_Q; which <= GRAD_BIAS; which++) {
        const int64_t *size = spoilt->grad[which].view.size;
        for (int64_t h = 0, at = 0; h < size[1]; h++)
            for (int64_t n = 0; n < size[2]; n++)
                for (int64_t d = 0; d < size[3]; d++, at++) {
                    double got = store_get(&spoilt->grad[which], 0, h, n, d), want = clean->want[which][at];
                    if (!apart(which, h, n)) continue;
                    expect(fabs(got - want) <= clean->allowed[which][at],
                           "%s, %s: gradient %d at [%d,%d,%d] is %g, the oracle says %g", isa, what, which, (int)h,
                           (int)n, (int)d, got, want);
                }
    }
}

static void spoil(gradients *g, int way)
{
    problem *p = g->p;
    for (int64_t d = 0; d < 16; d++) {
        if (way == 0) store_set(&p->k, 0, 0, BAD_KEY, d, NAN);
        if (way == 1) store_set(&p->v, 0, 0, BAD_KEY, d, INFINITY);
        if (way == 2) store_set(&p->q, 0, BAD_HEAD, BAD_ROW, d, NAN);
        if (way == 3) store_set(&g->dout, 0, BAD_HEAD, BAD_ROW, d, d % 2 ? INFINITY : NAN);
    }
    if (way == 4) store_set(&g->dlse, 0, BAD_HEAD, BAD_ROW, 0, NAN);
    if (way == 5) store_set(&p->bias, 0, BAD_HEAD, BAD_ROW, FIRST, NAN);
    if (way == 6) store_set(&p->q, 0, BAD_HEAD, BAD_ROW, 3, -INFINITY);
    gradients_refresh(g);
}

TEST(a_bad_number_stays_with_those_who_see_it)
{
    const char *what[] = {"key of NaN",  "value of infinity", "query of NaN",  "dout of NaN",
                          "dlse of NaN", "bias of NaN",       "infinite query"};
    for (int way = 0; way < 7; way++) {
        gradients *clean = divided((uint64_t)way), *spoilt = divided((uint64_t)way);
        spoil(spoilt, way);
        for_each_isa (isa) {
            mha_context *ctx = context(isa);
            expect(!gradients_run(clean, ctx) && !gradients_run(spoilt, ctx), "%s", mha_context_error(ctx));
            gradients_solve(clean);
            expect_contained(clean, spoilt, isa, what[way]);
            expect(isnan(store_get(&spoilt->grad[GRAD_Q], 0, BAD_HEAD, BAD_ROW, 0)),
                   "%s, %s: dq of the bad row looks well", isa, what[way]);
            mha_context_free(ctx);
        }
        gradients_free(clean);
        gradients_free(spoilt);
    }
}

enum { SEEN = 150, BAD = 62, BEFORE = 9 }; /* rows see so many keys before their own, here of two tiles of 64 */

/* Whether row or key n of a gradient owes something to a key or value (ways 0 and 1) of key head 1, or to a query or dout of head 2. */
static bool owes(int way, int which, int64_t h, int64_t n)
{
    if (which == GRAD_Q) return way < 2 ? h >= 2 && n >= BAD && n <= BAD + BEFORE : h == 2 && n == BAD;
    if (way == 1 && which == GRAD_V) return false; /* only weights and dout matter to it */
    return h == 1 && n >= BAD - BEFORE && n <= BAD + (way < 2 ? BEFORE : 0);
}

/* A number that is not finite in one row or key, where rows see a window: NaN in the gradients that owe something to it, and
 * what the oracle says of the clean problem in the others. */
TEST(what_is_visible_spreads_no_further)
{
    const char *what[] = {"key", "value", "query", "dout"};
    for (int n = 0; n < 8; n++) {
        int way = n % 4;
        gradient_case c = gradient_plain(case_plain(1, 4, 2, SEEN, SEEN, 16, 16));
        c.forward.causal = true;
        c.forward.window_left = BEFORE;
        if (n >= 4) c.wanted = 1 << GRAD_V;
        gradients *clean = gradients_make(&c), *spoilt = gradients_make(&c);
        store *bad[] = {&spoilt->p->k, &spoilt->p->v, &spoilt->p->q, &spoilt->dout};
        for (int64_t d = 0; d < 16; d++) store_set(bad[way], 0, way < 2 ? 1 : 2, BAD, d, NAN);
        gradients_refresh(spoilt);
        for_each_isa (isa) {
            mha_context *ctx = context(isa);
            expect(!gradients_run(clean, ctx) && !gradients_run(spoilt, ctx), "%s", mha_context_error(ctx));
            gradients_solve(clean);
            for (int which = n < 4 ? GRAD_Q : GRAD_V; which <= GRAD_V; which++)
                for (int64_t h = 0, at = 5; h < (which == GRAD_Q ? 4 : 2); h++)
                    for (int64_t i = 0; i < SEEN; i++, at += 16) {
                        double got = store_get(&spoilt->grad[which], 0, h, i, 5), want = clean->want[which][at];
                        bool good = owes(way, which, h, i) ? isnan(got) : fabs(got - want) <= clean->allowed[which][at];
                        expect(good, "%s, %s: gradient %d at [%d,%d] is %g, and %g of the clean problem", isa,
                               what[way], which, (int)h, (int)i, got, want);
                    }
            mha_context_free(ctx);
        }
        gradients_free(clean);
        gradients_free(spoilt);
    }
}

/* ---- Finite numbers of any size --------------------------------------------------------------------------------- */

static void enlarge(store *s, double factor)
{
    double most = s->view.type == MHA_FLOAT16 ? 65504 : s->view.type == MHA_BFLOAT16 ? 0x1.FEp127 : (double)FLT_MAX;
    size_t size = mha_type_size(s->view.type);
    for (size_t at = 0; at + size <= s->size; at += size) {
        double x = element_get(s->bytes + at, s->view.type);
        if (isfinite(x)) element_set(s->bytes + at, s->view.type, fmax(-most, fmin(most, x * factor)));
    }
}

/* Whether forward gave numbers that its types hold; if not, what backward is given is not finite. */
static bool forward_fits(const problem *p)
{
    for (int64_t b = 0; b < p->c.B; b++)
        for (int64_t h = 0; h < p->c.H; h++)
            for (int64_t i = 0; i < p->queries[b]; i++) {
                if (element_get(problem_lse(p, b, h, i), MHA_FLOAT32) == INFINITY) return false;
                for (int64_t e = 0; e < p->c.E; e++)
                    if (!isfinite(element_get(problem_out(p, b, h, i, e), p->c.type_out))) return false;
            }
    return true;
}

/* MHA_SEED, MHA_CASE and MHA_CASES as in test_backward. */
TEST(finite_numbers_make_no_nan)
{
    const double sizes[] = {1e-38, 1e-20, 1, 1, 1e10, 1e20, 3e38};
    uint64_t seed = (uint64_t)number_from("MHA_SEED", 815);
    long long only = number_from("MHA_CASE", -1), cases = cases_from(300);
    for (long long n = only < 0 ? 0 : only; n < (only < 0 ? cases : only + 1); n++) {
        rng r = rng_make(seed, (uint64_t)n);
        gradient_case c = gradient_random(&r);
        gradients *g = gradients_make(&c);
        store *all[] = {&g->p->q, &g->p->k, &g->p->v, &g->p->bias, &g->p->alibi, &g->p->sinks, &g->dout, &g->dlse};
        for (size_t s = 0; s < 8; s++)
            if (all[s]->bytes) enlarge(all[s], sizes[rng_between(&r, 0, 6)]);
        gradients_refresh(g);
        for_each_isa (isa) {
            char why[300] = "", text[1400];
            mha_context *ctx = context(isa);
            mha_status status = gradients_run(g, ctx);
            gradient_describe(&c, text, sizeof text);
            bool fits = !status && forward_fits(g->p);
            if (fits) gradients_solve(g);
            expect(!status && (!fits || gradients_check(g, why, sizeof why)),
                   "%s: %s\n      %s\n      again: MHA_SEED=%llu MHA_CASE=%lld test_backward_hidden finite", isa, why,
                   text, (unsigned long long)seed, n);
            mha_context_free(ctx);
        }
        gradients_free(g);
    }
}
