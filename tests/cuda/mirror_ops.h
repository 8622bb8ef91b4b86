/* The operations of the mirror beside attention: core/backend.h says what each of them computes. */
#ifndef CUDA_MIRROR_OPS_H
#define CUDA_MIRROR_OPS_H

#include "attention/extra_keys.h"
#include "attention/rotary.h"

/* The GPU's context; and what it says becomes what this one says. */
mha_context *mirror_inner(const mha_context *ctx);
mha_status mirror_answer(mha_context *ctx, mha_status status);

mha_status mirror_rotate(const mha_rotation *rotation);
void mirror_rotary_tables(mha_context *ctx, mha_tensor cosines, mha_tensor sines, const mha_frequencies *frequencies);
mha_status mirror_matmul(mha_context *ctx, mha_tensor c, mha_tensor a, mha_tensor b, const mha_matmul_options *options);
mha_status mirror_pack(mha_context *ctx, void *packed, mha_tensor b, mha_type a);
mha_status mirror_matmul_packed(mha_context *ctx, mha_tensor c, mha_tensor a, const void *packed,
                                const mha_matmul_options *options);
void mirror_copy(mha_context *ctx, mha_tensor to, mha_tensor from, bool add);
void mirror_fill(mha_context *ctx, mha_tensor to, float value);
void mirror_clear(mha_context *ctx, mha_tensor x, int axis, mha_tensor lengths, mha_tensor starts);
void mirror_places(mha_context *ctx, mha_tensor places, mha_tensor starts, mha_tensor ends);
void mirror_append(mha_context *ctx, mha_tensor to, mha_tensor from, mha_tensor starts, mha_tensor ends);
void mirror_normalize(mha_context *ctx, mha_tensor to, mha_tensor kept, mha_tensor from, mha_tensor residual,
                      const mha_norm_about *norm);
void mirror_normalize_back(mha_context *ctx, const mha_norm_back *to, mha_tensor dy, mha_tensor x, mha_tensor kept,
                           const mha_norm_about *norm, float *partials);
void mirror_gate(mha_context *ctx, mha_tensor to, mha_tensor from, mha_tensor gates);
void mirror_gate_back(mha_context *ctx, mha_tensor dgated, mha_tensor heads, mha_tensor gates, mha_tensor dgates);
void mirror_sum_rows(mha_context *ctx, mha_tensor sum, mha_tensor y, float *partials);
size_t mirror_partial_bytes(int64_t rows, int64_t columns);
void mirror_clean(mha_context *ctx, mha_tensor to, mha_tensor x, mha_tensor dy);
void mirror_average_heads(mha_context *ctx, mha_tensor to, mha_tensor maps);
void mirror_extra_keys(const mha_extra_keys_call *call);
void mirror_extra_keys_back(const mha_extra_keys_call *call, mha_tensor dheads, mha_tensor dq, mha_tensor dbias_k,
                            mha_tensor dbias_v, double *sums);
void mirror_activate(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z, mha_activation activation);
void mirror_activate_back(mha_context *ctx, mha_tensor dh, mha_tensor slope);
void mirror_activate_gated(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z, mha_activation activation);
void mirror_activate_gated_back(mha_context *ctx, mha_tensor slope, mha_tensor dh);
mha_status mirror_cross_entropy(mha_context *ctx, mha_loss *loss, mha_tensor dlogits, mha_tensor logits,
                                mha_tensor labels, float smoothing);
void mirror_dropout(mha_context *ctx, mha_tensor to, mha_tensor from, const mha_dropout_options *options);
mha_status mirror_embed(mha_context *ctx, mha_tensor y, mha_tensor table, mha_tensor ids,
                        const mha_embedding_options *options);
mha_status mirror_embed_back(mha_context *ctx, mha_tensor dtable, mha_tensor dpositions, mha_tensor dy, mha_tensor ids,
                             float scale);

#endif
