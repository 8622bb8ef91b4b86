/* What `mha tokenize` is asked for, and its parts. */
#ifndef TOKENIZE_H
#define TOKENIZE_H

#include <mha_text.h>

typedef struct tokenize_request {
    const char *tokenizer, *text, *pair; /* NULL if not given */
    const char *file, *decode, *train, *out;
    int64_t vocab;
    bool json, no_special, literal, target, cased;
} tokenize_request;

/* Prints tokens: a table within 80 columns, or one JSON object. False without memory. */
void tokenize_print(const mha_encoding *tokens, size_t bytes);
bool tokenize_print_json(const tokenize_request *r, const mha_tokenizer_info *about, const mha_encoding *tokens);

/* Prints a decoded text, escaped on a terminal. */
bool tokenize_print_text(const tokenize_request *r, const char *text, size_t length);

#endif
