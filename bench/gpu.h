/* A GPU to measure on: a stream, graphs, events and clocks, by NVIDIA's driver and its management library, both opened at run
 * time. */
#ifndef BENCH_GPU_H
#define BENCH_GPU_H

#include "bench.h"

/* Opens GPU `ordinal`, for which a context can be made. NULL on error, with one line in `error`. */
bench_gpu *bench_gpu_open(int ordinal, char error[200]);
void bench_gpu_close(bench_gpu *gpu); /* NULL is legal */

/* Its stream, for the context whose calls are timed; a CUstream. */
void *bench_gpu_stream(bench_gpu *gpu);

/* Its limits at its highest clocks, which are in MHz: those of its tensor cores for 16-bit types, otherwise of its float32 units;
 * and of its memory. */
bench_limits bench_gpu_limits(const bench_gpu *gpu, mha_type type);
double bench_gpu_highest_clock(const bench_gpu *gpu);

/* Times calls that `run` puts into the stream: several of them are captured as a graph, whose replays are timed by events.
 * The result is the median and the best of a call in milliseconds; NAN if the driver reported an error. */
void bench_gpu_time(const bench_setting *set, void (*run)(void *arg), void *arg, double *median, double *best);

/* The clock of its multiprocessors in MHz in the middle of the last measurement; NAN if it is not known. */
double bench_gpu_clock(const bench_gpu *gpu);

/* What the driver reported last. */
const char *bench_gpu_error(const bench_gpu *gpu);

#endif
