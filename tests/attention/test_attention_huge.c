/* Finite numbers of any size: products beyond float32, values whose sum is, biases, slopes, sinks and scales at the end
 * of the range. No result may be NaN, and each must be what the oracle says, where float32 can tell. */
#include "support/harness.h"
#include "support/problem.h"

#include <float.h>

static void check(problem *p, const char *what)
{
    problem_refresh(p);
    problem_solve(p);
    for_each_isa (isa) {
        char why[300] = "", text[900];
        mha_context *ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL);
        mha_status status = problem_run(p, ctx);
        if (status) snprintf(why, sizeof why, "%s: %s", mha_status_name(status), mha_context_error(ctx));
        case_describe(&p->c, text, sizeof text);
        expect(!status && problem_check(p, why, sizeof why), "%s, %s: %s\n      %s", what, isa, why, text);
        mha_context_free(ctx);
    }
}

/* Every element times `factor`, kept inside what the type can hold. */
static void enlarge(store *s, double factor)
{
    double most = s->view.type == MHA_FLOAT16 ? 65504 : s->view.type == MHA_BFLOAT16 ? 0x1.FEp127 : (double)FLT_MAX;
    size_t size = mha_type_size(s->view.type);
    for (size_t at = 0; at + size <= s->size; at += size) {
        double x = element_get(s->bytes + at, s->view.type);
        if (isfinite(x)) element_set(s->bytes + at, s->view.type, fmax(-most, fmin(most, x * factor)));
    }
}

/* Every element is +-`value`: exact products, so that ties are ties and gaps are whole. */
static void signs(store *s, double value, uint64_t seed)
{
    rng r = rng_make(seed, 17);
    size_t size = mha_type_size(s->view.type);
    for (size_t at = 0; at + size <= s->size; at += size)
        element_set(s->bytes + at, s->view.type, rng_chance(&r, 0.5) ? value : -value);
}

/* ---- One thing at a time ---------------------------------------------------------------------------------------- */

TEST(products_beyond_float32)
{
    const double sizes[] = {1e18, 1e20, 1e30, 3e38};
    for (size_t n = 0; n < 4; n++)
        for (int type = MHA_FLOAT32; type <= MHA_BFLOAT16; type++)
            for (int tight = 0; tight < 2; tight++) {
                attention_case c = case_plain(1, 2, 1, 6, 75, 7, 5);
                case_set_type(&c, (mha_type)type);
                c.causal = tight;
                c.weights = 1;
                c.scores = MHA_STAGE_MASKED;
                problem *p = problem_make(&c);
                signs(&p->q, sizes[n], n);
                signs(&p->k, sizes[n], n + 9);
                check(p, "signs");
                problem_free(p);
                p = problem_make(&c);
                enlarge(&p->q, sizes[n]);
                enlarge(&p->k, sizes[n]);
                check(p, "normal");
                problem_free(p);
            }
}

/* The dot products of every other key, or of all, cancel: their terms are far beyond float32, their sum is zero, whichever sign comes
 * first. The others are zeros, so that all keys tie. */
static void cancelling(int64_t width, bool negative_first, bool all, bool weights)
{
    attention_case c = case_plain(1, 1, 1, 3, 40, width, 4);
    c.weights = weights;
    problem *p = problem_make(&c);
    signs(&p->q, 1e25, 3);
    for (int64_t j = 0; j < c.Tk; j++)
        for (int64_t d = 0; d < c.D; d++) {
            double sign = store_get(&p->q, 0, 0, 0, d) > 0 ? 1 : -1;
            double size = all || j % 2 ? 1e25 : 0;
            store_set(&p->k, 0, 0, j, d, (d % 2 == negative_first ? size : -size) * sign);
            for (int64_t i = 1; i < c.Tq; i++) store_set(&p->q, 0, 0, i, d, store_get(&p->q, 0, 0, 0, d));
        }
    check(p, "cancelling");
    for_each_isa (isa) {
        mha_context *ctx = context_make(isa, 1, (mha_parallel){NULL, NULL}, NULL);
        expect(!problem_run(p, ctx), "%s", mha_context_error(ctx));
        double mean = 0;
        for (int64_t j = 0; j < c.Tk; j++) {
            double weight = weights ? store_get(&p->weights, 0, 0, 1, j) : 1.0 / 40;
            expect(fabs(weight - 1.0 / 40) < 1e-8, "%s: weight %g of a tie", isa, weight);
            mean += store_get(&p->v, 0, 0, j, 0) / 40;
        }
        expect(fabs(store_get(&p->out, 0, 0, 1, 0) - mean) < 1e-6, "%s: not the mean of all values", isa);
        mha_context_free(ctx);
    }
    problem_free(p);
}

