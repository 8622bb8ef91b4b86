/* Training: examples in random order per epoch, augmented; one AdamW step on the cross-entropy of each batch.
 *
 *     nn_trainer *t = nn_trainer_create(ctx, &d, &train, &test, &options, error, sizeof error);
 *     while (nn_trainer_step(t, ctx, &report) == NN_TRAINER_WENT_ON) ...
 *     nn_trainer_evaluate(t, ctx, NN_TRAINER_HELD_OUT, &score);
 *     nn_trainer_free(t);
 *
 * A batch is processed in slabs (workers.h), each with its own block of gradients; the blocks are added in order.
 * Random numbers depend only on the seed and the position of their use, so a run gives the same bits for any number of
 * threads, and a resumed run the same as an uninterrupted one. The state is the parameters, the optimizer's blocks
 * (optimizer.h) and the number of steps. */
#ifndef NN_TRAIN_TRAINER_H
#define NN_TRAIN_TRAINER_H

#include "train/workers.h"
#include "train/optimizer.h"
#include "train/schedule.h"

typedef struct nn_trainer_options {
    int64_t epochs, batch;
    int64_t steps; /* maximum number of steps; 0: no limit */
    nn_schedule_kind schedule;
    double rate, floor; /* learning rate at its peak and at the end */
    double warmup;      /* warm-up, as a share of all steps */
    double decay;       /* weight decay of matrices */
    double beta2;       /* of AdamW */
    double clip;        /* maximum gradient norm */
    double average;     /* weight averaging (EMA); 0 for none */
    float smoothing;    /* label smoothing */
    int64_t held_out;   /* examples at the end of the training part that are not used for training */
    uint64_t seed;
} nn_trainer_options;

#define NN_TRAINER_DEFAULTS                               \
    ((nn_trainer_options){.epochs = 10,                   \
                          .batch = 128,                   \
                          .schedule = NN_SCHEDULE_COSINE, \
                          .rate = 2.5e-3,                 \
                          .floor = 1e-5,                  \
                          .warmup = 0.1,                  \
                          .decay = 0.2,                   \
                          .beta2 = 0.99,                  \
                          .clip = 1,                      \
                          .average = 0.999,               \
                          .smoothing = 0.05f,             \
                          .held_out = 5000,               \
                          .seed = 1})

typedef struct nn_trainer {
    nn_workers *workers;
    nn_model *net; /* the first worker's */
    nn_optimizer *adam;
    nn_schedule plan;
    nn_trainer_options options;
    const nn_examples *train, *test;
    float *parameters, *gradients;
    float *slab_gradients; /* (slabs,count) */
    mha_loss *slab_losses; /* (slabs) */
    float *dlogits;        /* (workers,dlogits_room) */
    int64_t dlogits_room;
    int64_t count;           /* of the parameters */
    int64_t examples;        /* used for training */
    int64_t steps_per_epoch; /* full batches only */
    int64_t step;            /* taken so far */
    int64_t *order;          /* (examples) of the epoch */
    int64_t order_epoch;     /* -1: not drawn yet */
} nn_trainer;

/* `train`, `test` and `ctx` must outlive the trainer. Returns NULL on error, with one line in `error`. */
nn_trainer *nn_trainer_create(mha_context *ctx, const nn_description *d, const nn_examples *train,
                              const nn_examples *test, const nn_trainer_options *options, char *error,
                              size_t error_size);
void nn_trainer_free(nn_trainer *t); /* NULL is legal */

/* Replaces the initial parameters; call it before the first step. */
void nn_trainer_begin(nn_trainer *t, const float *parameters);

typedef struct nn_trainer_report {
    int64_t epoch, step; /* of the batch, counted from 0 */
    double loss, norm;   /* of the batch, and of its gradient */
    double rate;
    int64_t correct;
} nn_trainer_report;

typedef enum nn_trainer_result {
    NN_TRAINER_WENT_ON,
    NN_TRAINER_DONE,     /* all steps were already taken; nothing was done */
    NN_TRAINER_DIVERGED, /* the loss or the gradient is not finite; parameters are unchanged */
    NN_TRAINER_FAILED    /* workers->error says why */
} nn_trainer_result;

nn_trainer_result nn_trainer_step(nn_trainer *t, mha_context *ctx, nn_trainer_report *report);

typedef enum nn_trainer_part {
    NN_TRAINER_HELD_OUT,
    NN_TRAINER_TEST,
    NN_TRAINER_SEEN /* the first examples that are trained on: as many as are held out, or as the test part has */
} nn_trainer_part;

typedef struct nn_trainer_score {
    int64_t count, correct; /* labels, and those that were predicted */
    double loss;            /* mean cross-entropy, without smoothing */
} nn_trainer_score;

/* Evaluates the averaged weights, or the weights themselves without averaging. Returns false on error
 * (workers->error). */
bool nn_trainer_evaluate(nn_trainer *t, mha_context *ctx, nn_trainer_part part, nn_trainer_score *score);

#endif
