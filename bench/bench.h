/* Measuring attention: the shapes, and one measurement of one shape. */
#ifndef BENCH_H
#define BENCH_H

#include <mha.h>

typedef struct bench_shape {
    const char *name, *what;
    int64_t B, H, G, Tq, Tk, D;
    bool causal;
} bench_shape;

/* The shapes of the field, small to large; a name of NULL ends them. */
extern const bench_shape bench_shapes[];

typedef struct bench_result {
    double ms_median, ms_best;
    double gflops;     /* at the median: 4 B H Tq Tk D, half if causal */
    double unfused_ms; /* the loop that one would write first, same threads; best of a few, NAN if not run */
    double max_error;  /* against the oracle over sampled rows, as a share of the largest value */
    size_t scratch_bytes;
} bench_result;

/* Verifies and then times the forward pass of one shape in one type. False if memory is short or the library refuses,
 * with the reason in `error`. */
bool bench_forward(bench_result *result, mha_context *ctx, const bench_shape *shape, mha_type type, char error[200]);

/* Attention with the whole (Tq,Tk) matrix of each head in memory: three loops, as the formula reads. */
void bench_unfused(float *out, const float *q, const float *k, const float *v, const bench_shape *shape, float *scores,
                   int threads);

/* Seconds of a clock that never goes back. */
double bench_now(void);

#endif
