/* The matrix product of the layers, with its weights packed once: checked on sampled elements, then timed. */
#include "bench.h"
#include "cpu/matmul.h"
#include <stdio.h>
#include <stdlib.h>

enum { SAMPLES = 500 };

typedef struct gemm {
    mha_context *ctx;
    const bench_product *shape;
    bench_array a, b, c;
    void *packed;
    mha_status status;
} gemm;

static mha_tensor view(const bench_array *x, int64_t rows, int64_t cols)
{
    return mha_tensor_2d(x->typed, x->type, rows, cols);
}

static void run(void *arg)
{
    gemm *g = arg;
    const bench_product *s = g->shape;
    g->status = mha_matmul_packed(g->ctx, view(&g->c, s->M, s->N), view(&g->a, s->M, s->K), g->packed, NULL);
}

static bool pack(gemm *g)
{
    size_t bytes = 0;
    g->status = mha_matmul_pack_size(g->ctx, &bytes, g->shape->K, g->shape->N);
    if (!g->status) g->packed = malloc(bytes);
    if (g->packed) g->status = mha_matmul_pack(g->ctx, g->packed, bytes, view(&g->b, g->shape->K, g->shape->N));
    return g->packed != NULL;
}

/* As a share of sqrt(K), the size of a typical element. */
static double sampled_error(const gemm *g)
{
    const bench_product *s = g->shape;
    double worst = 0;
    for (int64_t n = 0; n < SAMPLES; n++) {
        int64_t i = n * 7919 % s->M, j = n * 104729 % s->N;
        double want = 0;
        for (int64_t k = 0; k < s->K; k++) want += (double)g->a.plain[i * s->K + k] * (double)g->b.plain[k * s->N + j];
        double error = fabs(bench_array_get(&g->c, i * s->N + j) - want);
        if (!(error <= worst)) worst = error;
    }
    return worst / sqrt((double)s->K);
}

bool bench_gemm(bench_result *result, mha_context *ctx, const bench_product *s, mha_type type, char error[200])
{
    gemm g = {.ctx = ctx, .shape = s};
    bool done = bench_array_make(&g.a, s->M * s->K, type, 1) && bench_array_make(&g.b, s->K * s->N, type, 2) &&
                bench_array_make(&g.c, s->M * s->N, type, 0);
    done = done && pack(&g);
    if (!done) snprintf(error, 200, "%s: not enough memory", s->name);
    if (done && !g.status) run(&g);
    if (g.status) snprintf(error, 200, "%s: %s", s->name, mha_context_error(ctx));
    done = done && !g.status;
    if (done) {
        *result = (bench_result){.unfused_ms = NAN, .max_error = sampled_error(&g)};
        bench_time(run, &g, &result->ms_median, &result->ms_best);
        result->gflops = 2.0 * (double)(s->M * s->N) * (double)s->K / result->ms_median * 1e-6;
        result->scratch_bytes = mha_context_scratch(ctx);
    }
    bench_array_free(&g.a);
    bench_array_free(&g.b);
    bench_array_free(&g.c);
    free(g.packed);
    return done;
}
