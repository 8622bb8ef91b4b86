/* The page of a model, also for other commands. */
#ifndef VIEW_H
#define VIEW_H

#include "cli/common/input_images.h"
#include "io/safetensors.h"

enum { VIEW_EACH = 2 }; /* images of each digit, by default */

/* Writes the page of a model and images atomically, and its size to *bytes; with statistics of the heads if the images'
 * data set is open. Prints an error and returns false on failure. */
bool view_model_write(const char *page, size_t *bytes, mha_context *ctx, mha_model *model, const input_images *images);

#endif
