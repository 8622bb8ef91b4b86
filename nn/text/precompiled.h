/* SentencePiece's normalization rules: a table that maps sequences of characters to texts. The file format is 4 bytes,
 * the size of a double-array trie of 32-bit units, the trie, and the texts, each with a NUL behind it. All of it is checked
 * when it is read, or while it is walked: a damaged table gives other texts, never an access outside of it, nor a text or a
 * prefix that is not UTF-8. */
#ifndef NN_TEXT_PRECOMPILED_H
#define NN_TEXT_PRECOMPILED_H

#include <mha.h>

typedef struct nn_precompiled {
    uint32_t *units;
    size_t unit_count;
    char *texts; /* ends with a NUL */
    size_t texts_size;
} nn_precompiled;

/* Reads a table; `bytes` need not stay. On error *table is NULL and the reason in `why`. */
mha_status nn_precompiled_read(nn_precompiled **table, const void *bytes, size_t size, const char **why);

/* The same from base64, as tokenizer.json holds it. */
mha_status nn_precompiled_base64(nn_precompiled **table, const char *text, size_t size, const char **why);
void nn_precompiled_free(nn_precompiled *p);

/* What the text as a whole, or its longest prefix in the table, becomes; NULL if it is not in the table. `length` gets
 * the number of bytes of the prefix. The first call takes the shortest prefix instead, as `tokenizers` does. */
const char *nn_precompiled_shortest(const nn_precompiled *p, const char *text, size_t size);
const char *nn_precompiled_longest(const nn_precompiled *p, const char *text, size_t size, size_t *length);

#endif
