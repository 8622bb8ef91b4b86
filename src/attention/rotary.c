/* Rotary position embedding, and the tables of its angles.
 *
 * Each (b,t) has one row of cosines and sines, shared by all heads; a row of x is turned pair by pair. It reads and
 * writes every number once, so it is bound by memory and written plainly; rows go through float32 scratch, which makes
 * working in place and in any type the same code. */
#include "attention/rotary.h"
#include "attention/angles.h"
#include "core/half.h"
#include "cpu/kernels.h"

typedef struct rotation {
    mha_context *ctx;
    mha_tensor out, x, cos, sin;
    mha_rotary_options options; /* positions (B,T) if given */
    int64_t width;
    double base;     /* of the angles of positions that the tables do not have; 0: they are refused */
    bool beyond;     /* there are such positions */
    mha_step *steps; /* (width/2), for them */
    size_t task_bytes;
    mha_queue queue; /* of (b,t) */
} rotation;

typedef long long ll;

#define FAIL(...) return mha_fail(r->ctx, __VA_ARGS__)

static mha_status check_float(rotation *r, mha_tensor *t, const char *name, int rank, const char *shape, mha_role role)
{
    TRY(mha_check_tensor(r->ctx, t, name, rank, shape, role));
    if (!mha_is_float(t->type))
        FAIL(MHA_BAD_TYPE, "%s: is %s, must be float32, bfloat16 or float16", name, mha_type_name(t->type));
    return MHA_OK;
}

/* (P,w/2), or a row for each (b,t). */
static mha_status check_table(rotation *r, mha_tensor *t, const char *name)
{
    int rank = t->rank == 3 ? 3 : 2;
    TRY(check_float(r, t, name, rank, "(P,w/2) or 3 (B,T,w/2)", MHA_INPUT));
    if (t->size[rank - 1] != r->width / 2)
        FAIL(MHA_BAD_SHAPE, "%s: has rows of %lld, must be %lld, half of the rotated width", name,
             (ll)t->size[rank - 1], (ll)r->width / 2);
    if (rank == 3 && ((t->size[0] != 1 && t->size[0] != r->x.size[0]) || t->size[1] != r->x.size[2]))
        FAIL(MHA_BAD_SHAPE, "%s: is (%lld,%lld,*), must be (B,T,*) or (1,T,*) of x", name, (ll)t->size[0],
             (ll)t->size[1]);
    return MHA_OK;
}

static int64_t position_of(const rotation *r, int64_t b, int64_t t)
{
    mha_tensor p = r->options.positions;
    if (!p.data) return r->options.first_position + t;
    return ((const int64_t *)p.data)[b * p.stride[0] + t * p.stride[1]];
}

/* Whether the row of (b,t) is not in the tables (P,w/2). */
static bool is_beyond(const rotation *r, int64_t b, int64_t t)
{
    return r->cos.rank == 2 && position_of(r, b, t) >= r->cos.size[0];
}

/* Positions as (B,T), each with a row in the tables or with angles that can be computed. */
static mha_status check_positions(rotation *r)
{
    mha_tensor *p = &r->options.positions;
    int64_t B = r->x.size[0], T = r->x.size[2], rows = r->cos.size[0];
    if (r->cos.rank != r->sin.rank) FAIL(MHA_BAD_SHAPE, "sin: has rank %d, cos has %d", r->sin.rank, r->cos.rank);
    if (r->sin.size[0] != rows && r->cos.rank == 2)
        FAIL(MHA_BAD_SHAPE, "sin: has %lld rows, cos has %lld", (ll)r->sin.size[0], (ll)rows);
    if (r->options.first_position < -MHA_SIZE_LIMIT || r->options.first_position > MHA_SIZE_LIMIT)
        FAIL(MHA_BAD_ARGUMENT, "first_position: %lld is not within +-2^40", (ll)r->options.first_position);
    if (mha_is_given(*p)) {
        TRY(mha_check_tensor(r->ctx, p, "positions", p->rank == 1 ? 1 : 2, "(B,T), or 1 (T)", MHA_INPUT));
        if (p->type != MHA_INT64) FAIL(MHA_BAD_TYPE, "positions: is %s, must be int64", mha_type_name(p->type));
        mha_tensor wide = mha_broadcast(*p);
        if ((wide.size[2] != 1 && wide.size[2] != B) || p->size[p->rank - 1] != T)
            FAIL(MHA_BAD_SHAPE, "positions: must be (B,T), (1,T) or (T) of x");
        *p = (mha_tensor){p->data, p->type, 2, {B, T, 0, 0}, {wide.stride[2], p->stride[p->rank - 1], 0, 0}};
    }
    for (int64_t b = 0; r->cos.rank == 2 && r->x.size[1] && b < (p->rank ? B : B > 0); b++)
        for (int64_t t = 0; t < T; t++) {
            bool beyond = is_beyond(r, b, t);
            if (position_of(r, b, t) < 0 || (beyond && !(r->base > 0)))
                FAIL(MHA_BAD_ARGUMENT, "positions: (%lld,%lld) is at %lld, but the tables have %lld rows", (ll)b, (ll)t,
                     (ll)position_of(r, b, t), (ll)rows);
            r->beyond = r->beyond || beyond;
        }
    return MHA_OK;
}

