/* Runs the model on a sample of images, slab by slab, and keeps the evidence for roles.h. */
#include "inspect/importance.h"
#include "inspect/roles.h"
#include "train/workers.h"

#include <stdio.h>
#include <stdlib.h>

/* The state of one worker. */
typedef struct station {
    mha_tensor *views; /* (attentions) */
    float *maps;       /* attention after attention (step,H,T,T) */
    int64_t *sums;     /* as in nn_evidence */
    nn_drawing drawing;
    bool broken;       /* a weight was not finite */
    int64_t overflown; /* images whose logits were not finite */
} station;

typedef struct gathering {
    const nn_description *d;
    const nn_workers *workers;
    const nn_pixels *pixels;
    const nn_examples *examples;
    nn_evidence e;
    nn_grid grid;
    int64_t tokens, step; /* step: images of one forward call */
    station *stations;    /* (workers) */
} gathering;

enum { LONG = 128 }; /* sequences longer than LONG are processed one at a time: their maps are large */

static void add_image(const gathering *g, station *at, int64_t n, int64_t b, int64_t B)
{
    int64_t head = 0, cells = g->tokens * g->tokens;
    const float *maps = at->maps;
    for (int64_t a = 0; a < nn_description_attentions(g->d); a++) {
        int64_t H = nn_description_attention(g->d, a).heads;
        for (int64_t h = 0; h < H; h++, head++)
            at->broken |= !nn_evidence_add(&g->e, at->sums, n, head, maps + (b * H + h) * cells);
        maps += B * H * cells;
    }
}

static bool gather_slab(void *arg, nn_worker *w, int64_t n)
{
    const gathering *g = arg;
    station *at = &g->stations[w - g->workers->workers];
    int64_t images = nn_slab_examples(g->e.images, n), which[NN_SLAB], pixels = g->pixels->rows * g->pixels->columns;
    for (int64_t first = 0; first < images; first += g->step) {
        int64_t B = images - first < g->step ? images - first : g->step, from = n * NN_SLAB + first;
        for (int64_t b = 0; b < B; b++) which[b] = nn_importance_pick(from + b, g->e.images, g->examples->count);
        nn_slab_load(&w->slab, g->examples, which, 0, B, NULL);
        nn_maps_lay(at->views, at->maps, g->d, B, g->tokens, 0);
        nn_call call = {.maps = at->views};
        const float *logits = nn_model_forward(w->net, w->ctx, &w->slab.batch, &call);
        if (!logits) return false;
        at->overflown += nn_model_not_finite(logits, B, g->examples->classes);
        for (int64_t b = 0; b < B; b++) {
            add_image(g, at, from + b, b, B);
            nn_drawing_read(&at->drawing, g->pixels->images + which[b] * pixels);
            nn_evidence_draw(&g->e, from + b, &g->grid, &at->drawing);
        }
    }
    return true;
}

static bool make_stations(gathering *g)
{
    size_t sums = (size_t)(g->e.heads * g->e.patches * g->e.patches);
    int64_t numbers = nn_maps_lay(NULL, NULL, g->d, g->step, g->tokens, 0);
    if (!(g->stations = calloc((size_t)g->workers->count, sizeof *g->stations))) return false;
    for (int n = 0; n < g->workers->count; n++) {
        station *at = &g->stations[n];
        at->views = calloc((size_t)nn_description_attentions(g->d), sizeof *at->views);
        at->maps = calloc((size_t)numbers, sizeof *at->maps);
        at->sums = calloc(sums + 1, sizeof *at->sums); /* never 0 bytes */
        if (!at->views || !at->maps || !at->sums ||
            !nn_drawing_create(&at->drawing, g->pixels->rows, g->pixels->columns))
            return false;
    }
    return true;
}

static void free_stations(gathering *g)
{
    for (int n = 0; g->stations && n < g->workers->count; n++) {
        free(g->stations[n].views);
        free(g->stations[n].maps);
        free(g->stations[n].sums);
        nn_drawing_free(&g->stations[n].drawing);
    }
    free(g->stations);
}

