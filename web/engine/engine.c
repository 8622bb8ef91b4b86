/* Models and their runs. */
#include "web/engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

mha_context *page_context;
static char message[600];

PAGE_API(page_error) const char *page_error(void) { return message; }

int page_fail(const char *text)
{
    snprintf(message, sizeof message, "%s", text);
    return -1;
}

int page_check(mha_status status) { return status ? page_fail(mha_context_error(page_context)) : 0; }

int page_settings(const char *lines, int (*set)(void *user, const char *key, const char *value), void *user)
{
    int failed = 0;
    while (!failed && *lines) {
        char line[80] = "";
        size_t length = strcspn(lines, "\n");
        if (length < sizeof line) memcpy(line, lines, length);
        char *value = strchr(line, '=');
        if (!value) return page_fail("a setting is not of the form key=value");
        *value = 0;
        failed = set(user, line, value + 1);
        lines += length + (lines[length] == '\n');
    }
    return failed;
}

/* For engine.js. */
PAGE_API(page_allocate) void *page_allocate(size_t bytes) { return malloc(bytes); }
PAGE_API(page_free) void page_free(void *memory) { free(memory); }

/* ---- Models ----------------------------------------------------------------------------------------------------- */

PAGE_API(page_close) void page_close(page *p)
{
    if (!p) return;
    if (p->writing) p->writing->end(p->writing);
    mha_model_free(p->model);
    for (int kind = 0; kind < PAGE_KINDS; kind++) free(p->rooms[kind].numbers);
    free(p);
}

int page_start(void)
{
    mha_context_options context = MHA_CONTEXT_DEFAULTS;
    context.error = message, context.error_size = sizeof message;
    return !page_context && mha_context_create(&page_context, &context) ? -1 : 0;
}

page *page_of(mha_model *model)
{
    page *p = calloc(1, sizeof *p);
    if (!p) {
        page_fail("not enough memory for a model");
        mha_model_free(model);
        return NULL;
    }
    p->model = model, p->about.size = sizeof p->about;
    if (!page_check(mha_model_about(page_context, model, &p->about))) return p;
    page_close(p);
    return NULL;
}

PAGE_API(page_blocks) int page_blocks(const page *p) { return (int)p->about.blocks; }

PAGE_API(page_open) page *page_open(const char *path, int heads)
{
    mha_model *model = NULL;
    mha_model_options options = MHA_MODEL_DEFAULTS;
    options.heads = heads;
    if (page_start() || page_check(mha_model_open(page_context, &model, path, &options))) return NULL;
    return page_of(model);
}

PAGE_API(page_switch_off) int page_switch_off(page *p, const unsigned char *off, int count)
{
    bool *all = calloc((size_t)count + 1, sizeof *all);
    if (!all) return page_fail("not enough memory for heads");
    for (int n = 0; n < count; n++) all[n] = off[n];
    int failed = page_check(mha_model_switch_off(page_context, p->model, all, count));
    free(all);
    return failed;
}

PAGE_API(page_parameter) const float *page_parameter(const page *p, const char *name)
{
    mha_tensor t = mha_model_parameter_find(p->model, name).tensor;
    return t.type == MHA_FLOAT32 ? t.data : NULL;
}

PAGE_API(page_parameter_numbers) int page_parameter_numbers(const page *p, const char *name)
{
    mha_tensor t = mha_model_parameter_find(p->model, name).tensor;
    int count = t.rank > 0;
    for (int axis = 0; axis < t.rank; axis++) count *= (int)t.size[axis];
    return count;
}

PAGE_API(page_parameters) int page_parameters(const page *p) { return (int)mha_model_parameter_count(p->model); }

PAGE_API(page_parameter_name) const char *page_parameter_name(const page *p, int n)
{
    return mha_model_parameter_get(p->model, n).name;
}

PAGE_API(page_parameter_size) int page_parameter_size(const page *p, int n, int axis)
{
    mha_tensor t = mha_model_parameter_get(p->model, n).tensor;
    return axis >= 0 && axis < t.rank ? (int)t.size[axis] : 0;
}

PAGE_API(page_mean) float page_mean(const page *p) { return p->about.mean; }

PAGE_API(page_deviation) float page_deviation(const page *p) { return p->about.deviation; }

/* ---- Results ---------------------------------------------------------------------------------------------------- */

PAGE_API(page_numbers) const float *page_numbers(const page *p, int kind)
{
    return kind >= 0 && kind < PAGE_KINDS ? p->rooms[kind].numbers : NULL;
}

PAGE_API(page_count) int page_count(const page *p, int kind)
{
    return kind >= 0 && kind < PAGE_KINDS ? (int)p->rooms[kind].count : 0;
}

