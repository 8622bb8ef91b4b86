/* The working state of one encoding: the text, which steps change, the parts into which it is split, and the tokens. Every
 * byte of the text knows the bytes of the caller's text that it stands for, if that is tracked.
 *
 * Steps come in two kinds. An edit writes the next text, part by part; a cut divides parts and leaves the text. Both skip
 * parts that are an added token already. Parts that become empty are dropped. */
#ifndef NN_TEXT_FLOW_H
#define NN_TEXT_FLOW_H

#include "text/cache.h"
#include "text/expression.h"

#include <stdint.h>

typedef struct nn_text {
    char *bytes;
    uint32_t *from, *to; /* of each byte: the range of the caller's text; unused unless the flow tracks */
    size_t size, room, from_room, to_room;
} nn_text;

typedef struct nn_part {
    size_t start, end; /* of the text */
    int32_t token;     /* the id of an added token; -1: text */
} nn_part;

typedef struct nn_token {
    size_t start, end; /* of the text */
    int32_t id;
    bool surface; /* it is shown as the text, not as the piece of its id */
} nn_token;

/* Memory of the models. */
typedef struct nn_symbol {
    uint32_t start, length; /* bytes of the word; a length of 0: merged into the one before */
    uint32_t previous, next;
    int32_t id;
} nn_symbol;

typedef struct nn_candidate {
    uint32_t order; /* the smallest is merged first; of equal ones the leftmost */
    uint32_t at;
} nn_candidate;

typedef struct nn_path {
    double score;
    size_t start; /* of the last token of the best path to here; SIZE_MAX: none */
    int32_t id;
} nn_path;

typedef struct nn_flow {
    nn_text text, next;
    nn_part *parts, *cut;
    size_t part_count, part_room, cut_count, cut_room;
    nn_token *tokens;
    size_t token_count, token_room;
    size_t most; /* bytes that the text may become */
    bool track;
    mha_status failed; /* the first error, whose reason is in `error`; or MHA_OK */
    char error[160];
    size_t cut_from; /* where the pieces of the part that is being cut begin */
    bool matched;    /* the piece before was a match */
    nn_matcher matcher;
    nn_cache cache;
    nn_symbol *symbols;
    size_t symbol_count, symbol_room;
    nn_candidate *heap, *run; /* of queue.c */
    size_t heap_count, heap_room, run_count, run_room, run_at;
    nn_path *paths;
    size_t path_room;
    int32_t *codes; /* of a run of characters that are normalized together, */
    bool *leads;    /* and whether each is the first one of its character's decomposition */
    size_t code_room, lead_room;
    struct nn_flow *idle; /* the next one that is not in use */
} nn_flow;

void nn_flow_free(nn_flow *f);

/* Record the first error, which is returned. */
__attribute__((format(printf, 3, 4))) mha_status nn_flow_fail(nn_flow *f, mha_status status, const char *format, ...);
mha_status nn_flow_memory(nn_flow *f); /* MHA_NO_MEMORY */

/* How long a text may become by way of steps or decoders: a file may repeat what it inserts, and double it each time. */
static inline size_t nn_text_most(size_t size)
{
    return ((size_t)1 << 16) + (size < SIZE_MAX / 128 ? size * 64 : size);
}

/* Starts with a text, as one part. */
void nn_flow_begin(nn_flow *f, const char *text, size_t size, bool track);

/* ---- Edits ------------------------------------------------------------------------------------------------------- */

struct nn_step;
typedef void nn_edit(const struct nn_step *step, nn_flow *f, size_t start, size_t end);
void nn_flow_edit(nn_flow *f, const struct nn_step *step, nn_edit *edit);

/* Append to the next text: bytes of the text as they are; bytes that stand for what bytes `first` to `last` (inclusive)
 * of the text stand for; a code point, likewise. */
void nn_flow_copy(nn_flow *f, size_t start, size_t end);
void nn_flow_put(nn_flow *f, const char *bytes, size_t size, size_t first, size_t last);
void nn_flow_put_code(nn_flow *f, int32_t code, size_t first, size_t last);

/* ---- Cuts -------------------------------------------------------------------------------------------------------- */

/* What happens to matches of a pattern, as in `tokenizers`. */
typedef enum nn_behavior {
    NN_REMOVED,
    NN_ISOLATED,
    NN_MERGED_WITH_PREVIOUS,
    NN_MERGED_WITH_NEXT,
    NN_CONTIGUOUS
} nn_behavior;

typedef void nn_cut(const struct nn_step *step, nn_flow *f, size_t start, size_t end);
void nn_flow_cut(nn_flow *f, const struct nn_step *step, nn_cut *cut);

/* Adds the next piece of the part that is being cut: a match, or what lies between two. */
void nn_flow_piece(nn_flow *f, nn_behavior behavior, size_t start, size_t end, bool match);

/* Adds an added token, or text with a token of -1. */
void nn_flow_part(nn_flow *f, size_t start, size_t end, int32_t token);

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

void nn_flow_token(nn_flow *f, int32_t id, size_t start, size_t end, bool surface);

#endif
