/* The measurements of mha bench, and their output. */
#ifndef BENCH_PRINT_H
#define BENCH_PRINT_H

#include "bench.h"
#include "cli/common/options.h"

typedef enum bench_pass {
    BENCH_FORWARD,
    BENCH_BACKWARD,
    BENCH_DECODE,
    BENCH_GEMM,
    BENCH_LAYER,
    BENCH_TRAIN,
    BENCH_INFER,
    BENCH_GENERATE, /* only by name, as the next two */
    BENCH_PROMPT,
    BENCH_SCALING, /* cli/bench/scaling.c */
    BENCH_PASSES
} bench_pass;

extern const cli_word bench_passes[]; /* each at its number, and "all" */

/* One line of the table. */
typedef struct bench_job {
    bench_pass pass;
    const char *name;
    const void *shape; /* a bench_shape, bench_product, bench_layer, bench_model or bench_language, as the pass is */
} bench_job;

/* Prints all shapes, for the help. */
void bench_list_shapes(void);

void bench_print_json(const bench_setting *set, const bench_limits *limits, const bench_job *job,
                      const bench_result *result);
void bench_print_head(const bench_setting *set, const bench_limits *limits, bool language);
/* ---- scaling.c, scaling_chart.c ---------------------------------------------------------------------------------- */

enum { BENCH_SIZES = 32 };

/* All sizes up to some length, and what was measured. */
typedef struct bench_curves {
    int count;
    bench_size size[BENCH_SIZES];
    bench_growth growth[BENCH_SIZES];
} bench_curves;

/* The exponent of T, of H or of D in the time of a way, or in its memory beside the arrays. */
double bench_time_exponent(const bench_curves *c, char axis, bench_way way);
double bench_memory_exponent(const bench_curves *c, char axis, bench_way way);

void bench_list_sizes(int64_t longest);

/* Measures all sizes up to T = longest and prints them; draws `chart` unless it is NULL. Returns an exit code. */
int bench_run_scaling(const bench_setting *set, int64_t longest, const char *chart, bool json);

/* Replaces the file atomically. Returns false on error, with one line in `error`. */
bool bench_draw_scaling(const char *path, const bench_curves *c, const char *about, char *error, size_t error_size);

void bench_print_row(const bench_limits *limits, const bench_job *job, const bench_result *result);

#endif
