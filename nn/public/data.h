/* What public data are made of; for the files of this folder. */
#ifndef NN_PUBLIC_DATA_H
#define NN_PUBLIC_DATA_H

#include "data/mnist.h"
#include <mha_model.h>

struct mha_data {
    nn_mnist *set;
    char about[400];
};

/* A part of the data; NULL if `part` is neither. */
const nn_mnist_part *nn_public_part(const mha_data *data, mha_data_part part);

/* The part that a model is to read; *from is NULL on error: the data do not fit the model (mha_data_check), or there is no
 * such part. */
mha_status nn_public_read(mha_context *ctx, const nn_mnist_part **from, const mha_data *data, mha_data_part part,
                          const mha_model *model);

#endif
