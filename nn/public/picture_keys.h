/* How the library of a checkpoint prepares pictures: preprocessor_config.json of `transformers`, or pretrained_cfg in timm's
 * config.json. */
#ifndef NN_PUBLIC_PICTURE_KEYS_H
#define NN_PUBLIC_PICTURE_KEYS_H

#include "data/picture.h"
#include "families/config.h"
#include "io/failure.h"

/* False, with one line, for what is not supported. */
bool nn_picture_read_transformers(nn_picture_config *to, const nn_config *c, const nn_failure *failure);
bool nn_picture_read_timm(nn_picture_config *to, const nn_config *c, int64_t rows, int64_t columns,
                          const nn_failure *failure);

#endif
