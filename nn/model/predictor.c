/* A crew that only looks. */
#include "model/predictor.h"
#include "data/augment.h"
#include "model/crew.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct predictor {
    vit_config config;
    augment_options input;
    crew *crew;
};

predictor *predictor_create(mha_context *ctx, const vit_config *config, float *parameters, vit_input input,
                            bool bfloat16, char *error, size_t error_size)
{
    predictor *p = calloc(1, sizeof *p);
    if (!p) {
        snprintf(error, error_size, "not enough memory");
        return NULL;
    }
    p->config = *config;
    p->config.body.bfloat16 = bfloat16;
    p->input = (augment_options){.mean = input.mean, .deviation = input.deviation};
    p->crew = crew_create(ctx, &p->config, parameters, false, error, error_size);
    if (p->crew) return p;
    predictor_free(p);
    return NULL;
}

void predictor_free(predictor *p)
{
    if (!p) return;
    crew_free(p->crew);
    free(p);
}

void predictor_changed(predictor *p) { crew_changed(p->crew); }
const char *predictor_error(const predictor *p) { return p->crew->error; }

typedef struct reading {
    const predictor *p;
    const unsigned char *images;
    float *logits;
    int64_t count;
} reading;

static bool read_slab(void *arg, crew_worker *w, int64_t n)
{
    const reading *r = arg;
    const vit_config *c = &r->p->config;
    int64_t B = crew_slab_images(r->count, n), pixels = c->rows * c->columns, first = n * CREW_SLAB;
    augment_plain(w->images, r->images + first * pixels, B * pixels, &r->p->input);
    const float *logits = vit_forward(w->net, w->ctx, w->images, B, NULL);
    if (logits) memcpy(r->logits + first * c->classes, logits, (size_t)(B * c->classes) * sizeof(float));
    return logits != NULL;
}

bool predictor_run(predictor *p, mha_context *ctx, float *logits, const unsigned char *images, int64_t count)
{
    reading r = {p, images, logits, count};
    if (!crew_each(p->crew, ctx, crew_slabs(count), read_slab, &r)) return false;
    int64_t bad = vit_not_finite(logits, count, p->config.classes);
    if (bad && count == 1) snprintf(p->crew->error, sizeof p->crew->error, "%s", vit_overflow);
    else if (bad)
        snprintf(p->crew->error, sizeof p->crew->error, "%lld of %lld images: %s", (long long)bad, (long long)count,
                 vit_overflow);
    return !bad;
}
