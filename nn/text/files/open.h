/* Which file of which format a path names. */
#ifndef NN_TEXT_FILES_OPEN_H
#define NN_TEXT_FILES_OPEN_H

#include "text/tokenizer.h"

typedef struct nn_open_options {
    bool target, cased; /* as in mha_text.h */
} nn_open_options;

/* Opens a tokenizer from a file or folder. On error *tokenizer is NULL, and `error` gets one line. */
mha_status nn_tokenizer_open(nn_tokenizer **tokenizer, const char *path, nn_open_options options, char *error,
                             size_t error_size);

/* The same from the bytes of a file; `name` is its path, for messages and for the choice of the format. */
mha_status nn_tokenizer_read(nn_tokenizer **tokenizer, const char *name, const char *bytes, size_t size,
                             nn_open_options options, char *error, size_t error_size);

#endif
