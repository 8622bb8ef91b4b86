/* The operations of mha_ops.h on the CPU. core/backend.h says what each of them computes. */
#ifndef MHA_CPU_OPS_H
#define MHA_CPU_OPS_H

#include "core/context.h"

void mha_cpu_activate(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z, mha_activation activation);
void mha_cpu_activate_back(mha_context *ctx, mha_tensor dh, mha_tensor slope);
void mha_cpu_activate_gated(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z, mha_activation activation);
void mha_cpu_activate_gated_back(mha_context *ctx, mha_tensor slope, mha_tensor dh);
mha_status mha_cpu_cross_entropy(mha_context *ctx, mha_loss *loss, mha_tensor dlogits, mha_tensor logits,
                                 mha_tensor labels, float smoothing);
void mha_cpu_dropout(mha_context *ctx, mha_tensor to, mha_tensor from, const mha_dropout_options *options);
mha_status mha_cpu_embed(mha_context *ctx, mha_tensor y, mha_tensor table, mha_tensor ids,
                         const mha_embedding_options *options);
mha_status mha_cpu_embed_back(mha_context *ctx, mha_tensor dtable, mha_tensor dpositions, mha_tensor dy, mha_tensor ids,
                              float scale);

#endif
