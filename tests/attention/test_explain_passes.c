/* The plans of backward calls and of statistics: what they say, that they are the same without data, and that the scratch
 * they name is what the call takes, to the byte. */
#include "support/gradients.h"
#include "support/harness.h"
#include "support/statistics.h"

static bool one_line(const char *text) { return text && text[0] && !strchr(text, '\n'); }

static bool same_plan(const mha_attention_plan *a, const mha_attention_plan *b)
{
    return a->pieces == b->pieces && a->scratch_bytes == b->scratch_bytes && a->tile_rows == b->tile_rows &&
           a->tile_keys == b->tile_keys && a->threads == b->threads && !strcmp(a->why, b->why) &&
           !strcmp(a->kernel, b->kernel) && !strcmp(a->isa, b->isa);
}

static void drop_data(mha_attention_options *o)
{
    o->mask.data = o->bias.data = o->alibi_slopes.data = o->sinks.data = NULL;
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

/* A backward call, which may add to its gradients. */
typedef struct back_call {
    mha_attention_gradients gradients;
    mha_attention_saved saved;
    mha_tensor dout, dlse;
    mha_attention_options options;
} back_call;

static back_call call_of(const gradients *g, bool accumulate)
{
    const problem *p = g->p;
    mha_tensor none = MHA_NO_TENSOR;
    back_call c = {gradients_asked(g),
                   {p->q.view, p->k.view, p->v.view, p->out.view, g->c.anew ? none : p->softmax.view},
                   g->dout.view,
                   g->dlse.view,
                   p->options};
    c.gradients.accumulate = accumulate;
    return c;
}

static mha_status explain_back(mha_context *ctx, mha_attention_plan *plan, const back_call *c)
{
    return mha_attention_explain_backward(ctx, plan, &c->gradients, &c->saved, c->dout, c->dlse, &c->options);
}

static back_call without_data(back_call c)
{
    mha_tensor *all[] = {&c.gradients.q,
                         &c.gradients.k,
                         &c.gradients.v,
                         &c.gradients.bias,
                         &c.gradients.alibi_slopes,
                         &c.gradients.sinks,
                         &c.gradients.importance,
                         &c.saved.q,
                         &c.saved.k,
                         &c.saved.v,
                         &c.saved.out,
                         &c.saved.softmax,
                         &c.dout,
                         &c.dlse};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) all[n]->data = NULL;
    drop_data(&c.options);
    return c;
}

static void run_back(const gradient_case *c, const char *isa, bool accumulate)
{
    gradients *g = gradients_make(c);
    ledger memory = ledger_make();
    mha_context *before = context_make(isa, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_context *ctx = context_make(isa, c->forward.threads, (mha_parallel){NULL, NULL}, &memory);
    mha_attention_plan plan = {0}, bare = {0};
    char text[900];
    gradient_describe(c, text, sizeof text);
    expect(!gradients_run(g, before), "%s", mha_context_error(before));
    back_call call = call_of(g, accumulate), empty = without_data(call);
    int64_t calls = memory.calls;
    expect(!explain_back(ctx, &plan, &call) && !explain_back(ctx, &bare, &empty), "%s: %s", text,
           mha_context_error(ctx));
    expect(memory.calls == calls, "%s: explain allocates", text);
    expect(same_plan(&plan, &bare), "%s: without data the plan is another", text);
    expect(one_line(plan.kernel) && one_line(plan.why) && strstr(plan.why, isa), "%s: '%s'", text, plan.why);
    expect(plan.threads >= 1 && plan.threads <= c->forward.threads, "%s: %d threads", text, plan.threads);
    expect(!mha_attention_backward(ctx, &call.gradients, &call.saved, call.dout, call.dlse, &call.options), "%s: %s",
           text, mha_context_error(ctx));
    expect(mha_context_scratch(ctx) == plan.scratch_bytes, "%s: %zu bytes, the plan says %zu", text,
           mha_context_scratch(ctx), plan.scratch_bytes);
    mha_context_free(before);
    mha_context_free(ctx);
    gradients_free(g);
}

TEST(plans_of_backward_calls)
{
    for (uint64_t n = 0; n < (uint64_t)cases_from(150); n++) {
        rng r = rng_make(n, 55);
        gradient_case c = gradient_random(&r);
        for_each_isa (isa) run_back(&c, isa, n % 2);
    }
}

/* An engine multiplies backward where it does forward, if dout is bfloat16, too; otherwise the line says why not. */
TEST(an_engine_needs_its_own_type_of_dout)
{
    for_each_isa (isa)
        for (int half = 0; half < 2; half++) {
            mha_tensor x = mha_tensor_4d(NULL, MHA_BFLOAT16, 2, 4, 100, 64), none = MHA_NO_TENSOR, dout = x;
            mha_tensor softmax = mha_tensor_4d(NULL, MHA_FLOAT32, 2, 4, 100, 2);
            mha_context *ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL);
            mha_attention_plan forward, backward;
            mha_attention_gradients to = MHA_ATTENTION_NO_GRADIENTS;
            const mha_attention_saved saved = {x, x, x, x, softmax};
            to.q = to.k = to.v = x;
            if (!half) dout.type = MHA_FLOAT32;
            expect(!mha_attention_explain(ctx, &forward, x, NULL, x, x, x, NULL) &&
                       !mha_attention_explain_backward(ctx, &backward, &to, &saved, dout, none, NULL),
                   "%s", mha_context_error(ctx));
            bool engine = !strcmp(forward.kernel, "fused-engine");
            expect(!strcmp(backward.kernel, half ? forward.kernel : "fused-widened"), "%s: %s", isa, backward.kernel);
            expect((strstr(backward.why, "dout") != NULL) == (engine && !half), "%s: %s", isa, backward.why);
            mha_context_free(ctx);
        }
}

