/* The public edge of statistics: what may be asked of them. */
#include "attention/stats.h"
#include "core/options.h"

typedef long long ll;

/* Whether the call only asks for its plan. */
static bool asks(const mha_stats_call *c) { return c->problem.output_role == MHA_SHAPE; }

static mha_status check_result(mha_stats_call *c, mha_tensor *t, const char *name, mha_type type, int rank,
                               const int64_t *size, const char *shape)
{
    if (!mha_is_given(*t)) return MHA_OK;
    TRY(mha_check_tensor(c->problem.ctx, t, name, rank, shape, asks(c) ? MHA_SHAPE : MHA_OUTPUT));
    if (t->type != type)
        return mha_fail(c->problem.ctx, MHA_BAD_TYPE, "%s: is %s, must be %s", name, mha_type_name(t->type),
                        mha_type_name(type));
    for (int axis = 0; axis < rank; axis++)
        if (size[axis] >= 0 && t->size[axis] != size[axis])
            return mha_fail(c->problem.ctx, MHA_BAD_SHAPE, "%s: axis %d is %lld, must be %lld of %s", name, axis,
                            (ll)t->size[axis], (ll)size[axis], shape);
    return MHA_OK;
}

static mha_status check_sets(mha_stats_call *c)
{
    if (!mha_is_given(c->options.sets)) return MHA_OK;
    if (!mha_is_given(c->want.mass))
        return mha_fail(c->problem.ctx, MHA_BAD_ARGUMENT, "sets: is given, but stats.mass is not asked for");
    TRY(mha_check_tensor(c->problem.ctx, &c->options.sets, "sets", 2, "(S,Tk)", c->problem.output_role));
    mha_tensor sets = c->options.sets;
    if (sets.type != MHA_BOOL)
        return mha_fail(c->problem.ctx, MHA_BAD_TYPE, "sets: is %s, must be bool", mha_type_name(sets.type));
    bool ragged = c->problem.options.key_starts.rank; /* on a remote device, the longest sequence is not known */
    if (sets.size[1] != c->problem.Tk && !(ragged && (sets.size[1] > c->problem.Tk || c->problem.ctx->backend->remote)))
        return mha_fail(c->problem.ctx, MHA_BAD_SHAPE, "sets: axis 1 is %lld, must be %lld of (S,Tk)", (ll)sets.size[1],
                        (ll)c->problem.Tk);
    return MHA_OK;
}

static mha_status check_overlap(mha_stats_call *c)
{
    const mha_problem *p = &c->problem;
    const mha_argument all[] = {
        MHA_STATS_OUTPUTS(&c->want), {"sets", c->options.sets, MHA_INPUT},      {"q", p->q, MHA_INPUT},
        {"k", p->k, MHA_INPUT},      {"softmax", p->extras.softmax, MHA_INPUT}, MHA_OPTION_INPUTS(&p->options)};
    return MHA_CHECK_APART(p->ctx, all);
}

