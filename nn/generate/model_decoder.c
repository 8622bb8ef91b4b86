#include "generate/model_decoder.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct model_decoder {
    nn_decoder d;
    nn_model *model;
    nn_model_cache *cache;
    int64_t piece;
    int32_t *tokens;          /* (rows*piece): of one call */
    int64_t *starts;          /* (rows+1): of one call */
    int64_t *before;          /* (rows): tokens that each had before a run */
    int64_t *done;            /* (rows): tokens of a run that the model has had */
    int64_t *after;           /* (rows): tokens that each has after a run */
    int32_t *history, *spare; /* (rows,capacity): all tokens, where a cache may have to be computed anew; or NULL */
    int64_t *picked;          /* (rows): rows of a call whose logits are wanted, */
    int64_t *whose;           /* (rows): and which row of the cache each of them belongs to */
    float *logits;            /* (rows,V) */
} model_decoder;

static void release(nn_decoder *d)
{
    model_decoder *m = (model_decoder *)d;
    nn_model_cache_free(m->cache);
    free(m->tokens);
    free(m->starts);
    free(m->before);
    free(m->done);
    free(m->after);
    free(m->history);
    free(m->spare);
    free(m->picked);
    free(m->whose);
    free(m->logits);
    free(m);
}

/* ---- Runs ------------------------------------------------------------------------------------------------------- */

/* Tokens of row r that the model has not had, and where they lie. */
static int64_t left_of(const model_decoder *m, const int64_t *starts, int64_t r)
{
    int64_t all = m->history ? m->after[r] - m->before[r] : starts[r + 1] - starts[r];
    return all - m->done[r];
}
static const int32_t *place_of(const model_decoder *m, const int32_t *tokens, const int64_t *starts, int64_t r)
{
    return (m->history ? m->history + r * m->d.capacity + m->before[r] : tokens + starts[r]) + m->done[r];
}

/* A row that has tokens left; -1: there is none. */
static int64_t waiting(const model_decoder *m, const int64_t *starts)
{
    int64_t r = 0;
    while (r < m->d.rows && !left_of(m, starts, r)) r++;
    return r < m->d.rows ? r : -1;
}

/* The next piece of each row that has tokens left and the rotary embedding of row `first`; returns how many rows have got
 * their last one. */
static int64_t gather(model_decoder *m, const int32_t *tokens, const int64_t *starts, int64_t first)
{
    int64_t at = 0, picked = 0, regime = nn_model_regime(m->model, m->after[first]);
    for (int64_t r = 0; r < m->d.rows; r++) {
        int64_t left = left_of(m, starts, r), count = left < m->piece ? left : m->piece;
        if (count && nn_model_regime(m->model, m->after[r]) != regime) count = 0;
        m->starts[r] = at;
        memcpy(m->tokens + at, place_of(m, tokens, starts, r), (size_t)count * sizeof *tokens);
        at += count;
        m->done[r] += count;
        if (!count || count < left) continue;
        m->whose[picked] = r;
        m->picked[picked++] = at - 1;
    }
    m->starts[m->d.rows] = at;
    return picked;
}

/* Where the cache of a row outgrows its rotary embedding, and the family computes it anew: from no tokens on. */
static bool start_over(model_decoder *m, mha_context *ctx, const int32_t *tokens, const int64_t *starts)
{
    for (int64_t r = 0; m->history && r < m->d.rows; r++) {
        int64_t count = starts[r + 1] - starts[r];
        memcpy(m->history + r * m->d.capacity + m->before[r], tokens + starts[r], (size_t)count * sizeof *tokens);
        if (!count || nn_model_regime(m->model, m->before[r]) == nn_model_regime(m->model, m->after[r])) continue;
        if (m->before[r] && !nn_model_cache_truncate(m->cache, ctx, r, 0)) return false;
        m->before[r] = 0;
    }
    return true;
}

/* After a failure no row has more tokens than before the run. */
static const float *undo(model_decoder *m, mha_context *ctx)
{
    char reason[512];
    snprintf(reason, sizeof reason, "%s", mha_context_error(ctx));
    for (int64_t r = 0; r < m->d.rows; r++) nn_model_cache_truncate(m->cache, ctx, r, m->before[r]);
    mha_context_fail(ctx, MHA_BAD_ARGUMENT, reason);
    return NULL;
}

