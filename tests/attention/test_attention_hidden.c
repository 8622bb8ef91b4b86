/* What a row does not see must not touch it: not one bit, whatever lies there. On a GPU, rows of 16 bits beside one whose result
 * is not finite are computed again, more exactly, so theirs are close instead. */
#include "support/harness.h"
#include "support/problem.h"

static mha_context *context(const char *isa) { return context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL); }

static bool are_same(const void *a, const void *b, mha_type type, bool close)
{
    double x = element_get(a, type), y = element_get(b, type);
    return !memcmp(a, b, mha_type_size(type)) || (close && fabs(x - y) <= 0x1p-6 * (1 + fabs(x)));
}

/* Rows of `out` and lse of two problems of the same case. */
static void expect_same_row(const problem *a, const problem *b, const char *what, int64_t n, int64_t h, int64_t i)
{
    const char *backend = getenv("MHA_BACKEND");
    bool close = backend && !strcmp(backend, "cuda") && a->c.type_q != MHA_FLOAT32;
    for (int64_t e = 0; e < a->c.E; e++)
        expect(are_same(problem_out(a, n, h, i, e), problem_out(b, n, h, i, e), a->c.type_out, close),
               "%s: out[%d,%d,%d,%d] is %g and %g", what, (int)n, (int)h, (int)i, (int)e,
               element_get(problem_out(a, n, h, i, e), a->c.type_out),
               element_get(problem_out(b, n, h, i, e), a->c.type_out));
    expect(are_same(problem_lse(a, n, h, i), problem_lse(b, n, h, i), MHA_FLOAT32, close), "%s: lse[%d,%d,%d] differs",
           what, (int)n, (int)h, (int)i);
}

/* ---- Causal ----------------------------------------------------------------------------------------------------- */

/* Puts `value` into keys and values from j on. */
static void spoil(problem *p, int64_t from, double value)
{
    for (int64_t b = 0; b < p->c.B; b++)
        for (int64_t g = 0; g < p->c.G; g++)
            for (int64_t j = from; j < p->c.Tk; j++) {
                for (int64_t d = 0; d < p->c.D; d++) element_set(problem_k(p, b, g, j, d), p->c.type_k, value);
                for (int64_t e = 0; e < p->c.E; e++) element_set(problem_v(p, b, g, j, e), p->c.type_v, value);
            }
    problem_refresh(p);
}

static void run_prefix(mha_context *ctx, attention_case c, int64_t from, double value)
{
    problem *clean = problem_make(&c), *spoilt = problem_make(&c);
    spoil(spoilt, from, value);
    expect(!problem_run(clean, ctx) && !problem_run(spoilt, ctx), "%s", mha_context_error(ctx));
    for (int64_t b = 0; b < c.B; b++)
        for (int64_t h = 0; h < c.H; h++)
            for (int64_t i = 0; i < from && i < c.Tq; i++)
                expect_same_row(clean, spoilt, mha_context_isa(ctx), b, h, i);
    problem_free(clean);
    problem_free(spoilt);
}

TEST(causal_prefix_does_not_see_suffix)
{
    const double values[] = {NAN, INFINITY, -INFINITY, 3e38, -7.5};
    for_each_isa (isa) {
        mha_context *ctx = context(isa);
        for (int64_t T = 1; T < 300; T = T * 2 + 3)
            for (size_t n = 0; n < 5; n++) {
                attention_case c = case_plain(1, 2, 1, T, T, 12, 10);
                c.causal = true;
                c.data_seed = (uint64_t)T;
                case_set_type(&c, (mha_type)(n % 3));
                run_prefix(ctx, c, T / 2, values[n]);
                run_prefix(ctx, c, T - 1, values[n]);
            }
        mha_context_free(ctx);
    }
}

/* A number that is not finite, in one key or value: NaN in the rows that see it, and not one bit of the others moves. */
TEST(what_is_visible_spreads_no_further)
{
    enum { T = 150, BAD = 70, AFTER = 9 };
    for_each_isa (isa)
        for (int n = 0; n < 12; n++) {
            attention_case c = case_plain(1, 4, 2, T, T, 16, 16);
            c.causal = true;
            if (n / 3 % 2) c.window_left = AFTER;
            case_set_type(&c, (mha_type)(n % 3));
            problem *clean = problem_make(&c), *spoilt = problem_make(&c);
            for (int64_t d = 0; d < 16; d++) store_set(n < 6 ? &spoilt->k : &spoilt->v, 0, 1, BAD, d, NAN);
            problem_refresh(spoilt);
            mha_context *ctx = context(isa);
            expect(!problem_run(clean, ctx) && !problem_run(spoilt, ctx), "%s", mha_context_error(ctx));
            for (int64_t h = 0; h < 4; h++)
                for (int64_t i = 0; i < T; i++) {
                    bool sees = h >= 2 && i >= BAD && (!(n / 3 % 2) || i <= BAD + AFTER);
                    if (!sees) expect_same_row(clean, spoilt, isa, 0, h, i);
                    else expect(isnan(store_get(&spoilt->out, 0, h, i, 3)), "%s: row %d looks well", isa, (int)i);
                }
            mha_context_free(ctx);
            problem_free(clean);
            problem_free(spoilt);
        }
}

