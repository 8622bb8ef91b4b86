/* Token by token: attention goes through caches, and everything else is the forward pass. */
#include "model/model_parts.h"
#include <stdlib.h>

struct nn_model_cache {
    int64_t depth, batch, length;
    mha_cache **self, **cross; /* (depth) */
    int64_t memory_tokens;     /* of the encoder; 0: it has not run */
};

nn_model_cache *nn_model_cache_create(nn_model *m, mha_context *ctx, int64_t batch, int64_t capacity, mha_type type)
{
    const nn_stack *s = &m->side[1].stack;
    bool pair = nn_description_is_pair(&m->d);
    nn_model_cache *c = m->side[1].there ? calloc(1, sizeof *c) : NULL;
    if (!c) return NULL;
    c->depth = s->config->depth;
    c->batch = batch;
    c->self = calloc((size_t)c->depth, sizeof *c->self);
    c->cross = calloc((size_t)c->depth, sizeof *c->cross);
    bool ok = c->self && c->cross;
    for (int64_t l = 0; ok && l < c->depth; l++) {
        ok = !mha_cache_create(ctx, &c->self[l], s->block[l].attention, batch, capacity, type);
        if (ok && pair) ok = !mha_cache_create(ctx, &c->cross[l], s->block[l].cross, batch, m->side[0].tokens, type);
    }
    if (ok) return c;
    nn_model_cache_free(c);
    return NULL;
}

void nn_model_cache_free(nn_model_cache *c)
{
    if (!c) return;
    for (int64_t l = 0; l < c->depth; l++) {
        if (c->self) mha_cache_free(c->self[l]);
        if (c->cross) mha_cache_free(c->cross[l]);
    }
    free(c->self);
    free(c->cross);
    free(c);
}

int64_t nn_model_cache_length(const nn_model_cache *c) { return c->length; }

/* A row of the cache has as many positions as its sequence has tokens. */
static bool fit_lengths(mha_context *ctx, mha_cache *cache, const int64_t *lengths, int64_t B)
{
    for (int64_t b = 0; lengths && b < B; b++)
        if (mha_cache_truncate(ctx, cache, b, lengths[b])) return false;
    return true;
}

bool nn_model_encode(nn_model *m, mha_context *ctx, nn_model_cache *c, const nn_batch *batch)
{
    const nn_stack *s = &m->side[1].stack;
    nn_stack *encoder = &m->side[0].stack;
    nn_model_start(m, ctx, NULL);
    const float *rows = nn_model_side(m, ctx, false, batch, 0);
    if (!rows) return false;
    mha_tensor none = MHA_NO_TENSOR;
    mha_tensor key = mha_tensor_3d(rows, MHA_FLOAT32, batch->B, encoder->T, m->d.encoder.blocks.width);
    for (int64_t l = 0; l < c->depth; l++)
        if (mha_cache_truncate(ctx, c->cross[l], -1, 0) ||
            mha_cache_append(ctx, c->cross[l], s->block[l].cross, key, none) ||
            !fit_lengths(ctx, c->cross[l], batch->encoder.lengths, batch->B))
            return false;
    c->memory_tokens = encoder->T;
    return true;
}

const float *nn_model_step(nn_model *m, mha_context *ctx, nn_model_cache *c, const nn_batch *batch, const nn_call *call)
{
    nn_stack *s = &m->side[1].stack;
    nn_model_start(m, ctx, call);
    s->caches = c->self;
    s->cross_caches = c->cross;
    s->memory_rows = (struct nn_memory){.T = c->memory_tokens};
    const float *rows = nn_model_side(m, ctx, true, batch, c->length);
    s->caches = s->cross_caches = NULL;
    if (!rows) return NULL;
    c->length += s->T;
    return nn_output_forward(&m->output, ctx, rows, batch->B, s->T, NULL);
}
