/* What depends on lengths and starts of sequences: padding, positions, the ends of cached rows. */
#include "core/tensor.h"
#include "cpu/rows/rows.h"

/* Rows first to first + count - 1 of axis `axis`. */
static mha_tensor cut(mha_tensor x, int axis, int64_t first, int64_t count)
{
    x.data = (char *)x.data + first * x.stride[axis] * (int64_t)mha_type_size(x.type);
    x.size[axis] = count;
    return x;
}

void mha_cpu_clear(mha_context *ctx, mha_tensor x, int axis, mha_tensor lengths, mha_tensor starts)
{
    for (int64_t b = 0; lengths.rank && b < lengths.size[0]; b++) {
        int64_t start = starts.rank ? mha_integer_at(starts, b) : 0;
        int64_t end = starts.rank ? mha_integer_at(starts, b + 1) : x.size[axis];
        int64_t first = start + mha_integer_at(lengths, b);
        if (first < end) mha_cpu_fill(ctx, cut(cut(x, 0, starts.rank ? 0 : b, 1), axis, first, end - first), 0.0f);
    }
}

void mha_cpu_places(mha_context *ctx, mha_tensor places, mha_tensor starts, mha_tensor ends)
{
    int64_t *at = places.data, T = places.size[1];
    if (ctx->rehearsing) return;
    for (int64_t b = 0; b < (starts.rank ? starts.size[0] - 1 : places.size[0]); b++) {
        int64_t start = starts.rank ? mha_integer_at(starts, b) : b * T;
        int64_t count = starts.rank ? mha_integer_at(starts, b + 1) - start : T;
        int64_t first = (ends.rank ? mha_integer_at(ends, b) : count) - count;
        for (int64_t t = 0; t < count; t++) at[start + t] = first + t < 0 ? 0 : first + t;
    }
}

void mha_cpu_append(mha_context *ctx, mha_tensor to, mha_tensor from, mha_tensor starts, mha_tensor ends)
{
    for (int64_t b = 0; !ctx->rehearsing && b < to.size[0]; b++) {
        int64_t start = starts.rank ? mha_integer_at(starts, b) : 0;
        int64_t count = starts.rank ? mha_integer_at(starts, b + 1) - start : from.size[2];
        mha_tensor some = cut(cut(from, 0, starts.rank ? 0 : b, 1), 2, start, count);
        if (count) mha_cpu_copy(ctx, cut(cut(to, 0, b, 1), 2, mha_integer_at(ends, b) - count, count), some, false);
    }
}
