/* The limits of the machine: how fast its multiply units are when nothing stands in their way, and its memory. */
#include "bench.h"
#include "cpu/kernels.h"
#include <stdlib.h>

enum { ROUNDS = 20000, TRIES = 12 };
static const int64_t READ_FLOATS = INT64_C(1) << 26; /* 256 MiB, beyond the caches that matter */

typedef struct limits {
    const mha_kernels *kernels;
    const float *memory;
    int tasks;
    _Alignas(64) struct {
        float value;
        char apart[60]; /* a cache line each */
    } sinks[64];
} limits;

static void spin_task(void *arg, int task)
{
    limits *l = arg;
    l->kernels->spin(ROUNDS, &l->sinks[task % 64].value);
}

static void read_task(void *arg, int task)
{
    limits *l = arg;
    int64_t share = READ_FLOATS / l->tasks / MHA_PAD * MHA_PAD;
    l->sinks[task % 64].value = l->kernels->largest(l->memory + task * share, share);
}

static double best_seconds(mha_context *ctx, limits *l, void (*task)(void *, int))
{
    double best = INFINITY;
    for (int i = 0; i < TRIES; i++) {
        double start = bench_now();
        mha_parallel_run(ctx, l->tasks, task, l);
        double took = bench_now() - start;
        if (took < best) best = took;
    }
    return best;
}

bench_limits bench_measure_limits(mha_context *ctx)
{
    limits l = {.kernels = ctx->kernels, .tasks = mha_context_threads(ctx)};
    double operations = ctx->kernels->spin(1, &l.sinks[0].value) * ROUNDS * l.tasks;
    bench_limits found = {operations / best_seconds(ctx, &l, spin_task) * 1e-9, NAN};
    float *memory = malloc((size_t)READ_FLOATS * sizeof *memory);
    if (!memory) return found;
    for (int64_t i = 0; i < READ_FLOATS; i++) memory[i] = (float)(i % 251);
    l.memory = memory;
    found.read_gbytes = (double)READ_FLOATS * sizeof *memory / best_seconds(ctx, &l, read_task) * 1e-9;
    free(memory);
    return found;
}
