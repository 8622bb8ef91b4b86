/* What commands for language models share: texts from arguments and files, ids, the tokenizer of a model,
 * probabilities, strings in JSON.
 *
 * Functions that return bool print an error and return false on failure. */
#ifndef LANGUAGE_H
#define LANGUAGE_H

#include "cli/common/options.h"
#include "io/buffer.h"

#include <mha_text.h>

/* A list of texts, each with a NUL behind it. A zeroed one is empty. */
typedef struct language_texts {
    char **all; /* (count); NULL while empty */
    int64_t count;
} language_texts;

bool language_add(language_texts *t, const char *text, size_t length);
void language_free(language_texts *t);

/* Adds one text for each line of a file ('-': standard input) that is not empty. `what` is the noun for one of them in
 * messages. A file without any, or with a NUL byte, is an error. */
bool language_add_lines(language_texts *t, const char *path, const char *what);

/* "standard input" for "-", else the path. */
const char *language_name(const char *path);

/* Reads a whole file, or standard input for "-". */
bool language_read(nn_buffer *out, const char *path);

/* Appends the ids in the value of an option, separated by spaces or commas, to `ids`, which has room for half the length of
 * the value plus one. There must be at least one. */
bool language_ids(const cli_given *given, int32_t *ids, int64_t *count);

/* Opens the tokenizer of a model, or the one that is given, with the defaults (tokenizer.h). */
bool language_tokenizer(mha_context *ctx, mha_tokenizer **tokenizer, const char *model, const char *given);

/* Whether a tokenizer can be that of a model with so many tokens. Models pad their vocabularies, and tokens are added to
 * tokenizers, so that up to a 32nd more or fewer are taken as the same. More are an error, and so are fewer, unless they are
 * up to 1024 fewer, which may be padding all the same: a note on standard error, if not `quiet`. */
bool language_fits(mha_context *ctx, const mha_tokenizer *tokenizer, int64_t vocabulary, bool quiet);

/* The mask token; of a file that does not give the roles of tokens, a special token with one of the usual names; -1 if there is
 * none. */
int32_t language_mask(mha_context *ctx, const mha_tokenizer *tokenizer);

/* log of the sum of exp(logit), over finite logits. */
double language_log_sum(const float *logits, int64_t count);

/* Appends a JSON string. Characters that printable.h escapes are escaped; bytes that are not UTF-8 become '?'. */
void language_quote(nn_buffer *out, const char *text, size_t length);

/* Text for standard output: escaped on a terminal, but for line feeds and tabs. False if it could not be written. */
bool language_show(const char *text, size_t length);

/* The word for each mha_finish. */
extern const char *const language_finishes[];

/* Writes the buffer to standard output and frees it. */
bool language_put(nn_buffer *out);

#endif
