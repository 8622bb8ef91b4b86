/* The attention of a block in two steps: the outputs of its heads side by side, then the product with Wo. Between the two,
 * heads can be switched off, kept, and projected one by one. The result has the bits of the layer that does both. */
#include "model/stack/stack.h"
#include <stdlib.h>
#include <string.h>

/* How many numbers the heads of block l give for a row. */
static int64_t heads_width(const nn_stack *s, int64_t l)
{
    return nn_blocks_heads(s->config, l) * nn_blocks_head_width(s->config);
}

static const bool *off_of(const nn_stack *s, int64_t l)
{
    const bool *off = s->call->off;
    return off ? off + nn_description_heads_before(s->d, s->block[l].number) : NULL;
}

bool nn_stack_splits(const nn_stack *s, int64_t l)
{
    const bool *off = off_of(s, l);
    bool any = s->call->heads || (s->call->computed && l == s->call->first);
    for (int64_t h = 0; off && h < nn_blocks_heads(s->config, l); h++) any |= off[h];
    return any;
}

static mha_weight weight_of(mha_tensor values) { return (mha_weight){.values = values}; }

/* The layer of the block without Wo, over the same parameters. */
static bool make_heads(nn_stack *s, mha_context *ctx, int64_t l)
{
    nn_block *b = &s->block[l];
    mha_layer_options o = *mha_layer_shape(b->attention);
    mha_layer_parts p = mha_layer_view(b->attention, NULL);
    mha_layer_weights w = MHA_LAYER_WEIGHTS_DEFAULTS;
    o.out_projection = o.out_bias = false, o.out_width = 0;
    w.q_weight = weight_of(p.q_weight), w.k_weight = weight_of(p.k_weight), w.v_weight = weight_of(p.v_weight);
    w.q_bias = p.q_bias, w.k_bias = p.k_bias, w.v_bias = p.v_bias;
    w.q_norm = p.q_norm, w.k_norm = p.k_norm, w.sinks = p.sinks;
    w.q_norm_bias = p.q_norm_bias, w.k_norm_bias = p.k_norm_bias;
    if (mha_layer_create_over(ctx, &b->heads, &o, &w)) return false;
    mha_layer_freeze(b->heads, s->frozen); /* until nn_stack_changed */
    return true;
}

static bool make_room(nn_stack *s, mha_context *ctx)
{
    int64_t most = 1; /* never of nothing */
    for (int64_t l = 0; l < s->config->depth; l++)
        if (heads_width(s, l) > most) most = heads_width(s, l);
    if (!s->split) s->split = malloc((size_t)(s->rows * most) * sizeof *s->split);
    if (!s->half_split && s->half) s->half_split = malloc((size_t)(s->rows * most) * sizeof *s->half_split);
    if (s->split && (s->half_split || !s->half)) return true;
    mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for the outputs of single heads");
    return false;
}

mha_layer *nn_stack_heads(nn_stack *s, mha_context *ctx, int64_t l)
{
    if (!make_room(s, ctx) || (!s->block[l].heads && !make_heads(s, ctx, l))) return NULL;
    return s->block[l].heads;
}

static void switch_off(nn_stack *s, int64_t l)
{
    int64_t D = nn_blocks_head_width(s->config), W = heads_width(s, l);
    const bool *off = off_of(s, l);
    for (int64_t h = 0; off && h < W / D; h++)
        for (int64_t i = 0; off[h] && i < s->B * s->T; i++)
            memset(s->split + i * W + h * D, 0, (size_t)D * sizeof(float));
}

bool nn_stack_project(nn_stack *s, mha_context *ctx, int64_t l, float *y)
{
    const nn_block *b = &s->block[l];
    int64_t rows = s->B * s->T, M = s->config->width, W = heads_width(s, l), before = 0;
    int64_t step = s->wide / s->T * W;
    size_t bytes = (size_t)W * sizeof(float);
    for (int64_t k = 0; k < l; k++) before += heads_width(s, k);
    for (int64_t i = 0; s->call->computed && l == s->call->first && i < rows; i++)
        memcpy(s->split + i * W, s->call->computed + i * step, bytes);
    if (s->call->heads) memcpy(s->call->heads + before * rows, s->split, (size_t)rows * bytes);
    switch_off(s, l);
    return !nn_linear_forward(ctx, nn_matrix(y, rows, M), nn_stack_factor(s, ctx, s->half_split, s->split, W),
                              b->part[NN_PROJ]->factor, nn_value(b->part[NN_PROJ_BIAS]), MHA_LINEAR, false);
}

/* ---- Rows that count -------------------------------------------------------------------------------------------- */

bool nn_stack_can_narrow(const nn_stack *s)
{
    const nn_blocks_config *c = s->config;
    const nn_attention_config *a = nn_blocks_attention(c, c->depth - 1);
    const nn_call *call = s->call;
    bool asked = call->maps || call->stats || call->heads || call->added || call->inside || s->hidden;
    bool plain = !c->causal && !c->parallel && c->place == NN_NORM_BEFORE && a->window_left == MHA_UNLIMITED &&
                 a->window_right == MHA_UNLIMITED && !a->alibi && a->rotary_base == 0;
    return call->narrow && plain && !asked && !s->training && !s->lengths && !s->caches && !call->drop &&
           !nn_description_is_pair(s->d) && s->d->output.pool == NN_POOL_FIRST;
}

void nn_stack_narrow(nn_stack *s)
{
    int64_t M = s->config->width;
    float *x = s->stage[s->branches - 2].x;
    for (int64_t b = 1; b < s->B; b++) memmove(x + b * M, x + b * s->T * M, (size_t)M * sizeof *x);
    s->T = 1;
}

bool nn_stack_project_head(nn_stack *s, mha_context *ctx, float *y, const float *heads, int64_t rows, int64_t step,
                           int64_t l, int64_t h)
{
    int64_t M = s->config->width, W = heads_width(s, l), D = nn_blocks_head_width(s->config);
    mha_tensor x = mha_tensor_2d(heads + h * D, MHA_FLOAT32, rows, D), none = MHA_NO_TENSOR;
    mha_tensor wo = s->block[l].part[NN_PROJ]->factor;
    x.stride[0] = step * W;
    wo.data = (char *)wo.data + (size_t)(h * D * wo.stride[1]) * mha_type_size(wo.type);
    wo.size[1] = D;
    if (s->half) {
        if (!make_room(s, ctx)) return false;
        mha_tensor half = mha_tensor_2d(s->half_split, MHA_BFLOAT16, rows, D);
        if (mha_tensor_copy(ctx, half, x)) return false;
        x = half;
    }
    return !nn_linear_forward(ctx, nn_matrix(y, rows, M), x, wo, none, MHA_LINEAR, false);
}
