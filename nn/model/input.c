/* Tokens, positions and types are added up, then come the norm and the product; patches are a product of their own. */
#include "model/input.h"
#include "model/stack/stack.h"
#include <stdlib.h>
#include <string.h>

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

static int64_t width_of(const nn_input *in) { return in->config->width ? in->config->width : in->blocks->width; }
/* Learned rows before those of patches. */
static int64_t first_rows(const nn_input_config *c) { return c->class_token + c->distilled; }
static int64_t patches_of(const nn_input *in) { return nn_input_tokens(in->config) - first_rows(in->config); }
static int64_t position_width(const nn_input *in) { return in->config->width_first ? in->blocks->width : width_of(in); }
static int64_t pixels_of(const nn_input_config *c) { return c->patch * c->patch * c->channels; }

static bool make_waves(nn_input *in)
{
    const nn_input_config *c = in->config;
    bool plain = c->position_kind == NN_POSITIONS_WAVES;
    int64_t W = position_width(in), half = plain ? (W + 1) / 2 : W / 2;
    int64_t count = nn_input_tokens(c) ? nn_input_tokens(c) : c->positions;
    if (c->position_kind != NN_POSITIONS_SINUSOIDAL && !plain) return true;
    in->waves = calloc((size_t)(count * W), sizeof(float));
    for (int64_t p = 0; in->waves && p < count; p++)
        for (int64_t i = 0; i < half; i++) {
            double share = plain ? 2 * (double)i / (double)W : half > 1 ? (double)i / (double)(half - 1) : 0;
            double angle = (double)p * pow(10000, -share);
            in->waves[p * W + i] = (float)sin(angle);
            if (half + i < W) in->waves[p * W + half + i] = (float)cos(angle);
        }
    if (in->waves && c->padding >= 0) /* that of padding is zero */
        memset(in->waves + (c->first_position - 1) * W, 0, (size_t)W * sizeof(float));
    return in->waves != NULL;
}

