/* What the operations of mha_ops.h ask of their arguments. Each check leaves its message in the context. */
#ifndef MHA_OPS_CHECK_H
#define MHA_OPS_CHECK_H

#include "core/options.h"
#include "core/tensor.h"
#include "mha_ops.h"

/* A tensor of float32 numbers, dense and row-major; its strides are then those of mha_tensor_2d and the like. */
mha_status mha_check_dense(mha_context *ctx, mha_tensor *t, const char *name, int rank, const char *shape,
                           mha_role role);

/* One axis has the size `want`, which is that of `why`. */
mha_status mha_check_size(mha_context *ctx, mha_tensor t, const char *name, int axis, int64_t want, const char *why);

/* All axes of t, whose rank is that of `like`, have the sizes of `like`. */
mha_status mha_check_like(mha_context *ctx, mha_tensor t, const char *name, mha_tensor like, const char *like_name);

/* A tensor of int32 or int64 numbers, of any strides. */
mha_status mha_check_ids(mha_context *ctx, mha_tensor *t, const char *name, int rank, const char *shape);

mha_status mha_check_activation(mha_context *ctx, mha_activation activation);

/* `t`, or none if it is the same memory as `same`, seen in the same way: what an output may lie on. */
mha_tensor mha_unless_same(mha_tensor t, mha_tensor same);

#endif