static const float *run(nn_decoder *d, mha_context *ctx, const int32_t *tokens, const int64_t *starts)
{
    model_decoder *m = (model_decoder *)d;
    size_t row = (size_t)d->vocabulary * sizeof(float);
    memset(m->done, 0, (size_t)d->rows * sizeof *m->done);
    for (int64_t r = 0; r < d->rows; r++) {
        m->before[r] = nn_model_cache_length(m->cache, r);
        m->after[r] = m->before[r] + starts[r + 1] - starts[r];
        if (m->after[r] > d->capacity) return mha_context_fail(ctx, MHA_BAD_ARGUMENT, "the cache is full"), NULL;
    }
    if (!start_over(m, ctx, tokens, starts)) return NULL;
    for (int64_t first; (first = waiting(m, starts)) >= 0;) {
        int64_t picked = gather(m, tokens, starts, first);
        nn_batch batch = {.B = d->rows, .decoder = {.tokens = m->tokens, .starts = m->starts}};
        m->picked[picked] = 0; /* where no row has come to its end, logits of one that nobody looks at */
        nn_call call = {.rows = m->picked, .row_count = picked ? picked : 1, .horizon = m->after[first]};
        const float *logits = nn_model_step(m->model, ctx, m->cache, &batch, &call);
        if (!logits) return undo(m, ctx);
        if (picked == d->rows) return logits;
        for (int64_t n = 0; n < picked; n++)
            memcpy(m->logits + m->whose[n] * d->vocabulary, logits + n * d->vocabulary, row);
    }
    return m->logits;
}

static bool reorder(nn_decoder *d, mha_context *ctx, const int64_t *from)
{
    model_decoder *m = (model_decoder *)d;
    size_t row = (size_t)d->capacity;
    if (!nn_model_cache_reorder(m->cache, ctx, from)) return false;
    for (int64_t r = 0; m->history && r < d->rows; r++)
        memcpy(m->spare + (size_t)r * row, m->history + (size_t)from[r] * row, row * sizeof *m->spare);
    int32_t *history = m->spare;
    m->spare = m->history;
    m->history = history;
    return true;
}

/* ---- Making one ------------------------------------------------------------------------------------------------- */

nn_decoder *nn_model_decoder_create(nn_model *model, mha_context *ctx, int64_t rows, int64_t capacity, int64_t piece,
                                    mha_type type)
{
    const nn_description *about = nn_model_description(model);
    model_decoder *m = calloc(1, sizeof *m);
    bool restarts = about->decoder.blocks.attention[0].rotary.restart &&
                    about->decoder.blocks.attention[0].rotary.scaling == NN_ROTARY_LONG;
    size_t R = (size_t)rows, V = (size_t)about->output.classes;
    if (m) {
        m->d = (nn_decoder){rows, about->output.classes, capacity, run, reorder, release};
        m->model = model;
        m->piece = piece;
        m->tokens = malloc(R * (size_t)piece * sizeof *m->tokens);
        m->starts = malloc((R + 1) * sizeof *m->starts);
        m->before = malloc(R * sizeof *m->before);
        m->done = malloc(R * sizeof *m->done);
        m->after = malloc(R * sizeof *m->after);
        if (restarts) m->history = calloc(R * (size_t)capacity, sizeof *m->history);
        if (restarts) m->spare = calloc(R * (size_t)capacity, sizeof *m->spare);
        m->picked = malloc((R + 1) * sizeof *m->picked);
        m->whose = malloc((R + 1) * sizeof *m->whose);
        m->logits = malloc(R * V * sizeof *m->logits);
    }
    if (!m || !m->tokens || !m->starts || !m->before || !m->done || !m->after ||
        (restarts && (!m->history || !m->spare)) || !m->picked || !m->whose || !m->logits)
        mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for a generation");
    else if ((m->cache = nn_model_cache_create(model, ctx, rows, capacity, type))) return &m->d;
    if (m) release(&m->d);
    return NULL;
}

/* ---- The encoder ------------------------------------------------------------------------------------------------ */

/* Sequences padded to the longest one; padding does not change the bits of a sequence. */
static int32_t *pad(const int32_t *tokens, const int64_t *starts, int64_t B, int64_t *T, int64_t *lengths)
{
    *T = 0;
    for (int64_t b = 0; b < B; b++)
        if (starts[b + 1] - starts[b] > *T) *T = starts[b + 1] - starts[b];
    int32_t *padded = calloc((size_t)(B * *T + 1), sizeof *padded);
    for (int64_t b = 0; padded && b < B; b++) {
        lengths[b] = starts[b + 1] - starts[b];
        memcpy(padded + b * *T, tokens + starts[b], (size_t)lengths[b] * sizeof *padded);
    }
    return padded;
}

bool nn_model_decoder_encode(nn_decoder *d, mha_context *ctx, int64_t B, const int32_t *tokens, const int64_t *starts,
                             const float *features)
{
    model_decoder *m = (model_decoder *)d;
    nn_batch batch = {.B = B, .encoder = {.features = features}};
    if (!tokens) {
        batch.encoder.T = nn_model_description(m->model)->encoder.input.positions;
        return nn_model_encode(m->model, ctx, m->cache, &batch);
    }
    int64_t *lengths = malloc((size_t)B * sizeof *lengths);
    int32_t *padded = lengths ? pad(tokens, starts, B, &batch.encoder.T, lengths) : NULL;
    bool good = padded;
    if (!good) mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for the encoder");
    batch.encoder.tokens = padded;
    batch.encoder.lengths = lengths;
    good = good && nn_model_encode(m->model, ctx, m->cache, &batch);
    free(lengths);
    free(padded);
    return good;
}