bool nn_input_create(nn_input *in, const nn_description *d, bool decoder, const nn_weights *weights, int64_t batch,
                     int64_t rows, bool training)
{
    const nn_stack_config *s = decoder ? &d->decoder : &d->encoder;
    *in = (nn_input){.config = &s->input, .blocks = &s->blocks};
    nn_weights_find(weights, decoder, -1, in->part);
    bool frames = s->input.kind == NN_INPUT_FRAMES, tokens = s->input.kind == NN_INPUT_TOKENS;
    bool patches = s->input.kind == NN_INPUT_PATCHES, more = s->input.norm || s->input.width;
    int64_t W = width_of(in), M = s->blocks.width;
    int64_t widest = frames ? 3 * (M > s->input.bins ? M : s->input.bins) : 0;
    int64_t size[] = {patches ? batch * patches_of(in) * pixels_of(&s->input) : 0,
                      patches            ? batch * patches_of(in) * M
                      : frames           ? 2 * nn_input_tokens(&s->input) * M
                      : more || training ? rows * W
                                         : 0,
                      s->input.norm ? rows * W : 0,
                      s->input.norm ? rows * 2 : 0,
                      more && training ? rows * W : 0,
                      tokens ? rows : 0,
                      frames ? 2 * nn_input_tokens(&s->input) * widest : 0};
    float *places = NULL,
          **parts[] = {&in->patches, &in->embedded, &in->normed, &in->kept, &in->dnormed, &places, &in->frames};
    enum { PARTS = sizeof size / sizeof *size };
    int64_t all = 1; /* never of nothing */
    for (int n = 0; n < PARTS; n++) all += (size[n] + 15) / 16 * 16;
    float *at = in->memory = malloc((size_t)all * sizeof(float));
    for (int n = 0; at && n < PARTS; n++) {
        *parts[n] = at;
        at += (size[n] + 15) / 16 * 16;
    }
    in->places = (int32_t *)places;
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

static nn_norm norm_of(const nn_input *in) { return (nn_norm){in->part[NN_INPUT_NORM], in->part[NN_INPUT_NORM_BIAS]}; }

static bool has_positions(const nn_input *in) { return in->config->position_kind != NN_POSITIONS_NONE; }

/* The position of token t, where there are positions. */
static const float *position_at(const nn_input *in, int64_t t)
{
    const nn_input_config *c = in->config;
    const float *table = in->waves ? in->waves : in->part[NN_POSITIONS]->value.data;
    return table + (c->first_position + in->sequences.first_position + t) * position_width(in);
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
    int64_t M = in->blocks->width, skip = first_rows(in->config);
    for (int64_t t = 0; t < in->T; t++) {
        const nn_weight *first = in->part[t ? NN_DISTILLED_TOKEN : NN_CLASS_TOKEN];
        const float *from = t < skip && first ? first->value.data : in->embedded + (b * (in->T - skip) + t - skip) * M;
        float *to = j->to + (b * in->T + t) * M;
        memcpy(to, from, (size_t)M * sizeof(float));
        if (has_positions(in)) add(to, position_at(in, t), M);
    }
}

static bool patches_forward(nn_input *in, mha_context *ctx, float *x)
{
    nn_norm norm = norm_of(in);
    passage j = {.in = in, .to = norm.gain ? in->normed : x};
    int64_t M = in->blocks->width, P = patches_of(in), pixels = pixels_of(in->config), rows = in->B * in->T;
    mha_context_each(ctx, in->B, cut_image, &j);
    if (nn_linear_forward(ctx, matrix(in->embedded, in->B * P, M), matrix(in->patches, in->B * P, pixels),
                          in->part[NN_PATCH]->value, nn_value(in->part[NN_PATCH_BIAS]), MHA_LINEAR, false))
        return false;
    mha_context_each(ctx, in->B, place_patches, &j);
    if (!norm.gain) return true;
    mha_norm_options options = nn_norm_options(in->blocks, norm);
    return !mha_norm_forward(ctx, matrix(x, rows, M), matrix(in->kept, rows, 2), matrix(in->normed, rows, M), &options);
}

static bool frames_forward(nn_input *in, mha_context *ctx, float *x)
{
    if (!nn_frames_forward(in, ctx, x)) return false;
    for (int64_t i = 0; has_positions(in) && i < in->B * in->T; i++)
        add(x + i * in->blocks->width, position_at(in, i % in->T), in->blocks->width);
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

/* Whether positions count from the first token of every sequence, without exception. */
static bool counts_on(const nn_input *in)
{
    return !in->sequences.starts && !in->sequences.past && in->config->padding < 0;
}

/* The position of every token. */
static void find_places(nn_input *in)
{
    const nn_input_config *c = in->config;
    const nn_sequences *s = &in->sequences;
    int64_t rows = in->B * in->T, b = 0, start = 0, padded = 0;
    for (int64_t i = 0; i < rows; i++) {
        int64_t end = s->starts ? s->starts[b + 1] : (b + 1) * in->T;
        while (i == end) {
            start = i, padded = 0, b++;
            end = s->starts ? s->starts[b + 1] : (b + 1) * in->T;
        }
        bool padding = s->tokens[i] == c->padding;
        padded += padding;
        int64_t place = (s->past ? s->past[b] : 0) + s->first_position + i - start - padded;
        in->places[i] = (int32_t)(padding ? c->first_position - 1 : c->first_position + place);
    }
}

/* Rows of a table of 16-bit numbers. */
static bool widen_rows(nn_input *in, mha_context *ctx, float *to)
{
    mha_tensor table = in->part[NN_TOKENS]->value;
    int64_t W = width_of(in);
    for (int64_t i = 0; i < in->B * in->T; i++) {
        mha_tensor from = mha_tensor_1d(table.data, table.type, W);
        from.data = (char *)from.data + (size_t)(in->sequences.tokens[i] * table.stride[0]) * mha_type_size(table.type);
        from.stride[0] = table.stride[1];
        if (mha_tensor_copy(ctx, mha_tensor_1d(to + i * W, MHA_FLOAT32, W), from)) return false;
        for (int64_t w = 0; in->config->scale != 1 && w < W; w++) to[i * W + w] *= in->config->scale;
    }
    return true;
}

/* Adds the rows of a second table. */
static bool add_rows(nn_input *in, mha_context *ctx, float *to, mha_tensor table, mha_tensor ids)
{
    mha_embedding_options add = MHA_EMBEDDING_DEFAULTS;
    add.accumulate = true;
    return !mha_embedding_forward(ctx, mha_tensor_3d(to, MHA_FLOAT32, in->B, in->T, table.size[1]), table, ids, &add);
}

static bool place_positions(nn_input *in, mha_context *ctx, float *to)
{
    int64_t W = position_width(in);
    mha_tensor table = in->waves ? matrix(in->waves, in->config->positions, W) : in->part[NN_POSITIONS]->value;
    find_places(in);
    return add_rows(in, ctx, to, table, ids_of(in, in->places));
}

static bool place_tokens(nn_input *in, mha_context *ctx, float *to)
{
    const nn_input_config *c = in->config;
    const nn_weight *types = in->part[NN_TYPES];
    mha_tensor table = in->part[NN_TOKENS]->value;
    int64_t W = width_of(in);
    bool dense = table.type == MHA_FLOAT32 && table.stride[1] == 1 && table.stride[0] == W;
    bool later = !has_positions(in) || c->width_first || !counts_on(in) || !dense;
    mha_embedding_options tokens = MHA_EMBEDDING_DEFAULTS;
    tokens.scale = c->scale;
    if (!later) tokens.positions = matrix(position_at(in, 0), in->T, W);
    if (dense ? mha_embedding_forward(ctx, mha_tensor_3d(to, MHA_FLOAT32, in->B, in->T, W), table,
                                      ids_of(in, in->sequences.tokens), &tokens) != MHA_OK
              : !widen_rows(in, ctx, to))
        return false;
    if (later && has_positions(in) && !c->width_first && !place_positions(in, ctx, to)) return false;
    return !types || add_rows(in, ctx, to, types->value, ids_of(in, in->sequences.types));
}

/* The norm, then the product, where there are any. */
static bool finish(nn_input *in, mha_context *ctx, float *x)
{
    int64_t W = width_of(in), M = in->blocks->width, rows = in->B * in->T;
    const float *from = in->embedded;
    if (norm_of(in).gain) {
        mha_norm_options norm = nn_norm_options(in->blocks, norm_of(in));
        float *to = in->config->width ? in->normed : x;
        if (mha_norm_forward(ctx, matrix(to, rows, W), matrix(in->kept, rows, 2), matrix(in->embedded, rows, W), &norm))
            return false;
        from = to;
    }
    if (in->config->width &&
        nn_linear_forward(ctx, matrix(x, rows, M), matrix(from, rows, W), in->part[NN_INPUT_PROJECT]->value,
                          nn_value(in->part[NN_INPUT_PROJECT_BIAS]), MHA_LINEAR, false))
        return false;
    return !in->config->width_first || !has_positions(in) || place_positions(in, ctx, x);
}

bool nn_input_forward(nn_input *in, mha_context *ctx, float *x, const nn_sequences *sequences, int64_t B, int64_t T)
{
    bool more = in->config->norm || in->config->width;
    in->B = B;
    in->T = T;
    in->sequences = *sequences;
    if (in->config->kind == NN_INPUT_PATCHES) return patches_forward(in, ctx, x);
    if (in->config->kind == NN_INPUT_FRAMES) return frames_forward(in, ctx, x);
    return place_tokens(in, ctx, more ? in->embedded : x) && (!more || finish(in, ctx, x));
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

/* Where the gradients of the positions of the last call go; none if they are not learned. */
static mha_tensor positions_gradient(const nn_input *in, float *gradients)
{
    mha_tensor none = MHA_NO_TENSOR;
    const nn_weight *at = in->part[NN_POSITIONS];
    int64_t first = in->config->first_position + in->sequences.first_position;
    return at ? matrix(gradients + at->first + first * width_of(in), in->T, width_of(in)) : none;
}

/* The gradients of positions and of the class token, which stands at position 0: sums over the images. */
static bool sum_images(nn_input *in, mha_context *ctx, const float *dx, float *gradients)
{
    int64_t M = in->blocks->width, size = in->T * M;
    mha_tensor to = positions_gradient(in, gradients), images = matrix(dx, in->B, size), first = images;
    first.size[1] = M;
    if (to.rank && mha_sum_rows(ctx, mha_tensor_1d(to.data, MHA_FLOAT32, size), images)) return false;
    return !in->config->class_token ||
           !mha_sum_rows(ctx, mha_tensor_1d(gradients + in->part[NN_CLASS_TOKEN]->first, MHA_FLOAT32, M), first);
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
    nn_linear_gradients g = {.dw = matrix(gradients + in->part[NN_PATCH]->first, M, pixels),
                             .db = nn_bias_gradient(in->part[NN_PATCH_BIAS], gradients)};
    return !nn_linear_backward(ctx, &g, matrix(in->embedded, in->B * P, M), matrix(in->patches, in->B * P, pixels),
                               in->part[NN_PATCH]->value);
}

/* Back through the product and the norm: returns the gradient by the sum of the tables, or NULL. */
static const float *unfinish(nn_input *in, mha_context *ctx, const float *dx, float *gradients)
{
    const nn_input_config *c = in->config;
    int64_t W = width_of(in), M = in->blocks->width, rows = in->B * in->T;
    if (c->width) {
        nn_linear_gradients g = {.dx = matrix(in->dnormed, rows, W),
                                 .dw = matrix(gradients + in->part[NN_INPUT_PROJECT]->first, M, W),
                                 .db = nn_bias_gradient(in->part[NN_INPUT_PROJECT_BIAS], gradients)};
        if (nn_linear_backward(ctx, &g, matrix(dx, rows, M), matrix(c->norm ? in->normed : in->embedded, rows, W),
                               in->part[NN_INPUT_PROJECT]->value))
            return NULL;
        dx = in->dnormed;
    }
    if (!norm_of(in).gain) return dx;
    mha_norm_options norm = nn_norm_options(in->blocks, norm_of(in));
    float *dsum = in->normed; /* which is not needed any more */
    mha_norm_gradients g = {.x = matrix(dsum, rows, W)};
    nn_norm_gradients(&g, norm_of(in), gradients);
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
    const nn_weight *types = in->part[NN_TYPES];
    if (types && mha_embedding_backward(ctx, matrix(gradients + types->first, c->token_types, W), none, dy,
                                        ids_of(in, s->types), NULL))
        return false;
    return !mha_embedding_backward(ctx, matrix(gradients + in->part[NN_TOKENS]->first, c->vocabulary, W),
                                   positions_gradient(in, gradients), dy, ids_of(in, s->tokens), &tokens);
}
