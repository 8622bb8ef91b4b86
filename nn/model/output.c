#include "model/output.h"
#include <stdlib.h>
#include <string.h>

static void find_parts(nn_output *o, const nn_description *d)
{
    bool decoder = d->decoder.blocks.depth > 0;
    nn_part part;
    o->weight = o->bias = -1;
    for (nn_parts w = nn_parts_of(d); nn_parts_next(&w, &part);) {
        bool table = d->output.tied && part.kind == NN_TOKENS && part.decoder == decoder;
        if (part.kind == NN_OUTPUT || table) o->weight = part.first;
        if (part.kind == NN_OUTPUT_BIAS) o->bias = part.first;
    }
}

static bool changes_logits(const nn_output_config *c) { return c->scale != 1 || c->softcap > 0; }

bool nn_output_create(nn_output *o, const nn_description *d, const float *parameters, int64_t batch, int64_t rows,
                      bool training)
{
    const nn_output_config *c = &d->output;
    *o = (nn_output){.config = c, .width = nn_description_last(d)->blocks.width, .parameters = parameters};
    find_parts(o, d);
    int64_t M = o->width, pooled = c->pool ? batch : 0, count = c->pool ? batch : rows;
    int64_t size[] = {pooled * M, training ? pooled * M : 0, count * c->classes,
                      training && (changes_logits(c) || !c->pool) ? count * c->classes : 0, training ? rows * M : 0};
    float **parts[] = {&o->pooled, &o->dpooled, &o->logits, &o->dlogits, &o->drows};
    int64_t all = 1; /* never of nothing */
    for (int n = 0; n < 5; n++) all += (size[n] + 15) / 16 * 16;
    float *at = o->memory = malloc((size_t)all * sizeof(float));
    for (int n = 0; at && n < 5; n++) {
        *parts[n] = at;
        at += (size[n] + 15) / 16 * 16;
    }
    return o->memory != NULL;
}

void nn_output_free(nn_output *o) { free(o->memory); }

static mha_tensor matrix(const float *data, int64_t rows, int64_t columns)
{
    return mha_tensor_2d(data, MHA_FLOAT32, rows, columns);
}

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

/* Which rows of sequence b are pooled. */
static void pooled_rows(const nn_output *o, int64_t b, int64_t *first, int64_t *count)
{
    int64_t length = o->lengths ? o->lengths[b] : o->T;
    *first = o->config->pool == NN_POOL_LAST ? length - 1 : 0;
    *count = o->config->pool == NN_POOL_MEAN ? length : 1;
}

static void pool(void *arg, int64_t b)
{
    const nn_output *o = arg;
    int64_t M = o->width, first, count;
    pooled_rows(o, b, &first, &count);
    const float *from = o->rows + (b * o->T + first) * M;
    float *to = o->pooled + b * M;
    memcpy(to, from, (size_t)M * sizeof(float));
    for (int64_t t = 1; t < count; t++)
        for (int64_t m = 0; m < M; m++) to[m] += from[t * M + m];
    for (int64_t m = 0; m < M; m++) to[m] *= 1.0f / (float)count;
}

static void change_logits(const nn_output *o, int64_t count)
{
    float scale = o->config->scale, cap = o->config->softcap;
    for (int64_t i = 0; i < count; i++) {
        float x = o->logits[i] * scale;
        o->logits[i] = cap > 0 ? cap * tanhf(x / cap) : x;
    }
}

const float *nn_output_forward(nn_output *o, mha_context *ctx, const float *rows, int64_t B, int64_t T,
                               const int64_t *lengths)
{
    const nn_output_config *c = o->config;
    int64_t M = o->width, count = c->pool ? B : B * T;
    mha_tensor none = MHA_NO_TENSOR;
    o->B = B;
    o->T = T;
    o->lengths = lengths;
    o->rows = rows;
    if (c->pool) mha_context_each(ctx, B, pool, o);
    const float *from = c->pool ? o->pooled : rows;
    if (!c->classes) return from;
    mha_tensor bias = o->bias < 0 ? none : mha_tensor_1d(o->parameters + o->bias, MHA_FLOAT32, c->classes);
    if (nn_linear_forward(ctx, matrix(o->logits, count, c->classes), matrix(from, count, M),
                          matrix(o->parameters + o->weight, c->classes, M), bias, MHA_LINEAR, false))
        return NULL;
    if (changes_logits(c)) change_logits(o, count * c->classes);
    return o->logits;
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

static void unpool(void *arg, int64_t b)
{
    const nn_output *o = arg;
    int64_t M = o->width, first, count;
    pooled_rows(o, b, &first, &count);
    float *to = o->drows + b * o->T * M, share = 1.0f / (float)count;
    memset(to, 0, (size_t)(o->T * M) * sizeof(float));
    for (int64_t t = first; t < first + count; t++)
        for (int64_t m = 0; m < M; m++) to[t * M + m] = o->dpooled[b * M + m] * share;
}

/* The gradient by h Wh^T + bh: 0 in rows of padding. */
static const float *unchange(const nn_output *o, const float *dlogits, int64_t rows)
{
    const nn_output_config *c = o->config;
    bool padded = !c->pool && o->lengths;
    if (!changes_logits(c) && !padded) return dlogits;
    for (int64_t r = 0; r < rows; r++) {
        bool padding = padded && r % o->T >= o->lengths[r / o->T];
        for (int64_t i = r * c->classes; i < (r + 1) * c->classes; i++) {
            float share = c->softcap > 0 ? o->logits[i] / c->softcap : 0;
            o->dlogits[i] = padding ? 0 : dlogits[i] * c->scale * (1 - share * share);
        }
    }
    return o->dlogits;
}

/* Without logits, the gradient by the rows is given: 0 in rows of padding. */
static void copy_rows(const nn_output *o, float *to, const float *dy, int64_t rows)
{
    bool padded = !o->config->pool && o->lengths;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = r * o->width; i < (r + 1) * o->width; i++)
            to[i] = padded && r % o->T >= o->lengths[r / o->T] ? 0 : dy[i];
}

const float *nn_output_backward(nn_output *o, mha_context *ctx, const float *dlogits, float *gradients)
{
    const nn_output_config *c = o->config;
    int64_t M = o->width, count = c->pool ? o->B : o->B * o->T;
    float *to = c->pool ? o->dpooled : o->drows;
    if (c->classes) {
        const float *dy = unchange(o, dlogits, count);
        nn_linear_gradients g = {matrix(to, count, M), false, matrix(gradients + o->weight, c->classes, M),
                                 o->bias < 0 ? NULL : gradients + o->bias};
        if (nn_linear_backward(ctx, &g, matrix(dy, count, c->classes), matrix(c->pool ? o->pooled : o->rows, count, M),
                               matrix(o->parameters + o->weight, c->classes, M)))
            return NULL;
    } else copy_rows(o, to, dlogits, count);
    if (c->pool) mha_context_each(ctx, o->B, unpool, o);
    return o->drows;
}
