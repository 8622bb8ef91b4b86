/* Synthetic digits: the data set for tests, which must not need a network, and the fallback for MNIST.
 *
 *     nn_mnist *set = nn_digits_make(6000, 1000, 1, error, sizeof error);
 *
 * Each digit is a few random strokes, distorted, rotated, shifted and of varying thickness, with MNIST's size and grey
 * values. They are far easier than MNIST, so every reported accuracy should mention that the set is `synthetic`. Image
 * i of a part depends only on the seed, the part and i, and is the same on every machine: the first 100 images of a set
 * of 60000 are a set of 100. */
#ifndef NN_DATA_DIGITS_H
#define NN_DATA_DIGITS_H

#include "data/mnist.h"

enum { NN_DIGITS_SIDE = 28, NN_DIGITS_TRAIN = 0, NN_DIGITS_TEST = 1 };

/* A set of `train` and `test` images with labels 0, 1, ... 9, 0, ... Free it with nn_mnist_free. Returns NULL on error
 * (a count below 1, out of memory), with one line in `error`, of `error_size` bytes. */
nn_mnist *nn_digits_make(int64_t train, int64_t test, uint64_t seed, char *error, size_t error_size);

/* Draws image `index` of a part (NN_DIGITS_TRAIN or NN_DIGITS_TEST): the digit from 0 to 9, in a style given by the
 * seed, the part and the index. */
void nn_digits_draw(unsigned char out[NN_DIGITS_SIDE * NN_DIGITS_SIDE], int digit, uint64_t seed, int part,
                    uint64_t index);

#endif
