/* Data sets of commands: the files in a folder, or synthetic digits. */
#ifndef DATA_H
#define DATA_H

#include "data/mnist.h"
#include "model/model.h"

/* Whether the argument of --data is "synthetic" or "synthetic:N" instead of a folder. */
bool data_is_synthetic(const char *place);

/* The default of --data: the cache folder that './dev data mnist' fills, if it exists, otherwise "synthetic". The
 * fallback is reported on standard error, with the reason, unless `command` is NULL. */
const char *data_default(const char *command);

/* Opens the data set in a folder, or draws synthetic digits (digits.h, seed 1): N for training, 6000 by default, and a
 * sixth as many for testing. A NULL `place` means data_default(command). With `test_alone` only one training image is
 * drawn. Prints an error and returns NULL on failure. Free the result with nn_mnist_free. */
nn_mnist *data_open(const char *command, const char *place, bool test_alone);

/* Whether the images and classes of the set fit the model; prints an error if not. */
bool data_fits(const nn_mnist *set, const nn_description *config, const char *path);

#endif
