/* The PNG part of image.c. */
#ifndef NN_IO_IMAGE_PNG_H
#define NN_IO_IMAGE_PNG_H

#include "io/failure.h"
#include "io/image.h"

/* Decodes a PNG to 1 or 3 channels. */
mha_status nn_image_png_parse(nn_image *out, int channels, const void *bytes, size_t size, const nn_failure *to);

/* Allocates the pixels of an image of the size that a file declares. */
mha_status nn_image_make(nn_image *out, uint64_t rows, uint64_t columns, int channels, const nn_failure *to);

#endif
