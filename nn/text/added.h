/* Tokens that are found in the text before it is split: added and special tokens. */
#ifndef NN_TEXT_ADDED_H
#define NN_TEXT_ADDED_H

#include "text/flow.h"
#include "text/trie.h"
#include "text/vocabulary.h"

typedef struct nn_added_token {
    char *content, *shown; /* shown: as it is decoded and, if normalized, searched for */
    size_t content_size, shown_size;
    int32_t id;
    bool single_word;    /* only if no word character is next to it */
    bool lstrip, rstrip; /* with the white space beside it */
    bool normalized;     /* is searched for in the normalized text */
    bool special;
} nn_added_token;

typedef struct nn_added {
    nn_added_token *tokens;
    size_t count, room;
    nn_trie raw, normalized; /* values: numbers of tokens */
    nn_vocabulary special;   /* contents of special tokens */
    nn_vocabulary contents;  /* ids of all of them */
    int32_t *by_id;          /* (id_count) numbers of tokens; -1: none */
    size_t id_count;
} nn_added;

/* Adds a token, whose `shown` is a copy of its content. NULL without memory. */
nn_added_token *nn_added_add(nn_added *a, const char *content, size_t size, int32_t id);

/* After the last token: what is needed to find them. Returns MHA_OK, MHA_NO_MEMORY or MHA_TOO_LARGE. */
mha_status nn_added_prepare(nn_added *a);
void nn_added_free(nn_added *a);

/* The token with that id; NULL for none. */
const nn_added_token *nn_added_of(const nn_added *a, int64_t id);

/* Cuts the parts of the flow at the tokens of one of the tries. With `literal`, special tokens are text. */
void nn_added_cut(const nn_added *a, nn_flow *f, bool normalized, bool literal);

#endif
