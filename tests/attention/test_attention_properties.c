/* What must hold whatever the numbers are: sums, symmetries, and what a row must not notice. */
#include "support/harness.h"
#include "support/problem.h"

#include <stdlib.h>

static mha_context *context(const char *isa) { return context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL); }

static bool run(problem *p, mha_context *ctx)
{
    return expect(!problem_run(p, ctx), "%s: %s", mha_context_isa(ctx), mha_context_error(ctx));
}

/* Copies `out` as (B,H,Tq,E) numbers. */
static double *numbers(const problem *p)
{
    const attention_case *c = &p->c;
    double *copy = array(c->B * c->H * c->Tq * c->E, sizeof *copy), *next = copy;
    for (int64_t b = 0; b < c->B; b++)
        for (int64_t h = 0; h < c->H; h++)
            for (int64_t i = 0; i < c->Tq; i++)
                for (int64_t e = 0; e < c->E; e++) *next++ = element_get(problem_out(p, b, h, i, e), c->type_out);
    return copy;
}

/* ---- Weights ---------------------------------------------------------------------------------------------------- */

static double row_sum(const problem *p, int64_t b, int64_t h, int64_t i)
{
    double sum = 0;
    for (int64_t j = 0; j < p->c.Tk; j++) {
        double weight = store_get(&p->weights, b, h, i, j);
        expect(weight >= 0 && weight <= 1.000001, "weight %g", weight);
        sum += weight;
    }
    if (p->c.sinks) sum += exp(store_get(&p->sinks, h, 0, 0, 0) - store_get(&p->lse, b, h, i, 0));
    return sum;
}

TEST(rows_of_weights_sum_to_one)
{
    for_each_isa (isa)
        for (uint64_t seed = 0; seed < 40; seed++) {
            rng r = rng_make(seed, 1);
            attention_case c = case_plain(1, 2, 1, rng_between(&r, 1, 20), rng_between(&r, 1, 400), 16, 4);
            c.weights = 1;
            c.sinks = seed & 1;
            c.causal = seed & 2;
            c.align = MHA_ALIGN_BOTTOM_RIGHT;
            c.softcap = seed & 4 ? 3 : 0;
            c.scale = seed & 8 ? 4 : NAN;
            c.data_seed = seed;
            problem *p = problem_make(&c);
            mha_context *ctx = context(isa);
            for (int64_t h = 0; run(p, ctx) && h < c.H; h++)
                for (int64_t i = 0; i < c.Tq; i++) {
                    bool empty = store_get(&p->lse, 0, h, i, 0) == -INFINITY;
                    double sum = row_sum(p, 0, h, i);
                    double bound =
                        1e-6 * (1 + fabs(store_get(&p->lse, 0, h, i, 0))); /* the sink's share comes from lse */
                    expect(empty ? sum == 0 : fabs(sum - 1) < bound, "%s: row %d of Tk %d sums to %.9g", isa, (int)i,
                           (int)c.Tk, sum);
                }
            mha_context_free(ctx);
            problem_free(p);
        }
}

/* ---- Symmetries ------------------------------------------------------------------------------------------------- */

static void swap_rows(store *s, int64_t h, int64_t a, int64_t b)
{
    for (int64_t d = 0; d < s->view.size[3]; d++) {
        double kept = store_get(s, 0, h, a, d);
        store_set(s, 0, h, a, d, store_get(s, 0, h, b, d));
        store_set(s, 0, h, b, d, kept);
    }
}

/* |a - b| within twice what one of them may be off. */
static void expect_near(const problem *p, const double *a, const double *b, const char *what)
{
    for (int64_t n = 0; n < p->c.B * p->c.H * p->c.Tq * p->c.E; n++)
        expect(fabs(a[n] - b[n]) <= 2 * p->allowed.out[n], "%s: element %d: %.9g and %.9g", what, (int)n, a[n], b[n]);
}

TEST(the_order_of_keys_does_not_matter)
{
    for_each_isa (isa) {
        attention_case c = case_plain(1, 2, 2, 7, 300, 24, 24);
        problem *p = problem_make(&c);
        mha_context *ctx = context(isa);
        run(p, ctx);
        double *before = numbers(p);
        rng r = rng_make(5, 5);
        for (int64_t g = 0; g < c.G; g++)
            for (int64_t j = 0; j < c.Tk; j++) {
                int64_t other = rng_between(&r, 0, c.Tk - 1);
                swap_rows(&p->k, g, j, other);
                swap_rows(&p->v, g, j, other);
            }
        problem_refresh(p);
        problem_solve(p);
        run(p, ctx);
        double *after = numbers(p);
        expect_near(p, before, after, isa);
        free(before);
        free(after);
        mha_context_free(ctx);
        problem_free(p);
    }
}

static void set_all(store *s, store *from, double factor, store *more)
{
    for (int64_t h = 0; h < s->view.size[1]; h++)
        for (int64_t j = 0; j < s->view.size[2]; j++)
            for (int64_t e = 0; e < s->view.size[3]; e++) {
                double sum = factor * store_get(from, 0, h, j, e) + (more ? store_get(more, 0, h, j, e) : 0);
                store_set(s, 0, h, j, e, sum);
            }
}

