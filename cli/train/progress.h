/* Where a run is, on standard error: a table with a line for each epoch and, on a terminal, a line below it that is drawn
 * again and again while an epoch is under way. */
#ifndef TRAIN_PROGRESS_H
#define TRAIN_PROGRESS_H

#include "cli/train/train.h"

typedef struct train_progress {
    const nn_trainer *t;
    bool live; /* standard error is a terminal that can draw a line again */
    bool utf8;
    bool drawn;         /* there is such a line now */
    double begun, last; /* seconds of the clock: of this process's first step; of the last drawing */
    int64_t first;      /* step of this process */
} train_progress;

/* Seconds of a clock that only goes forward. */
double train_clock(void);

/* Before the first step of this process. */
train_progress train_progress_begin(const nn_trainer *t);

/* Says what is going to be trained, and on what. */
void train_progress_say(const train_session *s);

/* After a step of epoch n (from 0): draws the line, but not more often than the eye reads. */
void train_progress_step(train_progress *p, int64_t n, const nn_checkpoint_epoch *e);

/* Epoch n is over: its line of the table. */
void train_progress_epoch(train_progress *p, int64_t n, const nn_checkpoint_epoch *e);

/* Wipes the drawn line, before anything else is said. */
void train_progress_clear(train_progress *p);

#endif
