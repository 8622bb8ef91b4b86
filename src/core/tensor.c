/* Tensor views: building them and judging them.
 *
 * Overlap. Two views are apart when their byte ranges are. Slices of one interleaved buffer (the Q and the K of a fused
 * QKV projection) have ranges that interlock, so a second look takes each stride as a possible pitch: axes whose
 * strides are multiples of the pitch only move by whole pitches, so modulo the pitch each view is one interval, and two
 * intervals that do not meet are apart. */
#include "core/tensor.h"

static mha_tensor dense(const void *data, mha_type type, int rank, const int64_t size[4])
{
    union {
        const void *in;
        void *out;
    } pointer = {data}; /* inputs and outputs share one type; inputs are never written */
    mha_tensor t = {pointer.out, type, rank, {0, 0, 0, 0}, {0, 0, 0, 0}};
    int64_t stride = 1;
    for (int axis = rank - 1; axis >= 0; axis--) {
        t.size[axis] = size[axis];
        t.stride[axis] = stride;
        if (__builtin_mul_overflow(stride, size[axis], &stride)) stride = INT64_MAX; /* refused when it is used */
    }
    return t;
}

mha_tensor mha_tensor_1d(const void *data, mha_type type, int64_t n0)
{
    return dense(data, type, 1, (const int64_t[4]){n0, 0, 0, 0});
}

mha_tensor mha_tensor_2d(const void *data, mha_type type, int64_t n0, int64_t n1)
{
    return dense(data, type, 2, (const int64_t[4]){n0, n1, 0, 0});
}

mha_tensor mha_tensor_3d(const void *data, mha_type type, int64_t n0, int64_t n1, int64_t n2)
{
    return dense(data, type, 3, (const int64_t[4]){n0, n1, n2, 0});
}

mha_tensor mha_tensor_4d(const void *data, mha_type type, int64_t n0, int64_t n1, int64_t n2, int64_t n3)
{
    return dense(data, type, 4, (const int64_t[4]){n0, n1, n2, n3});
}

mha_tensor mha_tensor_swap(mha_tensor t, int a, int b)
{
    if (a < 0 || b < 0 || a >= t.rank || b >= t.rank || t.rank > 4) return t;
    int64_t size = t.size[a], stride = t.stride[a];
    t.size[a] = t.size[b];
    t.stride[a] = t.stride[b];
    t.size[b] = size;
    t.stride[b] = stride;
    return t;
}

size_t mha_type_size(mha_type type)
{
    static const unsigned char sizes[] = {4, 2, 2, 1, 8, 4};
    return (unsigned)type < sizeof sizes ? sizes[type] : 0;
}

const char *mha_type_name(mha_type type)
{
    static const char *const names[] = {"float32", "bfloat16", "float16", "bool", "int64", "int32"};
    return (unsigned)type < sizeof names / sizeof *names ? names[type] : "unknown type";
}

int64_t mha_element_count(mha_tensor t)
{
    int64_t count = 1;
    for (int axis = 0; axis < t.rank; axis++) count *= t.size[axis];
    return count;
}

/* The bytes that a view reaches before and after its data pointer; false if they do not fit 63 bits. */
static bool extent(mha_tensor t, int64_t *before, int64_t *after)
{
    int64_t low = 0, high = 0, count = 1, width = (int64_t)mha_type_size(t.type);
    bool fits = true;
    for (int axis = 0; axis < t.rank && fits; axis++) {
        int64_t reach;
        fits = !__builtin_mul_overflow(count, t.size[axis], &count);
        if (t.size[axis] < 2) continue;
        fits = fits && !__builtin_mul_overflow(t.size[axis] - 1, t.stride[axis], &reach);
        if (fits) fits = !__builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high);
    }
    return fits && !__builtin_mul_overflow(low, width, before) && !__builtin_add_overflow(high, 1, &high) &&
           !__builtin_mul_overflow(high, width, after);
}

static int64_t magnitude(int64_t x) { return x == INT64_MIN ? INT64_MAX : x < 0 ? -x : x; }

/* Whether some two elements of a view certainly or possibly share memory: taken from the innermost axis outwards, each
 * stride must step over all that the smaller ones span. */
static bool folds_onto_itself(mha_tensor t)
{
    bool done[4] = {false, false, false, false};
    int64_t span = 1;
    for (int round = 0; round < t.rank; round++) {
        int inner = -1;
        for (int axis = 0; axis < t.rank; axis++)
            if (!done[axis] && (inner < 0 || magnitude(t.stride[axis]) < magnitude(t.stride[inner]))) inner = axis;
        done[inner] = true;
        if (t.size[inner] < 2) continue;
        if (magnitude(t.stride[inner]) < span) return true;
        span += (t.size[inner] - 1) * magnitude(t.stride[inner]);
    }
    return false;
}

