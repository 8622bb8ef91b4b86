#include "ops/chunks.h"
#include "ops/clones.h"
#include <stdatomic.h>

/* ---- Loops ------------------------------------------------------------------------------------------------------ */

typedef struct queue {
    void (*task)(void *arg, int64_t n);
    void *arg;
    int64_t count;
    atomic_llong next;
} queue;

static void take_all(void *arg, int index)
{
    queue *q = arg;
    (void)index;
    for (int64_t n; (n = atomic_fetch_add_explicit(&q->next, 1, memory_order_relaxed)) < q->count;) q->task(q->arg, n);
}

void nn_each(mha_context *ctx, int64_t count, void (*task)(void *arg, int64_t n), void *arg)
{
    queue q = {.task = task, .arg = arg, .count = count};
    int threads = mha_context_threads(ctx);
    mha_context_run(ctx, count < threads ? (int)count : threads, take_all, &q);
}

/* ---- Sums of chunks --------------------------------------------------------------------------------------------- */

enum { PIECE = 256 }; /* columns of one task: their sums stay in L1 */

typedef struct addition {
    float *to;
    const float *partials;
    int64_t chunks, stride, columns;
} addition;

NN_CLONES static void add_columns(float *restrict to, const float *restrict partials, int64_t chunks, int64_t stride,
                                  int64_t columns)
{
    double sum[PIECE] = {0};
    for (int64_t chunk = 0; chunk < chunks; chunk++, partials += stride)
        for (int64_t i = 0; i < columns; i++) sum[i] += (double)partials[i];
    for (int64_t i = 0; i < columns; i++) to[i] += (float)sum[i];
}

static void add_piece(void *arg, int64_t n)
{
    const addition *a = arg;
    int64_t left = a->columns - n * PIECE;
    add_columns(a->to + n * PIECE, a->partials + n * PIECE, a->chunks, a->stride, left < PIECE ? left : PIECE);
}

void nn_add_chunks(mha_context *ctx, float *to, const float *partials, int64_t chunks, int64_t stride, int64_t columns)
{
    addition a = {to, partials, chunks, stride, columns};
    if (to) nn_each(ctx, (columns + PIECE - 1) / PIECE, add_piece, &a);
}