TEST(products_that_cancel)
{
    const int64_t widths[] = {6, 8, 68};
    for (int n = 0; n < 24; n++) cancelling(widths[n / 8], n & 1, n & 2, n & 4);
}

TEST(values_whose_sum_is_beyond_float32)
{
    for (int kind = 0; kind < 4; kind++) {
        attention_case c = case_plain(1, 2, 1, 4, 300, 8, 9);
        c.dropout = kind == 3 ? 0.5f : 0;
        case_set_type(&c, kind == 2 ? MHA_BFLOAT16 : MHA_FLOAT32);
        problem *p = problem_make(&c);
        signs(&p->v, 3e38, 5);
        if (kind == 1)
            for (int64_t j = 0; j < c.Tk; j++)
                for (int64_t e = 0; e < c.E; e++) store_set(&p->v, 0, 0, j, e, e % 2 ? -3.3e38 : 3.3e38);
        check(p, "values");
        problem_free(p);
    }
}

TEST(huge_bias_slopes_and_sinks)
{
    for (int kind = 0; kind < 8; kind++) {
        attention_case c = case_plain(2, 2, 1, 5, 70, 8, 8);
        c.align = MHA_ALIGN_OFFSET;
        c.offset = kind & 1 ? INT64_C(1) << 39 : 3;
        c.weights = 1;
        c.sinks = kind >= 4;
        if (kind & 2) c.bias = (broadcast){4, 15};
        c.alibi = kind != 2 && kind != 6;
        problem *p = problem_make(&c);
        if (c.bias.rank > 0) enlarge(&p->bias, 2e38);
        if (c.alibi) enlarge(&p->alibi, 1e38);
        if (c.sinks) signs(&p->sinks, 3e38, (uint64_t)kind);
        check(p, "additions");
        problem_free(p);
    }
}

/* Slope and distance leave float32 together, and the bias brings the score back. */
TEST(slopes_that_a_bias_makes_up_for)
{
    attention_case c = case_plain(1, 2, 1, 4, 80, 4, 4);
    c.align = MHA_ALIGN_OFFSET;
    c.offset = 450;
    c.alibi = 1;
    c.bias = (broadcast){1, 0};
    c.scores = MHA_STAGE_MASKED;
    problem *p = problem_make(&c);
    store_set(&p->bias, 0, 0, 0, 0, 3e38);
    for (int64_t h = 0; h < c.H; h++) store_set(&p->alibi, h, 0, 0, 0, 1e36);
    check(p, "slopes");
    problem_free(p);
}

/* One key far out of float32 that gets no weight, in any part of a long row: all the others must still count. */
TEST(one_bad_key_in_a_long_row)
{
    for (int64_t at = 100; at < 2100; at += 400)
        for (int64_t Tq = 1; Tq <= 40; Tq += 39) {
            attention_case c = case_plain(1, 2, 1, Tq, 2100, 4, 4);
            c.bias = (broadcast){1, 8};
            c.threads = 2;
            problem *p = problem_make(&c);
            for (int64_t i = 0; i < Tq; i++)
                for (int64_t h = 0; h < c.H; h++) store_set(&p->q, 0, h, i, 0, 1);
            for (int64_t d = 0; d < c.D; d++) store_set(&p->k, 0, 0, at, d, d ? 0 : -3e38);
            store_set(&p->bias, at, 0, 0, 0, -3e38);
            check(p, "one bad key");
            problem_free(p);
        }
}

TEST(huge_and_tiny_scales)
{
    const float scales[] = {3e38f, -3e38f, 1e30f, 1e-30f, 1e-38f, 0.0f};
    for (size_t n = 0; n < 6; n++)
        for (int kind = 0; kind < 8; kind++) { /* few rows and many, float32 and bfloat16, capped and not */
            attention_case c = case_plain(1, 2, 2, kind & 1 ? 40 : 5, 70, 8, 8);
            if (kind & 2) case_set_type(&c, MHA_BFLOAT16);
            c.type_out = c.type_scores = MHA_FLOAT32;
            c.scale = scales[n];
            c.softcap = kind & 4 ? (n == 3 ? 1e12f : 20) : 0;
            c.scores = MHA_STAGE_CAPPED;
            problem *p = problem_make(&c);
            if (n >= 3) {
                enlarge(&p->q, 1e20);
                enlarge(&p->k, 1e20);
            }
            check(p, "scale");
            problem_free(p);
        }
}

