/* The importance of each head of a Vision Transformer for its loss.
 *
 *     importance of head h = mean over images of  | sum over tokens of  O_h . dO_h |
 *
 * where O_h is the output of the head and dO_h the gradient of the image's cross-entropy with respect to it: to first
 * order, the change of the loss of an image without the head. The absolute value is taken per image, not of the mean: a
 * head that helps one image and harms another is important for both. */
#ifndef NN_INSPECT_IMPORTANCE_H
#define NN_INSPECT_IMPORTANCE_H

#include "data/mnist.h"
#include "model/vit_file.h"

/* The index of image i of an evenly spaced sample of `count` images out of `images`. */
static inline int64_t nn_importance_pick(int64_t i, int64_t count, int64_t images)
{
    return (int64_t)((double)images / (double)count * (double)i);
}

/* importance: a number for each head, all heads of the first block, then all of the second, and so on; over `count`
 * images of a part, from 1 to all of them, whose size and classes are the model's. The same bits for any number of
 * threads. Returns false on error, with one line in `error`, of `error_size` bytes. */
bool nn_importance_measure(double *importance, mha_context *ctx, const nn_vit_config *config, float *parameters,
                           nn_vit_input input, const nn_mnist_part *part, int64_t count, char *error,
                           size_t error_size);

#endif
