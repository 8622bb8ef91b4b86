/* How often the largest weight of a word falls on a word that it is related to.
 *
 * Weights between words are means over the tokens of the query's word of the sums over the tokens of the key's word. For a
 * link, the candidates are all other words, of a causal model those before the query's word; a link counts in a direction if
 * its target is a candidate. */
#ifndef NN_INSPECT_TEXT_RELATIONS_H
#define NN_INSPECT_TEXT_RELATIONS_H

#include "inspect/text/pass.h"

/* Words are those of a sequence, from 0. */
typedef struct nn_link {
    int64_t sequence, from, to, relation;
} nn_link;

typedef struct nn_relations {
    int64_t relations, heads;
    int64_t *links;       /* (relations,2): that count, from -> to and to -> from */
    int64_t *hits;        /* (relations,2,heads) */
    int64_t *offset;      /* (relations,2): the most frequent distance of target and query, in words, */
    int64_t *offset_hits; /* and how many links have it */
} nn_relations;

typedef struct nn_relation_text {
    const nn_text_sequence *sequences;
    const int32_t *const *words; /* of each token of the only stack: its word, or -1 */
    int64_t count;
    const nn_link *links; /* in the order of their sequences */
    int64_t link_count, relations;
} nn_relation_text;

/* `net` must have one stack and room for the longest sequences. Returns false on error, with one line in `error`; nothing
 * needs to be freed then. */
bool nn_relations_make(nn_relations *r, mha_context *ctx, nn_model *net, const nn_relation_text *text, char *error,
                       size_t error_size);
void nn_relations_free(nn_relations *r); /* a zeroed one is legal */

#endif
