/* The nodes are made level by level from the sorted keys, so that children lie next to each other. */
#include "text/trie.h"
#include "io/failure.h"
#include "text/vocabulary.h"

#include <stdlib.h>
#include <string.h>

static int by_bytes(const void *a, const void *b)
{
    const nn_trie_key *x = a, *y = b;
    size_t least = x->length < y->length ? x->length : y->length;
    int order = least ? memcmp(x->bytes, y->bytes, least) : 0;
    if (order) return order;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

typedef struct range {
    uint32_t node;
    size_t from, to; /* keys that pass through the node */
} range;

typedef struct ranges {
    range *at;
    size_t count, room;
} ranges;

/* Makes the children of one node at a depth, and the ranges of the next level. */
static mha_status expand(nn_trie *t, const nn_trie_key *keys, range r, size_t depth, ranges *next)
{
    while (r.from < r.to && keys[r.from].length == depth) t->nodes[r.node].value = keys[r.from++].value;
    if (t->count > UINT32_MAX - 256) return MHA_TOO_LARGE;
    t->nodes[r.node].first = (uint32_t)t->count;
    while (r.from < r.to) {
        unsigned char byte = (unsigned char)keys[r.from].bytes[depth];
        size_t to = r.from;
        while (to < r.to && (unsigned char)keys[to].bytes[depth] == byte) to++;
        TRY(nn_grow(&t->nodes, &t->room, t->count + 1, sizeof *t->nodes));
        TRY(nn_grow(&next->at, &next->room, next->count + 1, sizeof *next->at));
        next->at[next->count++] = (range){(uint32_t)t->count, r.from, to};
        t->nodes[t->count++] = (nn_trie_node){0, 0, byte, -1};
        t->nodes[r.node].count++;
        r.from = to;
    }
    return MHA_OK;
}

mha_status nn_trie_build(nn_trie *t, nn_trie_key *keys, size_t count)
{
    ranges level = {0}, next = {0};
    mha_status status = MHA_NO_MEMORY;
    *t = (nn_trie){0};
    if (!count) return MHA_OK;
    qsort(keys, count, sizeof *keys, by_bytes);
    size_t skip = 0;
    while (skip < count && !keys[skip].length) skip++;
    if (nn_grow(&t->nodes, &t->room, 1, sizeof *t->nodes) || nn_grow(&level.at, &level.room, 1, sizeof *level.at))
        goto out;
    t->nodes[t->count++] = (nn_trie_node){0, 0, 0, -1};
    level.at[level.count++] = (range){0, skip, count};
    for (size_t depth = 0; level.count; depth++) {
        next.count = 0;
        for (size_t i = 0; i < level.count; i++)
            if ((status = expand(t, keys, level.at[i], depth, &next))) goto out;
        ranges swap = level;
        level = next;
        next = swap;
    }
    for (uint32_t i = 0; i < t->nodes[0].count; i++)
        t->start[t->nodes[t->nodes[0].first + i].byte] = t->nodes[0].first + i;
    status = MHA_OK;
out:
    free(level.at);
    free(next.at);
    if (status) nn_trie_free(t);
    return status;
}

void nn_trie_free(nn_trie *t)
{
    free(t->nodes);
    *t = (nn_trie){0};
}

/* The child for a byte; 0 for none, as no child is the root. */
static uint32_t child(const nn_trie *t, uint32_t node, unsigned char byte)
{
    if (!node) return t->start[byte];
    const nn_trie_node *n = &t->nodes[node];
    uint32_t from = n->first, to = n->first + n->count;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (t->nodes[middle].byte < byte) from = middle + 1;
        else to = middle;
    }
    return from < n->first + n->count && t->nodes[from].byte == byte ? from : 0;
}

bool nn_trie_next(const nn_trie *t, nn_trie_walk *w)
{
    while (w->length < w->size) {
        uint32_t next = child(t, w->node, (unsigned char)w->text[w->length]);
        if (!next) return false;
        w->node = next;
        w->length++;
        w->value = t->nodes[next].value;
        if (w->value >= 0) return true;
    }
    return false;
}

size_t nn_trie_longest(const nn_trie *t, const char *text, size_t size, int32_t *value)
{
    size_t longest = 0;
    for (nn_trie_walk w = nn_trie_begin(text, size); nn_trie_next(t, &w);) {
        longest = w.length;
        *value = w.value;
    }
    return longest;
}
