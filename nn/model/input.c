/* Tokens, positions and types are added up, then come the norm and the product; patches are a product of their own. */
#include "model/input.h"
#include "model/stack.h"
#include <stdlib.h>
#include <string.h>

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

static void find_parts(nn_input *in, const nn_description *d, bool decoder)
{
    nn_part part;
    for (int n = 0; n < NN_PART_KINDS; n++) in->at[n] = -1;
    for (nn_parts w = nn_parts_of(d); nn_parts_next(&w, &part);)
        if (part.decoder == decoder && part.kind <= NN_INPUT_PROJECT_BIAS) in->at[part.kind] = part.first;
}

static int64_t width_of(const nn_input *in) { return in->config->width ? in->config->width : in->blocks->width; }
static int64_t patches_of(const nn_input *in) { return nn_input_tokens(in->config) - in->config->class_token; }
static int64_t pixels_of(const nn_input_config *c) { return c->patch * c->patch * c->channels; }

static bool make_waves(nn_input *in)
{
    const nn_input_config *c = in->config;
    int64_t W = width_of(in), half = W / 2, count = c->kind == NN_INPUT_PATCHES ? nn_input_tokens(c) : c->positions;
    if (c->position_kind != NN_POSITIONS_SINUSOIDAL) return true;
    in->waves = calloc((size_t)(count * W), sizeof(float));
    for (int64_t p = 0; in->waves && p < count; p++)
        for (int64_t i = 0; i < half; i++) {
            double angle = (double)p * pow(10000, half > 1 ? -(double)i / (double)(half - 1) : 0);
            in->waves[p * W + i] = (float)sin(angle);
            in->waves[p * W + half + i] = (float)cos(angle);
        }
    return in->waves != NULL;
}

bool nn_input_create(nn_input *in, const nn_description *d, bool decoder, const float *parameters, int64_t batch,
                     int64_t rows, bool training)
{
    const nn_stack_config *s = decoder ? &d->decoder : &d->encoder;
    *in = (nn_input){.config = &s->input, .blocks = &s->blocks, .parameters = parameters};
    find_parts(in, d, decoder);
    bool patches = s->input.kind == NN_INPUT_PATCHES, more = s->input.norm || s->input.width;
    int64_t W = width_of(in), M = s->blocks.width;
    int64_t size[] = {patches ? batch * patches_of(in) * pixels_of(&s->input) : 0,
                      patches            ? batch * patches_of(in) * M
                      : more || training ? rows * W
                                         : 0,
                      s->input.norm ? rows * W : 0, s->input.norm ? rows * 2 : 0, more && training ? rows * W : 0};
    float **parts[] = {&in->patches, &in->embedded, &in->normed, &in->kept, &in->dnormed};
    int64_t all = 1; /* never of nothing */
    for (int n = 0; n < 5; n++) all += (size[n] + 15) / 16 * 16;
    float *at = in->memory = malloc((size_t)all * sizeof(float));
    for (int n = 0; at && n < 5; n++) {
        *parts[n] = at;
        at += (size[n] + 15) / 16 * 16;
    }
    return in->memory && make_waves(in);
}

void nn_input_free(nn_input *in)
{
    free(in->waves);
    free(in->memory);
}

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

typedef struct passage {
    nn_input *in;
    const float *from;
    float *to;
} passage;

static mha_tensor matrix(const float *data, int64_t rows, int64_t columns)
{
    return mha_tensor_2d(data, MHA_FLOAT32, rows, columns);
}

static mha_tensor bias_at(const nn_input *in, nn_part_kind kind, int64_t count)
{
    mha_tensor none = MHA_NO_TENSOR;
    return in->at[kind] < 0 ? none : mha_tensor_1d(in->parameters + in->at[kind], MHA_FLOAT32, count);
}

static bool has_positions(const nn_input *in) { return in->config->position_kind != NN_POSITIONS_NONE; }

/* The position of token t, where there are positions. */
static const float *position_at(const nn_input *in, int64_t t)
{
    const nn_input_config *c = in->config;
    const float *table = in->waves ? in->waves : in->parameters + in->at[NN_POSITIONS];
    return table + (c->first_position + in->sequences.first_position + t) * width_of(in);
}

static void add(float *to, const float *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++) to[i] += from[i];
}

/* Image b, cut into patches that lie one after another. */
static void cut_image(void *arg, int64_t b)
{
    const passage *j = arg;
    const nn_input_config *c = j->in->config;
    int64_t p = c->patch, wide = c->columns / p, P = patches_of(j->in), plane = c->rows * c->columns;
    const float *image = j->in->sequences.images + b * c->channels * plane;
    float *to = j->in->patches + b * P * pixels_of(c);
    for (int64_t n = 0; n < P; n++)
        for (int64_t row = 0; row < c->channels * p; row++, to += p) /* of a channel, then of the next */
            memcpy(to, image + row / p * plane + (n / wide * p + row % p) * c->columns + n % wide * p,
                   (size_t)p * sizeof(float));
}

