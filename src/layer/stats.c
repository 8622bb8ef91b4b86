/* Statistics of a layer's heads, from the queries, keys and softmax that a forward call left on its tape. */
#include "attention/stats.h"
#include "layer/tape.h"

/* The rows of a result that belong to some sequence: what the tape has. */
static mha_status cut(mha_context *ctx, mha_tensor *t, const char *name, mha_stretch rows)
{
    if (!mha_is_given(*t) || t->rank < 3 || t->rank > 4) return MHA_OK; /* such a rank will be refused */
    if (t->size[2] != rows.all)
        return mha_fail(ctx, MHA_BAD_SHAPE, "%s: axis 2 is %lld, must be %lld", name, (long long)t->size[2],
                        (long long)rows.all);
    TRY(mha_check_tensor(ctx, t, name, t->rank, "", MHA_OUTPUT));
    *t = mha_cut(*t, 2, rows);
    return MHA_OK;
}

mha_status mha_layer_stats(mha_context *ctx, mha_layer *layer, const mha_stats *stats, const mha_tape *tape,
                           const mha_stats_options *stats_options)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_succeed(ctx);
    MHA_NEED(ctx, layer);
    MHA_NEED(ctx, stats);
    MHA_NEED(ctx, tape);
    TRY(mha_tape_check(ctx, layer, tape));
    const mha_pass *p = &tape->pass;
    mha_stats want = *stats;
    TRY(cut(ctx, &want.entropy, "stats.entropy", p->query_rows));
    TRY(cut(ctx, &want.effective, "stats.effective", p->query_rows));
    TRY(cut(ctx, &want.largest, "stats.largest", p->query_rows));
    TRY(cut(ctx, &want.distance, "stats.distance", p->query_rows));
    TRY(cut(ctx, &want.mass, "stats.mass", p->query_rows));
    TRY(cut(ctx, &want.top_weights, "stats.top_weights", p->query_rows));
    TRY(cut(ctx, &want.top_keys, "stats.top_keys", p->query_rows));
    TRY(cut(ctx, &want.received, "stats.received", p->key_rows));
    ctx->rehearsing = true; /* all sizes are to be right before memory is compared */
    mha_status status = mha_attention_stats(ctx, &want, p->q, p->k, p->softmax, &p->options, stats_options);
    ctx->rehearsing = false;
    if (status) return status;
    mha_attention_options options = mha_pass_options(p);
    const mha_argument all[] = {MHA_STATS_OUTPUTS(&want), MHA_PASS_INPUTS(p, &options)};
    TRY(mha_layer_check_apart(ctx, layer, all, sizeof all / sizeof *all));
    return mha_attention_stats(ctx, &want, p->q, p->k, p->softmax, &p->options, stats_options);
}
