/* The PNG part of image.c. */
#ifndef NN_IO_IMAGE_PNG_H
#define NN_IO_IMAGE_PNG_H

#include "io/image.h"

/* Decodes a PNG to 1 or 3 channels. Returns false on error, with the reason in `why`, without the file name. */
bool nn_image_png_parse(nn_image *out, int channels, const void *bytes, size_t size, char *why, size_t why_size);

/* Allocates the pixels of an image of the size that a file declares. Returns false if it is too large or out of
 * memory. */
bool nn_image_make(nn_image *out, uint64_t rows, uint64_t columns, int channels, char *why, size_t why_size);

#endif
