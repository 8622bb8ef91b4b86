/* The curves of a training run as an SVG: loss and accuracy, in training and on held-out images. */
#ifndef CURVES_H
#define CURVES_H

#include <mha_model.h>

typedef struct train_curves {
    const mha_training_info *info;
    const mha_recipe *recipe;
    const mha_epoch_info *parts; /* parts of the run, in order: epochs, or shorter ones */
    int64_t count;               /* number of parts so far, at least 1 */
    double each;                 /* epochs per part */
    const mha_score *test;       /* NULL before the end of the run */
    bool synthetic;              /* the images are synthetic */
} train_curves;

/* Replaces the file atomically. Returns false on error, with one line in `error`, of `error_size` bytes. */
bool curves_write(const char *path, const train_curves *c, char *error, size_t error_size);

#endif
