/* The tokens of words that were seen before. The number of words is fixed: a new one replaces the one in its place. */
#ifndef NN_TEXT_CACHE_H
#define NN_TEXT_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NN_CACHE_KEY = 47, NN_CACHE_TOKENS = 12, NN_CACHE_WORDS = 1 << 15 };

typedef struct nn_cached {
    uint32_t hash;
    uint8_t length, count; /* of the word in bytes; of its tokens */
    char word[NN_CACHE_KEY];
    uint8_t unknown[NN_CACHE_TOKENS]; /* the token stands for a part of the word that has no piece */
    uint8_t lengths[NN_CACHE_TOKENS];
    int32_t ids[NN_CACHE_TOKENS];
} nn_cached;

typedef struct nn_cache {
    nn_cached *words; /* NULL before the first one */
} nn_cache;

/* The place of a word, which may hold another one; NULL for a word that is too long, or without memory. */
nn_cached *nn_cache_place(nn_cache *cache, const char *word, size_t length, uint32_t *hash);

/* Whether the place holds that word. */
bool nn_cache_holds(const nn_cached *place, const char *word, size_t length, uint32_t hash);

void nn_cache_free(nn_cache *cache);

#endif