/* Twice the values are twice the result, to the bit; and the result of a sum is the sum of the results. */
TEST(linear_in_the_values)
{
    for_each_isa (isa) {
        attention_case c = case_plain(1, 2, 2, 5, 130, 16, 20);
        c.fill = FILL_PAINTED; /* sums of these stay exact */
        problem *p = problem_make(&c), *q = problem_make(&c);
        mha_context *ctx = context(isa);
        problem_solve(p);
        run(p, ctx);
        double *one = numbers(p);
        set_all(&q->v, &p->v, 2, NULL);
        problem_refresh(q);
        run(q, ctx);
        double *two = numbers(q);
        for (int64_t n = 0; n < c.H * c.Tq * c.E; n++)
            expect(two[n] == 2 * one[n], "%s: %g and %g", isa, one[n], two[n]);
        for (int64_t h = 0; h < c.H; h++)
            for (int64_t j = 0; j < c.Tk; j++)
                for (int64_t e = 0; e < c.E; e++) store_set(&q->v, 0, h, j, e, painted(j * 31 + e, 7));
        problem_refresh(q);
        run(q, ctx);
        double *other = numbers(q);
        set_all(&p->v, &p->v, 1, &q->v);
        problem_refresh(p);
        problem_solve(p);
        run(p, ctx);
        double *sum = numbers(p);
        for (int64_t n = 0; n < c.H * c.Tq * c.E; n++) one[n] += other[n];
        expect_near(p, sum, one, isa);
        free(one);
        free(two);
        free(other);
        free(sum);
        mha_context_free(ctx);
        problem_free(p);
        problem_free(q);
    }
}

TEST(a_constant_bias_moves_only_lse)
{
    for_each_isa (isa)
        for (double shift = -64; shift <= 64; shift += 32) {
            attention_case c = case_plain(1, 2, 1, 6, 200, 16, 16);
            c.bias = (broadcast){1, 0};
            problem *p = problem_make(&c);
            mha_context *ctx = context(isa);
            store_set(&p->bias, 0, 0, 0, 0, 0);
            problem_refresh(p);
            run(p, ctx);
            double *before = numbers(p), lse = store_get(&p->lse, 0, 1, 3, 0);
            store_set(&p->bias, 0, 0, 0, 0, shift);
            problem_refresh(p);
            problem_solve(p);
            run(p, ctx);
            double *after = numbers(p), moved = store_get(&p->lse, 0, 1, 3, 0);
            expect_near(p, before, after, isa);
            expect(fabs(moved - lse - shift) < 2e-5, "%s: lse moved by %g, not %g", isa, moved - lse, shift);
            free(before);
            free(after);
            mha_context_free(ctx);
            problem_free(p);
        }
}

/* ---- Fully masked rows ------------------------------------------------------------------------------------------- */

/* Everything that could leave a trace is on: sink, dropout, NaN in q, all extras. */
TEST(a_row_that_sees_no_key_is_zeros)
{
    for_each_isa (isa)
        for (int how = 0; how < 6; how++) {
            attention_case c = case_plain(2, 4, 2, 70, 90, 8, 8);
            c.sinks = c.poison = true;
            c.dropout = 0.5f;
            c.weights = 1;
            c.scores = MHA_STAGE_MASKED + how % 2;
            c.causal = how == 0;
            c.align = MHA_ALIGN_OFFSET;
            c.offset = how == 0 ? -40 : how < 3 ? 200 : 0; /* rows before all keys, or past them with a window */
            if (how == 1 || how == 2) c.window_left = how == 1 ? 5 : 150;
            c.lengths = how == 3;
            if (how == 4) c.mask = (broadcast){4, 15};
            if (how == 5) c.bias = (broadcast){4, 15};
            problem *p = problem_make(&c);
            for (int64_t j = 0; j < c.Tk; j++) { /* row (1,2,9) goes blind by these options */
                if (how == 3) p->key_lengths[1] = 0;
                if (how == 4) store_set(&p->mask, 1, 2, 9, j, 0);
                if (how == 5) store_set(&p->bias, 1, 2, 9, j, -INFINITY);
            }
            problem_refresh(p);
            problem_solve(p);
            mha_context *ctx = context(isa);
            char why[300] = "";
            expect(run(p, ctx) && problem_check(p, why, sizeof why), "%s, way %d: %s", isa, how, why);
            const double *lse = p->want.lse + (1 * c.H + 2) * c.Tq; /* of rows (1,2,i) */
            bool way_2 = how == 2; /* its window of 150 ends before the last key for i < 39, behind it from there on */
            expect(lse[way_2 ? 39 : 9] == -INFINITY, "way %d was meant to hide every key of the row", how);
            expect(!way_2 || lse[38] > -INFINITY, "way 2 was meant to leave row (1,2,38) one key");
            mha_context_free(ctx);
            problem_free(p);
        }
}

/* Lengths, starts and offsets of either integer type and any stride. */
TEST(integers_of_any_type_and_stride)
{
    attention_case c = case_plain(3, 2, 2, 9, 40, 8, 8);
    c.lengths = c.ragged_q = c.ragged_k = c.causal = true;
    c.align = MHA_ALIGN_OFFSET;
    c.offset = 3;
    problem *p = problem_make(&c);
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    expect(!problem_run(p, ctx), "%s", mha_context_error(ctx));
    unsigned char *want = array((int64_t)p->out.size, 1);
    memcpy(want, p->out.bytes, p->out.size);
    int32_t small[4][8];
    mha_tensor *all[] = {&p->options.offsets, &p->options.key_lengths, &p->options.query_starts,
                         &p->options.key_starts};
    for (int n = 0; n < 4; n++) {
        const int64_t *numbers = all[n]->data;
        for (int64_t i = 0; i < all[n]->size[0]; i++) small[n][7 - 2 * i] = (int32_t)numbers[i];
        *all[n] = (mha_tensor){&small[n][7], MHA_INT32, 1, {all[n]->size[0], 0, 0, 0}, {-2, 0, 0, 0}};
    }
    expect(!problem_run(p, ctx), "%s", mha_context_error(ctx));
    expect(!memcmp(want, p->out.bytes, p->out.size), "int32 numbers give other results than int64");
    free(want);
    mha_context_free(ctx);
    problem_free(p);
}
