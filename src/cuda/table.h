/* The operations of the layer and of mha_ops.h on a GPU: core/backend.h says what each of them computes. */
#ifndef MHA_CUDA_TABLE_H
#define MHA_CUDA_TABLE_H

#include "attention/extra_keys.h"
#include "attention/rotary.h"
#include "cuda/device.h"

/* ---- table.c ---------------------------------------------------------------------------------------------------- */

/* Starts a kernel for an operation without a status, with so many blocks; what goes wrong is told by mha_cuda_finish. */
void mha_cuda_run(mha_context *ctx, mha_cuda_kernel kernel, const void *parameter, int64_t blocks);

/* The same with one thread for each of `count` numbers. */
void mha_cuda_run_each(mha_context *ctx, mha_cuda_kernel kernel, const void *parameter, int64_t count);

/* Remembers an error for mha_cuda_finish; false if it is one. */
bool mha_cuda_note(mha_context *ctx, mha_status status);

mha_status mha_cuda_finish(mha_context *ctx);

void mha_cuda_copy_numbers(mha_context *ctx, mha_tensor to, mha_tensor from, bool add);
void mha_cuda_fill_all(mha_context *ctx, mha_tensor to, float value);
void mha_cuda_upload_bytes(mha_context *ctx, void *to, const void *from, size_t bytes);
void mha_cuda_clear_rows(mha_context *ctx, mha_tensor x, int axis, mha_tensor lengths, mha_tensor starts);
void mha_cuda_places(mha_context *ctx, mha_tensor places, mha_tensor starts, mha_tensor ends);
void mha_cuda_append(mha_context *ctx, mha_tensor to, mha_tensor from, mha_tensor starts, mha_tensor ends);
void mha_cuda_gate(mha_context *ctx, mha_tensor to, mha_tensor from, mha_tensor gates);
void mha_cuda_gate_back(mha_context *ctx, mha_tensor dgated, mha_tensor heads, mha_tensor gates, mha_tensor dgates);
void mha_cuda_sum_rows(mha_context *ctx, mha_tensor sum, mha_tensor y, float *partials);
size_t mha_cuda_partial_bytes(int64_t rows, int64_t columns);
bool mha_cuda_finite(mha_context *ctx, mha_tensor x);
void mha_cuda_clean(mha_context *ctx, mha_tensor to, mha_tensor x, mha_tensor dy);
void mha_cuda_average_heads(mha_context *ctx, mha_tensor to, mha_tensor maps);

/* to (columns) += the sum of partials (chunks,pitch). */
void mha_cuda_add_partials(mha_context *ctx, mha_tensor to, const float *partials, int64_t chunks, int64_t pitch);

/* ---- heads.c ---------------------------------------------------------------------------------------------------- */

void mha_cuda_normalize(mha_context *ctx, mha_tensor to, mha_tensor kept, mha_tensor from, mha_tensor residual,
                        const mha_norm_about *norm);
void mha_cuda_normalize_back(mha_context *ctx, const mha_norm_back *to, mha_tensor dy, mha_tensor x, mha_tensor kept,
                             const mha_norm_about *norm, float *partials);
mha_status mha_cuda_rotate(const mha_rotation *rotation);
void mha_cuda_rotary_tables(mha_context *ctx, mha_tensor cosines, mha_tensor sines, const mha_frequencies *frequencies);
void mha_cuda_mix_keys(const mha_extra_keys_call *call);
void mha_cuda_mix_keys_back(const mha_extra_keys_call *call, mha_tensor dheads, mha_tensor dq, mha_tensor dbias_k,
                            mha_tensor dbias_v, double *sums);

/* ---- ops.c ------------------------------------------------------------------------------------------------------ */

void mha_cuda_activate(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z, mha_activation activation);
void mha_cuda_activate_back(mha_context *ctx, mha_tensor dh, mha_tensor slope);
void mha_cuda_activate_gated(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z, mha_activation activation);
void mha_cuda_activate_gated_back(mha_context *ctx, mha_tensor slope, mha_tensor dh);
mha_status mha_cuda_cross_entropy(mha_context *ctx, mha_loss *loss, mha_tensor dlogits, mha_tensor logits,
                                  mha_tensor labels, float smoothing);
void mha_cuda_drop(mha_context *ctx, mha_tensor to, mha_tensor from, const mha_dropout_options *options);
mha_status mha_cuda_embed(mha_context *ctx, mha_tensor y, mha_tensor table, mha_tensor ids,
                          const mha_embedding_options *options);
mha_status mha_cuda_embed_back(mha_context *ctx, mha_tensor dtable, mha_tensor dpositions, mha_tensor dy,
                               mha_tensor ids, float scale);

/* ---- product.c -------------------------------------------------------------------------------------------------- */

mha_status mha_cuda_matmul(mha_context *ctx, mha_tensor c, mha_tensor a, mha_tensor b,
                           const mha_matmul_options *options);

#endif
