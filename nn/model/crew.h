/* A crew: a Vision Transformer in the hands of several threads. Each worker has a context of one thread and a model of
 * its own over the crew's parameters, and takes one slab of images after another, from the pixels to whatever is wanted
 * of them: what lies between the layers of a slab stays in the core's cache, and nobody waits for anybody before the
 * batch is through. How a batch is cut does not depend on the number of threads, so neither do the bits. */
#ifndef CREW_H
#define CREW_H

#include "model/vit.h"

enum { CREW_SLAB = 8 }; /* images */

typedef struct crew_worker {
    mha_context *ctx;
    vit *net;
    float *images; /* (CREW_SLAB,rows,columns) */
    nn_workspace workspace;
} crew_worker;

typedef struct crew {
    int count;
    crew_worker *workers;
    char error[240]; /* of the last call that failed */
} crew;

/* As many workers as the context has threads, over the caller's parameters. NULL on error, with one line in `error`. */
crew *crew_create(mha_context *ctx, const vit_config *config, float *parameters, bool training, char *error,
                  size_t error_size);
void crew_free(crew *c); /* NULL is legal */

/* Parameters have changed since the last call. */
void crew_changed(crew *c);

static inline int64_t crew_slabs(int64_t images) { return (images + CREW_SLAB - 1) / CREW_SLAB; }

/* How many images slab n has. */
static inline int64_t crew_slab_images(int64_t images, int64_t n)
{
    int64_t left = images - n * CREW_SLAB;
    return left < CREW_SLAB ? left : CREW_SLAB;
}

/* Calls task(arg, worker, n) for each slab n, by whichever worker is free; `ctx` is that of crew_create. A task returns
 * false if its worker's context has a reason to stop; then so does this, with the reason in c->error, and tasks that
 * had not begun are left out. */
bool crew_each(crew *c, mha_context *ctx, int64_t slabs, bool (*task)(void *arg, crew_worker *w, int64_t n), void *arg);

#endif
