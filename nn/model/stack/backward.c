/* A stack of blocks, backward. dx is the gradient by the stage that has been reached; a branch adds to it what comes
 * back through its input. */
#include "model/stack/stack.h"
#include <string.h>

/* The gradient by x (rows,M), of which dn is that by its norm, is written to `to`, or added. */
static bool norm_backward(nn_stack *s, mha_context *ctx, nn_norm of, const float *dn, const float *x, const float *kept,
                          float *to, bool add, float *gradients)
{
    if (!of.gain) return false; /* a branch without a norm does not come here */
    mha_norm_options norm = nn_norm_options(s->config, of);
    mha_norm_gradients g = {.x = nn_stack_rows(s, to), .accumulate = add};
    nn_norm_gradients(&g, of, gradients);
    return !mha_norm_backward(ctx, &g, nn_stack_rows(s, dn), nn_stack_rows(s, x), nn_stack_kept(s, kept), &norm);
}

static bool attention_backward(nn_stack *s, mha_context *ctx, int64_t l, bool cross, const float *dy, float *gradients)
{
    const nn_block *b = &s->block[l];
    int64_t M = s->config->width, H = nn_blocks_heads(s->config, l), n = cross ? b->cross_number : b->number;
    const struct nn_memory *from = &s->memory_rows;
    mha_layer_gradients g = {.accumulate = true,
                             .query = mha_tensor_3d(s->dn, MHA_FLOAT32, s->B, s->T, M),
                             .parameters = gradients + b->part[cross ? NN_CROSS_Q : NN_Q]->first};
    if (cross) g.key = mha_tensor_3d(from->gradient, MHA_FLOAT32, s->B, from->T, from->width);
    if (s->call->importance)
        g.importance =
            mha_tensor_2d(s->call->importance + nn_description_heads_before(s->d, n) * s->B, MHA_FLOAT32, s->B, H);
    memset(s->dn, 0, (size_t)(s->B * s->T * M) * sizeof(float));
    return !mha_layer_backward(ctx, cross ? b->cross : b->attention, &g, mha_tensor_3d(dy, MHA_FLOAT32, s->B, s->T, M),
                               cross ? b->cross_tape : b->tape);
}

static void swap(float **a, float **b)
{
    float *kept = *a;
    *a = *b;
    *b = kept;
}

/* The gradient by what branch k gave, from dx, that by the sum. */
static const float *branch_gradient(nn_stack *s, mha_context *ctx, int64_t k, float *gradients)
{
    const nn_branch *b = &s->branch[k];
    int64_t count = s->B * s->T * s->config->width;
    float residual = s->config->residual, *scaled = s->ddropped;
    const float *d = s->dx;
    mha_dropout_options drop = nn_stack_drop(s, k);
    if (nn_drops(drop)) {
        if (mha_dropout(ctx, nn_stack_sequences(s, scaled), nn_stack_sequences(s, d), &drop)) return NULL;
        d = scaled;
    }
    for (int64_t i = 0; residual != 1 && i < count; i++) scaled[i] = d[i] * residual;
    if (residual != 1) d = scaled;
    if (!b->out_norm.gain) return d;
    return norm_backward(s, ctx, b->out_norm, d, b->raw, b->raw_kept, s->dother, false, gradients) ? s->dother : NULL;
}

static bool add_rows(nn_stack *s, mha_context *ctx, float *to, const float *from)
{
    return !mha_add(ctx, nn_stack_rows(s, to), nn_stack_rows(s, from));
}

/* dn, the gradient by what branch k read, goes on to dx. What the MLP of parallel branches adds waits in dparallel
 * until attention has seen dx without it; where both share a norm, it joins them before that. */
static bool branch_input(nn_stack *s, mha_context *ctx, int64_t k, float *gradients)
{
    const nn_branch *b = &s->branch[k], *next = k + 1 < s->branches ? b + 1 : NULL;
    const float *x = s->stage[b->source].x;
    int64_t count = s->B * s->T * s->config->width;
    bool second = b->source < k, followed = next && next->source == k;
    if (second && b->shares) memcpy(s->dparallel, s->dn, (size_t)count * sizeof(float));
    else if (second) return norm_backward(s, ctx, b->norm, s->dn, x, b->kept, s->dparallel, false, gradients);
    if (second) return true;
    if (followed && next->shares && !add_rows(s, ctx, s->dn, s->dparallel)) return false;
    if (!b->norm.gain && !add_rows(s, ctx, s->dx, s->dn)) return false;
    if (b->norm.gain && !norm_backward(s, ctx, b->norm, s->dn, x, b->kept, s->dx, true, gradients)) return false;
    return !followed || next->shares || add_rows(s, ctx, s->dx, s->dparallel);
}

static bool branch_backward(nn_stack *s, mha_context *ctx, int64_t k, float *gradients)
{
    const nn_branch *b = &s->branch[k];
    const nn_stage *to = &s->stage[k + 1];
    if (b->after.gain) {
        if (!norm_backward(s, ctx, b->after, s->dx, to->sum, to->kept, s->dother, false, gradients)) return false;
        swap(&s->dx, &s->dother);
    }
    const float *x = b->norm.gain || b->shares ? b->n : s->stage[b->source].x;
    const float *d = branch_gradient(s, ctx, k, gradients);
    if (!d) return false;
    if (b->kind == NN_BRANCH_MLP) {
        if (!nn_mlp_backward(s, ctx, &s->block[b->block], x, d, gradients)) return false;
    } else if (!attention_backward(s, ctx, b->block, b->kind == NN_BRANCH_CROSS, d, gradients)) return false;
    return branch_input(s, ctx, k, gradients);
}

const float *nn_stack_backward(nn_stack *s, mha_context *ctx, const float *dy, float *gradients)
{
    const nn_stage *last = &s->stage[s->branches];
    int64_t count = s->B * s->T * s->config->width;
    if (!s->final_norm.gain) memcpy(s->dx, dy, (size_t)count * sizeof(float));
    else if (!norm_backward(s, ctx, s->final_norm, dy, last->sum, s->last_kept, s->dx, false, gradients)) return NULL;
    for (int64_t k = s->branches - 1; k >= 0; k--)
        if (!branch_backward(s, ctx, k, gradients)) return NULL;
    mha_dropout_options drop = nn_stack_drop(s, -1);
    mha_tensor dx = nn_stack_sequences(s, s->dx);
    return nn_drops(drop) && mha_dropout(ctx, dx, dx, &drop) ? NULL : s->dx;
}
