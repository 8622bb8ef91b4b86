/* What a public training is made of; for the files of this folder. */
#ifndef NN_PUBLIC_TRAINING_H
#define NN_PUBLIC_TRAINING_H

#include "train/image_examples.h"
#include "public/recipe.h"
#include "train/checkpoint.h"

struct mha_training {
    mha_context *ctx;
    mha_recipe *recipe; /* fitted to the data */
    nn_image_set images;
    nn_trainer *t;
    nn_checkpoint_run run; /* without notes and lock */
    bool tested;           /* `test` is the score of the current weights */
    nn_trainer_score test;
};

/* Checks that both were given, and that the training was made with this context. */
mha_status nn_public_training(mha_context *ctx, const mha_training *training);

/* A training of this fitted recipe over data, at its first step. `from`, unless NULL, is the checkpoint that it will
 * continue: its data must be the same. */
mha_status nn_public_train(mha_context *ctx, mha_training **training, const nn_recipe *how, const char *preset,
                           const mha_data *data, const nn_checkpoint *from);

/* Seconds of a monotonic clock. */
double nn_public_clock(void);

/* Adds the seconds since `begun` to the time that the epoch spent on other things than steps. */
void nn_public_spent(mha_training *training, double begun);

#endif
