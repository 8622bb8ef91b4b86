/* What the library asks of a tensor view: is it sound, where does it lie, does it touch another one. */
#ifndef MHA_CORE_TENSOR_H
#define MHA_CORE_TENSOR_H

#include "core/context.h"

/* Sizes beyond this are refused, so that sums of a few positions and sizes never overflow. */
#define MHA_SIZE_LIMIT (INT64_C(1) << 40)

static inline bool mha_is_float(mha_type type)
{
    return type == MHA_FLOAT32 || type == MHA_BFLOAT16 || type == MHA_FLOAT16;
}

static inline bool mha_is_integer(mha_type type) { return type == MHA_INT64 || type == MHA_INT32; }

/* Whether the caller passed a tensor at all. */
static inline bool mha_is_given(mha_tensor t) { return t.data || t.rank; }

/* How many elements; 1 for rank 0. The sizes have been checked. */
int64_t mha_element_count(mha_tensor t);

/* Address of element (i,j,k,l) of a rank-4 view. */
static inline void *mha_at(mha_tensor t, int64_t i, int64_t j, int64_t k, int64_t l)
{
    return (char *)t.data +
           (i * t.stride[0] + j * t.stride[1] + k * t.stride[2] + l * t.stride[3]) * (int64_t)mha_type_size(t.type);
}

/* Number i of a tensor (n) of integers. */
static inline int64_t mha_integer_at(mha_tensor t, int64_t i)
{
    int64_t at = i * t.stride[0];
    return t.type == MHA_INT32 ? ((const int32_t *)t.data)[at] : ((const int64_t *)t.data)[at];
}

/* What a tensor argument is for, as its checks need to know it. */
typedef enum mha_role {
    MHA_INPUT,
    MHA_OUTPUT, /* no two elements may share memory */
    MHA_SHAPE   /* only its shape is asked about: data may be NULL */
} mha_role;

/* Checks rank, type, sizes, strides, extent, data pointer and, for outputs, that no element lies on another. Then sets
 * the strides that are never multiplied by more than 0, which may be any number, so that no sum or product of strides
 * overflows later: 1 for the last axis, 0 for the others. They are those of axes with fewer than two elements, and all
 * of them if the tensor is empty. `name` opens the message; `shape` shows the axes, such as "(B,H,Tq,D)". */
mha_status mha_check_tensor(mha_context *ctx, mha_tensor *t, const char *name, int rank, const char *shape,
                            mha_role role);

/* The same for a tensor of float numbers. */
mha_status mha_check_float(mha_context *ctx, mha_tensor *t, const char *name, int rank, const char *shape,
                           mha_role role);

/* One tensor of a call, which may be none. */
typedef struct mha_argument {
    const char *name;
    mha_tensor tensor;
    mha_role role;
} mha_argument;

/* Checks that no output shares memory with any other tensor of the list, and that all lie in memory of the device. */
mha_status mha_check_apart(mha_context *ctx, const mha_argument *all, size_t count);

/* The same for an array. */
#define MHA_CHECK_APART(ctx, all) mha_check_apart(ctx, all, sizeof(all) / sizeof *(all))

/* Whether two tensors may share a byte. Never wrong when it says no. When both are slices of one interleaved buffer it
 * still finds them apart; only views with unrelated strides in the same range are given up on. */
bool mha_may_overlap(mha_tensor a, mha_tensor b);

/* Whether two views are the same memory seen in the same way. */
bool mha_same_view(mha_tensor a, mha_tensor b);

/* `t` with its axes aligned at the last one of four, and stride 0 wherever the size is 1. */
mha_tensor mha_broadcast(mha_tensor t);

#endif
