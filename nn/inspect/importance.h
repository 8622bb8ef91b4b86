/* What each head of a Vision Transformer is worth to its loss.
 *
 *     importance of head h = mean over images of  | sum over tokens of  O_h . dO_h |
 *
 * where O_h is what the head gives and dO_h the gradient by it of that image's own cross-entropy: to first order, how
 * much the loss of an image would change if the head were left out. The bars stand around each image's sum, not around
 * the mean: a head that helps one image and harms another is worth something to both. */
#ifndef NN_INSPECT_IMPORTANCE_H
#define NN_INSPECT_IMPORTANCE_H

#include "data/mnist.h"
#include "model/vit_file.h"

/* Which image of a part of `images` is number i of a sample of `count`: they are spread evenly over the part. */
static inline int64_t nn_importance_pick(int64_t i, int64_t count, int64_t images)
{
    return (int64_t)((double)images / (double)count * (double)i);
}

/* importance: a number for each head, all heads of the first block, then all of the second, and so on; over `count`
 * images of a part, from 1 to all of them, whose size and classes are the model's. The same bits for any number of
 * threads. False on error, with one line in `error`, which has room for `error_size` bytes. */
bool nn_importance_measure(double *importance, mha_context *ctx, const nn_vit_config *config, float *parameters,
                           nn_vit_input input, const nn_mnist_part *part, int64_t count, char *error,
                           size_t error_size);

#endif
