#include "model/output.h"
#include "model/stack/stack.h"
#include <stdlib.h>
#include <string.h>

static bool changes_logits(const nn_output_config *c) { return c->scale != 1 || c->softcap > 0; }

/* Room for the results of so many rows; in training, where it never grows, part of the other memory. */
static bool make_room(nn_output *o, int64_t rows)
{
    const nn_output_config *c = o->config;
    if (rows <= o->room) return true;
    free(o->grown);
    o->room = 0;
    int64_t t = c->transform || c->transform_norm ? o->last : 0, classes = c->classes;
    float *at = o->grown = malloc((size_t)(rows * (2 * t + 2 + classes) + 1) * sizeof(float));
    if (!at) return false;
    o->logits = at;
    o->raw = o->logits + rows * classes;
    o->changed = o->raw + rows * t;
    o->kept = o->changed + rows * t;
    o->room = rows;
    return true;
}

bool nn_output_create(nn_output *o, const nn_description *d, const nn_weights *weights, int64_t batch, int64_t rows,
                      bool training)
{
    const nn_output_config *c = &d->output;
    const nn_blocks_config *blocks = &nn_description_last(d)->blocks;
    *o = (nn_output){.config = c, .blocks = blocks, .width = blocks->width, .last = nn_output_width(d, true)};
    nn_weights_find(weights, d->decoder.blocks.depth > 0, -1, o->part);
    o->weight = o->part[c->tied ? NN_TOKENS : NN_OUTPUT];
    int64_t P = nn_output_width(d, false), count = c->pool ? batch : rows, M = o->width;
    int64_t size[] = {batch * P, training && c->pool ? batch * P : 0,
                      training && (changes_logits(c) || !c->pool) ? count * c->classes : 0, training ? rows * M : 0};
    float **parts[] = {&o->pooled, &o->dpooled, &o->dlogits, &o->drows};
    enum { PARTS = sizeof size / sizeof *size };
    int64_t all = 1; /* never of nothing */
    for (int n = 0; n < PARTS; n++) all += (size[n] + 15) / 16 * 16;
    float *at = o->memory = malloc((size_t)all * sizeof(float));
    for (int n = 0; at && n < PARTS; n++) {
        *parts[n] = at;
        at += (size[n] + 15) / 16 * 16;
    }
    return o->memory && (!training || make_room(o, count));
}

void nn_output_free(nn_output *o)
{
    free(o->memory);
    free(o->grown);
}

static mha_tensor matrix(const float *data, int64_t rows, int64_t columns)
{
    return mha_tensor_2d(data, MHA_FLOAT32, rows, columns);
}

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

/* Which rows of sequence b are pooled. */
static void pooled_rows(const nn_output *o, int64_t b, int64_t *first, int64_t *count)
{
    if (o->config->pool == NN_POOL_PICKED) {
        *first = o->picked[b], *count = 1;
        return;
    }
    int64_t begin = o->starts ? o->starts[b] : b * o->T;
    int64_t length = o->starts ? o->starts[b + 1] - begin : o->lengths ? o->lengths[b] : o->T;
    *first = begin + (o->config->pool == NN_POOL_LAST ? length - 1 : 0);
    *count = o->config->pool == NN_POOL_MEAN ? length : 1;
    if (o->config->pool == NN_POOL_BOTH || o->config->pool == NN_POOL_REST) *first = begin + 1, *count = length - 1;
}

static void pool(void *arg, int64_t b)
{
    const nn_output *o = arg;
    int64_t M = o->width, first, count;
    bool both = o->config->pool == NN_POOL_BOTH;
    pooled_rows(o, b, &first, &count);
    const float *from = o->rows + first * M;
    float *to = o->pooled + b * M * (both ? 2 : 1);
    if (both) memcpy(to, from - M, (size_t)M * sizeof(float)), to += M;
    memcpy(to, from, (size_t)M * sizeof(float));
    for (int64_t t = 1; t < count; t++)
        for (int64_t m = 0; m < M; m++) to[m] += from[t * M + m];
    for (int64_t m = 0; m < M; m++) to[m] *= 1.0f / (float)count;
}

static void pick(void *arg, int64_t n)
{
    const nn_output *o = arg;
    memcpy(o->pooled + n * o->width, o->rows + o->picked[n] * o->width, (size_t)o->width * sizeof(float));
}

static void change_logits(const nn_output *o, int64_t count)
{
    float scale = o->config->scale, cap = o->config->softcap;
    for (int64_t i = 0; i < count; i++) {
        float x = o->logits[i] * scale;
        o->logits[i] = cap > 0 ? cap * tanhf(x / cap) : x;
    }
}

