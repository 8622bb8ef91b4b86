/* The images that a model is to see: those of a folder, or, for whoever has none, digits that a program draws. */
#ifndef DATA_H
#define DATA_H

#include "data/mnist.h"
#include "model/vit.h"

/* Whether a place is no folder but asks for drawn digits: "synthetic", or "synthetic:N". */
bool data_is_synthetic(const char *place);

/* Where to look if nobody says: the folder in the cache that './dev data mnist' fills, if it is there, else "synthetic".
 * The latter is told on standard error, and why, as `command`; NULL: not again. */
const char *data_default(const char *command);

/* The set of a folder; or N digits of digits.h, seed 1, for training and a sixth as many to test; or 6000 and 1000, if N
 * is not given. NULL stands for data_default(command). With `test_alone` there is but one image for training. NULL, having said why as
 * `command`. Free it with nn_mnist_free. */
nn_mnist *data_open(const char *command, const char *place, bool test_alone);

/* Whether the model of that file can be asked about the set; if not, says so. */
bool data_fits(const nn_mnist *set, const nn_vit_config *config, const char *path);

#endif