/* ---- Every way to hide a key ------------------------------------------------------------------------------------ */

/* The poisoned problem is the clean one with NaN and infinity wherever nobody looks. */
TEST(what_is_not_visible_may_be_anything)
{
    for_each_isa (isa)
        for (int way = 0; way < 8; way++)
            for (int n = 0; n < 12; n++) {
                if (!sampled()) continue;
                attention_case c = case_plain(3, 4, 2, n % 2 ? 1 : 20, 4 + 31 * (n % 5), 16, 16);
                const char *name = case_hide(&c, way);
                case_set_type(&c, (mha_type)(n % 3));
                c.data_seed = (uint64_t)n;
                problem *clean = problem_make(&c);
                c.poison = true;
                problem *poisoned = problem_make(&c);
                mha_context *ctx = context(isa);
                char why[300] = "", what[60];
                snprintf(what, sizeof what, "%s, %s", isa, name);
                expect(!problem_run(clean, ctx) && !problem_run(poisoned, ctx), "%s: %s", what, mha_context_error(ctx));
                for (int64_t b = 0; b < c.B; b++)
                    for (int64_t h = 0; h < c.H; h++)
                        for (int64_t i = 0; i < clean->queries[b]; i++) expect_same_row(clean, poisoned, what, b, h, i);
                problem_solve(poisoned);
                expect(problem_check(poisoned, why, sizeof why), "%s: %s", what, why);
                mha_context_free(ctx);
                problem_free(clean);
                problem_free(poisoned);
            }
}

/* A key that some rows of a tile see and others do not: the others keep their bits. */
TEST(a_key_seen_by_a_neighbour_stays_hidden)
{
    for_each_isa (isa)
        for (int n = 0; n < 6; n++) {
            attention_case c = case_plain(1, 4, 2, 9, 40, 16, 16);
            c.mask = (broadcast){4, 15};
            case_set_type(&c, (mha_type)(n % 3));
            problem *clean = problem_make(&c), *poisoned = problem_make(&c);
            for (int64_t h = 0; h < 4; h++)
                for (int64_t i = 0; i < 9; i++) {
                    store_set(&clean->mask, 0, h, i, 17, i == 4);
                    store_set(&poisoned->mask, 0, h, i, 17, i == 4);
                }
            for (int64_t g = 0; g < 2; g++)
                for (int64_t d = 0; d < 16; d++) {
                    if (n != 1) store_set(&poisoned->k, 0, g, 17, d, n < 3 ? NAN : INFINITY);
                    if (n != 2) store_set(&poisoned->v, 0, g, 17, d, n < 3 ? NAN : -INFINITY);
                }
            problem_refresh(clean);
            problem_refresh(poisoned);
            mha_context *ctx = context(isa);
            expect(!problem_run(clean, ctx) && !problem_run(poisoned, ctx), "%s", mha_context_error(ctx));
            for (int64_t h = 0; h < 4; h++)
                for (int64_t i = 0; i < 9; i++)
                    if (i != 4) expect_same_row(clean, poisoned, isa, 0, h, i);
            mha_context_free(ctx);
            problem_free(clean);
            problem_free(poisoned);
        }
}

/* A query of NaN spoils its own row and no other one of its tile. */
TEST(a_bad_query_stays_in_its_row)
{
    for_each_isa (isa) {
        attention_case c = case_plain(1, 4, 2, 9, 40, 16, 16);
        problem *clean = problem_make(&c), *spoilt = problem_make(&c);
        for (int64_t d = 0; d < 16; d++) store_set(&spoilt->q, 0, 1, 4, d, d % 2 ? NAN : INFINITY);
        problem_refresh(spoilt);
        mha_context *ctx = context(isa);
        expect(!problem_run(clean, ctx) && !problem_run(spoilt, ctx), "%s", mha_context_error(ctx));
        for (int64_t h = 0; h < 4; h++)
            for (int64_t i = 0; i < 9; i++)
                if (h != 1 || i != 4) expect_same_row(clean, spoilt, isa, 0, h, i);
        expect(isnan(store_get(&spoilt->out, 0, 1, 4, 0)), "%s: a row with a query of NaN looks well", isa);
        mha_context_free(ctx);
        problem_free(clean);
        problem_free(spoilt);
    }
}
