/* How a call is cut up: the sizes of its tiles, the order of its pieces, and where everything lies in scratch. */
#ifndef MHA_ATTENTION_PLAN_H
#define MHA_ATTENTION_PLAN_H

#include "attention/problem.h"
#include "cpu/engine/engine.h"

/* A piece of work: query rows [first, first + rows) of sequence b against keys [low, high), for one key/value head. The
 * query heads that share that head are folded in: row r is query r / share of head r % share, so that neighbours see
 * nearly the same keys. */
typedef struct mha_piece {
    int64_t b, first, rows;
    int64_t low, high;
    int64_t partial; /* where the partial results of its sequence start; -1: its result is whole */
    int64_t weight;  /* keys that its rows see, about */
} mha_piece;

/* The keys of a sequence are taken in chunks, each a streaming softmax of its own, and these are folded together in
 * order. Their number and size depend on the length of the sequence alone, so that it does not matter for a single bit
 * whether one piece of work takes them all or, when query rows are few, each is a piece of its own. */
typedef struct mha_chunks {
    int64_t count, keys;
} mha_chunks;

mha_chunks mha_chunks_get(const mha_sequence *sequence);

typedef struct mha_plan {
    const mha_kernels *kernels;
    const mha_engine *engine; /* multiplies; NULL unless q, k and v are bfloat16 and the context has one */
    float score_scale;        /* with an engine: 1 if the scale is a power of two, which goes into queries exactly */
    int64_t rows;             /* of a piece, at most */
    int64_t Em, Ep;           /* E rounded up to 4, to MHA_PAD */
    int64_t span;             /* tiles of keys that are loaded at once */
    int64_t staged;           /* floats of the staging area: a tile of keys, a block of queries, biases or results */
    int64_t pieces;           /* of the order list; each stands for G pieces of work */
    int64_t partials;         /* partial results, a row each */
    int tasks;
    bool maps;          /* weights or scores are asked for */
    size_t task_bytes;  /* scratch of one task */
    size_t total_bytes; /* of all tasks, of what they share, and the alignment */
} mha_plan;

/* The engine for a problem with these types, or NULL. */
const mha_engine *mha_plan_engine(const mha_problem *problem);

/* With that engine, or with NULL. False if the sizes do not fit memory at all. */
bool mha_plan_make(mha_plan *plan, const mha_problem *problem, const mha_engine *engine);

/* Whether the rows that share a key/value head are few: a step of a decoder, which is bound by reading keys and values;
 * and the engine that multiplies where they are not, or NULL. It is the sequence that decides, not how its rows are cut
 * up: few rows, many rows and engines add in orders of their own, and bits must not depend on the number of threads. */
static inline bool mha_sequence_is_narrow(const mha_problem *p, const mha_sequence *s)
{
    return p->share * s->queries <= MHA_NARROW;
}
static inline const mha_engine *mha_sequence_engine(const mha_plan *plan, const mha_problem *p, const mha_sequence *s)
{
    return mha_sequence_is_narrow(p, s) ? NULL : plan->engine;
}

/* What all plans that a caller asks for have in common: instruction set, kernel and why. `engine` multiplies, or NULL if
 * none does; `widened`: an input is not float32; `more` is the end of the line of reasons. */
mha_attention_plan mha_plan_answer(const mha_plan *plan, const mha_problem *problem, const mha_engine *engine,
                                   bool widened, const char *more);

/* The generator of dropout for a sequence; its lanes are still to be set. */
mha_drop mha_drop_get(const mha_problem *problem, const mha_sequence *sequence);

/* Scratch that all tasks share. */
typedef struct mha_shared {
    mha_piece *order; /* heaviest first */
    float *partials;  /* a row each: maximum, sum, then E sums of values */
    float *max;       /* one a row, when maps follow: the row's maximum, NaN where it went the careful way */
    float *factor;    /* and what its exponentials are multiplied by to be weights */
} mha_shared;

/* Lays them out behind the tasks' scratch, which the context has reserved, and fills the order list. */
mha_shared mha_plan_shared(const mha_plan *plan, const mha_problem *problem);

#endif
