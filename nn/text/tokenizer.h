/* A tokenizer: added tokens, normalizer, pre-tokenizer, model, post-processor, decoder. It is only read after it was made:
 * several threads may use it at a time. The working memory of a call comes from a list of idle ones, which a mutex
 * protects, so that the cache of words stays warm. */
#ifndef NN_TEXT_TOKENIZER_H
#define NN_TEXT_TOKENIZER_H

#include "text/added.h"
#include "text/decode.h"
#include "text/word_model.h"
#include "text/steps.h"

#include <pthread.h>

/* One item of a template: the first or the second text, or a token. */
typedef struct nn_template_item {
    int text; /* 0 or 1; -1: the token */
    int32_t id, type;
    char *piece; /* as the file shows the token */
} nn_template_item;

typedef struct nn_template {
    nn_template_item *items;
    size_t count, room;
} nn_template;

nn_template_item *nn_template_add(nn_template *t, int text, int32_t type);

typedef enum nn_special { NN_BOS, NN_EOS, NN_UNK, NN_PAD, NN_MASK, NN_CLS, NN_SEP, NN_SPECIALS } nn_special;

typedef struct nn_tokenizer {
    const char *format; /* of the file, for people */
    char *file;         /* its path; NULL if it was not read from one */
    nn_added added;
    nn_steps normalizer, splitter;
    nn_word_model model;
    nn_template single, pair;
    bool trim, trim_prefixed; /* the spaces at the sides of byte-level tokens do not count as their place in the text */
    nn_decoders decoders;
    nn_trie kept;                 /* SentencePiece: pieces that normalization leaves alone */
    nn_vocabulary names;          /* if the file gives the model's tokens other ids: its pieces and ids, */
    int32_t *renamed;             /* and the id of each of the model's; NULL: they are the same */
    int32_t special[NN_SPECIALS]; /* ids; -1: the file does not say */
    pthread_mutex_t lock;
    nn_flow *idle;
} nn_tokenizer;

nn_tokenizer *nn_tokenizer_make(void); /* empty; NULL without memory */
void nn_tokenizer_free(nn_tokenizer *t);

/* After all parts were filled in. Returns MHA_OK, MHA_NO_MEMORY or the error of the normalizer. */
mha_status nn_tokenizer_prepare(nn_tokenizer *t);

/* How a text is encoded. */
enum {
    NN_ENCODE_LITERAL = 1, /* special tokens that are spelled out are text */
    NN_ENCODE_TRACK = 2,   /* nn_tokenizer_range is wanted */
    NN_ENCODE_LOWER = 4    /* text is changed to lower case first, unless the normalizer does so */
};

/* One text, without the tokens of the template: the flow's tokens. The reason of an error is in f->error. */
mha_status nn_tokenizer_encode(const nn_tokenizer *t, nn_flow *f, const char *text, size_t size, int how);

/* Working memory, and back. NULL without memory. */
nn_flow *nn_tokenizer_borrow(nn_tokenizer *t);
void nn_tokenizer_return(nn_tokenizer *t, nn_flow *f);

/* The range of the caller's text that a token stands for. */
void nn_tokenizer_range(const nn_tokenizer *t, const nn_flow *f, size_t token, size_t *start, size_t *end);

/* The piece of an id, added tokens included; NULL for none. And the id of a piece; -1 for none. */
const char *nn_tokenizer_piece(const nn_tokenizer *t, int64_t id, size_t *size);
int32_t nn_tokenizer_id(const nn_tokenizer *t, const char *piece, size_t size);

/* The number of ids, from 0 on, some of which may be unused. */
int64_t nn_tokenizer_size(const nn_tokenizer *t);

bool nn_tokenizer_is_special(const nn_tokenizer *t, int64_t id);

/* Decodes ids; the text is d->in. Ids without a piece are left out. The reason of an error is in
 * d->error. */
mha_status nn_tokenizer_decode(const nn_tokenizer *t, nn_decoding *d, const int32_t *ids, size_t count,
                               bool skip_special);

#endif
