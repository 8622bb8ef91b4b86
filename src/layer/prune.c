/* A smaller layer: some of the query heads, and the key/value heads that those read.
 *
 * Groups must be of one size. Of n_1, n_2, ... heads that are left of each group, s = gcd(n_1, n_2, ...) share a
 * key/value head from now on, so the head of a group is there n_g / s times: once, if all groups lost alike. */
#include "layer/layer.h"

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Heads that stay in group g. */
static int64_t left(const mha_layer_options *s, const bool *keep, int64_t g)
{
    int64_t share = s->heads / s->kv_heads, count = 0;
    for (int64_t h = g * share; h < (g + 1) * share; h++) count += keep[h];
    return count;
}

static void copy(mha_context *ctx, mha_tensor to, mha_tensor from)
{
    if (to.rank) ctx->backend->copy(ctx, to, from, false);
}

/* All that belongs to one head, and what all of them share. Those who share something write the same to it. */
static void copy_head(mha_context *ctx, const mha_layer *to, int64_t n, const mha_layer *from, int64_t h)
{
    mha_layer_parts a = mha_layer_view_head(to, NULL, n), b = mha_layer_view_head(from, NULL, h);
    for (int part = 0; part < MHA_PARTS; part++) copy(ctx, *mha_part_of(&a, part), *mha_part_of(&b, part));
}

mha_status mha_layer_prune(mha_context *ctx, mha_layer **smaller, const mha_layer *layer, const bool *keep)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_succeed(ctx);
    MHA_NEED(ctx, smaller);
    *smaller = NULL;
    MHA_NEED(ctx, layer);
    MHA_NEED(ctx, keep);
    TRY(mha_layer_check_device(ctx, layer));
    mha_layer_options shape = layer->shape;
    int64_t heads = 0, share = 0, n = 0;
    for (int64_t g = 0; g < shape.kv_heads; g++) {
        heads += left(&layer->shape, keep, g);
        share = gcd(share, left(&layer->shape, keep, g));
    }
    if (!share) return mha_fail(ctx, MHA_BAD_ARGUMENT, "keep: no head is left");
    if (shape.norm_span == MHA_NORM_ALL_HEADS && heads < shape.heads)
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "layer: normalises all heads together, so that none can be left out");
    shape.heads = heads;
    shape.kv_heads = heads / share;
    if (!shape.out_projection) shape.out_width = 0;
    mha_status status = mha_layer_create(ctx, smaller, &shape, NULL);
    if (status) return status;
    for (int64_t h = 0; h < layer->shape.heads; h++)
        if (keep[h]) copy_head(ctx, *smaller, n++, layer, h);
    return mha_call_end(ctx);
}