/* Sets the strides that are never multiplied by more than 0. */
static void tidy(mha_tensor *t)
{
    bool empty = mha_element_count(*t) == 0;
    for (int axis = 0; axis < t->rank; axis++)
        if (empty || t->size[axis] < 2) t->stride[axis] = axis == t->rank - 1;
}

mha_status mha_check_tensor(mha_context *ctx, mha_tensor *view, const char *name, int rank, const char *shape,
                            mha_role role)
{
    mha_tensor t = *view;
    if (t.rank != rank)
        return mha_fail(ctx, MHA_BAD_SHAPE, "%s: has rank %d, must have %d %s", name, t.rank, rank, shape);
    if (!mha_type_size(t.type)) return mha_fail(ctx, MHA_BAD_TYPE, "%s: %d is not a type", name, (int)t.type);
    for (int axis = 0; axis < rank; axis++) {
        if (t.size[axis] < 0)
            return mha_fail(ctx, MHA_BAD_SHAPE, "%s: size %lld of axis %d must not be negative", name,
                            (long long)t.size[axis], axis);
        if (t.size[axis] > MHA_SIZE_LIMIT)
            return mha_fail(ctx, MHA_TOO_LARGE, "%s: size %lld of axis %d is over 2^40", name, (long long)t.size[axis],
                            axis);
    }
    int64_t before, after;
    if (!extent(t, &before, &after))
        return mha_fail(ctx, MHA_TOO_LARGE, "%s: its sizes and strides reach beyond 63 bits", name);
    tidy(view);
    if (role == MHA_SHAPE || mha_element_count(t) == 0) return MHA_OK;
    if (!t.data) return mha_fail(ctx, MHA_BAD_ARGUMENT, "%s: data is NULL", name);
    size_t width = mha_type_size(t.type);
    if (width && (uintptr_t)t.data % width)
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "%s: data is not aligned for %s", name, mha_type_name(t.type));
    if (role == MHA_OUTPUT && folds_onto_itself(t))
        return mha_fail(ctx, MHA_OVERLAP, "%s: its strides put two elements of an output in one place", name);
    return MHA_OK;
}

/* The bytes that a view spans apart from its steps of whole pitches, and where they start. */
static int64_t slice(mha_tensor t, int64_t pitch, uintptr_t *start)
{
    int64_t width = (int64_t)mha_type_size(t.type), low = 0, high = width;
    for (int axis = 0; axis < t.rank; axis++) {
        if (t.size[axis] < 2) continue;
        int64_t step = t.stride[axis] * width, reach = (t.size[axis] - 1) * step;
        if (step % pitch == 0) continue;
        if (reach < 0) low += reach;
        else high += reach;
    }
    *start = (uintptr_t)t.data + (uintptr_t)low;
    return high - low;
}

/* Whether two views never meet modulo the pitch: the second starts after the first and ends before its next turn. */
static bool apart(mha_tensor a, mha_tensor b, int64_t pitch)
{
    uintptr_t start_a, start_b, round = (uintptr_t)pitch;
    int64_t span_a = slice(a, pitch, &start_a), span_b = slice(b, pitch, &start_b);
    int64_t gap = start_b >= start_a ? (int64_t)((start_b - start_a) % round)
                                     : (int64_t)((round - (start_a - start_b) % round) % round);
    return span_a <= gap && span_b <= pitch - gap;
}

bool mha_may_overlap(mha_tensor a, mha_tensor b)
{
    int64_t before_a, after_a, before_b, after_b;
    if (!mha_element_count(a) || !mha_element_count(b)) return false;
    if (!extent(a, &before_a, &after_a) || !extent(b, &before_b, &after_b)) return true;
    uintptr_t start_a = (uintptr_t)a.data + (uintptr_t)before_a, end_a = (uintptr_t)a.data + (uintptr_t)after_a;
    uintptr_t start_b = (uintptr_t)b.data + (uintptr_t)before_b, end_b = (uintptr_t)b.data + (uintptr_t)after_b;
    if (end_a <= start_b || end_b <= start_a) return false;
    for (int axis = 0; axis < a.rank; axis++) {
        if (a.size[axis] < 2) continue;
        int64_t pitch = magnitude(a.stride[axis]) * (int64_t)mha_type_size(a.type);
        if (pitch > 0 && apart(a, b, pitch)) return false;
    }
    return true;
}

/* The bytes from the first to the last of a view; all of memory if that does not fit 63 bits, none if it is empty. */
typedef struct range {
    uintptr_t start, end;
} range;

