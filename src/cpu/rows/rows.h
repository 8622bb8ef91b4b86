/* What the CPU does to rows one by one: the operations of the backend that are bound by memory. core/backend.h says what
 * each of them computes. */
#ifndef MHA_CPU_ROWS_H
#define MHA_CPU_ROWS_H

#include "attention/extra_keys.h"
#include "attention/rotary.h"

void mha_cpu_copy(mha_context *ctx, mha_tensor to, mha_tensor from, bool add);
void mha_cpu_fill(mha_context *ctx, mha_tensor to, float value);

void mha_cpu_normalize(mha_context *ctx, mha_tensor to, mha_tensor from, mha_tensor gain, float epsilon);
void mha_cpu_normalize_back(mha_context *ctx, mha_tensor dy, mha_tensor x, mha_tensor gain, float epsilon,
                            mha_tensor dgain, float *partials);
void mha_cpu_gate(mha_context *ctx, mha_tensor to, mha_tensor from, mha_tensor gates);
void mha_cpu_gate_back(mha_context *ctx, mha_tensor dgated, mha_tensor heads, mha_tensor gates, mha_tensor dgates);
void mha_cpu_sum_rows(mha_context *ctx, mha_tensor sum, mha_tensor y, float *partials);
size_t mha_cpu_partial_bytes(int64_t rows, int64_t columns);
bool mha_cpu_finite(mha_context *ctx, mha_tensor x);
void mha_cpu_clean(mha_context *ctx, mha_tensor to, mha_tensor x, mha_tensor dy);
void mha_cpu_average_heads(mha_context *ctx, mha_tensor to, mha_tensor maps);

mha_status mha_cpu_rotate(const mha_rotation *rotation);
void mha_cpu_rotary_tables(mha_context *ctx, mha_tensor cosines, mha_tensor sines, double base);

void mha_cpu_extra_keys(const mha_extra_keys_call *call);
void mha_cpu_extra_keys_back(const mha_extra_keys_call *call, mha_tensor dheads, mha_tensor dq, mha_tensor dbias_k,
                             mha_tensor dbias_v, double *sums);

#endif
