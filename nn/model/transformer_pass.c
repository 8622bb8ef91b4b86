/* A stack of blocks, forward and backward (transformer_parts.h says how it is laid out). */
#include "model/transformer_parts.h"
#include <string.h>

static mha_tensor matrix(const float *data, int64_t rows, int64_t columns)
{
    return mha_tensor_2d(data, MHA_FLOAT32, rows, columns);
}

/* x (rows,columns) as a factor of products: itself, or a copy in bfloat16 at `home`. */
static mha_tensor factor(const nn_transformer *t, mha_context *ctx, uint16_t *home, const float *x, int64_t columns)
{
    int64_t rows = t->B * t->T;
    if (!t->config.bfloat16) return matrix(x, rows, columns);
    mha_tensor_copy(ctx, mha_tensor_1d(home, MHA_BFLOAT16, rows * columns),
                    mha_tensor_1d(x, MHA_FLOAT32, rows * columns));
    return mha_tensor_2d(home, MHA_BFLOAT16, rows, columns);
}

/* The weights (rows,columns) that start at `at`, as a factor. */
static mha_tensor weight(const nn_transformer *t, int64_t at, int64_t rows, int64_t columns)
{
    if (!t->config.bfloat16) return matrix(t->parameters + at, rows, columns);
    return mha_tensor_2d(t->halves + at, MHA_BFLOAT16, rows, columns);
}

static mha_tensor bias(const nn_transformer *t, int64_t at, int64_t count)
{
    return mha_tensor_1d(t->parameters + at, MHA_FLOAT32, count);
}

/* What dropout and stochastic depth do to branch k, from 0, or to the input if k is -1. */
static nn_drop drop_at(const nn_transformer *t, int64_t k)
{
    const nn_transformer_config *c = &t->config;
    int64_t above = k / 2; /* blocks before this one */
    float path = k < 0 || c->depth < 2 ? 0 : c->drop_path * (float)above / (float)(c->depth - 1);
    if (!t->call.drop) return (nn_drop){.tokens = t->T};
    return (nn_drop){c->drop, path, t->T, t->call.seed, t->call.stream + ((uint64_t)(k + 1) << 44)};
}

static bool drops(nn_drop d) { return d.drop > 0 || d.path > 0; }

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

static nn_norm norm_at(const nn_transformer *t, int64_t gain)
{
    const float *p = t->parameters + gain;
    return (nn_norm){t->config.norm, t->config.width, t->config.epsilon, p,
                     nn_transformer_norm_has_bias(&t->config) ? p + t->config.width : NULL};
}

/* What heads looked at is told from a tape; blocks that are not for training share one. */
static mha_tape *tape_of(nn_transformer *t, mha_context *ctx, int64_t l)
{
    if (t->training) return t->blocks[l].tape;
    if (!t->tape) mha_tape_create(ctx, &t->tape);
    return t->tape;
}

static bool attention_forward(nn_transformer *t, mha_context *ctx, int64_t l)
{
    nn_block *b = &t->blocks[l];
    const mha_stats *stats = t->call.stats ? t->call.stats + l : NULL;
    mha_tape *tape = t->training || stats ? tape_of(t, ctx, l) : NULL;
    int64_t M = t->config.width, H = nn_transformer_heads(&t->config, l);
    int64_t map = nn_transformer_heads_before(&t->config, l) * t->B * t->T * t->T;
    mha_tensor out = mha_tensor_3d(t->stages[2 * l + 1].x, MHA_FLOAT32, t->B, t->T, M);
    mha_layer_inputs in = {.query = mha_tensor_3d(t->stages[2 * l].n, MHA_FLOAT32, t->B, t->T, M)};
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    mha_attention_options options = mha_layer_attention(b->attention);
    if (t->call.maps) extras.weights = mha_tensor_4d(t->call.maps + map, MHA_FLOAT32, t->B, H, t->T, t->T);
    if (!t->call.drop) options.dropout = 0;
    options.dropout_seed = t->call.seed;
    options.dropout_stream = t->call.stream + ((uint64_t)l << 44);
    if (stats && !tape) return false;
    return !mha_layer_forward(ctx, b->attention, out, &extras, &in, &options, tape) &&
           (!stats || !mha_layer_stats(ctx, b->attention, stats, tape));
}

