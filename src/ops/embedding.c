/* The public edge of embeddings. Ids may lie on a device: the device judges them. */
#include "ops/check.h"

static mha_status take_options(mha_context *ctx, mha_embedding_options *o, const mha_embedding_options *options)
{
    *o = (mha_embedding_options)MHA_EMBEDDING_DEFAULTS;
    TRY(mha_options_take(ctx, o, sizeof *o, options, "MHA_EMBEDDING_DEFAULTS"));
    if (!isfinite(o->scale)) return mha_fail(ctx, MHA_BAD_ARGUMENT, "scale: must be finite");
    return MHA_OK;
}

/* ids (B,T), for rows (B,T,W). */
static mha_status check_ids(mha_context *ctx, mha_tensor *ids, mha_tensor rows)
{
    TRY(mha_check_ids(ctx, ids, "ids", 2, "(B,T)"));
    TRY(mha_check_size(ctx, *ids, "ids", 0, rows.size[0], "B"));
    return mha_check_size(ctx, *ids, "ids", 1, rows.size[1], "T");
}

static mha_status check_table(mha_context *ctx, mha_tensor *t, const char *name, mha_tensor rows, mha_role role)
{
    TRY(mha_check_dense(ctx, t, name, 2, "(V,W)", role));
    return mha_check_size(ctx, *t, name, 1, rows.size[2], "W");
}

static mha_status check_positions(mha_context *ctx, mha_tensor *t, const char *name, mha_tensor rows, mha_role role)
{
    TRY(mha_check_dense(ctx, t, name, 2, "(T,W)", role));
    TRY(mha_check_size(ctx, *t, name, 0, rows.size[1], "T"));
    return mha_check_size(ctx, *t, name, 1, rows.size[2], "W");
}

mha_status mha_embedding_forward(mha_context *ctx, mha_tensor y, mha_tensor table, mha_tensor ids,
                                 const mha_embedding_options *options)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_embedding_options o;
    mha_succeed(ctx);
    TRY(take_options(ctx, &o, options));
    TRY(mha_check_dense(ctx, &y, "y", 3, "(B,T,W)", MHA_OUTPUT));
    TRY(check_table(ctx, &table, "table", y, MHA_INPUT));
    TRY(check_ids(ctx, &ids, y));
    if (mha_is_given(o.positions)) TRY(check_positions(ctx, &o.positions, "positions", y, MHA_INPUT));
    const mha_argument all[] = {{"y", y, MHA_OUTPUT},
                                {"table", table, MHA_INPUT},
                                {"ids", ids, MHA_INPUT},
                                {"positions", o.positions, MHA_INPUT}};
    TRY(MHA_CHECK_APART(ctx, all));
    return ctx->backend->embed(ctx, y, table, ids, &o);
}

mha_status mha_embedding_backward(mha_context *ctx, mha_tensor dtable, mha_tensor dpositions, mha_tensor dy,
                                  mha_tensor ids, const mha_embedding_options *options)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_embedding_options o;
    mha_tensor none = MHA_NO_TENSOR;
    mha_succeed(ctx);
    TRY(take_options(ctx, &o, options));
    TRY(mha_check_dense(ctx, &dy, "dy", 3, "(B,T,W)", MHA_INPUT));
    TRY(check_ids(ctx, &ids, dy));
    if (mha_is_given(dtable)) TRY(check_table(ctx, &dtable, "dtable", dy, MHA_OUTPUT));
    else dtable = none;
    if (mha_is_given(dpositions)) TRY(check_positions(ctx, &dpositions, "dpositions", dy, MHA_OUTPUT));
    else dpositions = none;
    const mha_argument all[] = {{"dtable", dtable, MHA_OUTPUT},
                                {"dpositions", dpositions, MHA_OUTPUT},
                                {"dy", dy, MHA_INPUT},
                                {"ids", ids, MHA_INPUT}};
    TRY(MHA_CHECK_APART(ctx, all));
    return ctx->backend->embed_back(ctx, dtable, dpositions, dy, ids, o.scale);
}
