/* Progress of a run on standard error: a table with one line per epoch and, on a terminal, a status line below it that
 * is redrawn during an epoch. */
#ifndef TRAIN_PROGRESS_H
#define TRAIN_PROGRESS_H

#include "cli/train/train.h"

typedef struct train_progress {
    mha_training_info info; /* before the first step of this process */
    bool live;              /* standard error is a terminal that can redraw a line */
    bool utf8;
    bool drawn;         /* the status line is on the screen */
    double begun, last; /* seconds: first step of this process; last redraw */
    const char *label;  /* at the beginning of the status line; NULL for none */
} train_progress;

/* Call before the first step of this process. */
train_progress train_progress_begin(const mha_training_info *info, const char *label);

/* Prints the model and the data. */
void train_progress_say(const train_session *s);

/* After a step of epoch n (from 0): redraws the status line, at most five times per second. */
void train_progress_step(train_progress *p, int64_t n, const mha_epoch_info *e);

/* After epoch n: prints its line of the table. */
void train_progress_epoch(train_progress *p, int64_t n, const mha_epoch_info *e);

/* Clears the status line before other output. */
void train_progress_clear(train_progress *p);

#endif
