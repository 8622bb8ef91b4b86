/* Heads that a Vision Transformer can do without, taken out of it.
 *
 *     nn_prune_options options = NN_PRUNE_DEFAULTS;
 *     options.keep = 16;
 *     if (!nn_prune_run(&model, ctx, set, &options, watch, NULL, error, sizeof error)) puts(error);
 *
 * What is taken out leaves no zeros behind: the head's rows of Q, K and V and its columns of the projection are gone,
 * and the model is smaller and faster by that. It goes in rounds. In each,
 *
 *     1  every head is weighed by what it is worth to the loss of a sample of training images (importance.h), as the
 *        model is now: heads that stood in for each other are worth more once one of them is gone;
 *     2  the heads that are worth least go, but never the last one of a block;
 *     3  the rest learns for a moment, on training images, to do without them;
 *     4  images that were held out say what that has cost.
 *
 * When the last round is over, what is left learns for longer, once. The same bits for any number of threads.
 *
 * Heads are compared across blocks by what they are worth, without bringing the worths of each block to one norm, as
 * some do. Of the demo's model, whose loss on held-out images is 0.073, the loss without 4 and without 8 of its 24
 * heads is 0.080 and 0.094 so (0.079 and 0.097 by a larger sample), 0.084 and 0.097 by the norm. Leaving out each head
 * in turn and looking at the loss itself, which takes ten times as long, comes to 0.080 and 0.093: the first order is
 * enough. */
#ifndef NN_INSPECT_PRUNE_H
#define NN_INSPECT_PRUNE_H

#include "train/trainer.h"
#include "model/vit_model.h"

/* The model that is left when only the heads n stay for which keep[n] is true, counted through all blocks: at least one
 * a block. What a group of heads that shares keys and values becomes, mha_layer_prune says. False on error, with one
 * line in `error`; there is nothing to free then. */
bool nn_prune_cut(nn_vit_model *smaller, mha_context *ctx, const nn_vit_model *model, const bool *keep, char *error,
                  size_t error_size);

typedef struct nn_prune_options {
    int64_t keep;     /* so many heads stay, in all blocks together; no fewer than there are blocks */
    double max_drop;  /* what accuracy on held-out images may lose, 0.003 for 0.3 points: the round that goes beyond is
                         taken back, and the last */
    int64_t rounds;   /* 0: a head a round */
    int64_t sample;   /* images that heads are weighed by */
    int64_t held_out; /* images at the end of the training part, never trained on nor weighed by */
    int64_t tune;     /* steps of training after each round; 0: none */
    int64_t finish;   /* steps after the last one; 0: none */
    int64_t batch;    /* images a step */
    double tune_rate, finish_rate; /* of learning, at first; it falls to nothing */
    bool bfloat16;                 /* products in that type */
    uint64_t seed;
    void (*step)(void *arg, int64_t step, int64_t steps); /* after each step of learning, with the watcher's arg; or
                                                             NULL */
} nn_prune_options;

#define NN_PRUNE_DEFAULTS                     \
    ((nn_prune_options){.keep = 1,            \
                        .max_drop = INFINITY, \
                        .sample = 1000,       \
                        .held_out = 5000,     \
                        .tune = 50,           \
                        .finish = 0,          \
                        .batch = 64,          \
                        .tune_rate = 1e-4,    \
                        .finish_rate = 1e-3,  \
                        .seed = 1})

/* A head by its block and its number there in the model as it was before the first round, both from 0. */
typedef struct nn_prune_head {
    int64_t block, head;
} nn_prune_head;

typedef struct nn_prune_round {
    int64_t number; /* from 1; 0: before the first one */
    int64_t heads;  /* that are left */
    const nn_prune_head
        *gone; /* (gone_count) in this round; none of them: what is left has learnt for longer, at last */
    int64_t gone_count;
    nn_trainer_score cut, tuned; /* held-out images, when the heads were gone, and when the rest had learnt */
    bool taken_back;             /* it cost too much: the model is as before the round */
} nn_prune_round;

/* `model` becomes the smaller one; the test part of the set is not touched. `watch` gets each round when it is over,
 * and stops it all, which is an error, by returning false; or NULL. On error, with one line in `error`, the model is as
 * far as it got. */
bool nn_prune_run(nn_vit_model *model, mha_context *ctx, const nn_mnist *set, const nn_prune_options *options,
                  bool (*watch)(void *arg, const nn_prune_round *round), void *arg, char *error, size_t error_size);

/* How a model does on `count` images of a part from `first` on. False on error, with one line in `error`. */
bool nn_prune_score(nn_trainer_score *score, mha_context *ctx, const nn_vit_model *model, const nn_mnist *set,
                    const nn_mnist_part *part, int64_t first, int64_t count, bool bfloat16, char *error,
                    size_t error_size);

#endif
