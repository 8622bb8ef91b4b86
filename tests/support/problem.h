/* A problem: the memory of one case, the library's call for it, the oracle's answer, and how far apart they may be. */
#ifndef PROBLEM_H
#define PROBLEM_H

#include "support/cases.h"
#include "support/contexts.h"

#include <ref.h>

/* What rounding may do, for the library that computes in float32. */
typedef struct bounds {
    double *scores[3]; /* (B,H,Tq,Tk): of the three stages before the softmax */
    double *softmax;   /* (B,H,Tq,Tk): of the softmax */
    double *weights;   /* (B,H,Tq,Tk): after dropout */
    double *lse;       /* (B,H,Tq) */
    double *out;       /* (B,H,Tq,E) */
    double *naive;     /* (B,H): largest error of the naive computation in the type of `out`; 0 for float32 */
    double *rounded;   /* (B,H,Tq,E) comes on top where an engine rounds weights to 16 bits */
} bounds;

typedef struct problem {
    attention_case c;
    store q, k, v, mask, bias, alibi, sinks;  /* inputs; all zero where not given */
    store out, lse, softmax, weights, scores; /* outputs */
    int64_t *queries, *keys;                  /* (B) queries that each sequence has, and rows of keys */
    int64_t *padded;                          /* (B) rows of queries that each has, with padding */
    int64_t query_rows, key_rows;             /* rows that q, k and v have on axis 2 */
    int64_t *key_lengths, *offsets;           /* (B) or NULL */
    int64_t *query_starts, *key_starts;       /* (B+1) or NULL */
    mha_attention_options options;
    mha_attention_extras extras;
    ref_attention ref; /* owns its arrays */
    ref_result want;
    bounds allowed;
    bool engine;       /* a matrix engine multiplied in the last run */
    bool tensor_cores; /* that of a GPU */
} problem;

/* Fills inputs and guards everything. */
problem *problem_make(const attention_case *c);
void problem_free(problem *p);

/* Makes the library's arguments and the oracle's anew from the stores, after a test has changed inputs by hand. */
void problem_refresh(problem *p);

/* Puts the outputs back to what they were and calls the library. */
mha_status problem_run(problem *p, mha_context *ctx);

/* One element, packed or not, by sequence and by place in it. */
typedef void *problem_element(const problem *p, int64_t b, int64_t h, int64_t n, int64_t d);
problem_element problem_q, problem_k, problem_v, problem_out;
void *problem_lse(const problem *p, int64_t b, int64_t h, int64_t i);
void *problem_softmax(const problem *p, int64_t b, int64_t h, int64_t i, int64_t n);

/* ---- oracle.c: the question and the answer ---------------------------------------------------------------------- */

/* Fills p->ref from the stores; p->want and p->allowed, which cost more, come with problem_solve. */
void oracle_ask(problem *p);
void problem_solve(problem *p);
void oracle_free(problem *p);

/* NaN and infinity wherever the oracle says that nobody looks. */
void oracle_poison(problem *p, rng *r);

/* ---- bounds.c: how far apart they may be; verify.c: how far apart they are -------------------------------------- */

void bounds_make(problem *p);
void bounds_free(bounds *allowed);

/* Compares all outputs with the oracle, and looks for writes where none belong. On false, `why` has one line. */
bool problem_check(const problem *p, char *why, size_t size);

#endif
