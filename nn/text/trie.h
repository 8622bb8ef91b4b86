/* A trie over bytes: all pieces that begin at a place of a text, shortest first.
 *
 *     nn_trie_walk walk = nn_trie_begin(text, size);
 *     while (nn_trie_next(&trie, &walk)) use(walk.value, walk.length);
 */
#ifndef NN_TEXT_TRIE_H
#define NN_TEXT_TRIE_H

#include <mha.h>

typedef struct nn_trie_key {
    const char *bytes;
    size_t length;
    int32_t value; /* not negative */
} nn_trie_key;

typedef struct nn_trie_node {
    uint32_t first; /* child; the children of a node follow each other, by byte */
    uint16_t count; /* of children */
    uint8_t byte;   /* that leads to this node */
    int32_t value;  /* of the key that ends here; -1: none */
} nn_trie_node;

typedef struct nn_trie {
    nn_trie_node *nodes; /* the root is the first; NULL: no keys */
    size_t count, room;
    uint32_t start[256]; /* children of the root; 0: none */
} nn_trie;

/* Builds the trie; the keys are sorted. Of equal keys the last one counts, and empty ones are left out. Returns
 * MHA_OK, MHA_NO_MEMORY or MHA_TOO_LARGE. */
mha_status nn_trie_build(nn_trie *trie, nn_trie_key *keys, size_t count);
void nn_trie_free(nn_trie *trie);

typedef struct nn_trie_walk {
    const char *text;
    size_t size;
    size_t length; /* bytes read; after a match, its length */
    uint32_t node;
    int32_t value;
} nn_trie_walk;

static inline nn_trie_walk nn_trie_begin(const char *text, size_t size) { return (nn_trie_walk){text, size, 0, 0, -1}; }

/* Goes on to the next longer key that the text begins with. */
bool nn_trie_next(const nn_trie *trie, nn_trie_walk *walk);

/* The longest key that the text begins with: its length, 0 for none. */
size_t nn_trie_longest(const nn_trie *trie, const char *text, size_t size, int32_t *value);

#endif
