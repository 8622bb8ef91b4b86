/* Memory that the tensors of a call share. */
#include "public/views.h"
#include "public/check.h"
#include <stdio.h>
#include <stdlib.h>

static mha_status refuse(mha_context *ctx, mha_status status, const nn_public_view *v, const char *rule)
{
    if (v->number < 0) return nn_public_fail(ctx, status, "%s: %s", v->name, rule);
    return nn_public_fail(ctx, status, "%s[%lld]: %s", v->name, (long long)v->number, rule);
}

/* The bytes of a view; false if they do not fit 63 bits. */
static bool reach(nn_public_view *v)
{
    const mha_tensor *t = &v->tensor;
    int64_t low = 0, high = 0, width = (int64_t)mha_type_size(t->type), step;
    for (int i = 0; i < t->rank; i++) {
        if (t->size[i] < 2) continue;
        if (__builtin_mul_overflow(t->size[i] - 1, t->stride[i], &step) ||
            __builtin_add_overflow(step < 0 ? low : high, step, step < 0 ? &low : &high))
            return false;
    }
    if (__builtin_mul_overflow(low, width, &low) || __builtin_add_overflow(high, 1, &high) ||
        __builtin_mul_overflow(high, width, &high))
        return false;
    v->low = (uintptr_t)t->data + (uintptr_t)low;
    v->high = (uintptr_t)t->data + (uintptr_t)high;
    return true;
}

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

/* Whether two elements may lie in one place: each stride must step over all that the smaller ones span. */
static bool folds(const mha_tensor *t)
{
    bool done[4] = {false, false, false, false};
    int64_t span = 1;
    for (int round = 0; round < t->rank; round++) {
        int inner = -1;
        for (int i = 0; i < t->rank; i++)
            if (!done[i] && (inner < 0 || magnitude(t->stride[i]) < magnitude(t->stride[inner]))) inner = i;
        done[inner] = true;
        if (t->size[inner] < 2) continue;
        if (magnitude(t->stride[inner]) < span) return true;
        span += (t->size[inner] - 1) * magnitude(t->stride[inner]);
    }
    return false;
}

/* The bytes that a view spans apart from its steps of whole pitches, and where they start. */
static int64_t slice(const mha_tensor *t, int64_t pitch, uintptr_t *start)
{
    int64_t width = (int64_t)mha_type_size(t->type), low = 0, high = width;
    for (int i = 0; i < t->rank; i++) {
        int64_t step = t->size[i] < 2 ? 0 : t->stride[i] * width;
        if (step % pitch == 0) continue;
        if (step < 0) low += (t->size[i] - 1) * step;
        else high += (t->size[i] - 1) * step;
    }
    *start = (uintptr_t)t->data + (uintptr_t)low;
    return high - low;
}

/* Whether two views whose bytes interleave have none in common, seen modulo a stride of the first. */
static bool apart(const mha_tensor *a, const mha_tensor *b)
{
    for (int i = 0; i < a->rank; i++) {
        uintptr_t at, other;
        int64_t pitch = a->size[i] < 2 ? 0 : magnitude(a->stride[i]) * (int64_t)mha_type_size(a->type);
        if (!pitch) continue;
        int64_t span = slice(a, pitch, &at), other_span = slice(b, pitch, &other);
        int64_t gap = (int64_t)(other >= at ? (other - at) % (uintptr_t)pitch
                                            : ((uintptr_t)pitch - (at - other) % (uintptr_t)pitch) % (uintptr_t)pitch);
        if (span <= gap && other_span <= pitch - gap) return true;
    }
    return false;
}

static int by_place(const void *a, const void *b)
{
    const nn_public_view *x = a, *y = b;
    if (x->low != y->low) return x->low < y->low ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

mha_status nn_public_views(mha_context *ctx, nn_public_view *all, size_t count)
{
    for (size_t n = 0; n < count; n++) {
        nn_public_view *v = &all[n];
        if (!reach(v)) return refuse(ctx, MHA_TOO_LARGE, v, "its sizes and strides reach beyond 63 bits");
        if ((uintptr_t)v->tensor.data % mha_type_size(v->tensor.type))
            return refuse(ctx, MHA_BAD_ARGUMENT, v, "data is not aligned for its type");
        if (v->output && folds(&v->tensor))
            return refuse(ctx, MHA_OVERLAP, v, "its strides put two elements of an output in one place");
    }
    qsort(all, count, sizeof *all, by_place);
    for (size_t n = 0; n < count; n++)
        for (size_t k = n + 1; k < count && all[k].low < all[n].high; k++) {
            const nn_public_view *out = all[n].output ? &all[n] : &all[k], *other = out == &all[n] ? &all[k] : &all[n];
            char rule[80];
            if (!out->output || apart(&out->tensor, &other->tensor) || apart(&other->tensor, &out->tensor)) continue;
            snprintf(rule, sizeof rule, other->number < 0 ? "shares memory with %s" : "shares memory with %s[%lld]",
                     other->name, (long long)other->number);
            return refuse(ctx, MHA_OVERLAP, out, rule);
        }
    return MHA_OK;
}
