/* Runs one image through the model and extracts the relevant rows of the weights of every head. */
#include "inspect/heads.h"
#include "data/augment.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static bool make_room(nn_heads_view *view, const nn_description *c)
{
    size_t maps = (size_t)nn_description_all_heads(c), patches = (size_t)(view->rows * view->columns);
    view->first = calloc((size_t)view->blocks + 1, sizeof *view->first);
    view->probabilities = calloc((size_t)c->output.classes, sizeof(float));
    view->map = calloc(maps * patches, sizeof(float));
    view->itself = calloc(maps, sizeof(float));
    for (int64_t b = 0; view->first && b < view->blocks; b++) {
        int64_t heads = nn_blocks_heads(&c->encoder.blocks, b);
        view->first[b + 1] = view->first[b] + heads;
        if (heads > view->heads) view->heads = heads;
    }
    return view->first && view->probabilities && view->map && view->itself;
}

static void softmax(nn_heads_view *view, const float *logits)
{
    double sum = 0;
    for (int64_t c = 1; c < view->classes; c++)
        if (logits[c] > logits[view->best]) view->best = (int)c;
    for (int64_t c = 0; c < view->classes; c++) sum += exp((double)logits[c] - (double)logits[view->best]);
    for (int64_t c = 0; c < view->classes; c++)
        view->probabilities[c] = (float)(exp((double)logits[c] - (double)logits[view->best]) / sum);
}

/* weights (T,T) of one head; the class token, if there is one, is token 0. */
static void read_out(nn_heads_view *view, int64_t n, const float *weights, int64_t T, bool mean)
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

/* Memory for the weights of all heads and for the image as floats; NULL if out of memory. */
static float *make_scratch(int64_t heads, int64_t pixels, int64_t T)
{
    int64_t count;
    if (__builtin_mul_overflow(T * T, heads, &count)) return NULL;
    if (__builtin_add_overflow(count, pixels, &count) || (uint64_t)count > SIZE_MAX / sizeof(float)) return NULL;
    return malloc((size_t)count * sizeof(float));
}

bool nn_heads_look(nn_heads_view *view, nn_model *net, mha_context *ctx, const unsigned char *image, char *error,
                   size_t error_size)
{
    const nn_description *c = nn_model_description(net);
    const char *why = NULL;
    const nn_input_config *in = &c->encoder.input;
    int64_t T = 0, pixels = in->rows * in->columns;
    nn_augment_options plain = {.mean = in->mean, .deviation = in->deviation};
    bool token = in->class_token && c->output.pool == NN_POOL_FIRST;
    bool mean = !in->class_token && c->output.pool == NN_POOL_MEAN;
    *view = (nn_heads_view){0};
    if (c->decoder.blocks.depth || in->kind != NN_INPUT_PATCHES || in->channels != 1 || in->patch < 1 ||
        !(token || mean)) {
        snprintf(error, error_size, "only Vision Transformers for grey images have maps of patches");
        return false;
    }
    T = nn_input_tokens(in);
    *view = (nn_heads_view){.blocks = c->encoder.blocks.depth,
                            .classes = c->output.classes,
                            .rows = in->rows / in->patch,
                            .columns = in->columns / in->patch,
                            .tokens = T};
    float *weights = make_scratch(nn_description_all_heads(c), pixels, T);
    mha_tensor *maps = calloc((size_t)view->blocks, sizeof *maps);
    if (!weights || !maps || !make_room(view, c)) why = "not enough memory for the weights of the heads";
    if (!why) {
        float *x = weights + nn_maps_lay(maps, weights, c, 1, T, 0);
        nn_call call = {.maps = maps};
        nn_augment_plain(x, image, pixels, &plain);
        const float *logits = nn_model_forward_images(net, ctx, x, 1, &call);
        if (!logits) why = mha_context_error(ctx);
        else if (nn_model_not_finite(logits, 1, c->output.classes)) why = nn_model_overflow;
        else softmax(view, logits);
        for (int64_t n = 0; !why && n < view->first[view->blocks]; n++)
            read_out(view, n, weights + n * T * T, T, c->output.pool == NN_POOL_MEAN);
    }
    free(maps);
    free(weights);
    if (!why) return true;
    nn_heads_free(view);
    snprintf(error, error_size, "%s", why);
    return false;
}

void nn_heads_free(nn_heads_view *view)
{
    free(view->first);
    free(view->probabilities);
    free(view->map);
    free(view->itself);
    *view = (nn_heads_view){0};
}

nn_heads_focus nn_heads_focus_of(const nn_heads_view *view, int64_t block, int64_t head)
{
    const float *map = nn_heads_map(view, block, head);
    nn_heads_focus f = {.itself = (double)view->itself[view->first[block] + head]};
    double sum = 0, entropy = 0;
    for (int64_t n = 0; n < view->rows * view->columns; n++) {
        sum += (double)map[n];
        if (!((double)map[n] > f.strongest)) continue; /* also skips NaN */
        f = (nn_heads_focus){(double)map[n], n / view->columns, n % view->columns, 0, f.itself};
    }
    for (int64_t n = 0; sum > 0 && n < view->rows * view->columns; n++) {
        double share = (double)map[n] / sum;
        if (share > 0) entropy -= share * log(share);
    }
    f.patches = sum > 0 ? exp(entropy) : 0;
    return f;
}
