/* Token by token: attention goes through caches, and everything else is the forward pass. */
#include "program/model_parts.h"
#include <stdio.h>
#include <stdlib.h>

struct nn_model_cache {
    const nn_model *owner;
    int64_t depth, batch;
    int64_t *length;           /* (batch): tokens of each sequence */
    mha_cache **self, **cross; /* (depth) */
    int64_t memory_tokens;     /* of the encoder; 0: it has not run */
    int64_t copies;            /* how many rows each of its sequences serves, one behind another */
    int64_t *rows;             /* (batch+1): room for starts, or for where rows come from */
};

static bool fail(mha_context *ctx, const char *text)
{
    mha_context_fail(ctx, MHA_BAD_ARGUMENT, text);
    return false;
}

static bool can_step(const nn_model *m, mha_context *ctx)
{
    const nn_stack_config *s = &m->d.decoder;
    if (!s->blocks.depth) return fail(ctx, "a model without a decoder has no steps");
    if (!s->blocks.causal) return fail(ctx, "a decoder that is not causal has no steps");
    return s->input.kind == NN_INPUT_TOKENS || fail(ctx, "a decoder that reads patches has no steps");
}

/* The layer of block l of the decoder. */
static mha_layer *layer_of(const nn_model *m, int64_t l, bool cross)
{
    int64_t first = m->d.encoder.blocks.depth + (cross ? m->d.decoder.blocks.depth : 0);
    return m->attentions.attention[first + l].layer;
}

static bool make_caches(nn_model_cache *c, const nn_model *m, mha_context *ctx, int64_t capacity, mha_type type)
{
    c->self = calloc((size_t)c->depth, sizeof *c->self);
    c->cross = calloc((size_t)c->depth, sizeof *c->cross);
    c->length = calloc((size_t)c->batch + 1, sizeof *c->length);
    c->rows = calloc((size_t)c->batch + 1, sizeof *c->rows);
    if (!c->self || !c->cross || !c->length || !c->rows) {
        mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for a cache");
        return false;
    }
    for (int64_t l = 0; l < c->depth; l++) {
        if (mha_cache_create(ctx, &c->self[l], layer_of(m, l, false), c->batch, capacity, type)) return false;
        if (nn_description_is_pair(&m->d) &&
            mha_cache_create(ctx, &c->cross[l], layer_of(m, l, true), c->batch, m->side[0].tokens, type))
            return false;
    }
    return true;
}

nn_model_cache *nn_model_cache_create(nn_model *m, mha_context *ctx, int64_t batch, int64_t capacity, mha_type type)
{
    if (!can_step(m, ctx)) return NULL;
    nn_model_cache *c = calloc(1, sizeof *c);
    if (!c) {
        mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for a cache");
        return NULL;
    }
    c->owner = m;
    c->depth = m->d.decoder.blocks.depth;
    c->batch = batch;
    if (make_caches(c, m, ctx, capacity, type)) return c;
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
    free(c->length);
    free(c->rows);
    free(c);
}

int64_t nn_model_cache_length(const nn_model_cache *c, int64_t row) { return c->length[row]; }

/* Whether every row stays with its sequence of the encoder, as the beams of a search do: nothing of it moves then. */
static bool same_memory(const nn_model_cache *c, const int64_t *from)
{
    for (int64_t b = 0; b < c->batch; b++)
        if (from[b] < 0 || !c->copies || from[b] / c->copies != b / c->copies) return false;
    return true;
}

bool nn_model_cache_reorder(nn_model_cache *c, mha_context *ctx, const int64_t *from)
{
    bool moves = !same_memory(c, from);
    for (int64_t l = 0; l < c->depth; l++)
        if (mha_cache_reorder(ctx, c->self[l], from) ||
            (moves && c->cross[l] && mha_cache_reorder(ctx, c->cross[l], from)))
            return false;
    if (moves) c->copies = 1; /* rows of one sequence need not be neighbours any more */
    for (int64_t b = 0; b < c->batch; b++) c->length[b] = mha_cache_length(c->self[0], b);
    return true;
}

bool nn_model_cache_truncate(nn_model_cache *c, mha_context *ctx, int64_t row, int64_t length)
{
    for (int64_t l = 0; l < c->depth; l++)
        if (mha_cache_truncate(ctx, c->self[l], row, length)) return false;
    for (int64_t b = 0; b < c->batch; b++) c->length[b] = mha_cache_length(c->self[0], b);
    return true;
}