static range range_of(mha_tensor t)
{
    int64_t before, after;
    uintptr_t at = (uintptr_t)t.data;
    if (!t.data || !mha_element_count(t)) return (range){UINTPTR_MAX, 0};
    if (!extent(t, &before, &after)) return (range){0, UINTPTR_MAX};
    return (range){at + (uintptr_t)before, at + (uintptr_t)after};
}

mha_status mha_check_memory(mha_context *ctx, mha_tensor t, const char *name)
{
    if (ctx->trusting || !ctx->backend->check_memory || !t.rank || !t.data || !mha_element_count(t)) return MHA_OK;
    return ctx->backend->check_memory(ctx, t, name);
}

/* Most tensors lie so far apart that their ranges tell: those are found once for each, not once for each pair. */
mha_status mha_check_apart(mha_context *ctx, const mha_argument *all, size_t count)
{
    enum { MOST = 32 };
    range ranges[MOST];
    for (size_t a = 0; a < count; a++) TRY(mha_check_memory(ctx, all[a].tensor, all[a].name));
    for (size_t a = 0; a < count && a < MOST; a++) ranges[a] = range_of(all[a].tensor);
    for (size_t a = 0; a < count; a++) {
        if (all[a].role != MHA_OUTPUT || !all[a].tensor.data) continue;
        for (size_t b = 0; b < count; b++) {
            if (!all[b].tensor.data || b == a || (b < a && all[b].role == MHA_OUTPUT)) continue; /* each pair once */
            if (a < MOST && b < MOST && (ranges[a].end <= ranges[b].start || ranges[b].end <= ranges[a].start))
                continue;
            if (mha_may_overlap(all[a].tensor, all[b].tensor))
                return mha_fail(ctx, MHA_OVERLAP, "%s: shares memory with %s", all[a].name, all[b].name);
        }
    }
    return MHA_OK;
}

bool mha_same_view(mha_tensor a, mha_tensor b)
{
    if (a.data != b.data || a.type != b.type || a.rank != b.rank) return false;
    for (int axis = 0; axis < a.rank; axis++)
        if (a.size[axis] != b.size[axis] || a.stride[axis] != b.stride[axis]) return false;
    return true;
}

mha_tensor mha_broadcast(mha_tensor t)
{
    mha_tensor wide = {t.data, t.type, 4, {1, 1, 1, 1}, {0, 0, 0, 0}};
    for (int axis = 0; axis < t.rank; axis++) {
        int to = axis + 4 - t.rank;
        wide.size[to] = t.size[axis];
        wide.stride[to] = t.size[axis] == 1 ? 0 : t.stride[axis];
    }
    return wide;
}

mha_status mha_check_float(mha_context *ctx, mha_tensor *t, const char *name, int rank, const char *shape,
                           mha_role role)
{
    TRY(mha_check_tensor(ctx, t, name, rank, shape, role));
    if (!mha_is_float(t->type))
        return mha_fail(ctx, MHA_BAD_TYPE, "%s: is %s, must be float32, bfloat16 or float16", name,
                        mha_type_name(t->type));
    return MHA_OK;
}

/* ---- Copies ----------------------------------------------------------------------------------------------------- */

static mha_status check_copied(mha_context *ctx, mha_tensor *t, const char *name, mha_role role)
{
    if (t->rank < 1 || t->rank > 4)
        return mha_fail(ctx, MHA_BAD_SHAPE, "%s: has rank %d, must be from 1 to 4", name, t->rank);
    return mha_check_float(ctx, t, name, t->rank, "", role);
}

mha_status mha_tensor_copy(mha_context *ctx, mha_tensor to, mha_tensor from)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_succeed(ctx);
    TRY(check_copied(ctx, &to, "to", MHA_OUTPUT));
    TRY(check_copied(ctx, &from, "from", MHA_INPUT));
    if (to.rank != from.rank)
        return mha_fail(ctx, MHA_BAD_SHAPE, "from: has rank %d, must have %d as `to`", from.rank, to.rank);
    for (int axis = 0; axis < to.rank; axis++)
        if (to.size[axis] != from.size[axis])
            return mha_fail(ctx, MHA_BAD_SHAPE, "from: axis %d is %lld, must be %lld as that of `to`", axis,
                            (long long)from.size[axis], (long long)to.size[axis]);
    const mha_argument all[] = {{"to", to, MHA_OUTPUT}, {"from", from, MHA_INPUT}};
    TRY(MHA_CHECK_APART(ctx, all));
    ctx->backend->copy(ctx, to, from, false);
    return mha_call_end(ctx);
}
