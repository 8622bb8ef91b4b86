/* The curves of a training run as an SVG: loss and accuracy, in training and on held-out images. */
#ifndef CURVES_H
#define CURVES_H

#include "train/checkpoint.h"

typedef struct train_curves {
    const nn_trainer *t;
    const nn_checkpoint_epoch *parts; /* of the run, in order: epochs, or shorter parts */
    int64_t count;                    /* of the parts so far, 1 or more */
    double each;                      /* epochs in a part */
    const nn_trainer_score *test;     /* NULL: the run is not over */
    bool synthetic;                   /* the images were drawn by a program */
} train_curves;

/* Replaces the file atomically. False on error, with one line in `error`, which has room for `error_size` bytes. */
bool curves_write(const char *path, const train_curves *c, char *error, size_t error_size);

#endif