/* The MLP of block l. For the backward pass the activation is a separate sweep that also stores its derivative. */
static bool mlp_forward(nn_transformer *t, mha_context *ctx, int64_t l)
{
    const nn_transformer_config *c = &t->config;
    const nn_block *b = &t->blocks[l];
    int64_t rows = t->B * t->T, M = c->width, N = c->mlp;
    mha_tensor x = factor(t, ctx, b->half, t->stages[2 * l + 1].n, M), h, w1 = weight(t, b->at[NN_FC1], N, M);
    mha_tensor y = matrix(t->stages[2 * l + 2].x, rows, M), b1 = bias(t, b->at[NN_FC1_BIAS], N);
    if (t->training) {
        if (nn_linear_forward(ctx, matrix(b->z, rows, N), x, w1, b1, MHA_LINEAR, false)) return false;
        nn_activation_forward(ctx, c->activation, b->h, b->z, b->z, rows * N);
        h = factor(t, ctx, b->half_h, b->h, N);
    } else {
        h = c->bfloat16 ? mha_tensor_2d(b->half_h, MHA_BFLOAT16, rows, N) : matrix(b->h, rows, N);
        if (nn_linear_forward(ctx, h, x, w1, b1, c->activation, false)) return false;
    }
    return !nn_linear_forward(ctx, y, h, weight(t, b->at[NN_FC2], M, N), bias(t, b->at[NN_FC2_BIAS], M), MHA_LINEAR,
                              false);
}

/* Branch k has written where stage k + 1 lies; this makes it the stage. */
static void join(nn_transformer *t, mha_context *ctx, int64_t k)
{
    const nn_stage *from = &t->stages[k], *to = from + 1;
    const float *on = t->config.post_norm ? from->n : from->x;
    int64_t rows = t->B * t->T;
    nn_drop drop = drop_at(t, k);
    if (drops(drop)) nn_drop_apply(ctx, &drop, to->x, to->x, rows, t->config.width);
    if (to->norm < 0) {
        nn_add(ctx, to->x, on, rows * t->config.width);
        return;
    }
    nn_norm norm = norm_at(t, to->norm);
    nn_norm_forward_add(ctx, &norm, to->n, to->kept, to->x, on, rows);
}

