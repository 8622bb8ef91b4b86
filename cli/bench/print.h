/* The measurements of mha bench, and their output. */
#ifndef BENCH_PRINT_H
#define BENCH_PRINT_H

#include "bench.h"

typedef enum bench_pass {
    BENCH_FORWARD,
    BENCH_BACKWARD,
    BENCH_DECODE,
    BENCH_GEMM,
    BENCH_LAYER,
    BENCH_TRAIN,
    BENCH_INFER,
    BENCH_PASSES
} bench_pass;

extern const char *const bench_pass_names[]; /* ends with NULL */

/* One line of the table. */
typedef struct bench_job {
    bench_pass pass;
    const char *name;
    const void *shape; /* a bench_shape, bench_product, bench_layer or bench_model, depending on the pass */
} bench_job;

void bench_help(void);
void bench_print_json(const bench_setting *set, const bench_limits *limits, const bench_job *job,
                      const bench_result *result);
void bench_print_head(const bench_setting *set, const bench_limits *limits);
void bench_print_row(const bench_limits *limits, const bench_job *job, const bench_result *result);

#endif
