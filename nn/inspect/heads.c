/* One image through the model, with the weights of every head; of those, the rows that are read out. */
#include "inspect/heads.h"
#include "data/augment.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static bool make_room(heads_view *view, const vit_config *c)
{
    size_t maps = (size_t)transformer_all_heads(&c->body), patches = (size_t)(view->rows * view->columns);
    view->first = calloc((size_t)view->blocks + 1, sizeof *view->first);
    view->probabilities = calloc((size_t)c->classes, sizeof(float));
    view->map = calloc(maps * patches, sizeof(float));
    view->itself = calloc(maps, sizeof(float));
    for (int64_t b = 0; view->first && b < view->blocks; b++) {
        int64_t heads = transformer_heads(&c->body, b);
        view->first[b + 1] = view->first[b] + heads;
        if (heads > view->heads) view->heads = heads;
    }
    return view->first && view->probabilities && view->map && view->itself;
}

static void softmax(heads_view *view, const float *logits)
{
    double sum = 0;
    for (int64_t c = 1; c < view->classes; c++)
        if (logits[c] > logits[view->best]) view->best = (int)c;
    for (int64_t c = 0; c < view->classes; c++) sum += exp((double)logits[c] - (double)logits[view->best]);
    for (int64_t c = 0; c < view->classes; c++)
        view->probabilities[c] = (float)(exp((double)logits[c] - (double)logits[view->best]) / sum);
}

/* weights (T,T) of one head; the class token, if there is one, is token 0. */
static void read_out(heads_view *view, int64_t n, const float *weights, int64_t T, bool mean)
{
    int64_t patches = view->rows * view->columns;
    float *map = view->map + n * patches;
    if (!mean) view->itself[n] = weights[0];
    for (int64_t j = 0; j < patches; j++) {
        double sum = 0;
        for (int64_t i = 0; mean && i < T; i++) sum += (double)weights[i * T + j];
        map[j] = mean ? (float)(sum / (double)T) : weights[1 + j];
    }
}

/* Room for the image in floats, and for all weights behind it; NULL if it is more than memory can hold. */
static float *make_scratch(int64_t heads, int64_t pixels, int64_t T)
{
    int64_t count;
    if (__builtin_mul_overflow(T * T, heads, &count)) return NULL;
    if (__builtin_add_overflow(count, pixels, &count) || (uint64_t)count > SIZE_MAX / sizeof(float)) return NULL;
    return malloc((size_t)count * sizeof(float));
}

bool heads_look(heads_view *view, vit *net, mha_context *ctx, vit_input input, const unsigned char *image, char *error,
                size_t error_size)
{
    const vit_config *c = vit_shape(net);
    const char *why = NULL;
    int64_t T = vit_tokens(net), pixels = c->rows * c->columns;
    augment_options plain = {.mean = input.mean, .deviation = input.deviation};
    *view = (heads_view){.blocks = c->body.depth,
                         .classes = c->classes,
                         .rows = c->rows / c->patch,
                         .columns = c->columns / c->patch,
                         .tokens = T};
    float *scratch = make_scratch(transformer_all_heads(&c->body), pixels, T);
    if (!scratch || !make_room(view, c)) why = "no memory for the weights of the heads";
    if (!why) {
        transformer_call call = {.maps = scratch + pixels};
        augment_plain(scratch, image, pixels, &plain);
        const float *logits = vit_forward(net, ctx, scratch, 1, &call);
        if (!logits) why = mha_context_error(ctx);
        else if (vit_not_finite(logits, 1, c->classes)) why = vit_overflow;
        else softmax(view, logits);
        for (int64_t n = 0; !why && n < view->first[view->blocks]; n++)
            read_out(view, n, call.maps + n * T * T, T, c->mean_pool);
    }
    free(scratch);
    if (!why) return true;
    heads_free(view);
    snprintf(error, error_size, "%s", why);
    return false;
}

void heads_free(heads_view *view)
{
    free(view->first);
    free(view->probabilities);
    free(view->map);
    free(view->itself);
    *view = (heads_view){0};
}

heads_focus heads_focus_of(const heads_view *view, int64_t block, int64_t head)
{
    const float *map = heads_map(view, block, head);
    heads_focus f = {.itself = (double)view->itself[view->first[block] + head]};
    double sum = 0, entropy = 0;
    for (int64_t n = 0; n < view->rows * view->columns; n++) {
        sum += (double)map[n];
        if (!((double)map[n] > f.strongest)) continue; /* nor what is no number */
        f = (heads_focus){(double)map[n], n / view->columns, n % view->columns, 0, f.itself};
    }
    for (int64_t n = 0; sum > 0 && n < view->rows * view->columns; n++) {
        double share = (double)map[n] / sum;
        if (share > 0) entropy -= share * log(share);
    }
    f.patches = sum > 0 ? exp(entropy) : 0;
    return f;
}
