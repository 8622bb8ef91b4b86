/* How words become tokens. A model reads the vocabulary of its tokenizer and appends the tokens of a range of the flow's
 * text; it may fail the flow. */
#ifndef NN_TEXT_WORD_MODEL_H
#define NN_TEXT_WORD_MODEL_H

#include "text/flow.h"
#include "text/trie.h"
#include "text/vocabulary.h"

typedef struct nn_merge {
    uint64_t pair;  /* ids of left and right */
    uint32_t order; /* the smallest is merged first */
    int32_t id;     /* of the result; -1: an empty slot */
} nn_merge;

/* Merges as a hash table, and the results by order. */
typedef struct nn_merges {
    nn_merge *slots;
    size_t slot_count, count;
    nn_hash_key key;  /* of their hash, if it is drawn */
    int32_t *results; /* (result_room) */
    size_t result_room;
} nn_merges;

mha_status nn_merges_add(nn_merges *m, int32_t left, int32_t right, uint32_t order, int32_t id);
const nn_merge *nn_merges_find(const nn_merges *m, int32_t left, int32_t right);
void nn_merges_free(nn_merges *m);

typedef struct nn_word_model nn_word_model;
typedef void nn_word_tokens(const nn_word_model *m, nn_flow *f, size_t start, size_t end);

enum { NN_QUICK_CODES = 0x400, NN_NEIGHBORS = 1 << 16 };

struct nn_word_model {
    const char *kind; /* "BPE", ... */
    nn_word_tokens *tokenize;
    bool cached; /* words are looked up in the cache first */
    nn_vocabulary vocabulary;
    int32_t unknown;      /* id; -1: none */
    bool unknown_missing; /* the file names an unknown token that is not in the vocabulary */
    bool fuse_unknown, byte_fallback;
    int32_t bytes[256]; /* ids of <0x00> to <0xFF>; -1: none */
    bool all_bytes;     /* every byte has one */

    nn_merges merges; /* BPE */
    bool ignore_merges;
    char *prefix, *suffix; /* of pieces inside a word, and at its end; NULL: none. WordPiece has a prefix, too */
    int32_t quick[NN_QUICK_CODES]; /* ids of single characters; only without prefix and suffix */

    /* BPE: bits of pairs of characters that are next to each other in some piece; more pairs may share a bit. */
    uint8_t neighbors[NN_NEIGHBORS / 8];

    uint32_t *orders; /* BPE by scores: the order of each piece, by id; UINT32_MAX: it is never merged */
    bool known_only;  /* characters without a piece are not merged */
    bool single; /* Unigram: sums are rounded to float, and tokens are those of the path, as SentencePiece has it */

    double *scores; /* Unigram, and BPE by scores; by id */
    double least_score, largest_score, unknown_score;
    bool *always;    /* Unigram: pieces that win over all others; NULL: none */
    nn_trie trie;    /* pieces; WordPiece: at the beginning of a word; BPE by scores: those that are found first */
    nn_trie inner;   /* WordPiece: behind it, without the prefix */
    int64_t longest; /* WordPiece: characters of a word; longer ones are unknown */
};

/* Fills in what follows from the vocabulary and the settings. Returns MHA_OK, MHA_NO_MEMORY or MHA_TOO_LARGE. */
mha_status nn_word_model_prepare(nn_word_model *m);
void nn_word_model_free(nn_word_model *m);

/* The tokens of a word, by way of the cache. */
void nn_word_model_run(const nn_word_model *m, nn_flow *f, size_t start, size_t end);

nn_word_tokens nn_bpe_words, nn_unigram_words, nn_wordpiece_words, nn_wordlevel_words, nn_scored_words;

/* Cuts a long word where no merge reaches across, and runs the parts by way of the cache. */
void nn_word_model_cut(const nn_word_model *m, nn_flow *f, size_t start, size_t end, nn_word_tokens *whole);

/* The queue of candidates (queue.c): first all are added that are there at the beginning, then it is made ready; then
 * candidates are popped and others pushed. A pop is false if there is none, or after an error. */
void nn_queue_clear(nn_flow *f);
mha_status nn_queue_add(nn_flow *f, nn_candidate c);
void nn_queue_ready(nn_flow *f);
mha_status nn_queue_push(nn_flow *f, nn_candidate c);
bool nn_queue_pop(nn_flow *f, nn_candidate *top);

enum { NN_FROZEN = -2 };        /* the id of a symbol that is not merged */
#define NN_NO_SYMBOL UINT32_MAX /* of `previous` and `next` */

/* Appends a symbol of a word. */
mha_status nn_bpe_symbol(nn_flow *f, int32_t id, size_t start, size_t length);

#endif
