/* Rows of padding, which query_lengths leaves out: no pass computes them, but all of them are written. */
#ifndef MHA_CPU_ATTENTION_PADDING_H
#define MHA_CPU_ATTENTION_PADDING_H

#include "attention/problem.h"

/* A result with rows as q has them, (B,H,Tq) or (B,H,Tq,n), or none; and what a row of padding holds: one number, then
 * another in all other places. Types are those of floats, and MHA_INT64. */
typedef struct mha_padding {
    mha_tensor to;
    float first, others;
} mha_padding;

void mha_padding_write(const mha_problem *problem, const mha_padding *all, int count);

#endif