static mha_status check(rotation *r)
{
    TRY(check_float(r, &r->x, "x", 4, "(B,H,T,D)", MHA_INPUT));
    TRY(check_float(r, &r->out, "out", 4, "(B,H,T,D)", MHA_OUTPUT));
    for (int axis = 0; axis < 4; axis++)
        if (r->out.size[axis] != r->x.size[axis])
            FAIL(MHA_BAD_SHAPE, "out: axis %d is %lld, must be %lld as x", axis, (ll)r->out.size[axis],
                 (ll)r->x.size[axis]);
    r->width = r->options.width ? r->options.width : r->x.size[3];
    if (r->width < 0 || r->width % 2 || r->width > r->x.size[3])
        FAIL(MHA_BAD_ARGUMENT, "width: %lld must be even and at most %lld, the width of x", (ll)r->width,
             (ll)r->x.size[3]);
    TRY(check_table(r, &r->cos, "cos"));
    TRY(check_table(r, &r->sin, "sin"));
    TRY(check_positions(r));
    const mha_argument all[] = {
        {"out", r->out, MHA_OUTPUT},
        {"x, without being x", mha_same_view(r->out, r->x) ? (mha_tensor)MHA_NO_TENSOR : r->x, MHA_INPUT},
        {"cos", r->cos, MHA_INPUT},
        {"sin", r->sin, MHA_INPUT},
        {"positions", r->options.positions, MHA_INPUT}};
    return MHA_CHECK_APART(r->ctx, all);
}

/* Element pairs are `apart` from each other and start every `step` elements. */
static void turn(float *x, const float *cos, const float *sin, int64_t pairs, int64_t apart, int64_t step)
{
    for (int64_t i = 0; i < pairs; i++) {
        float *a = x + i * step, *b = a + apart, u = *a, v = *b;
        *a = u * cos[i] - v * sin[i];
        *b = u * sin[i] + v * cos[i];
    }
}

/* The table's row for (b,t). */
static void load_row(const rotation *r, float *to, mha_tensor table, int64_t b, int64_t t)
{
    int last = table.rank - 1;
    int64_t at = last == 1 ? position_of(r, b, t) * table.stride[0] : b * table.stride[0] + t * table.stride[1];
    mha_row_load(r->ctx->kernels, to, (const char *)table.data + at * (int64_t)mha_type_size(table.type), table.type,
                 table.stride[last], r->width / 2);
}

/* The angles of (b,t): from the tables, or what they would have. */
static void load_angles(const rotation *r, float *cos, float *sin, int64_t b, int64_t t)
{
    if (!is_beyond(r, b, t)) {
        load_row(r, cos, r->cos, b, t);
        load_row(r, sin, r->sin, b, t);
        return;
    }
    for (int64_t i = 0; i < r->width / 2; i++) {
        mha_angle angle = mha_angle_get(r->steps[i], position_of(r, b, t));
        cos[i] = angle.cos;
        sin[i] = angle.sin;
    }
}

static void rotate_task(void *arg, int task)
{
    rotation *r = arg;
    const mha_kernels *kernels = r->ctx->kernels;
    int64_t D = r->x.size[3], pairs = r->width / 2;
    float *row = (float *)(r->ctx->scratch + (size_t)task * r->task_bytes);
    float *cos = row + mha_padded(D), *sin = cos + mha_padded(pairs);
    for (int64_t piece; (piece = mha_queue_take(&r->queue)) >= 0;) {
        int64_t b = piece / r->x.size[2], t = piece % r->x.size[2];
        load_angles(r, cos, sin, b, t);
        for (int64_t i = 0; r->options.inverse && i < pairs; i++) sin[i] = -sin[i];
        for (int64_t h = 0; h < r->x.size[1]; h++) {
            mha_row_load(kernels, row, mha_at(r->x, b, h, t, 0), r->x.type, r->x.stride[3], D);
            if (r->options.interleaved) turn(row, cos, sin, pairs, 1, 2);
            else turn(row, cos, sin, pairs, pairs, 1);
            mha_row_store(kernels, mha_at(r->out, b, h, t, 0), r->out.type, r->out.stride[3], row, D);
        }
    }
}

