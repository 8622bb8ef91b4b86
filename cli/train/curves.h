/* The curves of a run as an SVG: loss and accuracy over the epochs, in training and on what was held out. */
#ifndef CURVES_H
#define CURVES_H

#include "cli/train/train.h"

/* The look of such a picture, as SVG: paper, ink, and lines of the classes train and held. */
extern const char curves_style[];

/* Of the epochs that are over, to s->curves, whole or not at all; `test` NULL: the run is not over. False on error,
 * with one line in `error`, which has room for `error_size` bytes. */
bool curves_write(const train_session *s, const nn_trainer_score *test, char *error, size_t error_size);

#endif
