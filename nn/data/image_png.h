/* PNG for image.c, which has seen to everything else. */
#ifndef IMAGE_PNG_H
#define IMAGE_PNG_H

#include "data/image.h"

/* The pixels of a PNG; false with the reason in `why`, without the file's name. */
bool image_png_parse(image *out, const void *bytes, size_t size, char *why, size_t why_size);

/* Memory for the pixels of an image whose size a file has said; false if it is too large, or there is none. */
bool image_make(image *out, uint64_t rows, uint64_t columns, char *why, size_t why_size);

#endif
