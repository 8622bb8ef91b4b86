/* Measuring the library: the shapes, the limits of the machine, and one measurement of one shape. */
#ifndef BENCH_H
#define BENCH_H

#include <mha.h>

typedef struct bench_shape {
    const char *name, *what;
    int64_t B, H, G, Tq, Tk, D;
    bool causal;
} bench_shape;

/* The shapes of attention in the field, small to large; a name of NULL ends them. */
extern const bench_shape bench_shapes[];

/* Steps of a decoder: few queries, bound by reading keys and values. */
bool bench_is_decode(const bench_shape *shape);

/* (M,K) times (K,N), as layers need them. */
typedef struct bench_product {
    const char *name, *what;
    int64_t M, K, N;
} bench_product;

extern const bench_product bench_products[];

/* What the machine can do with this context's instruction set and threads, measured now. */
typedef struct bench_limits {
    double peak_gflops; /* multiply-adds on registers alone, float32 */
    double read_gbytes; /* reading memory that no cache holds, GB/s */
} bench_limits;

bench_limits bench_measure_limits(mha_context *ctx);

typedef struct bench_result {
    double ms_median, ms_best;
    double gflops;     /* at the median: 4 B H Tq Tk D forward, half if causal; 2.5 times that backward; 2 M N K */
    double gbytes;     /* at the median, GB/s of keys and values: decode only, else 0 */
    double unfused_ms; /* the loop that one would write first, same threads; forward only, NAN if not run */
    double max_error;  /* against the oracle over samples, as a share of the largest value */
    size_t scratch_bytes;
} bench_result;

/* Each verifies and then times. False if memory is short or the library refuses, with the reason in `error`. */
bool bench_forward(bench_result *result, mha_context *ctx, const bench_shape *shape, mha_type type, char error[200]);
bool bench_backward(bench_result *result, mha_context *ctx, const bench_shape *shape, mha_type type, char error[200]);
bool bench_gemm(bench_result *result, mha_context *ctx, const bench_product *shape, mha_type type, char error[200]);

/* Attention with the whole (Tq,Tk) matrix of each head in memory: three loops, as the formula reads. */
void bench_unfused(float *out, const float *q, const float *k, const float *v, const bench_shape *shape, float *scores,
                   int threads);

/* ---- shared by the measurements ---- */

/* Seconds of a clock that never goes back. */
double bench_now(void);

/* Runs for about a second, at least three times, and gives the median and the best of a run in milliseconds. */
void bench_time(void (*run)(void *arg), void *arg, double *median, double *best);

/* An array in the type that is measured, and what that type made of its numbers, as floats. For float32 the two are
 * one. */
typedef struct bench_array {
    float *plain;
    void *typed;
    int64_t count;
    mha_type type;
} bench_array;

/* `count` numbers that look like activations, the same on every machine; with seed 0 room for results. */
bool bench_array_make(bench_array *array, int64_t count, mha_type type, uint64_t seed);
void bench_array_free(bench_array *array);
double bench_array_get(const bench_array *array, int64_t i); /* from `typed` */

#endif
