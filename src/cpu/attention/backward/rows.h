/* What the backward pass must know of every row before it meets keys. */
#ifndef MHA_CPU_BACKWARD_ROWS_H
#define MHA_CPU_BACKWARD_ROWS_H

#include "cpu/attention/backward/span.h"

/* Fills in softmax and delta of the rows of one head of one sequence, and its importance: piece b * H + h. */
void mha_backward_rows(mha_backward *call, mha_span *span, int64_t piece);

#endif
