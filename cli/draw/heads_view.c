/* Runs one image through the model and extracts the relevant rows of the weights of every head. */
#include "cli/draw/heads_view.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static bool make_room(heads_view *view, const mha_model *model, const mha_model_info *about)
{
    size_t maps = (size_t)about->heads, patches = (size_t)(view->rows * view->columns);
    view->first = calloc((size_t)view->blocks + 1, sizeof *view->first);
    view->probabilities = calloc((size_t)view->classes, sizeof(float));
    view->map = calloc(maps * patches, sizeof(float));
    view->itself = calloc(maps, sizeof(float));
    for (int64_t b = 0; view->first && b < view->blocks; b++) {
        int64_t heads = mha_model_attention_get(model, b).heads;
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

/* weights (T,T) of one head; the class token, if there is one, is token 0, and patches are the last ones. */
static void read_out(heads_view *view, int64_t n, const float *weights, bool mean)
{
    int64_t patches = view->rows * view->columns, T = view->tokens, first = T - patches;
    float *map = view->map + n * patches;
    if (!mean) view->itself[n] = weights[0];
    for (int64_t j = 0; j < patches; j++) {
        double sum = 0;
        for (int64_t i = 0; mean && i < T; i++) sum += (double)weights[i * T + first + j];
        map[j] = mean ? (float)(sum / (double)T) : weights[first + j];
    }
}

void heads_view_pixels(float *out, const unsigned char *image, int64_t count)
{
    for (int64_t i = 0; i < count; i++) out[i] = (float)image[i] / 255.0f;
}

/* Memory of one run. */
typedef struct scratch {
    float *weights, *logits; /* weights: block after block (H,T,T) */
    mha_tensor *maps;        /* (blocks) */
} scratch;

static bool make_scratch(scratch *s, const heads_view *view, const mha_model_info *about)
{
    size_t T = (size_t)about->tokens;
    *s = (scratch){.weights = calloc((size_t)about->heads, T * T * sizeof(float)),
                   .logits = calloc((size_t)about->classes, sizeof(float)),
                   .maps = calloc((size_t)about->blocks, sizeof *s->maps)};
    if (!s->weights || !s->logits || !s->maps) return false;
    for (int64_t b = 0; b < view->blocks; b++)
        s->maps[b] = mha_tensor_4d(s->weights + view->first[b] * view->tokens * view->tokens, MHA_FLOAT32, 1,
                                   heads_view_in(view, b), view->tokens, view->tokens);
    return true;
}

bool heads_view_make(heads_view *view, mha_context *ctx, mha_model *model, const unsigned char *image, char *error,
                     size_t error_size)
{
    mha_model_info about = {.size = sizeof about};
    *view = (heads_view){0};
    if (mha_model_about(ctx, model, &about) || about.channels != 1) {
        snprintf(error, error_size, "only Vision Transformers for grey images have maps of patches");
        return false;
    }
    float *values = calloc((size_t)(about.rows * about.columns), sizeof *values);
    if (values) heads_view_pixels(values, image, about.rows * about.columns);
    else snprintf(error, error_size, "not enough memory for the image");
    bool made = values && heads_view_make_from(view, ctx, model, values, error, error_size);
    free(values);
    return made;
}

bool heads_view_make_from(heads_view *view, mha_context *ctx, mha_model *model, const float *values, char *error,
                          size_t error_size)
{
    mha_model_info about = {.size = sizeof about};
    scratch s = {0};
    const char *why = NULL;
    *view = (heads_view){0};
    if (mha_model_about(ctx, model, &about) || !about.channels || !about.pooled || !about.head) {
        snprintf(error, error_size, "only Vision Transformers with a classifier have predictions for images");
        return false;
    }
    *view = (heads_view){.blocks = about.blocks,
                         .classes = about.classes,
                         .rows = about.rows / about.patch,
                         .columns = about.columns / about.patch,
                         .tokens = about.tokens};
    if (!make_room(view, model, &about) || !make_scratch(&s, view, &about))
        why = "not enough memory for the weights of the heads";
    if (!why) {
        mha_model_inputs in = {.images =
                                   mha_tensor_4d(values, MHA_FLOAT32, 1, about.channels, about.rows, about.columns)};
        mha_model_outputs out = {.logits = mha_tensor_2d(s.logits, MHA_FLOAT32, 1, about.classes), .maps = s.maps};
        if (mha_model_run(ctx, model, &out, &in)) why = mha_context_error(ctx);
        else softmax(view, s.logits);
        for (int64_t n = 0; !why && n < about.heads; n++)
            read_out(view, n, s.weights + n * about.tokens * about.tokens, !about.class_token);
    }
    free(s.weights);
    free(s.logits);
    free(s.maps);
    if (!why) return true;
    heads_view_free(view);
    snprintf(error, error_size, "%s", why);
    return false;
}

void heads_view_free(heads_view *view)
{
    free(view->first);
    free(view->probabilities);
    free(view->map);
    free(view->itself);
    *view = (heads_view){0};
}

heads_focus heads_view_focus(const heads_view *view, int64_t block, int64_t head)
{
    const float *map = heads_view_map(view, block, head);
    heads_focus f = {.itself = (double)view->itself[view->first[block] + head]};
    double sum = 0, entropy = 0;
    for (int64_t n = 0; n < view->rows * view->columns; n++) {
        sum += (double)map[n];
        if (!((double)map[n] > f.strongest)) continue; /* also skips NaN */
        f = (heads_focus){(double)map[n], n / view->columns, n % view->columns, 0, f.itself};
    }
    for (int64_t n = 0; sum > 0 && n < view->rows * view->columns; n++) {
        double share = (double)map[n] / sum;
        if (share > 0) entropy -= share * log(share);
    }
    f.patches = sum > 0 ? exp(entropy) : 0;
    return f;
}
