#include "ops/check.h"

typedef long long ll;

mha_status mha_check_dense(mha_context *ctx, mha_tensor *t, const char *name, int rank, const char *shape,
                           mha_role role)
{
    int64_t step = 1;
    TRY(mha_check_tensor(ctx, t, name, rank, shape, role));
    if (t->type != MHA_FLOAT32)
        return mha_fail(ctx, MHA_BAD_TYPE, "%s: is %s, must be float32", name, mha_type_name(t->type));
    for (int axis = rank - 1; axis >= 0; axis--) {
        if (mha_element_count(*t) && t->size[axis] > 1 && t->stride[axis] != step)
            return mha_fail(ctx, MHA_BAD_SHAPE, "%s: the stride of axis %d is %lld, must be %lld: it must be dense",
                            name, axis, (ll)t->stride[axis], (ll)step);
        t->stride[axis] = step;
        step *= t->size[axis];
    }
    return MHA_OK;
}

mha_status mha_check_size(mha_context *ctx, mha_tensor t, const char *name, int axis, int64_t want, const char *why)
{
    if (t.size[axis] != want)
        return mha_fail(ctx, MHA_BAD_SHAPE, "%s: axis %d is %lld, must be %lld (%s)", name, axis, (ll)t.size[axis],
                        (ll)want, why);
    return MHA_OK;
}

mha_status mha_check_like(mha_context *ctx, mha_tensor t, const char *name, mha_tensor like, const char *like_name)
{
    for (int axis = 0; axis < like.rank; axis++)
        if (t.size[axis] != like.size[axis])
            return mha_fail(ctx, MHA_BAD_SHAPE, "%s: axis %d is %lld, must be %lld as that of %s", name, axis,
                            (ll)t.size[axis], (ll)like.size[axis], like_name);
    return MHA_OK;
}

mha_status mha_check_ids(mha_context *ctx, mha_tensor *t, const char *name, int rank, const char *shape)
{
    TRY(mha_check_tensor(ctx, t, name, rank, shape, MHA_INPUT));
    if (!mha_is_integer(t->type))
        return mha_fail(ctx, MHA_BAD_TYPE, "%s: is %s, must be int32 or int64", name, mha_type_name(t->type));
    return MHA_OK;
}

mha_status mha_check_activation(mha_context *ctx, mha_activation activation)
{
    if ((unsigned)activation > MHA_RELU_SQUARED)
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "activation: %d is not an activation", (int)activation);
    return MHA_OK;
}

mha_tensor mha_unless_same(mha_tensor t, mha_tensor same)
{
    mha_tensor none = MHA_NO_TENSOR;
    return mha_same_view(t, same) ? none : t;
}
