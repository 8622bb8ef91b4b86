/* The plan of a call: what it says, that it is the same without data, and that no argument whatever brings it down. */
#include "support/calls.h"
#include "support/problem.h"

static bool one_line(const char *text) { return text && text[0] && !strchr(text, '\n'); }

TEST(a_plan_says_how)
{
    for_each_isa (isa)
        for (int type = 0; type < 3; type++)
            for (int threads = 1; threads < 6; threads += 2) {
                mha_attention_plan plan;
                mha_context *ctx = context_make(isa, threads, (mha_parallel){NULL, NULL}, NULL);
                mha_tensor q = mha_tensor_4d(NULL, (mha_type)type, 2, 8, 300, 64);
                mha_tensor k = mha_tensor_4d(NULL, (mha_type)type, 2, 2, 500, 64);
                mha_status status = mha_attention_explain(ctx, &plan, q, NULL, q, k, k, NULL);
                expect(!status && !mha_context_error(ctx)[0], "%s", mha_context_error(ctx));
                expect(!strcmp(plan.isa, isa), "the plan is for %s, not %s", plan.isa, isa);
                expect(one_line(plan.kernel) && one_line(plan.why), "kernel '%s', why '%s'", plan.kernel, plan.why);
                expect(strstr(plan.why, isa) != NULL, "'%s' does not say what decided for %s", plan.why, isa);
                expect(plan.threads >= 1 && plan.threads <= threads, "%d threads of %d", plan.threads, threads);
                expect(plan.tile_rows >= 1 && plan.tile_keys >= 1, "tiles of %d x %d", (int)plan.tile_rows,
                       (int)plan.tile_keys);
                int64_t rows = 2 * 8 * 300, pieces = plan.pieces;
                expect(pieces >= plan.threads && pieces * plan.tile_rows >= rows, "%d pieces of %d rows", (int)pieces,
                       (int)plan.tile_rows);
                expect(plan.scratch_bytes > 0, "no scratch");
                mha_context_free(ctx);
            }
}

TEST(a_plan_needs_no_data)
{
    for (uint64_t n = 0; n < 200; n++) {
        rng r = rng_make(n, 12);
        attention_case c = case_random(&r);
        problem *p = problem_make(&c);
        mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
        mha_attention_plan with = {0}, without = {0};
        mha_status a =
            mha_attention_explain(ctx, &with, p->out.view, &p->extras, p->q.view, p->k.view, p->v.view, &p->options);
        mha_tensor *all[] = {&p->out.view,
                             &p->q.view,
                             &p->k.view,
                             &p->v.view,
                             &p->extras.lse,
                             &p->extras.softmax,
                             &p->extras.weights,
                             &p->extras.scores,
                             &p->options.mask,
                             &p->options.bias,
                             &p->options.alibi_slopes,
                             &p->options.sinks};
        for (size_t t = 0; t < sizeof all / sizeof *all; t++) all[t]->data = NULL;
        mha_status b =
            mha_attention_explain(ctx, &without, p->out.view, &p->extras, p->q.view, p->k.view, p->v.view, &p->options);
        expect(!a && !b, "case %d: %s", (int)n, mha_context_error(ctx));
        expect(with.pieces == without.pieces && with.scratch_bytes == without.scratch_bytes &&
                   with.tile_rows == without.tile_rows && with.tile_keys == without.tile_keys &&
                   !strcmp(with.why, without.why) && !strcmp(with.kernel, without.kernel),
               "case %d: without data the plan is another", (int)n);
        mha_context_free(ctx);
        problem_free(p);
    }
}

TEST(a_refused_plan_is_not_written)
{
    call c = good();
    mha_attention_plan plan, before;
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    memset(&plan, 0x5A, sizeof plan);
    before = plan;
    c.k.size[3]++;
    mha_status status = mha_attention_explain(ctx, &plan, c.out, NULL, c.q, c.k, c.v, NULL);
    expect(status == MHA_BAD_SHAPE && !memcmp(&plan, &before, sizeof plan), "%s", mha_status_name(status));
    mha_context_free(ctx);
}