/* The rows of image b: class token and patches, each with its position. */
static void place_patches(void *arg, int64_t b)
{
    const passage *j = arg;
    const nn_input *in = j->in;
    int64_t M = in->blocks->width, skip = in->config->class_token;
    const float *first = in->parameters + in->at[NN_CLASS_TOKEN];
    for (int64_t t = 0; t < in->T; t++) {
        const float *from = t < skip ? first : in->embedded + (b * (in->T - skip) + t - skip) * M;
        float *to = j->to + (b * in->T + t) * M;
        memcpy(to, from, (size_t)M * sizeof(float));
        if (has_positions(in)) add(to, position_at(in, t), M);
    }
}

static bool patches_forward(nn_input *in, mha_context *ctx, float *x)
{
    passage j = {.in = in, .to = x};
    int64_t M = in->blocks->width, P = patches_of(in), pixels = pixels_of(in->config);
    mha_context_each(ctx, in->B, cut_image, &j);
    if (nn_linear_forward(ctx, matrix(in->embedded, in->B * P, M), matrix(in->patches, in->B * P, pixels),
                          matrix(in->parameters + in->at[NN_PATCH], M, pixels), bias_at(in, NN_PATCH_BIAS, M),
                          MHA_LINEAR, false))
        return false;
    mha_context_each(ctx, in->B, place_patches, &j);
    return true;
}

/* Ids of the last call, (B,T); all 0 if there are none. */
static mha_tensor ids_of(const nn_input *in, const int32_t *ids)
{
    static const int32_t zero = 0;
    mha_tensor all = mha_tensor_2d(ids ? ids : &zero, MHA_INT32, in->B, in->T);
    if (!ids) all.stride[0] = all.stride[1] = 0;
    return all;
}

static bool place_tokens(nn_input *in, mha_context *ctx, float *to)
{
    const nn_input_config *c = in->config;
    const float *p = in->parameters;
    int64_t W = width_of(in);
    mha_tensor y = mha_tensor_3d(to, MHA_FLOAT32, in->B, in->T, W);
    mha_embedding_options tokens = MHA_EMBEDDING_DEFAULTS, types = tokens;
    tokens.scale = c->scale;
    if (has_positions(in)) tokens.positions = matrix(position_at(in, 0), in->T, W);
    types.accumulate = true;
    return !mha_embedding_forward(ctx, y, matrix(p + in->at[NN_TOKENS], c->vocabulary, W),
                                  ids_of(in, in->sequences.tokens), &tokens) &&
           (in->at[NN_TYPES] < 0 || !mha_embedding_forward(ctx, y, matrix(p + in->at[NN_TYPES], c->token_types, W),
                                                           ids_of(in, in->sequences.types), &types));
}

static mha_norm_options norm_of(const nn_input *in)
{
    const float *p = in->parameters;
    return nn_norm_options(in->blocks->norm, in->blocks->epsilon, p + in->at[NN_INPUT_NORM],
                           in->at[NN_INPUT_NORM_BIAS] < 0 ? NULL : p + in->at[NN_INPUT_NORM_BIAS], width_of(in));
}

/* The norm, then the product, where there are any. */
static bool finish(nn_input *in, mha_context *ctx, float *x)
{
    int64_t W = width_of(in), M = in->blocks->width, rows = in->B * in->T;
    const float *from = in->embedded;
    if (in->config->norm) {
        mha_norm_options norm = norm_of(in);
        float *to = in->config->width ? in->normed : x;
        if (mha_norm_forward(ctx, matrix(to, rows, W), matrix(in->kept, rows, 2), matrix(in->embedded, rows, W), &norm))
            return false;
        from = to;
    }
    return !in->config->width || !nn_linear_forward(ctx, matrix(x, rows, M), matrix(from, rows, W),
                                                    matrix(in->parameters + in->at[NN_INPUT_PROJECT], M, W),
                                                    bias_at(in, NN_INPUT_PROJECT_BIAS, M), MHA_LINEAR, false);
}