/* Adds up what the workers have; false if a number was not finite. */
static bool merge(const gathering *g, char *error, size_t error_size)
{
    int64_t sums = g->e.heads * g->e.patches * g->e.patches, overflown = 0;
    bool broken = false;
    for (int n = 0; n < g->workers->count; n++) {
        for (int64_t i = 0; i < sums; i++) g->e.maps[i] += g->stations[n].sums[i];
        overflown += g->stations[n].overflown;
        broken |= g->stations[n].broken;
    }
    if (broken) snprintf(error, error_size, "the attention weights of a head are not finite");
    else if (overflown)
        snprintf(error, error_size, "%lld of %lld images: %s", (long long)overflown, (long long)g->e.images,
                 nn_model_overflow);
    return !broken && !overflown;
}

static bool gather(gathering *g, nn_workers *c, mha_context *ctx, int64_t images, char *error, size_t error_size)
{
    const nn_input_config *in = &nn_description_last(g->d)->input;
    g->workers = c;
    bool ok = nn_evidence_create(&g->e, images, nn_description_all_heads(g->d), &g->grid, in->class_token) &&
              make_stations(g);
    if (!ok) snprintf(error, error_size, "not enough memory for the maps of %lld images", (long long)images);
    if (ok && !(ok = nn_workers_each(c, ctx, nn_slabs(images), gather_slab, g)))
        snprintf(error, error_size, "%s", c->error);
    ok = ok && merge(g, error, error_size);
    free_stations(g);
    return ok;
}

static bool make_scores(nn_roles *r, const gathering *g)
{
    const nn_input_config *in = &nn_description_last(g->d)->input;
    *r = (nn_roles){.heads = nn_description_all_heads(g->d),
                    .blocks = nn_description_attentions(g->d),
                    .froms = in->class_token ? NN_FROMS : 1,
                    .grid = g->grid};
    r->block = calloc((size_t)r->heads, sizeof *r->block);
    r->scores = calloc((size_t)(r->heads * NN_FROMS), NN_ROLES * sizeof *r->scores);
    for (int64_t a = 0, n = 0; r->block && a < r->blocks; a++)
        for (int64_t h = 0; h < nn_description_attention(g->d, a).heads; h++) r->block[n++] = a;
    return r->block && r->scores;
}

bool nn_roles_make(nn_roles *r, mha_context *ctx, const nn_description *d, float *parameters, const nn_pixels *pixels,
                   const nn_roles_options *options, char *error, size_t error_size)
{
    const nn_input_config *in = &nn_description_last(d)->input;
    nn_roles_options o = options ? *options : NN_ROLES_DEFAULTS;
    nn_examples examples = nn_image_examples(pixels);
    gathering g = {.d = d, .pixels = pixels, .examples = &examples};
    int64_t images = o.images && o.images < pixels->count ? o.images : pixels->count;
    *r = (nn_roles){0};
    const char *problem = nn_description_is_pair(d) || in->kind != NN_INPUT_PATCHES
                              ? "roles are those of models that read patches of images"
                              : nn_examples_problem(&examples, d);
    if (problem) {
        snprintf(error, error_size, "%s", problem);
        return false;
    }
    g.grid = (nn_grid){in->rows / in->patch, in->columns / in->patch, in->patch};
    g.tokens = nn_input_tokens(in);
    g.step = g.tokens > LONG ? 1 : NN_SLAB;
    nn_workers *c = nn_workers_create(ctx, d, parameters, &examples, false, error, error_size);
    bool ok = c && gather(&g, c, ctx, images, error, error_size);
    nn_workers_free(c);
    if (ok && !(ok = make_scores(r, &g) && nn_roles_judge(r, ctx, &g.e, &o)))
        snprintf(error, error_size, "not enough memory for the roles of %lld heads", (long long)r->heads);
    nn_evidence_free(&g.e);
    if (!ok) nn_roles_free(r);
    return ok;
}

void nn_roles_free(nn_roles *r)
{
    free(r->block);
    free(r->scores);
    *r = (nn_roles){0};
}
