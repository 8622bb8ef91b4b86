/* Copies between views, row by row along the last axis, through a few floats at a time. A fill is a copy from a view
 * whose strides are 0. */
#include "cpu/isa/kernels.h"
#include "cpu/rows/rows.h"
#include <string.h>

enum { PIECE = 256, TASK = 8192, SUM = 4096 }; /* floats on the stack; numbers that a task takes, and of a sum */

typedef struct job {
    const mha_kernels *kernels;
    mha_tensor to, from; /* of four axes */
    bool add;
    int64_t rows;
    int64_t high, wide; /* rows and columns of what a task takes: several rows, or a part of a long one */
    mha_queue queue;
} job;

static char *element(mha_tensor t, int64_t row, int64_t k)
{
    int64_t j = row % t.size[2], i = row / t.size[2] % t.size[1], b = row / t.size[2] / t.size[1];
    return mha_at(t, b, i, j, k);
}

static void copy_row(const job *c, int64_t row, int64_t first, int64_t end)
{
    float piece[PIECE], before[PIECE];
    for (int64_t k = first; k < end; k += PIECE) {
        int64_t n = end - k < PIECE ? end - k : PIECE;
        char *to = element(c->to, row, k);
        mha_row_load(c->kernels, piece, element(c->from, row, k), c->from.type, c->from.stride[3], n);
        if (c->add) {
            mha_row_load(c->kernels, before, to, c->to.type, c->to.stride[3], n);
            for (int64_t i = 0; i < n; i++) piece[i] += before[i];
        }
        mha_row_store(c->kernels, to, c->to.type, c->to.stride[3], piece, n);
    }
}

static void copy_task(void *arg, int task)
{
    job *c = arg;
    int64_t width = c->to.size[3], across = (width + c->wide - 1) / c->wide;
    (void)task;
    for (int64_t piece; (piece = mha_queue_take(&c->queue)) >= 0;) {
        int64_t row = piece / across * c->high, end = row + c->high, first = piece % across * c->wide;
        for (; row < end && row < c->rows; row++)
            copy_row(c, row, first, first + c->wide < width ? first + c->wide : width);
    }
}

/* The view with its axes at the end of four, of which those in front have one element. */
static mha_tensor of_four(mha_tensor t)
{
    mha_tensor wide = {t.data, t.type, 4, {1, 1, 1, 1}, {0, 0, 0, 0}};
    for (int axis = 0; axis < t.rank; axis++) {
        wide.size[axis + 4 - t.rank] = t.size[axis];
        wide.stride[axis + 4 - t.rank] = t.stride[axis];
    }
    return wide;
}

/* Whether all numbers are float32 and lie one behind another. */
static bool is_dense(mha_tensor t)
{
    int64_t step = 1;
    for (int axis = 3; axis >= 0; axis--) {
        if (t.size[axis] > 1 && t.stride[axis] != step) return false;
        step *= t.size[axis];
    }
    return t.type == MHA_FLOAT32;
}

static void add_piece(void *arg, int64_t n)
{
    const job *c = arg;
    int64_t first = n * SUM, left = c->rows - first;
    c->kernels->add((float *)c->to.data + first, (const float *)c->from.data + first, left < SUM ? left : SUM);
}

void mha_cpu_copy(mha_context *ctx, mha_tensor to, mha_tensor from, bool add)
{
    job c = {.kernels = ctx->kernels, .to = of_four(to), .from = of_four(from), .add = add};
    if (ctx->rehearsing || !mha_element_count(to)) return;
    if (add && is_dense(c.to) && is_dense(c.from)) {
        c.rows = mha_element_count(to); /* of one number */
        mha_parallel_each(ctx, (c.rows + SUM - 1) / SUM, add_piece, &c);
        return;
    }
    c.rows = c.to.size[0] * c.to.size[1] * c.to.size[2];
    c.wide = c.to.size[3] < TASK ? c.to.size[3] : TASK;
    c.high = TASK / c.wide;
    c.queue.count = (c.rows + c.high - 1) / c.high * ((c.to.size[3] + c.wide - 1) / c.wide);
    mha_parallel_run(ctx, c.queue.count < ctx->threads ? (int)c.queue.count : ctx->threads, copy_task, &c);
}

void mha_cpu_fill(mha_context *ctx, mha_tensor to, float value)
{
    mha_tensor from = to;
    from.data = &value;
    from.type = MHA_FLOAT32;
    for (int axis = 0; axis < to.rank; axis++) from.stride[axis] = 0;
    mha_cpu_copy(ctx, to, from, false);
}

void mha_cpu_upload(mha_context *ctx, void *to, const void *from, size_t bytes)
{
    if (!ctx->rehearsing && bytes) memcpy(to, from, bytes);
}
