/* The page that trains a model. */
#ifndef VIEW_TRAIN_H
#define VIEW_TRAIN_H

#include <mha_model.h>

/* Writes a page with the first digits of a data set (folder as in data_open), on which it trains a Vision Transformer;
 * what it has is described in `about`. Prints an error and returns false on failure. */
bool view_train_write(const char *page, mha_context *ctx, const char *folder, size_t *bytes, char *about, size_t room);

#endif
