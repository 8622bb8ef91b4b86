/* Regular expressions of tokenizers, by PCRE2. They are written for Oniguruma, whose syntax differs in a few points; see
 * expression_syntax.c. In a build without PCRE2 none compiles. */
#ifndef NN_TEXT_EXPRESSION_H
#define NN_TEXT_EXPRESSION_H

#include "io/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A compiled expression is only read: several threads may use it, each with a matcher of its own. */
typedef struct nn_expression nn_expression;

/* On error *e is NULL and the reason in `error`. */
mha_status nn_expression_compile(nn_expression **e, const char *pattern, char *error, size_t error_size);
void nn_expression_free(nn_expression *e);

/* The version of Unicode whose classes expressions have, such as "14.0.0"; "" without PCRE2. */
enum { NN_EXPRESSION_UNICODE = 32 };
void nn_expression_unicode(char out[NN_EXPRESSION_UNICODE]);

/* What matching writes into. Zeroed, it is empty, and has no steps. */
typedef struct nn_matcher {
    void *data, *context, *stack;
    uint64_t steps; /* that searches may still take */
} nn_matcher;
void nn_matcher_free(nn_matcher *m);

/* Gives it the steps of a text: all searches in it share them, so that they take time linear in its size. */
static inline void nn_matcher_begin(nn_matcher *m, size_t size) { m->steps = 1000000 + (uint64_t)size * 200; }

/* The first match at or after `from` in valid UTF-8. Returns 1, 0 for none, or -1 if the matcher's steps or the memory are
 * exhausted. */
int nn_expression_find(const nn_expression *e, nn_matcher *m, const char *text, size_t size, size_t from, size_t *start,
                       size_t *end);

/* Appends the expression in the syntax of PCRE2. Returns NULL, or what is not supported. */
const char *nn_expression_translate(nn_buffer *out, const char *pattern);

#endif