/* ---- Statistics ------------------------------------------------------------------------------------------------- */

static void run_stats(const attention_case *c, const char *isa, bool anew)
{
    statistics *s = statistics_make(c);
    ledger memory = ledger_make();
    mha_context *before = context_make(isa, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_context *ctx = context_make(isa, c->threads, (mha_parallel){NULL, NULL}, &memory);
    mha_attention_plan plan = {0}, bare = {0};
    char text[900];
    case_describe(c, text, sizeof text);
    expect(!statistics_run(s, before, -1), "%s", mha_context_error(before));
    const problem *p = s->p;
    mha_stats want = statistics_asked(s), empty = want;
    mha_stats_options options = s->options;
    mha_attention_options attend = p->options;
    mha_tensor softmax = anew ? (mha_tensor)MHA_NO_TENSOR : p->softmax.view, q = p->q.view, k = p->k.view;
    int64_t calls = memory.calls;
    expect(!mha_attention_explain_stats(ctx, &plan, &want, q, k, softmax, &attend, &options), "%s: %s", text,
           mha_context_error(ctx));
    mha_tensor *all[] = {&empty.entropy, &empty.effective,   &empty.largest,  &empty.distance,
                         &empty.mass,    &empty.top_weights, &empty.top_keys, &empty.received,
                         &empty.heatmap, &empty.divergence,  &empty.cosine};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) all[n]->data = NULL;
    drop_data(&attend);
    options.sets.data = q.data = k.data = softmax.data = NULL;
    expect(!mha_attention_explain_stats(ctx, &bare, &empty, q, k, softmax, &attend, &options), "%s: %s", text,
           mha_context_error(ctx));
    expect(memory.calls == calls, "%s: explain allocates", text);
    expect(same_plan(&plan, &bare), "%s: without data the plan is another", text);
    expect(one_line(plan.kernel) && one_line(plan.why) && strstr(plan.why, isa), "%s: '%s'", text, plan.why);
    expect(plan.threads >= 1 && plan.threads <= c->threads, "%s: %d threads", text, plan.threads);
    expect((strstr(plan.why, "softmax") != NULL) == anew, "%s: '%s'", text, plan.why);
    softmax = anew ? softmax : p->softmax.view;
    expect(!mha_attention_stats(ctx, &want, p->q.view, p->k.view, softmax, &p->options, &s->options), "%s: %s", text,
           mha_context_error(ctx));
    expect(mha_context_scratch(ctx) == plan.scratch_bytes, "%s: %zu bytes, the plan says %zu", text,
           mha_context_scratch(ctx), plan.scratch_bytes);
    mha_context_free(before);
    mha_context_free(ctx);
    statistics_free(s);
}

TEST(plans_of_statistics)
{
    for (uint64_t n = 0; n < (uint64_t)cases_from(150); n++) {
        rng r = rng_make(n, 56);
        attention_case c = case_random(&r);
        for_each_isa (isa) run_stats(&c, isa, n % 3 == 0);
    }
}

/* ---- Refusals --------------------------------------------------------------------------------------------------- */

TEST(refused_plans_are_not_written)
{
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_tensor x = mha_tensor_4d(NULL, MHA_FLOAT32, 2, 4, 10, 8), none = MHA_NO_TENSOR, thin = x;
    mha_attention_gradients to = MHA_ATTENTION_NO_GRADIENTS;
    const mha_attention_saved saved = {x, x, x, x, none};
    mha_stats stats = MHA_NO_STATS;
    mha_attention_plan plan, before;
    memset(&plan, 0x5A, sizeof plan);
    before = plan;
    thin.size[3]--;
    to.q = thin;
    stats.entropy = mha_tensor_3d(NULL, MHA_FLOAT32, 2, 4, 9);
    expect(mha_attention_explain_backward(NULL, &plan, &to, &saved, x, none, NULL) == MHA_BAD_ARGUMENT, "no context");
    expect(mha_attention_explain_backward(ctx, NULL, &to, &saved, x, none, NULL) == MHA_BAD_ARGUMENT, "no plan");
    expect(mha_attention_explain_backward(ctx, &plan, NULL, &saved, x, none, NULL) == MHA_BAD_ARGUMENT, "no gradients");
    expect(mha_attention_explain_backward(ctx, &plan, &to, NULL, x, none, NULL) == MHA_BAD_ARGUMENT, "nothing saved");
    expect(mha_attention_explain_backward(ctx, &plan, &to, &saved, none, none, NULL) == MHA_BAD_ARGUMENT, "no dout");
    expect(mha_attention_explain_backward(ctx, &plan, &to, &saved, x, none, NULL) == MHA_BAD_SHAPE &&
               strstr(mha_context_error(ctx), "gradients.q"),
           "%s", mha_context_error(ctx));
    expect(mha_attention_explain_stats(NULL, &plan, &stats, x, x, none, NULL, NULL) == MHA_BAD_ARGUMENT, "no context");
    expect(mha_attention_explain_stats(ctx, NULL, &stats, x, x, none, NULL, NULL) == MHA_BAD_ARGUMENT, "no plan");
    expect(mha_attention_explain_stats(ctx, &plan, NULL, x, x, none, NULL, NULL) == MHA_BAD_ARGUMENT, "no stats");
    expect(mha_attention_explain_stats(ctx, &plan, &stats, x, x, none, NULL, NULL) == MHA_BAD_SHAPE &&
               strstr(mha_context_error(ctx), "stats.entropy"),
           "%s", mha_context_error(ctx));
    expect(!memcmp(&plan, &before, sizeof plan), "refused, but the plan was written");
    mha_context_free(ctx);
}
