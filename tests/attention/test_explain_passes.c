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

/* A kind of call: how it is explained, and how it is made. */
typedef struct pass {
    mha_status (*explain)(mha_context *ctx, mha_attention_plan *plan, const void *call);
    mha_status (*run)(mha_context *ctx, const void *call);
} pass;

/* What holds for the plan of every call; `bare` is the call without data. Returns whether the line about the plan has the
 * word. */
static bool check_plan(const pass *p, const void *call, const void *bare, const char *isa, int threads,
                       const char *text, const char *word)
{
    ledger memory = ledger_make();
    mha_context *ctx = context_make(isa, threads, (mha_parallel){NULL, NULL}, &memory);
    mha_attention_plan plan = {0}, other = {0};
    int64_t calls = memory.calls;
    expect(!p->explain(ctx, &plan, call) && !p->explain(ctx, &other, bare), "%s: %s", text, mha_context_error(ctx));
    expect(memory.calls == calls, "%s: explain allocates", text);
    expect(same_plan(&plan, &other), "%s: without data the plan is another", text);
    expect(one_line(plan.kernel) && one_line(plan.why) && strstr(plan.why, isa), "%s: '%s'", text, plan.why);
    expect(plan.threads >= 1 && plan.threads <= threads, "%s: %d threads", text, plan.threads);
    expect(!p->run(ctx, call), "%s: %s", text, mha_context_error(ctx));
    expect(mha_context_scratch(ctx) == plan.scratch_bytes, "%s: %zu bytes, the plan says %zu", text,
           mha_context_scratch(ctx), plan.scratch_bytes);
    bool has = strstr(plan.why, word);
    mha_context_free(ctx);
    return has;
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

static mha_status explain_back(mha_context *ctx, mha_attention_plan *plan, const void *call)
{
    const back_call *c = call;
    return mha_attention_explain_backward(ctx, plan, &c->gradients, &c->saved, c->dout, c->dlse, &c->options);
}

static mha_status call_back(mha_context *ctx, const void *call)
{
    const back_call *c = call;
    return mha_attention_backward(ctx, &c->gradients, &c->saved, c->dout, c->dlse, &c->options);
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
    static const pass backward = {explain_back, call_back};
    gradients *g = gradients_make(c);
    mha_context *before = context_make(isa, 1, (mha_parallel){NULL, NULL}, NULL);
    char text[900];
    gradient_describe(c, text, sizeof text);
    expect(!gradients_run(g, before), "%s", mha_context_error(before));
    back_call call = call_of(g, accumulate), bare = without_data(call);
    check_plan(&backward, &call, &bare, isa, c->forward.threads, text, "");
    mha_context_free(before);
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
            mha_attention_plan forward = {.kernel = ""}, backward = forward;
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

typedef struct stats_call {
    mha_stats stats;
    mha_tensor q, k, softmax;
    mha_attention_options attend;
    mha_stats_options options;
} stats_call;

static mha_status explain_stats(mha_context *ctx, mha_attention_plan *plan, const void *call)
{
    const stats_call *c = call;
    return mha_attention_explain_stats(ctx, plan, &c->stats, c->q, c->k, c->softmax, &c->attend, &c->options);
}

static mha_status call_stats(mha_context *ctx, const void *call)
{
    const stats_call *c = call;
    return mha_attention_stats(ctx, &c->stats, c->q, c->k, c->softmax, &c->attend, &c->options);
}

static stats_call stats_without_data(stats_call c)
{
    mha_tensor *all[] = {&c.stats.entropy,
                         &c.stats.effective,
                         &c.stats.largest,
                         &c.stats.distance,
                         &c.stats.mass,
                         &c.stats.top_weights,
                         &c.stats.top_keys,
                         &c.stats.received,
                         &c.stats.heatmap,
                         &c.stats.divergence,
                         &c.stats.cosine,
                         &c.options.sets,
                         &c.q,
                         &c.k,
                         &c.softmax};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) all[n]->data = NULL;
    drop_data(&c.attend);
    return c;
}

/* `anew`: the softmax is not given, and the line says that it is computed. */
static void run_stats(const attention_case *c, const char *isa, bool anew)
{
    static const pass statistic = {explain_stats, call_stats};
    statistics *s = statistics_make(c);
    mha_context *before = context_make(isa, 1, (mha_parallel){NULL, NULL}, NULL);
    char text[900];
    case_describe(c, text, sizeof text);
    expect(!statistics_run(s, before, -1), "%s", mha_context_error(before));
    const problem *p = s->p;
    mha_tensor none = MHA_NO_TENSOR;
    stats_call call = {statistics_asked(s),           p->q.view,  p->k.view,
                       anew ? none : p->softmax.view, p->options, s->options};
    stats_call bare = stats_without_data(call);
    bool says = check_plan(&statistic, &call, &bare, isa, c->threads, text, "softmax");
    expect(says == anew, "%s: the plan %s the softmax", text, says ? "mentions" : "does not mention");
    mha_context_free(before);
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
