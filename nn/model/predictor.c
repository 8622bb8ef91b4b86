/* Workers that only looks. */
#include "model/predictor.h"
#include "data/augment.h"
#include "model/workers.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct nn_predictor {
    nn_vit_config config;
    nn_augment_options input;
    nn_workers *workers;
};

nn_predictor *nn_predictor_create(mha_context *ctx, const nn_vit_config *config, float *parameters, nn_vit_input input,
                                  bool bfloat16, char *error, size_t error_size)
{
    nn_predictor *p = calloc(1, sizeof *p);
    if (!p) {
        snprintf(error, error_size, "not enough memory");
        return NULL;
    }
    p->config = *config;
    p->config.body.bfloat16 = bfloat16;
    p->input = (nn_augment_options){.mean = input.mean, .deviation = input.deviation};
    p->workers = nn_workers_create(ctx, &p->config, parameters, false, error, error_size);
    if (p->workers) return p;
    nn_predictor_free(p);
    return NULL;
}

void nn_predictor_free(nn_predictor *p)
{
    if (!p) return;
    nn_workers_free(p->workers);
    free(p);
}

void nn_predictor_changed(nn_predictor *p) { nn_workers_changed(p->workers); }
const char *nn_predictor_error(const nn_predictor *p) { return p->workers->error; }

typedef struct reading {
    const nn_predictor *p;
    const unsigned char *images;
    float *logits;
    int64_t count;
} reading;

static bool read_slab(void *arg, nn_worker *w, int64_t n)
{
    const reading *r = arg;
    const nn_vit_config *c = &r->p->config;
    int64_t B = nn_slab_images(r->count, n), pixels = c->rows * c->columns, first = n * NN_SLAB;
    nn_augment_plain(w->images, r->images + first * pixels, B * pixels, &r->p->input);
    const float *logits = nn_vit_forward(w->net, w->ctx, w->images, B, NULL);
    if (logits) memcpy(r->logits + first * c->classes, logits, (size_t)(B * c->classes) * sizeof(float));
    return logits != NULL;
}

bool nn_predictor_run(nn_predictor *p, mha_context *ctx, float *logits, const unsigned char *images, int64_t count)
{
    reading r = {p, images, logits, count};
    if (!nn_workers_each(p->workers, ctx, nn_slabs(count), read_slab, &r)) return false;
    int64_t bad = nn_vit_not_finite(logits, count, p->config.classes);
    if (bad && count == 1) snprintf(p->workers->error, sizeof p->workers->error, "%s", nn_vit_overflow);
    else if (bad)
        snprintf(p->workers->error, sizeof p->workers->error, "%lld of %lld images: %s", (long long)bad,
                 (long long)count, nn_vit_overflow);
    return !bad;
}