bool nn_input_forward(nn_input *in, mha_context *ctx, float *x, const nn_sequences *sequences, int64_t B, int64_t T)
{
    bool more = in->config->norm || in->config->width;
    in->B = B;
    in->T = T;
    in->sequences = *sequences;
    if (in->config->kind == NN_INPUT_PATCHES) return patches_forward(in, ctx, x);
    return place_tokens(in, ctx, more ? in->embedded : x) && (!more || finish(in, ctx, x));
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

/* Where the gradients of the positions of the last call go; none if they are not learned. */
static mha_tensor positions_gradient(const nn_input *in, float *gradients)
{
    mha_tensor none = MHA_NO_TENSOR;
    int64_t first = in->config->first_position + in->sequences.first_position, at = in->at[NN_POSITIONS];
    return at < 0 ? none : matrix(gradients + at + first * width_of(in), in->T, width_of(in));
}

/* The gradients of positions and of the class token, which stands at position 0: sums over the images. */
static bool sum_images(nn_input *in, mha_context *ctx, const float *dx, float *gradients)
{
    int64_t M = in->blocks->width, size = in->T * M;
    mha_tensor to = positions_gradient(in, gradients), images = matrix(dx, in->B, size), first = images;
    first.size[1] = M;
    if (to.rank && mha_sum_rows(ctx, mha_tensor_1d(to.data, MHA_FLOAT32, size), images)) return false;
    return !in->config->class_token ||
           !mha_sum_rows(ctx, mha_tensor_1d(gradients + in->at[NN_CLASS_TOKEN], MHA_FLOAT32, M), first);
}

/* The rows of image b that belong to patches, dense again. */
static void gather_patches(void *arg, int64_t b)
{
    const passage *j = arg;
    const nn_input *in = j->in;
    int64_t M = in->blocks->width, P = patches_of(in), skip = in->T - P;
    memcpy(in->embedded + b * P * M, j->from + (b * in->T + skip) * M, (size_t)(P * M) * sizeof(float));
}

static bool patches_backward(nn_input *in, mha_context *ctx, const float *dx, float *gradients)
{
    passage j = {.in = in, .from = dx};
    int64_t M = in->blocks->width, P = patches_of(in), pixels = pixels_of(in->config);
    if (!sum_images(in, ctx, dx, gradients)) return false;
    mha_context_each(ctx, in->B, gather_patches, &j);
    nn_linear_gradients g = {.dw = matrix(gradients + in->at[NN_PATCH], M, pixels),
                             .db = gradients + in->at[NN_PATCH_BIAS]};
    return !nn_linear_backward(ctx, &g, matrix(in->embedded, in->B * P, M), matrix(in->patches, in->B * P, pixels),
                               matrix(in->parameters + in->at[NN_PATCH], M, pixels));
}

/* Back through the product and the norm: returns the gradient by the sum of the tables, or NULL. */
static const float *unfinish(nn_input *in, mha_context *ctx, const float *dx, float *gradients)
{
    const nn_input_config *c = in->config;
    int64_t W = width_of(in), M = in->blocks->width, rows = in->B * in->T;
    if (c->width) {
        int64_t bias = in->at[NN_INPUT_PROJECT_BIAS];
        nn_linear_gradients g = {.dx = matrix(in->dnormed, rows, W),
                                 .dw = matrix(gradients + in->at[NN_INPUT_PROJECT], M, W),
                                 .db = bias < 0 ? NULL : gradients + bias};
        if (nn_linear_backward(ctx, &g, matrix(dx, rows, M), matrix(c->norm ? in->normed : in->embedded, rows, W),
                               matrix(in->parameters + in->at[NN_INPUT_PROJECT], M, W)))
            return NULL;
        dx = in->dnormed;
    }
    if (!c->norm) return dx;
    mha_norm_options norm = norm_of(in);
    float *dsum = in->normed; /* which is not needed any more */
    mha_norm_gradients g = {.x = matrix(dsum, rows, W),
                            .gain = mha_tensor_1d(gradients + in->at[NN_INPUT_NORM], MHA_FLOAT32, W)};
    if (in->at[NN_INPUT_NORM_BIAS] >= 0) g.bias = mha_tensor_1d(gradients + in->at[NN_INPUT_NORM_BIAS], MHA_FLOAT32, W);
    return mha_norm_backward(ctx, &g, matrix(dx, rows, W), matrix(in->embedded, rows, W), matrix(in->kept, rows, 2),
                             &norm)
               ? NULL
               : dsum;
}

bool nn_input_backward(nn_input *in, mha_context *ctx, const float *dx, float *gradients)
{
    const nn_input_config *c = in->config;
    const nn_sequences *s = &in->sequences;
    int64_t W = width_of(in);
    mha_tensor none = MHA_NO_TENSOR;
    if (c->kind == NN_INPUT_PATCHES) return patches_backward(in, ctx, dx, gradients);
    const float *d = unfinish(in, ctx, dx, gradients);
    if (!d) return false;
    mha_tensor dy = mha_tensor_3d(d, MHA_FLOAT32, in->B, in->T, W);
    mha_embedding_options tokens = MHA_EMBEDDING_DEFAULTS;
    tokens.scale = c->scale;
    if (in->at[NN_TYPES] >= 0 && mha_embedding_backward(ctx, matrix(gradients + in->at[NN_TYPES], c->token_types, W),
                                                        none, dy, ids_of(in, s->types), NULL))
        return false;
    return !mha_embedding_backward(ctx, matrix(gradients + in->at[NN_TOKENS], c->vocabulary, W),
                                   positions_gradient(in, gradients), dy, ids_of(in, s->tokens), &tokens);
}
