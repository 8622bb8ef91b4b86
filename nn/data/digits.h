/* Digits that a program draws: the data set for whoever has none, and for tests, which must not need a network.
 *
 *     nn_mnist *set = nn_digits_make(6000, 1000, 1, error, sizeof error);
 *
 * They look like handwriting from afar: a few strokes a digit, bent, slanted, turned, moved and thickened at random, of
 * MNIST's size and grey values. They are synthetic and far easier than MNIST; the set says so (`synthetic`, and its
 * name), and whoever prints an accuracy on it should, too. Image i of a part depends on the seed, the part and i alone,
 * and is the same on every machine: the first 100 images of a set of 60000 are a set of 100. */
#ifndef NN_DATA_DIGITS_H
#define NN_DATA_DIGITS_H

#include "data/mnist.h"

enum { NN_DIGITS_SIDE = 28, NN_DIGITS_TRAIN = 0, NN_DIGITS_TEST = 1 };

/* A set of so many images, whose labels run 0, 1, ... 9, 0, ... Free it with nn_mnist_free. NULL on error (a count below 1,
 * out of memory), with its one line in `error`, which has room for `error_size` bytes. */
nn_mnist *nn_digits_make(int64_t train, int64_t test, uint64_t seed, char *error, size_t error_size);

/* Draws image `index` of a part (NN_DIGITS_TRAIN or NN_DIGITS_TEST): the digit from 0 to 9, in whatever hand the place
 * gives. */
void nn_digits_draw(unsigned char out[NN_DIGITS_SIDE * NN_DIGITS_SIDE], int digit, uint64_t seed, int part,
                    uint64_t index);

#endif