static mha_status check(mha_stats_call *c)
{
    const mha_problem *p = &c->problem;
    mha_stats *w = &c->want;
    TRY(check_sets(c));
    int64_t sets = mha_is_given(c->options.sets) ? c->options.sets.size[0] : 0;
    int64_t row[4] = {p->q.size[0], p->H, p->q.size[2], -1}, mass[4] = {row[0], row[1], row[2], 4 + sets};
    int64_t key[3] = {p->k.size[0], p->H, p->k.size[2]}, heat[4] = {p->B, p->H, -1, -1}, pair[3] = {p->B, p->H, p->H};
    const char *of_rows = "(B,H,Tq)", *of_tops = "(B,H,Tq,N)";
    TRY(check_result(c, &w->entropy, "stats.entropy", MHA_FLOAT32, 3, row, of_rows));
    TRY(check_result(c, &w->effective, "stats.effective", MHA_FLOAT32, 3, row, of_rows));
    TRY(check_result(c, &w->largest, "stats.largest", MHA_FLOAT32, 3, row, of_rows));
    TRY(check_result(c, &w->distance, "stats.distance", MHA_FLOAT32, 3, row, of_rows));
    TRY(check_result(c, &w->mass, "stats.mass", MHA_FLOAT32, 4, mass, "(B,H,Tq,4+S)"));
    TRY(check_result(c, &w->top_weights, "stats.top_weights", MHA_FLOAT32, 4, row, of_tops));
    if (mha_is_given(w->top_weights)) row[3] = w->top_weights.size[3];
    TRY(check_result(c, &w->top_keys, "stats.top_keys", MHA_INT64, 4, row, of_tops));
    TRY(check_result(c, &w->received, "stats.received", MHA_FLOAT32, 3, key, "(B,H,Tk)"));
    TRY(check_result(c, &w->heatmap, "stats.heatmap", MHA_FLOAT32, 4, heat, "(B,H,R,C)"));
    TRY(check_result(c, &w->divergence, "stats.divergence", MHA_FLOAT32, 3, pair, "(B,H,H)"));
    TRY(check_result(c, &w->cosine, "stats.cosine", MHA_FLOAT32, 3, pair, "(B,H,H)"));
    const mha_stats_options *o = &c->options;
    if (o->grid_columns < 0 || o->grid_first < 0 || o->grid_columns > MHA_SIZE_LIMIT || o->grid_first > MHA_SIZE_LIMIT)
        return mha_fail(c->problem.ctx, MHA_BAD_ARGUMENT, "grid_columns, grid_first: must be from 0 to 2^40");
    int64_t ignored;
    if (__builtin_mul_overflow(w->heatmap.size[2], p->Tq, &ignored) ||
        __builtin_mul_overflow(w->heatmap.size[3], p->Tk, &ignored))
        return mha_fail(c->problem.ctx, MHA_TOO_LARGE, "stats.heatmap: has too many rows or columns");
    return asks(c) ? MHA_OK : check_overlap(c);
}

/* `role` is that of the inputs: MHA_INPUT, or MHA_SHAPE if the call only asks. */
static mha_status check_call(mha_stats_call *c, mha_context *ctx, mha_role role, const mha_stats *stats, mha_tensor q,
                             mha_tensor k, mha_tensor softmax, const mha_attention_options *options,
                             const mha_stats_options *stats_options)
{
    if (!stats) return mha_fail(ctx, MHA_BAD_ARGUMENT, "stats: is NULL");
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    *c = (mha_stats_call){.want = *stats, .options = MHA_STATS_DEFAULTS};
    extras.softmax = softmax;
    TRY(mha_problem_make(&c->problem, ctx, role, q, &extras, q, k, k, options));
    TRY(mha_options_take(ctx, &c->options, sizeof c->options, stats_options, "MHA_STATS_DEFAULTS"));
    TRY(check(c));
    if (!mha_element_count(c->want.heatmap)) c->want.heatmap.rank = 0;
    return MHA_OK;
}

mha_status mha_attention_stats(mha_context *ctx, const mha_stats *stats, mha_tensor q, mha_tensor k, mha_tensor softmax,
                               const mha_attention_options *options, const mha_stats_options *stats_options)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_stats_call c;
    TRY(check_call(&c, ctx, MHA_INPUT, stats, q, k, softmax, options, stats_options));
    return ctx->backend->attention_stats(&c);
}

mha_status mha_attention_explain_stats(mha_context *ctx, mha_attention_plan *plan, const mha_stats *stats, mha_tensor q,
                                       mha_tensor k, mha_tensor softmax, const mha_attention_options *options,
                                       const mha_stats_options *stats_options)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    if (!plan) return mha_fail(ctx, MHA_BAD_ARGUMENT, "plan: is NULL");
    mha_stats_call c;
    TRY(check_call(&c, ctx, MHA_SHAPE, stats, q, k, softmax, options, stats_options));
    return ctx->backend->attention_explain_stats(&c, plan);
}
