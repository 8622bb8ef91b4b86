/* The importance of each head of a model for its loss.
 *
 *     importance of head h = mean over examples of  | sum over tokens of  O_h . dO_h |
 *
 * where O_h is the output of the head and dO_h the gradient of the image's cross-entropy with respect to it: to first
 * order, the change of the loss of an image without the head. The absolute value is taken per image, not of the mean: a
 * head that helps one image and harms another is important for both. */
#ifndef NN_INSPECT_IMPORTANCE_H
#define NN_INSPECT_IMPORTANCE_H

#include "train/examples.h"

/* The index of image i of an evenly spaced sample of `count` images out of `images`. */
static inline int64_t nn_importance_pick(int64_t i, int64_t count, int64_t images)
{
    return (int64_t)((double)images / (double)count * (double)i);
}

/* importance: one number per head, in the order of nn_description_attention, over `count` evenly spaced examples (from
 * 1 to all). Bitwise identical for any number of threads. Returns false on error, with one line in `error`, of
 * `error_size` bytes. */
bool nn_importance_measure(double *importance, mha_context *ctx, const nn_description *d, float *parameters,
                           const nn_examples *examples, int64_t count, char *error, size_t error_size);

#endif
