#include "train/workers.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static bool create_worker(nn_worker *w, const nn_description *d, float *parameters, const nn_examples *e, bool training,
                          char *error, size_t error_size)
{
    mha_context_options one = MHA_CONTEXT_DEFAULTS;
    nn_model_options options = {
        .batch = NN_SLAB, .encoder_tokens = e->tokens, .decoder_tokens = e->tokens, .training = training};
    one.threads = 1;
    if (!nn_slab_create(&w->slab, e, NN_SLAB) || mha_context_create(&w->ctx, &one)) {
        snprintf(error, error_size, "not enough memory for a thread's model");
        return false;
    }
    w->net = nn_model_create(w->ctx, d, parameters, &options, error, error_size);
    return w->net != NULL;
}

nn_workers *nn_workers_create(mha_context *ctx, const nn_description *d, float *parameters, const nn_examples *e,
                              bool training, char *error, size_t error_size)
{
    if (nn_model_count(d, error, error_size) < 0) return NULL;
    const char *problem = nn_examples_problem(e, d);
    if (problem) {
        snprintf(error, error_size, "%s", problem);
        return NULL;
    }
    nn_workers *c = calloc(1, sizeof *c);
    int count = mha_context_threads(ctx);
    if (c) c->workers = calloc((size_t)count + 1, sizeof *c->workers);
    if (!c || !c->workers) {
        snprintf(error, error_size, "not enough memory for %d threads", count);
        nn_workers_free(c);
        return NULL;
    }
    for (c->count = 0; c->count < count; c->count++) {
        if (create_worker(&c->workers[c->count], d, parameters, e, training, error, error_size)) continue;
        c->count++; /* also free what this one has */
        nn_workers_free(c);
        return NULL;
    }
    return c;
}

void nn_workers_free(nn_workers *c)
{
    if (!c) return;
    for (int n = 0; n < c->count; n++) {
        nn_worker *w = &c->workers[n];
        nn_model_free(w->net);
        mha_context_free(w->ctx);
        nn_slab_free(&w->slab);
    }
    free(c->workers);
    free(c);
}

void nn_workers_changed(nn_workers *c)
{
    for (int n = 0; n < c->count; n++) nn_model_changed(c->workers[n].net);
}

/* ---- Slabs ------------------------------------------------------------------------------------------------------ */

typedef struct slab_queue {
    nn_workers *workers;
    bool (*task)(void *arg, nn_worker *w, int64_t n);
    void *arg;
    int64_t slabs;
    atomic_llong next;
    atomic_int failed; /* index of the failed worker, from 1 */
} slab_queue;

static void work(void *arg, int index)
{
    slab_queue *s = arg;
    nn_worker *w = &s->workers->workers[index];
    int64_t n;
    while (!atomic_load(&s->failed) && (n = atomic_fetch_add(&s->next, 1)) < s->slabs)
        if (!s->task(s->arg, w, n)) atomic_store(&s->failed, index + 1);
}

bool nn_workers_each(nn_workers *c, mha_context *ctx, int64_t slabs, bool (*task)(void *arg, nn_worker *w, int64_t n),
                     void *arg)
{
    slab_queue s = {.workers = c, .task = task, .arg = arg, .slabs = slabs};
    mha_context_run(ctx, c->count, work, &s);
    int failed = atomic_load(&s.failed);
    if (failed) snprintf(c->error, sizeof c->error, "%s", mha_context_error(c->workers[failed - 1].ctx));
    return !failed;
}
