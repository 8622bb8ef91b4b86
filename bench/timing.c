/* The clock. */
#include "bench.h"
#include "gpu.h"
#include <stdlib.h>
#include <time.h>

enum { RUNS_MOST = 200 };
static const double PATIENCE_MS = 2000;

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void bench_time_turns(const bench_setting *set, int count, void (*const *run)(void *arg), void *arg, double *median,
                      double *best)
{
    double ms[BENCH_TURNS][RUNS_MOST], begun = bench_now();
    int runs = 0;
    for (; runs < 3 || (runs < RUNS_MOST && bench_now() - begun < set->seconds); runs++)
        for (int n = 0; n < count; n++) {
            double start = bench_now();
            run[n](arg);
            ms[n][runs] = 1e3 * (bench_now() - start);
        }
    for (int n = 0; n < count; n++) {
        qsort(ms[n], (size_t)runs, sizeof **ms, by_size);
        best[n] = ms[n][0];
        median[n] = ms[n][runs / 2];
    }
}

void bench_time(const bench_setting *set, void (*run)(void *arg), void *arg, double *median, double *best)
{
    if (set->gpu) bench_gpu_time(set, run, arg, median, best);
    else bench_time_turns(set, 1, &run, arg, median, best);
}

double bench_time_peer(const bench_setting *set, void (*run)(void *arg), void *arg)
{
    double start = bench_now(), median, best;
    run(arg);
    double first = 1e3 * (bench_now() - start);
    if (first > PATIENCE_MS) return first;
    bench_time(set, run, arg, &median, &best);
    return median;
}
