/* The tokenizer behind the public header. */
#ifndef NN_PUBLIC_TOKENIZER_H
#define NN_PUBLIC_TOKENIZER_H

#include "text/tokenizer.h"
#include <mha_text.h>

struct mha_tokenizer {
    nn_tokenizer *own;
};

enum { NN_PUBLIC_LONGEST_TEXT = 1 << 30 }; /* bytes */

/* Whether a text can be encoded: it is UTF-8 and not too long. `name` is that of the argument. */
mha_status nn_public_text(mha_context *ctx, const char *name, const char *text, size_t length);

#endif
