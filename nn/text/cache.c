#include "text/cache.h"
#include "text/vocabulary.h"

#include <stdlib.h>
#include <string.h>

nn_cached *nn_cache_place(nn_cache *cache, const char *word, size_t length, uint32_t *hash)
{
    if (length > NN_CACHE_KEY || !length) return NULL;
    if (!cache->words && !(cache->words = calloc(NN_CACHE_WORDS, sizeof *cache->words))) return NULL;
    *hash = nn_hash(word, length);
    return &cache->words[*hash % NN_CACHE_WORDS];
}

bool nn_cache_holds(const nn_cached *place, const char *word, size_t length, uint32_t hash)
{
    return place->hash == hash && place->length == length && memcmp(place->word, word, length) == 0;
}

void nn_cache_free(nn_cache *cache)
{
    free(cache->words);
    cache->words = NULL;
}
