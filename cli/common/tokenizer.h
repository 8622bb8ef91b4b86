/* The tokenizer of a model. */
#ifndef TOKENIZER_H
#define TOKENIZER_H

#include "cli/common/options.h"

#include <mha_text.h>

#define TOKENIZER_ROW(type, field) \
    "--tokenizer", "PATH", "tokenizer", CLI_NAME(type, field), .otherwise = "the one beside the model"

/* Opens the tokenizer at `given`, or, if that is NULL, the one of a model: in its folder, or beside its file, X.safetensors and
 * X.tokenizer.json. `target`: of two vocabularies, that of the target. Returns false on error, with the reason in the
 * context. */
bool tokenizer_open(mha_tokenizer **tokenizer, mha_context *ctx, const char *model, const char *given, bool target);

#endif