const float *nn_transformer_forward(nn_transformer *t, mha_context *ctx, int64_t B, int64_t T,
                                    const nn_transformer_call *call)
{
    const nn_stage *first = &t->stages[0];
    t->B = B;
    t->T = T;
    t->call = call ? *call : (nn_transformer_call){0};
    nn_drop drop = drop_at(t, -1);
    if (t->config.bfloat16 && !t->fresh)
        mha_tensor_copy(ctx, mha_tensor_1d(t->halves, MHA_BFLOAT16, t->count),
                        mha_tensor_1d(t->parameters, MHA_FLOAT32, t->count));
    t->fresh = true;
    if (drops(drop)) nn_drop_apply(ctx, &drop, first->x, first->x, B * T, t->config.width);
    if (first->norm >= 0) {
        nn_norm norm = norm_at(t, first->norm);
        nn_norm_forward(ctx, &norm, first->n, first->kept, first->x, B * T);
    }
    for (int64_t k = 0; k < 2 * t->config.depth; k++) {
        if (!(k % 2 ? mlp_forward : attention_forward)(t, ctx, k / 2)) return NULL;
        join(t, ctx, k);
    }
    return t->stages[2 * t->config.depth].n;
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

/* dx becomes, or with `add` grows by, the gradient by nn_stage k, of which dn is that by its norm. */
static bool norm_backward(nn_transformer *t, mha_context *ctx, int64_t k, const float *dn, bool add, float *gradients)
{
    const nn_stage *s = &t->stages[k];
    int64_t rows = t->B * t->T, M = t->config.width;
    if (s->norm < 0) { /* never with `add`: what goes on from such a stage is its norm */
        memcpy(t->dx, dn, (size_t)(rows * M) * sizeof(float));
        return true;
    }
    nn_norm norm = norm_at(t, s->norm);
    float *to = gradients + s->norm;
    nn_norm_gradients g = {t->dx, add, to, nn_transformer_norm_has_bias(&t->config) ? to + M : NULL};
    return !nn_norm_backward(ctx, &t->workspace, &norm, &g, dn, s->x, s->kept, rows);
}

/* The gradients of a linear layer whose factors may be bfloat16: the sum for the bias is taken of the float32 dy. */
static bool linear_back(nn_transformer *t, mha_context *ctx, nn_linear_gradients g, const float *dy, mha_tensor half_dy,
                        mha_tensor x, mha_tensor w)
{
    mha_tensor whole = matrix(dy, half_dy.size[0], half_dy.size[1]);
    nn_linear_gradients sums = {.db = g.db};
    g.db = NULL;
    return !nn_linear_backward(ctx, &t->workspace, &sums, whole, x, w) &&
           !nn_linear_backward(ctx, &t->workspace, &g, half_dy, x, w);
}

/* Gradient of the MLP of block l: from dy, of its output, to dn. */
static bool mlp_backward(nn_transformer *t, mha_context *ctx, int64_t l, const float *dy, float *gradients)
{
    const nn_transformer_config *c = &t->config;
    const nn_block *b = &t->blocks[l];
    int64_t rows = t->B * t->T, M = c->width, N = c->mlp;
    mha_tensor x = matrix(t->stages[2 * l + 1].n, rows, M), h = matrix(b->h, rows, N);
    if (c->bfloat16)
        x = mha_tensor_2d(b->half, MHA_BFLOAT16, rows, M), h = mha_tensor_2d(b->half_h, MHA_BFLOAT16, rows, N);
    nn_linear_gradients g2 = {matrix(t->dhidden, rows, N), false, matrix(gradients + b->at[NN_FC2], M, N),
                              gradients + b->at[NN_FC2_BIAS]};
    nn_linear_gradients g1 = {matrix(t->dn, rows, M), false, matrix(gradients + b->at[NN_FC1], N, M),
                              gradients + b->at[NN_FC1_BIAS]};
    if (!linear_back(t, ctx, g2, dy, factor(t, ctx, t->half_d, dy, M), h, weight(t, b->at[NN_FC2], M, N))) return false;
    nn_activation_backward(ctx, t->dhidden, b->z, rows * N);
    mha_tensor dz = factor(t, ctx, t->half_dhidden, t->dhidden, N);
    return linear_back(t, ctx, g1, t->dhidden, dz, x, weight(t, b->at[NN_FC1], N, M));
}

static bool attention_backward(nn_transformer *t, mha_context *ctx, int64_t l, const float *dy, float *gradients)
{
    const nn_block *b = &t->blocks[l];
    int64_t M = t->config.width, before = nn_transformer_heads_before(&t->config, l) * t->B;
    mha_layer_gradients g = {.accumulate = true,
                             .query = mha_tensor_3d(t->dn, MHA_FLOAT32, t->B, t->T, M),
                             .parameters = gradients + b->at[NN_QKV]};
    if (t->call.importance)
        g.importance =
            mha_tensor_2d(t->call.importance + before, MHA_FLOAT32, t->B, nn_transformer_heads(&t->config, l));
    memset(t->dn, 0, (size_t)(t->B * t->T * M) * sizeof(float));
    return !mha_layer_backward(ctx, b->attention, &g, mha_tensor_3d(dy, MHA_FLOAT32, t->B, t->T, M), b->tape);
}

const float *nn_transformer_backward(nn_transformer *t, mha_context *ctx, const float *dy, float *gradients)
{
    const nn_transformer_config *c = &t->config;
    int64_t rows = t->B * t->T, M = c->width;
    if (!norm_backward(t, ctx, 2 * c->depth, dy, false, gradients)) return NULL;
    for (int64_t k = 2 * c->depth - 1; k >= 0; k--) {
        nn_drop drop = drop_at(t, k);
        const float *d = drops(drop) ? t->ddropped : t->dx;
        if (drops(drop)) nn_drop_apply(ctx, &drop, t->ddropped, t->dx, rows, M);
        if (!(k % 2 ? mlp_backward : attention_backward)(t, ctx, k / 2, d, gradients)) return NULL;
        if (c->post_norm) nn_add(ctx, t->dn, t->dx, rows * M);
        if (!norm_backward(t, ctx, k, t->dn, !c->post_norm, gradients)) return NULL;
    }
    nn_drop drop = drop_at(t, -1);
    if (drops(drop)) nn_drop_apply(ctx, &drop, t->dx, t->dx, rows, M);
    return t->dx;
}
