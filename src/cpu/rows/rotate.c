/* Rotary position embedding.
 *
 * Each (b,t) has one row of cosines and sines, shared by all heads; a row of x is turned pair by pair. It reads and
 * writes every number once, so it is bound by memory and written plainly; rows go through float32 scratch, which makes
 * working in place and in any type the same code. */
#include "attention/angles.h"
#include "core/arena.h"
#include "core/half.h"
#include "cpu/isa/kernels.h"
#include "cpu/rows/rows.h"

typedef struct job {
    const mha_rotation *rotation;
    mha_step *steps; /* (width/2), for positions that the tables do not have */
    size_t task_bytes;
    mha_queue queue; /* of (b,t) */
} job;

/* Element pairs are `apart` from each other and start every `step` elements. */
static void rotate_pairs(float *x, const float *cos, const float *sin, int64_t pairs, int64_t apart, int64_t step)
{
    for (int64_t i = 0; i < pairs; i++) {
        float *a = x + i * step, *b = a + apart, u = *a, v = *b;
        *a = u * cos[i] - v * sin[i];
        *b = u * sin[i] + v * cos[i];
    }
}

/* The table's row for (b,t). */
static void load_row(const mha_rotation *r, float *to, mha_tensor table, int64_t b, int64_t t)
{
    int last = table.rank - 1;
    int64_t at =
        last == 1 ? mha_rotation_position(r, b, t) * table.stride[0] : b * table.stride[0] + t * table.stride[1];
    mha_row_load(r->ctx->kernels, to, (const char *)table.data + at * (int64_t)mha_type_size(table.type), table.type,
                 table.stride[last], r->width / 2);
}

/* The angles of (b,t): from the tables, or what they would have. */
static void load_angles(const job *j, float *cos, float *sin, int64_t b, int64_t t)
{
    const mha_rotation *r = j->rotation;
    if (!mha_rotation_is_beyond(r, b, t)) {
        load_row(r, cos, r->cos, b, t);
        load_row(r, sin, r->sin, b, t);
        return;
    }
    for (int64_t i = 0; i < r->width / 2; i++) {
        mha_angle angle = mha_angle_get(j->steps[i], mha_rotation_position(r, b, t), r->frequencies.multiplier);
        cos[i] = angle.cos;
        sin[i] = angle.sin;
    }
}

/* The scratch of a task. */
typedef struct slice {
    float *row;       /* (D) */
    float *cos, *sin; /* (width/2) */
} slice;

static void lay_slice(slice *s, mha_arena *arena, const mha_rotation *r)
{
    MHA_TAKE(arena, s->row, r->x.size[3]);
    MHA_TAKE(arena, s->cos, r->width / 2);
    MHA_TAKE(arena, s->sin, r->width / 2);
}

/* The scratch of all tasks, and behind it what they share. */
static void lay_out(job *j, mha_arena *arena, int tasks)
{
    mha_arena_take(arena, tasks, j->task_bytes);
    if (j->rotation->beyond) MHA_TAKE(arena, j->steps, j->rotation->width / 2);
}

static void rotate_task(void *arg, int task)
{
    job *j = arg;
    const mha_rotation *r = j->rotation;
    const mha_kernels *kernels = r->ctx->kernels;
    int64_t D = r->x.size[3], pairs = r->width / 2;
    mha_arena arena = {.base = r->ctx->scratch + (size_t)task * j->task_bytes};
    slice s;
    lay_slice(&s, &arena, r);
    float *row = s.row, *cos = s.cos, *sin = s.sin;
    for (int64_t piece; (piece = mha_queue_take(&j->queue)) >= 0;) {
        int64_t b = piece / r->x.size[2], t = piece % r->x.size[2];
        load_angles(j, cos, sin, b, t);
        for (int64_t i = 0; r->options.inverse && i < pairs; i++) sin[i] = -sin[i];
        for (int64_t h = 0; h < r->x.size[1]; h++) {
            mha_row_load(kernels, row, mha_at(r->x, b, h, t, 0), r->x.type, r->x.stride[3], D);
            if (r->options.interleaved) rotate_pairs(row, cos, sin, pairs, 1, 2);
            else rotate_pairs(row, cos, sin, pairs, pairs, 1);
            mha_row_store(kernels, mha_at(r->out, b, h, t, 0), r->out.type, r->out.stride[3], row, D);
        }
    }
}

/* The step of pair i of n, from that of the pair before it. */
static mha_step next_step(const mha_frequencies *f, mha_step ratio, mha_step before, int64_t i)
{
    if (!f->values.rank) return i ? mha_step_multiply(before, ratio) : (mha_step){1, 0};
    const char *at = (const char *)f->values.data + i * f->values.stride[0] * (int64_t)mha_type_size(f->values.type);
    return (mha_step){(double)mha_load(at, f->values.type), 0};
}

static mha_step ratio_of(const mha_frequencies *f, int64_t pairs)
{
    return f->values.rank ? (mha_step){1, 0} : mha_step_ratio(f->base, pairs);
}

static void fill_steps(job *j)
{
    const mha_frequencies *f = &j->rotation->frequencies;
    int64_t pairs = j->rotation->width / 2;
    mha_step ratio = ratio_of(f, pairs), step = {1, 0};
    for (int64_t i = 0; i < pairs; i++) j->steps[i] = step = next_step(f, ratio, step, i);
}

mha_status mha_cpu_rotate(const mha_rotation *r)
{
    mha_context *ctx = r->ctx;
    job j = {.rotation = r, .queue.count = r->x.size[0] * r->x.size[2]};
    int tasks = j.queue.count < ctx->threads ? (int)j.queue.count : ctx->threads;
    mha_arena one = {0}, all = {0};
    slice s;
    lay_slice(&s, &one, r);
    j.task_bytes = one.used;
    lay_out(&j, &all, tasks);
    TRY(mha_scratch_reserve(ctx, all.used + MHA_ALIGNMENT));
    if (ctx->rehearsing) return MHA_OK;
    mha_arena arena = {.base = ctx->scratch};
    lay_out(&j, &arena, tasks);
    if (r->beyond) fill_steps(&j);
    mha_parallel_run(ctx, tasks, rotate_task, &j);
    return MHA_OK;
}

static void put(mha_tensor table, int64_t position, int64_t pair, float value)
{
    int64_t at = position * table.stride[0] + pair * table.stride[1];
    mha_store((char *)table.data + at * (int64_t)mha_type_size(table.type), table.type, value);
}

void mha_cpu_rotary_tables(mha_context *ctx, mha_tensor cosines, mha_tensor sines, const mha_frequencies *frequencies)
{
    if (ctx->rehearsing) return;
    mha_step ratio = ratio_of(frequencies, cosines.size[1]), step = {1, 0};
    for (int64_t i = 0; i < cosines.size[1]; i++) {
        step = next_step(frequencies, ratio, step, i);
        for (int64_t p = 0; p < cosines.size[0]; p++) {
            mha_angle angle = mha_angle_get(step, p, frequencies->multiplier);
            put(cosines, p, i, angle.cos);
            put(sines, p, i, angle.sin);
        }
    }
}
