/* Removes the least important heads of a model.
 *
 *     nn_prune_options options = NN_PRUNE_DEFAULTS;
 *     options.keep = 16;
 *     if (!nn_prune_run(&model, ctx, &train, &options, watch, NULL, error, sizeof error)) puts(error);
 *
 * The head's rows of Q, K and V and its columns of the output projection are removed, not zeroed, so the model becomes
 * smaller and faster. Pruning takes several rounds. Each round
 *
 *     1  measures the importance of every head on a sample of training images (importance.h) in the current model:
 *        redundant heads become more important when one of them is removed;
 *     2  removes the least important heads, but never the last one of a block;
 *     3  fine-tunes the model for a few steps on training images;
 *     4  evaluates it on held-out images.
 *
 * After the last round the model is fine-tuned for longer, once. Bitwise identical for any number of threads.
 *
 * Importance is compared across blocks without normalizing it per block, as some do. For the demo's model, whose
 * held-out loss is 0.073, the loss without 4 and without 8 of its 24 heads is 0.080 and 0.094 (0.079 and 0.097 with a
 * larger sample); with normalization it is 0.084 and 0.097. Removing each head in turn and measuring the loss itself,
 * which takes ten times as long, gives 0.080 and 0.093: the first-order estimate is sufficient. */
#ifndef NN_INSPECT_PRUNE_H
#define NN_INSPECT_PRUNE_H

#include "train/trainer.h"
#include "families/vit_model.h"

/* The parameters and the description of the model without the heads n for which keep[n] is false, counted through all
 * blocks; each block must keep at least one. For groups of heads that share keys and values see mha_layer_prune. To be
 * freed; NULL on error, with one line in `error`. */
float *nn_prune_cut(nn_description *smaller, mha_context *ctx, const nn_description *d, const float *parameters,
                    const bool *keep, char *error, size_t error_size);

/* The same as a model that can run. Returns false on error, with one line in `error`; nothing needs to be freed then. */
bool nn_prune_cut_model(nn_vit_model *smaller, mha_context *ctx, const nn_vit_model *model, const bool *keep,
                        char *error, size_t error_size);

typedef struct nn_prune_options {
    int64_t keep; /* number of heads to keep, over all blocks; at least the number of blocks */
    double
        max_drop; /* allowed drop of held-out accuracy, 0.003 for 0.3 points: the round that exceeds it is undone and ends pruning */
    int64_t rounds;                /* 0 for one head per round */
    int64_t sample;                /* images for measuring importance */
    int64_t held_out;              /* images at the end of the training part, not used for training or importance */
    int64_t tune;                  /* training steps after each round; 0 for none */
    int64_t finish;                /* training steps after the last round; 0 for none */
    int64_t batch;                 /* images per step */
    double tune_rate, finish_rate; /* initial learning rates, decaying to 0 */
    bool bfloat16;                 /* type of the matrix products */
    uint64_t seed;
    void (*step)(void *arg, int64_t step,
                 int64_t steps); /* called after each training step, with `arg` of nn_prune_run; may be NULL */
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

/* A head, by its block and its index in that block before the first round, both from 0. */
typedef struct nn_prune_head {
    int64_t block, head;
} nn_prune_head;

typedef struct nn_prune_round {
    int64_t number;            /* from 1; 0 before the first one */
    int64_t heads;             /* remaining */
    const nn_prune_head *gone; /* (gone_count) removed in this round; none in the report of the final fine-tuning */
    int64_t gone_count;
    nn_trainer_score cut, tuned; /* on held-out images, before and after fine-tuning */
    bool taken_back;             /* the drop was too large, and the round was undone */
} nn_prune_round;

/* Replaces `model` by the pruned one. `watch`, unless NULL, is called after each round; if it returns false, pruning
 * stops with an error. Returns false on error, with one line in `error`; `model` is then the result of the rounds
 * completed so far. */
bool nn_prune_run(nn_vit_model *model, mha_context *ctx, const nn_examples *train, const nn_prune_options *options,
                  bool (*watch)(void *arg, const nn_prune_round *round), void *arg, char *error, size_t error_size);

/* Evaluates a model on `count` examples from `first` on. Returns false on error, with one line in `error`. */
bool nn_prune_score(nn_trainer_score *score, mha_context *ctx, const nn_vit_model *model, const nn_examples *examples,
                    int64_t first, int64_t count, bool bfloat16, char *error, size_t error_size);

#endif
