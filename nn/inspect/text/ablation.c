#include "inspect/text/ablation.h"
#include <mha_ops.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* What is kept of a window between passes. */
typedef struct keeper {
    const nn_blocks_config *blocks;
    int64_t T, classes;
    float *hidden;   /* (depth+1,T,M): the rows before each block */
    float *heads;    /* block after block (T,H*D) */
    int64_t *before; /* (depth): numbers of a row of `heads` of the blocks before */
} keeper;

const char *nn_text_loss_problem(const nn_description *d)
{
    const nn_stack_config *s = nn_description_last(d);
    if (nn_description_is_pair(d)) return "only models with one stack of blocks can lose single heads";
    if (s->input.kind != NN_INPUT_TOKENS) return "the model does not read text";
    if (!s->blocks.causal) return "the model is not causal: tokens have no loss that the tokens before them give";
    if (d->output.pool || d->output.classes != s->input.vocabulary) return "the model does not predict tokens";
    return NULL;
}

/* Adds the cross-entropy of each token but the first, from the logits of the one before it. */
static bool add_loss(nn_text_loss *to, mha_context *ctx, const float *logits, int64_t classes, const int32_t *tokens,
                     int64_t T)
{
    mha_loss loss;
    mha_tensor none = MHA_NO_TENSOR;
    if (T < 2) return true;
    if (mha_cross_entropy(ctx, &loss, none, mha_tensor_2d(logits, MHA_FLOAT32, T - 1, classes),
                          mha_tensor_1d(tokens + 1, MHA_INT32, T - 1), NULL))
        return false;
    if (!isfinite(loss.mean)) {
        mha_context_fail(ctx, MHA_BAD_ARGUMENT, nn_model_overflow);
        return false;
    }
    to->loss += loss.mean * (double)loss.counted;
    to->correct += loss.correct;
    to->tokens += loss.counted;
    return true;
}

/* The first block with a head that is off; the number of blocks if there is none. */
static int64_t first_block(const keeper *k, const bool *off)
{
    int64_t l = 0, h = 0;
    for (; l < k->blocks->depth; l++)
        for (int64_t i = 0; i < nn_blocks_heads(k->blocks, l); i++, h++)
            if (off[h]) return l;
    return l;
}

/* All cases of a window. Returns NULL, or the reason why not. */
static const char *measure(nn_text_loss *losses, keeper *k, mha_context *ctx, nn_model *net,
                           const nn_text_sequence *window, const bool *off, int64_t cases)
{
    int64_t heads = nn_description_all_heads(nn_model_description(net)), M = k->blocks->width;
    bool decoder = nn_model_description(net)->decoder.blocks.depth > 0;
    nn_batch batch = {.B = 1};
    nn_sequences *to = decoder ? &batch.decoder : &batch.encoder;
    to->T = k->T = window->T[decoder], to->tokens = window->tokens[decoder];
    nn_call call = {
        .encoder_hidden = decoder ? NULL : k->hidden, .decoder_hidden = decoder ? k->hidden : NULL, .heads = k->heads};
    const float *logits = nn_model_forward(net, ctx, &batch, &call);
    nn_text_loss plain = {0};
    if (!logits || !add_loss(&plain, ctx, logits, k->classes, to->tokens, k->T)) return mha_context_error(ctx);
    for (int64_t c = 0; c < cases; c++) {
        nn_text_loss own = plain;
        int64_t first = first_block(k, off + c * heads);
        if (first < k->blocks->depth) {
            nn_call without = {.off = off + c * heads,
                               .from = k->hidden + first * k->T * M,
                               .computed = k->heads + k->before[first] * k->T,
                               .first = first};
            own = (nn_text_loss){0};
            logits = nn_model_forward(net, ctx, &batch, &without);
            if (!logits || !add_loss(&own, ctx, logits, k->classes, to->tokens, k->T)) return mha_context_error(ctx);
        }
        losses[c].loss += own.loss, losses[c].correct += own.correct, losses[c].tokens += own.tokens;
    }
    return NULL;
}

static bool make_room(keeper *k, int64_t T)
{
    int64_t D = nn_blocks_head_width(k->blocks), all = 0;
    k->before = calloc((size_t)k->blocks->depth, sizeof *k->before);
    for (int64_t l = 0; k->before && l < k->blocks->depth; l++) {
        k->before[l] = all;
        all += nn_blocks_heads(k->blocks, l) * D;
    }
    k->hidden = malloc((size_t)((k->blocks->depth + 1) * T * k->blocks->width + 1) * sizeof *k->hidden);
    k->heads = malloc((size_t)(T * all + 1) * sizeof *k->heads);
    return k->before && k->hidden && k->heads;
}

bool nn_text_ablation_measure(nn_text_loss *losses, mha_context *ctx, nn_model *net, const nn_text_sequence *windows,
                              int64_t count, const bool *off, int64_t cases, char *error, size_t error_size)
{
    const nn_description *d = nn_model_description(net);
    keeper k = {.blocks = &nn_description_last(d)->blocks, .classes = d->output.classes};
    int64_t longest = 0;
    const char *why = nn_text_loss_problem(d);
    for (int64_t n = 0; n < count; n++) {
        int64_t T = windows[n].T[d->decoder.blocks.depth > 0];
        if (T > longest) longest = T;
    }
    if (!why && !make_room(&k, longest)) why = "not enough memory for the rows of a window";
    for (int64_t c = 0; c < cases; c++) losses[c] = (nn_text_loss){0};
    for (int64_t n = 0; !why && n < count; n++) why = measure(losses, &k, ctx, net, &windows[n], off, cases);
    for (int64_t c = 0; c < cases; c++)
        if (losses[c].tokens) losses[c].loss /= (double)losses[c].tokens;
    if (why) snprintf(error, error_size, "%s", why);
    free(k.hidden);
    free(k.heads);
    free(k.before);
    return !why;
}
