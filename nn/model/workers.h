/* Workers: a Vision Transformer in the hands of several threads. Each worker has a context of one thread and a model of
 * its own over the workers' parameters, and takes one slab of images after another, from the pixels to whatever is
 * wanted of them: what lies between the layers of a slab stays in the core's cache, and nobody waits for anybody before
 * the batch is through. How a batch is cut does not depend on the number of threads, so neither do the bits. */
#ifndef NN_MODEL_CREW_H
#define NN_MODEL_CREW_H

#include "model/vit.h"

enum { NN_SLAB = 8 }; /* images */

typedef struct nn_worker {
    mha_context *ctx;
    nn_vit *net;
    float *images; /* (NN_SLAB,rows,columns) */
    nn_workspace workspace;
} nn_worker;

typedef struct nn_workers {
    int count;
    nn_worker *workers;
    char error[240]; /* of the last call that failed */
} nn_workers;

/* As many workers as the context has threads, over the caller's parameters. Returns NULL on error, with one line in
 * `error`. */
nn_workers *nn_workers_create(mha_context *ctx, const nn_vit_config *config, float *parameters, bool training,
                              char *error, size_t error_size);
void nn_workers_free(nn_workers *c); /* NULL is legal */

/* Parameters have changed since the last call. */
void nn_workers_changed(nn_workers *c);

static inline int64_t nn_slabs(int64_t images) { return (images + NN_SLAB - 1) / NN_SLAB; }

/* How many images slab n has. */
static inline int64_t nn_slab_images(int64_t images, int64_t n)
{
    int64_t left = images - n * NN_SLAB;
    return left < NN_SLAB ? left : NN_SLAB;
}

/* Calls task(arg, worker, n) for each slab n, by whichever worker is free; `ctx` is that of nn_workers_create. A task
 * returns false if its worker's context has a reason to stop; then so does this, with the reason in c->error, and tasks
 * that had not begun are left out. */
bool nn_workers_each(nn_workers *c, mha_context *ctx, int64_t slabs, bool (*task)(void *arg, nn_worker *w, int64_t n),
                     void *arg);

#endif
