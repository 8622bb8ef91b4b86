/* The operations of the naive table, and what they share. core/backend.h says what each of them computes.
 *
 * Numbers go through element_get and element_set, whatever their type. Arrays of float64 are dense, with their shapes
 * beside them. */
#ifndef NAIVE_H
#define NAIVE_H

#include "attention/extra_keys.h"
#include "attention/gradient.h"
#include "attention/rotary.h"
#include "attention/stats.h"
#include "support/numbers.h"

#include <ref.h>

/* ---- Elements --------------------------------------------------------------------------------------------------- */

/* Element (i,j,k,l) of a view; indices of axes that it does not have are 0. */
static inline double naive_get(mha_tensor t, int64_t i, int64_t j, int64_t k, int64_t l)
{
    return element_get(mha_at(t, i, j, k, l), t.type);
}

static inline void naive_set(mha_tensor t, int64_t i, int64_t j, int64_t k, int64_t l, double value)
{
    element_set(mha_at(t, i, j, k, l), t.type, value);
}

/* ---- attention.c: a problem as the oracle wants it -------------------------------------------------------------- */

/* A problem, and the oracle's scores and weights for it. */
typedef struct naive_question {
    const mha_problem *problem;
    ref_attention ref; /* owns its arrays */
    ref_result result; /* all of it */
} naive_question;

void naive_ask(naive_question *question, const mha_problem *problem);
void naive_forget(naive_question *question);

/* The rows of a tensor (B,heads,T,width), or (B,heads,T) with a width of 1, that belong to sequences, as a dense array of
 * its own: rows of queries (B,heads,Tq,width), or of keys (B,heads,Tk,width). */
double *naive_dense(const mha_problem *problem, mha_tensor from, bool of_keys);

/* The other way round: rows that belong to no sequence are left alone. A tensor that is none takes nothing. */
void naive_put(const mha_problem *problem, mha_tensor to, const double *from, bool of_keys);

/* from (B,H) to a tensor (B,H), or its sums over the batch to a tensor (H). */
void naive_put_heads(const mha_problem *problem, mha_tensor to, const double *from);

/* What turns the scores of a row into weights, exp(score - max) / sum: from extras.softmax if the problem has it and
 * float32 could hold it, else from the oracle's scores. A row that sees no key has a sum of 0. */
typedef struct naive_softmax {
    double max, sum;
} naive_softmax;

naive_softmax naive_softmax_of(const naive_question *question, const mha_sequence *sequence, int64_t h, int64_t i);

/* Leaves it in a tensor (B,H,Tq,2), as mha_attention_extras says. */
void naive_put_softmax(mha_tensor to, const mha_sequence *sequence, int64_t h, int64_t i, naive_softmax row);

/* ---- Operations ------------------------------------------------------------------------------------------------- */

#define OP(name) mha_op_##name naive_##name;
MHA_COMMON_OPS(OP) MHA_PACKING_OPS(OP)
#undef OP

#endif