/* Cuts all caches of the decoder back to the lengths that they have had, and leaves what the context says. */
static void cut_back(nn_model_cache *c, mha_context *ctx)
{
    char reason[512];
    snprintf(reason, sizeof reason, "%s", mha_context_error(ctx));
    for (int64_t l = 0; l < c->depth; l++)
        for (int64_t b = 0; b < c->batch; b++) mha_cache_truncate(ctx, c->self[l], b, c->length[b]);
    mha_context_fail(ctx, MHA_BAD_ARGUMENT, reason);
}

/* Sequence b of key (B,T,M), without its padding, becomes the rows of the cache from b*copies on: it is projected once,
 * for the first of them, and the others are copies. */
static bool keep_memory(nn_model_cache *c, mha_context *ctx, mha_cache *cache, mha_layer *layer, mha_tensor key,
                        const int64_t *lengths)
{
    int64_t B = key.size[0], T = key.size[1], n = c->copies;
    mha_tensor none = MHA_NO_TENSOR, packed = mha_tensor_3d(key.data, key.type, 1, B * T, key.size[2]);
    for (int64_t r = 0; r <= c->batch; r++) c->rows[r] = (r + n - 1) / n * T;
    if (mha_cache_truncate(ctx, cache, -1, 0) ||
        mha_cache_append_ragged(ctx, cache, layer, packed, none, mha_tensor_1d(c->rows, MHA_INT64, c->batch + 1)))
        return false;
    for (int64_t b = 0; lengths && b < B; b++)
        if (mha_cache_truncate(ctx, cache, b * n, lengths[b])) return false;
    for (int64_t r = 0; r < c->batch; r++) c->rows[r] = r / n * n;
    return n == 1 || !mha_cache_reorder(ctx, cache, c->rows);
}

bool nn_model_encode(nn_model *m, mha_context *ctx, nn_model_cache *c, const nn_batch *batch)
{
    if (c->owner != m) return fail(ctx, "the cache belongs to another model");
    if (!nn_description_is_pair(&m->d)) return fail(ctx, "a model with one stack has nothing to encode");
    if (batch->encoder.starts) return fail(ctx, "the sequences of an encoder have lengths, not starts, in a cache");
    if (batch->B < 1 || c->batch % batch->B)
        return fail(ctx, "each sequence of an encoder serves the same number of rows of a cache");
    c->memory_tokens = 0;
    c->copies = c->batch / batch->B;
    if (!nn_model_cache_truncate(c, ctx, -1, 0)) return false;
    if (nn_model_start(m, ctx, NULL) || nn_model_set_side(m, ctx, false, batch, NULL) ||
        nn_model_run(m, ctx, true, false))
        return false;
    mha_tensor rows = nn_model_rows(m, false);
    int64_t T = m->run.side[0].T;
    mha_tensor key = mha_tensor_3d(rows.data, MHA_FLOAT32, batch->B, T, rows.size[1]);
    for (int64_t l = 0; l < c->depth; l++)
        if (!keep_memory(c, ctx, c->cross[l], layer_of(m, l, true), key, batch->encoder.lengths)) return false;
    c->memory_tokens = T;
    return true;
}

static bool check_step(const nn_model *m, mha_context *ctx, const nn_model_cache *c, const nn_batch *batch,
                       const nn_call *call)
{
    if (c->owner != m) return fail(ctx, "the cache belongs to another model");
    if (nn_description_is_pair(&m->d) && !c->memory_tokens)
        return fail(ctx, "the encoder has not run before this step");
    if (batch->B != c->batch) return fail(ctx, "a step has as many sequences as its cache");
    if (batch->decoder.lengths) return fail(ctx, "the sequences of a step have no lengths");
    return !(call && call->stats) || fail(ctx, "a step has no statistics");
}

const float *nn_model_step(nn_model *m, mha_context *ctx, nn_model_cache *c, const nn_batch *batch, const nn_call *call)
{
    if (!check_step(m, ctx, c, batch, call)) return NULL;
    nn_run_side *side = &m->run.side[1];
    bool ok = !nn_model_start(m, ctx, call) && !nn_model_set_side(m, ctx, true, batch, c->length);
    side->caches = c->self;
    side->cross_caches = c->cross;
    ok = ok && !nn_model_run(m, ctx, false, true);
    side->caches = side->cross_caches = NULL;
    if (!ok) {
        cut_back(c, ctx);
        return NULL;
    }
    for (int64_t b = 0; b < c->batch; b++) c->length[b] = mha_cache_length(c->self[0], b);
    return nn_model_result(m);
}