/* ---- Anything at all -------------------------------------------------------------------------------------------- */

static int64_t any_number(rng *r)
{
    const int64_t edges[] = {0, 1, 2, 3, 64, 1 << 20, INT64_C(1) << 31, INT64_C(1) << 40, INT64_C(1) << 62, INT64_MAX};
    int64_t n = edges[rng_between(r, 0, 9)];
    return rng_chance(r, 0.1) ? -n : rng_chance(r, 0.5) ? n : rng_between(r, 0, 5);
}

static mha_tensor any_tensor(rng *r)
{
    mha_tensor t = mha_tensor_4d(NULL, MHA_FLOAT32, any_number(r), any_number(r), any_number(r), any_number(r));
    t.rank = rng_chance(r, 0.9) ? 4 : (int)rng_between(r, -1, 6);
    if (rng_chance(r, 0.05)) t.type = (mha_type)rng_between(r, -1, 6);
    for (int a = 0; a < 4; a++)
        if (rng_chance(r, 0.1)) t.stride[a] = any_number(r);
    return t;
}

/* Mostly shapes that fit each other, or nothing but the first check would be tried. */
static call any_call(rng *r)
{
    call c = {.extras = MHA_ATTENTION_NO_EXTRAS, .options = MHA_ATTENTION_DEFAULTS};
    int64_t b = any_number(r), g = any_number(r), share = rng_between(r, 1, 3), tq = any_number(r), tk = any_number(r);
    int64_t h = g > 0 && g < INT64_C(1) << 60 ? g * share : g, d = any_number(r);
    c.q = c.out = mha_tensor_4d(NULL, MHA_FLOAT32, b, h, tq, d);
    c.k = c.v = mha_tensor_4d(NULL, MHA_FLOAT32, b, g, tk, d);
    if (rng_chance(r, 0.3)) c.extras.lse = mha_tensor_3d(NULL, MHA_FLOAT32, b, h, tq);
    if (rng_chance(r, 0.3)) c.extras.weights = mha_tensor_4d(NULL, MHA_FLOAT32, b, h, tq, tk);
    if (rng_chance(r, 0.3)) c.extras.scores = mha_tensor_4d(NULL, MHA_FLOAT32, b, h, tq, tk);
    if (rng_chance(r, 0.3)) c.options.mask = mha_tensor_4d(NULL, MHA_BOOL, 1, 1, tq, tk);
    if (rng_chance(r, 0.3)) c.options.window_left = any_number(r);
    if (rng_chance(r, 0.3)) c.options.window_right = any_number(r);
    mha_tensor *all[] = {&c.q, &c.k, &c.v, &c.out, &c.extras.lse, &c.extras.weights, &c.options.mask, &c.options.bias};
    if (rng_chance(r, 0.3)) *all[rng_between(r, 0, 7)] = any_tensor(r);
    return c;
}

TEST(any_arguments_are_answered)
{
    mha_context *ctx = context_make(NULL, 3, (mha_parallel){NULL, NULL}, NULL);
    int counts[8] = {0};
    for (uint64_t n = 0; n < 50000; n++) {
        rng r = rng_make(n, 21);
        call c = any_call(&r);
        mha_status status = explain(ctx, &c);
        const char *text = mha_context_error(ctx);
        if (!expect((int)status >= 0 && status <= MHA_TOO_LARGE && status != MHA_OVERLAP, "call %d: %s", (int)n,
                    mha_status_name(status)))
            continue;
        expect(status ? one_line(text) : !text[0], "call %d: %s: '%s'", (int)n, mha_status_name(status), text);
        counts[status]++;
    }
    expect(counts[MHA_OK] > 500 && counts[MHA_TOO_LARGE] > 500 && counts[MHA_BAD_SHAPE] > 500,
           "the calls are too much alike: %d good, %d too large, %d of bad shape", counts[MHA_OK],
           counts[MHA_TOO_LARGE], counts[MHA_BAD_SHAPE]);
    mha_context_free(ctx);
}