TEST(a_softcap_tames_any_product)
{
    const float caps[] = {1e-3f, 1, 50, 1e6f};
    for (size_t n = 0; n < 16; n++) {
        attention_case c = case_plain(1, 2, 2, n & 4 ? 40 : 5, 70, 8, 8);
        if (n & 8) case_set_type(&c, MHA_BFLOAT16);
        c.softcap = caps[n % 4];
        c.weights = 1;
        c.scores = MHA_STAGE_CAPPED;
        problem *p = problem_make(&c);
        signs(&p->q, 3e38, 1);
        signs(&p->k, 3e38, 2);
        check(p, "softcap");
        problem_free(p);
    }
}

TEST(numbers_below_the_normal_range)
{
    for (double size = 1e-20; size > 1e-45; size *= 1e-6) {
        attention_case c = case_plain(1, 2, 2, 5, 70, 8, 8);
        c.weights = 1;
        problem *p = problem_make(&c);
        enlarge(&p->q, size);
        enlarge(&p->k, size);
        enlarge(&p->v, size);
        check(p, "tiny");
        problem_free(p);
    }
}

/* ---- Everything at once ----------------------------------------------------------------------------------------- */

/* Before the masks, a hidden key whose score is beyond float32 may show as -infinity: those stages are left out here.
 * MHA_SEED, MHA_CASE and MHA_CASES as in test_attention_random. */
TEST(any_size_with_any_options)
{
    const double sizes[] = {1e-38, 1e-20, 1, 1, 1e10, 1e20, 3e38};
    uint64_t seed = (uint64_t)number_from("MHA_SEED", 4711);
    long long only = number_from("MHA_CASE", -1), cases = cases_from(600);
    for (long long n = only < 0 ? 0 : only; n < (only < 0 ? cases : only + 1); n++) {
        rng r = rng_make(seed, (uint64_t)n);
        attention_case c = case_random(&r);
        char what[80];
        if (c.scores >= 0 && c.scores < MHA_STAGE_MASKED) c.scores = MHA_STAGE_MASKED;
        problem *p = problem_make(&c);
        store *all[] = {&p->q, &p->k, &p->v, &p->bias, &p->alibi, &p->sinks};
        for (size_t s = 0; s < 6; s++)
            if (all[s]->bytes) enlarge(all[s], sizes[rng_between(&r, 0, 6)]);
        snprintf(what, sizeof what, "MHA_SEED=%llu MHA_CASE=%lld", (unsigned long long)seed, n);
        check(p, what);
        problem_free(p);
    }
}

static void set_number(mha_tensor x, int64_t i, int64_t d, double value)
{
    char *at = (char *)x.data + (i * x.stride[2] + d * x.stride[3]) * (int64_t)mha_type_size(x.type);
    element_set(at, x.type, value);
}

/* A row of NaN in one block, huge numbers beside it, ordinary rows in the next: each gets what it would get alone. */
TEST(a_bad_row_does_not_hide_a_huge_one)
{
    for (int half = 0; half < 2; half++) {
        attention_case c = case_plain(1, 8, 8, 70, 70, 8, 8); /* heads enough that no one's rows are cut up */
        if (half) case_set_type(&c, MHA_BFLOAT16);
        c.softcap = 30;
        c.scale = 1;
        c.type_out = MHA_FLOAT32;
        problem *p = problem_make(&c), *alone = problem_make(&c);
        problem *both[] = {p, alone};
        for (int n = 0; n < 2; n++)
            for (int64_t d = 0; d < 8;
                 d++) { /* row 4 leaves float32 and comes back: its score is 0 for every other key */
                set_number(both[n]->q.view, 4, d, d < 2 ? 3e38 : d < 4 ? -3e38 : 0);
                set_number(both[n]->q.view, 3, d, n ? 1 : NAN);
                for (int64_t j = 0; j < 70; j += 2) set_number(both[n]->k.view, j, d, 1);
            }
        for_each_isa (isa) {
            mha_context *ctx = context_make(isa, 1, (mha_parallel){NULL, NULL}, NULL);
            expect(!problem_run(p, ctx) && !problem_run(alone, ctx), "%s: %s", isa, mha_context_error(ctx));
            for (int64_t i = 0; i < 70; i++)
                for (int64_t e = 0; i != 3 && e < 8; e++) {
                    double got = element_get(problem_out(p, 0, 0, i, e), MHA_FLOAT32);
                    double want = element_get(problem_out(alone, 0, 0, i, e), MHA_FLOAT32);
                    expect(got == want, "%s: row %d is %g beside a NaN, %g without", isa, (int)i, got, want);
                }
            mha_context_free(ctx);
        }
        problem_free(p);
        problem_free(alone);
    }
}
