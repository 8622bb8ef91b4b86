/* The operations of the mirror beside attention: core/backend.h says what each of them computes. */
#ifndef CUDA_MIRROR_OPS_H
#define CUDA_MIRROR_OPS_H

#include "attention/extra_keys.h"
#include "attention/rotary.h"

/* The GPU's context; and what it says becomes what this one says. */
mha_context *mirror_inner(const mha_context *ctx);
mha_status mirror_answer(mha_context *ctx, mha_status status);

/* What needs no GPU is that of the naive table. */
#define mirror_upload       naive_upload
#define mirror_finite       naive_finite
#define mirror_pack_size    naive_pack_size
#define mirror_packed_about naive_packed_about

#define OP(name) mha_op_##name mirror_##name;
MHA_COMMON_OPS(OP) MHA_PACKING_OPS(OP)
#undef OP

#endif
