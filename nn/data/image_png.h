/* PNG for image.c, which has seen to everything else. */
#ifndef NN_DATA_IMAGE_PNG_H
#define NN_DATA_IMAGE_PNG_H

#include "data/image.h"

/* The pixels of a PNG; false with the reason in `why`, without the file's name. */
bool nn_image_png_parse(nn_image *out, const void *bytes, size_t size, char *why, size_t why_size);

/* Memory for the pixels of an image whose size a file has said; false if it is too large, or there is none. */
bool nn_image_make(nn_image *out, uint64_t rows, uint64_t columns, char *why, size_t why_size);

#endif
