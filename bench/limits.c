/* The limits of the machine: how fast its multiply units are when nothing stands in their way, and its memory. */
#include "bench.h"
#include "cpu/engine/engine.h"
#include <stdlib.h>

enum { TRIES_LEAST = 3, TRIES_MOST = 12 };
static const double SECONDS_MOST = 0.25;              /* for one limit; a measurement of a shape may take longer */
static const double TRY_SECONDS = 4e-3;               /* of multiply-adds: long beside the waking of threads */
static const int64_t READ_FLOATS = INT64_C(1) << 26;  /* 256 MiB, beyond the caches that matter */
static const int64_t PIECE_FLOATS = INT64_C(1) << 18; /* that a thread reads before it takes the next */

typedef struct limits {
    const mha_kernels *kernels;
    double (*spin)(int64_t rounds, float *sink); /* of the kernels, or of the engine */
    const float *memory;
    int tasks;
    int64_t rounds;
    double seconds; /* for the tries of one limit, beyond the least */
    _Alignas(64) struct {
        float value;
        char apart[60]; /* a cache line each */
    } sinks[64];
} limits;

static void spin_task(void *arg, int task)
{
    limits *l = arg;
    l->spin(l->rounds, &l->sinks[task % 64].value);
}

static void read_task(void *arg, int task)
{
    limits *l = arg;
    int64_t share = READ_FLOATS / l->tasks / MHA_PAD * MHA_PAD;
    l->sinks[task % 64].value = l->kernels->largest(l->memory + task * share, share, 1, share);
}

/* The first run only wakes the threads and touches the memory. */
static double best_seconds(mha_context *ctx, limits *l, void (*task)(void *, int))
{
    double best = INFINITY, begun;
    mha_parallel_run(ctx, l->tasks, task, l);
    begun = bench_now();
    for (int i = 0; i < TRIES_LEAST || (i < TRIES_MOST && bench_now() - begun < l->seconds); i++) {
        double start = bench_now();
        mha_parallel_run(ctx, l->tasks, task, l);
        double took = bench_now() - start;
        if (took < best) best = took;
    }
    return best;
}

/* A count of rounds that takes one thread long enough; instruction sets differ. */
static int64_t enough_rounds(limits *l)
{
    for (l->rounds = 1 << 14;; l->rounds *= 2) {
        double start = bench_now();
        spin_task(l, 0);
        if (bench_now() - start >= TRY_SECONDS) return l->rounds;
    }
}

static double peak_gflops(mha_context *ctx, limits *l)
{
    double operations = l->spin(1, &l->sinks[0].value) * (double)enough_rounds(l) * l->tasks;
    return operations / best_seconds(ctx, l, spin_task) * 1e-9;
}

static double read_gbytes(mha_context *ctx, limits *l)
{
    float *memory = malloc((size_t)READ_FLOATS * sizeof *memory);
    if (!memory) return NAN;
    for (int64_t i = 0; i < READ_FLOATS; i++) memory[i] = (float)(i % 251);
    l->memory = memory;
    double found = (double)READ_FLOATS * sizeof *memory / best_seconds(ctx, l, read_task) * 1e-9;
    free(memory);
    return found;
}

/* ---- Memory of the caller ---------------------------------------------------------------------------------------- */

typedef struct reading {
    const mha_kernels *kernels;
    const float *memory;
    int64_t count;
    float *largest; /* (pieces), so that nothing can be left out */
} reading;

static void read_piece(void *arg, int64_t n)
{
    const reading *r = arg;
    int64_t first = n * PIECE_FLOATS, left = r->count - first, count = left < PIECE_FLOATS ? left : PIECE_FLOATS;
    r->largest[n] = r->kernels->largest(r->memory + first, count, 1, count);
}

void bench_read(mha_context *ctx, const void *memory, size_t bytes)
{
    reading r = {ctx->kernels, memory, (int64_t)(bytes / sizeof(float) / MHA_PAD * MHA_PAD), NULL};
    int64_t pieces = (r.count + PIECE_FLOATS - 1) / PIECE_FLOATS;
    r.largest = malloc((size_t)(pieces + 1) * sizeof *r.largest);
    if (r.largest) mha_parallel_each(ctx, pieces, read_piece, &r);
    free(r.largest);
}

/* ---- Both -------------------------------------------------------------------------------------------------------- */

bench_limits bench_measure_limits(const bench_setting *set)
{
    mha_context *ctx = set->ctx;
    limits l = {.kernels = ctx->kernels, .spin = ctx->kernels->spin, .tasks = mha_context_threads(ctx)};
    l.seconds = fmin(set->seconds, SECONDS_MOST);
    if (set->compute == MHA_BFLOAT16 && ctx->engine) l.spin = ctx->engine->spin;
    return (bench_limits){peak_gflops(ctx, &l), read_gbytes(ctx, &l)};
}
