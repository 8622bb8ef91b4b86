/* What the CPU does to rows one by one: the operations of the backend that are bound by memory. core/backend.h says what
 * each of them computes. */
#ifndef MHA_CPU_ROWS_H
#define MHA_CPU_ROWS_H

#include "attention/extra_keys.h"
#include "attention/rotary.h"

mha_op_copy mha_cpu_copy;
mha_op_fill mha_cpu_fill;
mha_op_upload mha_cpu_upload;

mha_op_clear mha_cpu_clear;
mha_op_places mha_cpu_places;
mha_op_append mha_cpu_append;

mha_op_normalize mha_cpu_normalize;
mha_op_normalize_back mha_cpu_normalize_back;
mha_op_gate mha_cpu_gate;
mha_op_gate_back mha_cpu_gate_back;
mha_op_sum_rows mha_cpu_sum_rows;
mha_op_partial_bytes mha_cpu_partial_bytes;
mha_op_finite mha_cpu_finite;
mha_op_clean mha_cpu_clean;
mha_op_average_heads mha_cpu_average_heads;

mha_op_rotate mha_cpu_rotate;
mha_op_rotary_tables mha_cpu_rotary_tables;

mha_op_extra_keys mha_cpu_extra_keys;
mha_op_extra_keys_back mha_cpu_extra_keys_back;

/* ---- What the files share ----------------------------------------------------------------------------------------- */

enum { MHA_CPU_CHUNK = 64 }; /* rows of a partial sum. A constant, so that bits do not depend on how work is cut up */

/* Row n of (B,H,T,D), counted with t outermost so that neighbours in memory come one after another; from element k on. */
static inline char *mha_cpu_row(mha_tensor x, int64_t n, int64_t k)
{
    int64_t h = n % x.size[1], t = n / x.size[1] % x.size[2], b = n / x.size[1] / x.size[2];
    return mha_at(x, b, h, t, k);
}

/* Partial sums in order, onto `sum` (columns): those of a chunk start `pitch` after those of the one before it. */
void mha_cpu_add_partials(mha_context *ctx, mha_tensor sum, const float *partials, int64_t chunks, int64_t pitch);

#endif
