/* The matrix product of the layers, with its weights packed once: checked on sampled elements, then timed. The peer
 * gets both factors as they lie, which is how its callers have them. */
#include "bench.h"
#include <stdio.h>
#include <stdlib.h>

enum { SAMPLES = 500 };

typedef struct gemm {
    const bench_setting *set;
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
    g->status = mha_matmul_packed(g->set->ctx, view(&g->c, s->M, s->N), view(&g->a, s->M, s->K), g->packed, NULL);
}

static bool pack(gemm *g)
{
    size_t bytes = 0;
    mha_tensor b = view(&g->b, g->shape->K, g->shape->N);
    g->status = mha_matmul_pack_size(g->set->ctx, &bytes, b, g->set->type);
    if (!g->status) g->packed = malloc(bytes);
    if (g->packed) g->status = mha_matmul_pack(g->set->ctx, g->packed, bytes, b, g->set->type);
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
        worst = bench_worse(worst, error);
    }
    return worst / sqrt((double)s->K);
}

typedef struct peer {
    const gemm *g;
    float *c;
} peer;

static void run_peer(void *arg)
{
    const peer *p = arg;
    const bench_product *s = p->g->shape;
    bench_multiply(p->g->set->blas, p->c, false, false, s->M, s->N, s->K, 1, p->g->a.plain, p->g->b.plain);
}

static void measure_peer(bench_result *result, const gemm *g)
{
    peer p = {g, g->set->blas ? malloc((size_t)g->c.count * sizeof(float)) : NULL};
    if (!p.c) return;
    g->set->blas->set_threads(mha_context_threads(g->set->ctx));
    result->peer_ms = bench_time_peer(g->set, run_peer, &p);
    result->peer_error = bench_array_difference(&g->c, p.c);
    free(p.c);
}

static void measure(bench_result *result, gemm *g)
{
    const bench_product *s = g->shape;
    *result = (bench_result){.max_error = sampled_error(g), .peer_ms = NAN, .peer_error = NAN};
    bench_time(g->set, run, g, &result->ms_median, &result->ms_best);
    result->gflops = 2.0 * (double)(s->M * s->N) * (double)s->K / result->ms_median * 1e-6;
    result->scratch_bytes = mha_context_scratch(g->set->ctx);
    measure_peer(result, g);
}

static bool save(const gemm *g, char error[200])
{
    const bench_product *s = g->shape;
    bench_saved all[] = {
        {"a", view(&g->a, s->M, s->K)}, {"b", view(&g->b, s->K, s->N)}, {"c", view(&g->c, s->M, s->N)}};
    return bench_save(g->set, (bench_about){.pass = "gemm", .shape = s->name}, all, 3, error);
}

bool bench_gemm(bench_result *result, const bench_setting *set, const bench_product *s, char error[200])
{
    gemm g = {.set = set, .shape = s};
    bool done = bench_array_make(&g.a, s->M * s->K, set->type, 1) &&
                bench_array_make(&g.b, s->K * s->N, set->type, 2) && bench_array_make(&g.c, s->M * s->N, set->type, 0);
    done = done && pack(&g);
    if (!done) snprintf(error, 200, "%s: not enough memory", s->name);
    if (done && !g.status) run(&g);
    if (g.status) snprintf(error, 200, "%s: %s", s->name, mha_context_error(set->ctx));
    done = done && !g.status;
    if (done) measure(result, &g);
    done = done && save(&g, error);
    bench_array_free(&g.a);
    bench_array_free(&g.b);
    bench_array_free(&g.c);
    free(g.packed);
    return done;
}
