#include "train/predictor.h"
#include "train/workers.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct nn_predictor {
    int64_t classes, tokens; /* tokens: of an example */
    nn_workers *workers;
};

nn_predictor *nn_predictor_create(mha_context *ctx, const nn_description *d, float *parameters, const nn_examples *e,
                                  char *error, size_t error_size)
{
    nn_predictor *p = calloc(1, sizeof *p);
    if (!p) {
        snprintf(error, error_size, "not enough memory");
        return NULL;
    }
    p->classes = d->output.classes * e->labels;
    p->tokens = e->tokens;
    p->workers = nn_workers_create(ctx, d, parameters, e, false, error, error_size);
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

const char *nn_predictor_error(const nn_predictor *p) { return p->workers->error; }

typedef struct reading {
    const nn_predictor *p;
    const nn_examples *examples;
    float *logits;
    int64_t first, count;
} reading;

static bool read_slab(void *arg, nn_worker *w, int64_t n)
{
    const reading *r = arg;
    int64_t B = nn_slab_examples(r->count, n), classes = r->p->classes, at = n * NN_SLAB;
    nn_slab_load(&w->slab, r->examples, NULL, r->first + at, B, NULL);
    const float *logits = nn_model_forward(w->net, w->ctx, &w->slab.batch, NULL);
    if (logits) memcpy(r->logits + at * classes, logits, (size_t)(B * classes) * sizeof(float));
    return logits != NULL;
}

bool nn_predictor_run(nn_predictor *p, mha_context *ctx, float *logits, const nn_examples *e, int64_t first,
                      int64_t count)
{
    reading r = {p, e, logits, first, count};
    if (first < 0 || count < 0 || first > e->count - count || e->tokens != p->tokens) {
        snprintf(p->workers->error, sizeof p->workers->error, "these are not the examples of this predictor");
        return false;
    }
    if (!nn_workers_each(p->workers, ctx, nn_slabs(count), read_slab, &r)) return false;
    int64_t bad = nn_model_not_finite(logits, count, p->classes);
    if (bad && count == 1) snprintf(p->workers->error, sizeof p->workers->error, "%s", nn_model_overflow);
    else if (bad)
        snprintf(p->workers->error, sizeof p->workers->error, "%lld of %lld images: %s", (long long)bad,
                 (long long)count, nn_model_overflow);
    return !bad;
}
