/* For tests of the library's threads: tasks that tell who ran them, a call whose bits are known, pauses, a limit of time. */
#ifndef LOOPS_H
#define LOOPS_H

#include "support/contexts.h"
#include "support/harness.h"

#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static inline mha_context *pool_context(int threads, ledger *m)
{
    return context_make(NULL, threads, (mha_parallel){NULL, NULL}, m);
}

static inline double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Waits without sleeping, so that a wait of a few microseconds is one. */
static inline void wait_for(double length)
{
    for (double start = seconds(); seconds() - start < length;) {}
}

/* Long enough for every worker to fall asleep. */
static inline void let_workers_sleep(void) { nanosleep(&(struct timespec){0, 5000000}, NULL); }

/* A test that hangs ends by SIGALRM; a machine that is busy with other things needs longer than one that is not. */
static inline void end_within_minutes(void) { alarm(300); }

/* ---- Tasks ------------------------------------------------------------------------------------------------------ */

/* Each task counts itself. */
static inline void count_task(void *arg, int index) { atomic_fetch_add(&((atomic_int *)arg)[index], 1); }

/* Tasks that meet: each waits until all have started, which takes a thread for each. */
typedef struct meeting {
    int tasks;
    double patience; /* seconds */
    atomic_int here, late;
} meeting;

static inline void meet(void *arg, int index)
{
    meeting *m = arg;
    (void)index;
    atomic_fetch_add(&m->here, 1);
    double start = seconds();
    while (atomic_load(&m->here) < m->tasks)
        if (seconds() - start > m->patience) {
            atomic_fetch_add(&m->late, 1);
            return;
        }
}

/* Whether so many tasks run at the same time. */
static inline bool all_meet(mha_context *ctx, int tasks)
{
    meeting m = {.tasks = tasks, .patience = 30};
    mha_context_run(ctx, tasks, meet, &m);
    return !atomic_load(&m.late);
}

/* ---- A call ----------------------------------------------------------------------------------------------------- */

enum { CALL_H = 6, CALL_T = 150, CALL_D = 32, CALL_FLOATS = CALL_H * CALL_T * CALL_D };

/* Attention over small numbers, and a product of the result with itself. */
typedef struct answer {
    float out[CALL_FLOATS], product[CALL_H * CALL_T * CALL_H * CALL_T];
} answer;

static inline mha_status give_answer(mha_context *ctx, answer *a)
{
    static _Thread_local float x[CALL_FLOATS];
    for (int n = 0; n < CALL_FLOATS; n++) x[n] = (float)(n % 251 - 125) / 64;
    memset(a, 0xFF, sizeof *a);
    mha_tensor q = mha_tensor_4d(x, MHA_FLOAT32, 1, CALL_H, CALL_T, CALL_D);
    mha_tensor out = mha_tensor_4d(a->out, MHA_FLOAT32, 1, CALL_H, CALL_T, CALL_D);
    mha_status status = mha_attention_forward(ctx, out, NULL, q, q, q, NULL);
    mha_tensor rows = mha_tensor_2d(a->out, MHA_FLOAT32, CALL_H * CALL_T, CALL_D);
    mha_tensor product = mha_tensor_2d(a->product, MHA_FLOAT32, CALL_H * CALL_T, CALL_H * CALL_T);
    return status ? status : mha_matmul(ctx, product, rows, mha_tensor_swap(rows, 0, 1), NULL);
}

/* What one thread gives. */
static inline const answer *right_answer(void)
{
    static answer right;
    static bool known;
    if (known) return &right;
    mha_context *ctx = pool_context(1, NULL);
    expect(!give_answer(ctx, &right), "%s", mha_context_error(ctx));
    mha_context_free(ctx);
    known = true;
    return &right;
}

/* Whether a context gives it. */
static inline bool answers(mha_context *ctx)
{
    const answer *right = right_answer();
    answer *got = malloc(sizeof *got);
    bool same = got && !give_answer(ctx, got) && !memcmp(got, right, sizeof *got);
    free(got);
    return same;
}

#endif