float *page_take(page *p, page_kind kind, int64_t count)
{
    struct page_room *r = &p->rooms[kind];
    if (r->count == count && r->numbers) return r->numbers;
    free(r->numbers);
    r->numbers = calloc((size_t)count + 1, sizeof(float));
    r->count = r->numbers ? count : 0;
    if (!r->numbers) page_fail("not enough memory for the results");
    return r->numbers;
}

/* The softmax of rows of logits. */
static void softmax_rows(float *out, const float *logits, int64_t rows, int64_t classes)
{
    for (int64_t r = 0; r < rows; r++, out += classes, logits += classes) {
        double most = -INFINITY, sum = 0;
        for (int64_t c = 0; c < classes; c++)
            if ((double)logits[c] > most) most = (double)logits[c];
        for (int64_t c = 0; c < classes; c++) sum += exp((double)logits[c] - most);
        for (int64_t c = 0; c < classes; c++) out[c] = (float)(exp((double)logits[c] - most) / sum);
    }
}

/* Means over the rows of an attention's heads (H,4); distances are those of tokens from `first` on. */
static void average_statistics(float *to, const mha_stats *s, int64_t first)
{
    const mha_tensor *from[4] = {&s->entropy, &s->effective, &s->largest, &s->distance};
    int64_t H = s->entropy.size[1], T = s->entropy.size[2];
    for (int64_t h = 0; h < H; h++)
        for (int n = 0; n < 4; n++) {
            const float *row = (const float *)from[n]->data + h * T;
            double sum = 0;
            for (int64_t t = n == 3 ? first : 0; t < T; t++) sum += (double)row[t];
            to[h * 4 + n] = (float)(sum / (double)(n == 3 ? T - first : T));
        }
}

/* ---- Running ---------------------------------------------------------------------------------------------------- */

typedef struct run {
    page *p;
    mha_model_inputs in;
    mha_model_outputs out;
    mha_stats_options options;
    mha_tensor *maps; /* (attentions) */
    mha_stats *stats; /* (attentions) */
    float *memory;    /* of entropy, largest and distance */
    float *means;     /* (heads,4) */
    int64_t T[2];     /* tokens of the encoder and of the decoder: of a model with one stack, the same */
} run;

/* What lies before an attention: heads, rows of heads, pairs of heads, weights. */
typedef struct place {
    int64_t heads, rows, pairs, weights;
} place;

/* The sizes of the maps of an attention; moves `at` behind it. */
static mha_tensor next_map_shape(place *at, const run *r, int64_t n)
{
    mha_model_attention a = mha_model_attention_get(r->p->model, n);
    int64_t Tq = r->T[a.decoder], Tk = a.cross ? r->T[0] : Tq;
    at->heads += a.heads, at->rows += a.heads * Tq;
    at->pairs += a.heads * a.heads, at->weights += a.heads * Tq * Tk;
    return mha_tensor_4d(NULL, MHA_FLOAT32, 1, a.heads, Tq, Tk);
}

/* Places for what is wanted of every attention; false if there is no memory. */
static bool allocate_results(run *r, int wanted)
{
    page *p = r->p;
    int64_t count = mha_model_attention_count(p->model);
    float *effective = NULL, *divergences = NULL;
    place all = {0}, at = {0};
    for (int64_t n = 0; n < count; n++) next_map_shape(&all, r, n);
    float *maps = wanted > 0 ? page_take(p, PAGE_MAPS, all.weights) : NULL;
    if (wanted > 0 && (!maps || !(r->maps = calloc((size_t)count, sizeof *r->maps)))) return false;
    if (wanted > 1) {
        r->stats = calloc((size_t)count, sizeof *r->stats);
        r->memory = calloc((size_t)(3 * all.rows) + 1, sizeof(float));
        r->means = page_take(p, PAGE_STATISTICS, all.heads * 4);
        effective = page_take(p, PAGE_EFFECTIVE, all.rows), divergences = page_take(p, PAGE_DIVERGENCES, all.pairs);
        if (!r->stats || !r->memory || !r->means || !effective || !divergences) return false;
    }
    for (int64_t n = 0; n < count; n++) {
        place here = at;
        mha_tensor map = next_map_shape(&at, r, n);
        int64_t H = map.size[1], Tq = map.size[2];
        if (maps) map.data = maps + here.weights, r->maps[n] = map;
        if (!r->stats) continue;
        mha_stats *s = &r->stats[n];
        *s = (mha_stats)MHA_NO_STATS;
        s->entropy = mha_tensor_3d(r->memory + here.rows, MHA_FLOAT32, 1, H, Tq);
        s->effective = mha_tensor_3d(effective + here.rows, MHA_FLOAT32, 1, H, Tq);
        s->largest = mha_tensor_3d(r->memory + all.rows + here.rows, MHA_FLOAT32, 1, H, Tq);
        s->distance = mha_tensor_3d(r->memory + 2 * all.rows + here.rows, MHA_FLOAT32, 1, H, Tq);
        s->divergence = mha_tensor_3d(divergences + here.pairs, MHA_FLOAT32, 1, H, H);
    }
    return true;
}

