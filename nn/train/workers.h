/* Workers: a model run by several threads. Each worker has a context of one thread and a model of its own over shared
 * parameters, and takes one slab of examples after another, from their bytes to the result: what lies between the layers
 * of a slab stays in the core's cache, and threads wait for each other at the end of the batch alone. How a batch is cut
 * into slabs does not depend on the number of threads, so neither do the bits. */
#ifndef NN_TRAIN_WORKERS_H
#define NN_TRAIN_WORKERS_H

#include "train/examples.h"

enum { NN_SLAB = 8 }; /* examples */

typedef struct nn_worker {
    mha_context *ctx;
    nn_model *net;
    nn_slab slab;
} nn_worker;

typedef struct nn_workers {
    int count;
    nn_worker *workers;
    char error[240]; /* of the last call that failed */
} nn_workers;

/* As many workers as the context has threads, over the caller's parameters, for examples such as `e`. Returns NULL on
 * error, with one line in `error`. */
nn_workers *nn_workers_create(mha_context *ctx, const nn_description *d, float *parameters, const nn_examples *e,
                              bool training, char *error, size_t error_size);
void nn_workers_free(nn_workers *c); /* NULL is legal */

/* Parameters have changed since the last call. */
void nn_workers_changed(nn_workers *c);

static inline int64_t nn_slabs(int64_t examples) { return (examples + NN_SLAB - 1) / NN_SLAB; }

/* How many examples slab n has. */
static inline int64_t nn_slab_examples(int64_t examples, int64_t n)
{
    int64_t left = examples - n * NN_SLAB;
    return left < NN_SLAB ? left : NN_SLAB;
}

/* Calls task(arg, worker, n) for each slab n, by whichever worker is free; `ctx` is that of nn_workers_create. A task
 * returns false if its worker's context has a reason to stop; then so does this, with the reason in c->error, and tasks
 * that had not begun are left out. */
bool nn_workers_each(nn_workers *c, mha_context *ctx, int64_t slabs, bool (*task)(void *arg, nn_worker *w, int64_t n),
                     void *arg);

#endif