/* The product before that of the logits, and the norm. Returns their result, or NULL. */
static const float *transform(nn_output *o, mha_context *ctx, const float *from, int64_t count)
{
    const nn_output_config *c = o->config;
    const nn_weight *product = o->part[NN_TRANSFORM];
    int64_t t = o->last;
    if (product &&
        nn_linear_forward(ctx, matrix(o->raw, count, t), matrix(from, count, product->value.size[1]), product->value,
                          nn_value(o->part[NN_TRANSFORM_BIAS]), c->transform_activation, false))
        return NULL;
    if (product) from = o->raw;
    if (!o->part[NN_TRANSFORM_NORM]) return from;
    mha_norm_options norm =
        nn_norm_options(o->blocks, (nn_norm){o->part[NN_TRANSFORM_NORM], o->part[NN_TRANSFORM_NORM_BIAS]});
    return mha_norm_forward(ctx, matrix(o->changed, count, t), matrix(o->kept, count, 2), matrix(from, count, t), &norm)
               ? NULL
               : o->changed;
}

/* The mean of the logits of the first row and of the second, which is picked for it. */
static bool add_second(nn_output *o, mha_context *ctx, const nn_output_rows *in, int64_t count)
{
    for (int64_t b = 0; b < in->B; b++)
        memcpy(o->pooled + b * o->width, in->rows + (b * in->T + 1) * o->width, (size_t)o->width * sizeof(float));
    if (nn_linear_forward(ctx, matrix(o->logits, count, o->config->classes), matrix(o->pooled, count, o->width),
                          o->part[NN_SECOND]->value, nn_value(o->part[NN_SECOND_BIAS]), MHA_LINEAR, true))
        return false;
    for (int64_t i = 0; i < count * o->config->classes; i++) o->logits[i] *= 0.5f;
    return true;
}

const float *nn_output_forward(nn_output *o, mha_context *ctx, const nn_output_rows *in)
{
    const nn_output_config *c = o->config;
    const float *from = in->rows;
    int64_t count = c->pool ? in->B : in->picked ? in->count : in->starts ? in->starts[in->B] : in->B * in->T;
    o->B = in->B;
    o->T = in->T;
    o->lengths = in->lengths, o->starts = in->starts, o->picked = in->picked;
    o->rows = in->rows;
    if (c->pool == NN_POOL_PICKED && (!in->picked || in->count != in->B))
        return mha_context_fail(ctx, MHA_BAD_ARGUMENT, "the rows of the end tokens are not given"), NULL;
    if (c->pool) mha_context_each(ctx, in->B, pool, o), from = o->pooled;
    else if (in->picked) mha_context_each(ctx, count, pick, o), from = o->pooled;
    bool changes = c->transform || c->transform_norm;
    if (!c->classes && !changes) return from;
    if (!make_room(o, count)) return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for the logits"), NULL;
    if (changes && !(from = transform(o, ctx, from, count))) return NULL;
    if (!c->classes) return from;
    int64_t width = o->weight->value.size[1];
    if (nn_linear_forward(ctx, matrix(o->logits, count, c->classes), matrix(from, count, width), o->weight->value,
                          nn_value(o->part[NN_OUTPUT_BIAS]), MHA_LINEAR, false))
        return NULL;
    if (c->pool == NN_POOL_TWO && !add_second(o, ctx, in, count)) return NULL;
    if (changes_logits(c)) change_logits(o, count * c->classes);
    return o->logits;
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

static void unpool(void *arg, int64_t b)
{
    const nn_output *o = arg;
    int64_t M = o->width, first, count;
    pooled_rows(o, b, &first, &count);
    float *to = o->drows, share = 1.0f / (float)count;
    memset(to + b * o->T * M, 0, (size_t)(o->T * M) * sizeof(float));
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
        nn_linear_gradients g = {matrix(to, count, M), false, matrix(gradients + o->weight->first, c->classes, M),
                                 nn_bias_gradient(o->part[NN_OUTPUT_BIAS], gradients)};
        if (nn_linear_backward(ctx, &g, matrix(dy, count, c->classes), matrix(c->pool ? o->pooled : o->rows, count, M),
                               o->weight->value))
            return NULL;
    } else copy_rows(o, to, dlogits, count);
    if (c->pool) mha_context_each(ctx, o->B, unpool, o);
    return o->drows;
}
