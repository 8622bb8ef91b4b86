/* Labelled examples, as a model reads them: where training, evaluation and surveys get their batches from.
 *
 *     nn_examples e = nn_image_examples(&pixels, &d);          image_examples.h; another source has a function of its own
 *     nn_slab_load(&slab, &e, which, B, NULL);
 *     nn_model_forward(m, ctx, &slab.batch, NULL);
 */
#ifndef NN_TRAIN_EXAMPLES_H
#define NN_TRAIN_EXAMPLES_H

#include "program/model.h"

/* How an example is varied for training: its variation is drawn from the seed, the epoch and its index alone. */
typedef struct nn_variation {
    uint64_t seed;
    uint32_t epoch;
} nn_variation;

/* Examples that go through a model together. */
typedef struct nn_slab {
    nn_batch batch;
    int32_t *labels; /* (B,labels of an example): from 0 to below the classes, -1: none */
    float *images;   /* what the batch points to */
    int32_t *tokens;
} nn_slab;

typedef struct nn_examples nn_examples;
struct nn_examples {
    const void *self;
    int64_t count;
    int64_t pixels, tokens; /* room that an example takes: floats of images, tokens; 0: it has none */
    int64_t rows, columns;  /* of its image */
    int64_t labels;         /* that an example has: 1, or one per token */
    int64_t classes;

    /* Puts example i in place b of a slab; varied, unless `vary` is NULL. Any thread. */
    void (*load)(const nn_examples *e, nn_slab *slab, int64_t b, int64_t i, const nn_variation *vary);
};

/* What keeps a model from reading such examples, in a few words; NULL if nothing does. */
const char *nn_examples_problem(const nn_examples *e, const nn_description *d);

/* Room for `most` examples of one kind; false if there is not enough memory. Freeing a zeroed one is legal. */
bool nn_slab_create(nn_slab *slab, const nn_examples *e, int64_t most);
void nn_slab_free(nn_slab *slab);

/* Examples which[0] to which[B-1]; or, with `which` NULL, B of them from `first` on. */
void nn_slab_load(nn_slab *slab, const nn_examples *e, const int64_t *which, int64_t first, int64_t B,
                  const nn_variation *vary);

#endif