static void fill_steps(rotation *r)
{
    int64_t pairs = r->width / 2;
    mha_step ratio = mha_step_ratio(r->base, pairs), step = {1, 0};
    for (int64_t i = 0; i < pairs; i++, step = mha_step_multiply(step, ratio)) r->steps[i] = step;
}

mha_status mha_rotary_apply_beyond(mha_context *ctx, mha_tensor out, mha_tensor x, mha_tensor cos, mha_tensor sin,
                                   double base, const mha_rotary_options *options)
{
    static const mha_rotary_options defaults = MHA_ROTARY_DEFAULTS;
    if (!ctx) return MHA_BAD_ARGUMENT;
    rotation r = {
        .ctx = ctx, .out = out, .x = x, .cos = cos, .sin = sin, .base = base, .options = options ? *options : defaults};
    mha_succeed(ctx);
    TRY(check(&r));
    if (mha_element_count(x) == 0) return MHA_OK;
    r.queue.count = x.size[0] * x.size[2];
    int tasks = r.queue.count < ctx->threads ? (int)r.queue.count : ctx->threads;
    r.task_bytes = mha_align_up((size_t)(mha_padded(x.size[3]) + 2 * mha_padded(r.width / 2)) * sizeof(float));
    size_t steps_bytes = r.beyond ? (size_t)r.width / 2 * sizeof *r.steps : 0;
    TRY(mha_scratch_reserve(ctx, r.task_bytes * (size_t)tasks + steps_bytes + MHA_ALIGNMENT));
    if (ctx->rehearsing) return MHA_OK;
    r.steps = (mha_step *)(ctx->scratch + r.task_bytes * (size_t)tasks);
    if (r.beyond) fill_steps(&r);
    mha_parallel_run(ctx, tasks, rotate_task, &r);
    return MHA_OK;
}

mha_status mha_rotary_apply(mha_context *ctx, mha_tensor out, mha_tensor x, mha_tensor cos, mha_tensor sin,
                            const mha_rotary_options *options)
{
    return mha_rotary_apply_beyond(ctx, out, x, cos, sin, 0, options);
}

mha_status mha_rotary_tables(mha_context *ctx, mha_tensor cosines, mha_tensor sines, double base)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    rotation here = {.ctx = ctx}, *r = &here;
    mha_succeed(ctx);
    TRY(check_float(r, &cosines, "cos", 2, "(P,w/2)", MHA_OUTPUT));
    TRY(check_float(r, &sines, "sin", 2, "(P,w/2)", MHA_OUTPUT));
    if (cosines.size[0] != sines.size[0] || cosines.size[1] != sines.size[1])
        FAIL(MHA_BAD_SHAPE, "sin: must have the sizes of cos");
    if (!(base > 0) || isinf(base)) FAIL(MHA_BAD_ARGUMENT, "base: must be a positive number");
    const mha_argument all[] = {{"cos", cosines, MHA_OUTPUT}, {"sin", sines, MHA_OUTPUT}};
    TRY(MHA_CHECK_APART(ctx, all));
    if (mha_element_count(cosines) == 0) return MHA_OK;
    mha_step ratio = mha_step_ratio(base, cosines.size[1]), step = {1, 0};
    for (int64_t i = 0; i < cosines.size[1]; i++, step = mha_step_multiply(step, ratio))
        for (int64_t p = 0; p < cosines.size[0]; p++) {
            mha_angle angle = mha_angle_get(step, p);
            int64_t width = (int64_t)mha_type_size(cosines.type), wide = (int64_t)mha_type_size(sines.type);
            char *to = (char *)cosines.data + (p * cosines.stride[0] + i * cosines.stride[1]) * width;
            mha_store(to, cosines.type, angle.cos);
            to = (char *)sines.data + (p * sines.stride[0] + i * sines.stride[1]) * wide;
            mha_store(to, sines.type, angle.sin);
        }
    return MHA_OK;
}