/* Means of all heads, where statistics were wanted. */
static void average_all_heads(const run *r)
{
    place at = {0};
    for (int64_t n = 0; r->stats && n < mha_model_attention_count(r->p->model); n++) {
        average_statistics(r->means + at.heads * 4, &r->stats[n], r->options.grid_first);
        next_map_shape(&at, r, n);
    }
}

static int run_model(run *r, int wanted)
{
    page *p = r->p;
    const mha_model_info *m = &p->about;
    int64_t T = r->T[1], rows = m->pooled ? 1 : T;
    bool single = m->pooled || !m->vocabulary; /* not a text with logits for every token */
    r->options = (mha_stats_options)MHA_STATS_DEFAULTS;
    if (m->patch) r->options.grid_columns = m->columns / m->patch, r->options.grid_first = m->class_token;
    float *logits = page_take(p, PAGE_LOGITS, rows * m->classes);
    float *shares = page_take(p, PAGE_PROBABILITIES, single ? rows * m->classes : 0);
    float *hidden = page_take(p, PAGE_HIDDEN, (m->blocks + 1) * T * m->width);
    int failed = !logits || !shares || !hidden || !allocate_results(r, wanted);
    if (failed) page_fail("not enough memory for the results");
    r->out.logits = m->pooled ? mha_tensor_2d(logits, MHA_FLOAT32, 1, m->classes)
                              : mha_tensor_3d(logits, MHA_FLOAT32, 1, T, m->classes);
    r->out.hidden = mha_tensor_4d(hidden, MHA_FLOAT32, m->blocks + 1, 1, T, m->width);
    r->out.maps = r->maps, r->out.stats = r->stats, r->out.stats_options = &r->options;
    if (!failed) failed = page_check(mha_model_run(page_context, p->model, &r->out, &r->in));
    if (!failed && single) softmax_rows(shares, logits, rows, m->classes);
    if (!failed) average_all_heads(r);
    free(r->maps), free(r->stats), free(r->memory);
    return failed ? -1 : 0;
}

int page_run_inputs(page *p, const mha_model_inputs *in, const int64_t T[2], int wanted)
{
    run r = {.p = p, .in = *in, .T = {T[0], T[1]}};
    return run_model(&r, wanted);
}

/* An image of bytes as the model reads it, to be freed; NULL, and a message, if there is no memory. */
static float *image_as_floats(const page *p, const unsigned char *pixels)
{
    int64_t count = p->about.rows * p->about.columns;
    float *image = malloc((size_t)(count + 1) * sizeof *image);
    for (int64_t i = 0; image && i < count; i++) image[i] = (float)pixels[i] / 255.0f;
    if (!image) page_fail("not enough memory for an image");
    return image;
}

static mha_model_inputs inputs_of(const page *p, const float *image)
{
    return (mha_model_inputs){.images = mha_tensor_4d(image, MHA_FLOAT32, 1, 1, p->about.rows, p->about.columns)};
}

PAGE_API(page_run) int page_run(page *p, const unsigned char *pixels, int wanted)
{
    float *image = image_as_floats(p, pixels);
    if (!image) return -1;
    mha_model_inputs in = inputs_of(p, image);
    int failed = page_run_inputs(p, &in, (const int64_t[]){p->about.tokens, p->about.tokens}, wanted);
    free(image);
    return failed;
}

PAGE_API(page_inside_image) int page_inside_image(page *p, int block, const unsigned char *pixels)
{
    float *image = image_as_floats(p, pixels);
    if (!image) return -1;
    mha_model_inputs in = inputs_of(p, image);
    int failed = page_inside(p, block, &in, (const int64_t[]){p->about.tokens, p->about.tokens});
    free(image);
    return failed;
}

PAGE_API(page_contributions) int page_contributions(page *p, const unsigned char *pixels)
{
    const mha_model_info *m = &p->about;
    int64_t parts = m->heads + m->blocks + 2;
    float *out = page_take(p, PAGE_CONTRIBUTIONS, parts * m->classes), *image = image_as_floats(p, pixels);
    mha_model_inputs in = inputs_of(p, image);
    int failed = !out || !image
                     ? -1
                     : page_check(mha_model_contributions(page_context, p->model,
                                                          mha_tensor_3d(out, MHA_FLOAT32, 1, parts, m->classes), &in));
    free(image);
    return failed;
}
