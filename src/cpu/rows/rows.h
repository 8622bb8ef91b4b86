/* What the CPU does to rows one by one: the operations of the backend that are bound by memory. core/backend.h says what
 * each of them computes. */
#ifndef MHA_CPU_ROWS_H
#define MHA_CPU_ROWS_H

#include "attention/extra_keys.h"
#include "attention/rotary.h"

void mha_cpu_copy(mha_context *ctx, mha_tensor to, mha_tensor from, bool add);
void mha_cpu_fill(mha_context *ctx, mha_tensor to, float value);
void mha_cpu_upload(mha_context *ctx, void *to, const void *from, size_t bytes);

void mha_cpu_clear(mha_context *ctx, mha_tensor x, int axis, mha_tensor lengths, mha_tensor starts);
void mha_cpu_places(mha_context *ctx, mha_tensor places, mha_tensor starts, mha_tensor ends);
void mha_cpu_append(mha_context *ctx, mha_tensor to, mha_tensor from, mha_tensor starts, mha_tensor ends);

void mha_cpu_normalize(mha_context *ctx, mha_tensor to, mha_tensor kept, mha_tensor from, mha_tensor residual,
                       const mha_norm_about *norm);
void mha_cpu_normalize_back(mha_context *ctx, const mha_norm_back *to, mha_tensor dy, mha_tensor x, mha_tensor kept,
                            const mha_norm_about *norm, float *partials);
void mha_cpu_gate(mha_context *ctx, mha_tensor to, mha_tensor from, mha_tensor gates);
void mha_cpu_gate_back(mha_context *ctx, mha_tensor dgated, mha_tensor heads, mha_tensor gates, mha_tensor dgates);
void mha_cpu_sum_rows(mha_context *ctx, mha_tensor sum, mha_tensor y, float *partials);
size_t mha_cpu_partial_bytes(int64_t rows, int64_t columns);
bool mha_cpu_finite(mha_context *ctx, mha_tensor x);
void mha_cpu_clean(mha_context *ctx, mha_tensor to, mha_tensor x, mha_tensor dy);
void mha_cpu_average_heads(mha_context *ctx, mha_tensor to, mha_tensor maps);

mha_status mha_cpu_rotate(const mha_rotation *rotation);
void mha_cpu_rotary_tables(mha_context *ctx, mha_tensor cosines, mha_tensor sines, const mha_frequencies *frequencies);

void mha_cpu_extra_keys(const mha_extra_keys_call *call);
void mha_cpu_extra_keys_back(const mha_extra_keys_call *call, mha_tensor dheads, mha_tensor dq, mha_tensor dbias_k,
                             mha_tensor dbias_v, double *sums);

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
