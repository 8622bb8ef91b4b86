/* One measurement: inputs that look like activations, a check against the oracle on sampled rows, then the clock. */
#include "bench.h"
#include "core/half.h"
#include "ref.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SAMPLES = 24, RUNS_MOST = 200, UNFUSED_RUNS = 3 };
static const double SECONDS = 1.0;                    /* of timing a shape */
static const int64_t UNFUSED_MOST = INT64_C(1) << 29; /* scores beyond this many stay unmeasured: 2 GiB */

double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct arrays {
    float *q, *k, *v, *out;            /* float32, what the oracle and the unfused loop read */
    void *typed_q, *typed_k, *typed_v; /* the same numbers in the type that is measured */
    void *typed_out;
    int64_t queries, keys; /* elements */
} arrays;

/* Sums of four uniform numbers: near enough to normal, and the same on every machine. */
static float draw(uint64_t *state)
{
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        sum += (float)(*state >> 40) * 0x1p-23f - 1.0f;
    }
    return sum * 0.866f;
}

/* A number in the type that is measured, and what that type made of it as a float. */
static void put(float *plain, void *typed, mha_type type, int64_t i, float x)
{
    void *to = (char *)typed + i * (int64_t)mha_type_size(type);
    mha_store(to, type, x);
    plain[i] = mha_load(to, type);
}

static void release(arrays *a)
{
    if (a->typed_q != a->q) free(a->typed_q);
    if (a->typed_k != a->k) free(a->typed_k);
    if (a->typed_v != a->v) free(a->typed_v);
    free(a->q), free(a->k), free(a->v), free(a->out), free(a->typed_out);
}

static bool fill(arrays *a, const bench_shape *s, mha_type type)
{
    a->queries = s->B * s->H * s->Tq * s->D;
    a->keys = s->B * s->G * s->Tk * s->D;
    size_t width = mha_type_size(type), queries = (size_t)a->queries, keys = (size_t)a->keys;
    a->q = malloc(queries * 4), a->k = malloc(keys * 4), a->v = malloc(keys * 4), a->out = malloc(queries * 4);
    bool plain = type == MHA_FLOAT32;
    a->typed_q = plain ? a->q : malloc(queries * width);
    a->typed_k = plain ? a->k : malloc(keys * width);
    a->typed_v = plain ? a->v : malloc(keys * width);
    a->typed_out = malloc(queries * width);
    if (!a->q || !a->k || !a->v || !a->out || !a->typed_q || !a->typed_k || !a->typed_v || !a->typed_out) return false;
    uint64_t state = 20260101;
    for (int64_t i = 0; i < a->queries; i++) put(a->q, a->typed_q, type, i, draw(&state));
    for (int64_t i = 0; i < a->keys; i++) put(a->k, a->typed_k, type, i, draw(&state));
    for (int64_t i = 0; i < a->keys; i++) put(a->v, a->typed_v, type, i, draw(&state));
    return true;
}

static mha_status run(mha_context *ctx, const arrays *a, const bench_shape *s, mha_type type)
{
    mha_attention_options options = MHA_ATTENTION_DEFAULTS;
    options.causal = s->causal;
    return mha_attention_forward(ctx, mha_tensor_4d(a->typed_out, type, s->B, s->H, s->Tq, s->D), NULL,
                                 mha_tensor_4d(a->typed_q, type, s->B, s->H, s->Tq, s->D),
                                 mha_tensor_4d(a->typed_k, type, s->B, s->G, s->Tk, s->D),
                                 mha_tensor_4d(a->typed_v, type, s->B, s->G, s->Tk, s->D), &options);
}

/* The largest difference to the oracle over rows spread across the whole output, as a share of the largest |v|. */
static double sampled_error(const arrays *a, const bench_shape *s, mha_type type)
{
    int64_t rows = s->B * s->H * s->Tq, width = s->Tk * s->D;
    double *wide = malloc((size_t)(2 * width + 2 * s->D) * sizeof(double)), worst = 0, largest = 0;
    if (!wide) return INFINITY;
    const char *typed_out = a->typed_out;
    int64_t bytes = (int64_t)mha_type_size(type);
    double *k = wide, *v = k + width, *q = v + width, *out = q + s->D;
    for (int sample = 0; sample < SAMPLES; sample++) {
        int64_t row = (rows - 1) * sample / (SAMPLES - 1), bh = row / s->Tq, i = row % s->Tq;
        int64_t bg = bh / s->H * s->G + bh % s->H / (s->H / s->G);
        for (int64_t d = 0; d < s->D; d++) q[d] = (double)a->q[row * s->D + d];
        for (int64_t e = 0; e < width; e++) {
            k[e] = (double)a->k[bg * width + e];
            v[e] = (double)a->v[bg * width + e];
            if (fabs(v[e]) > largest) largest = fabs(v[e]);
        }
        ref_attention one = {.B = 1,
                             .H = 1,
                             .G = 1,
                             .Tq = 1,
                             .Tk = s->Tk,
                             .D = s->D,
                             .E = s->D,
                             .q = q,
                             .k = k,
                             .v = v,
                             .scale = NAN,
                             .causal = s->causal,
                             .align = REF_OFFSET,
                             .offsets = &i,
                             .window_left = -1,
                             .window_right = -1};
        ref_attention_forward(&one, &(ref_result){.out = out});
        for (int64_t d = 0; d < s->D; d++) {
            double error = fabs((double)mha_load(typed_out + (row * s->D + d) * bytes, type) - out[d]);
            if (!(error <= worst)) worst = error; /* a NaN stays, too */
        }
    }
    free(wide);
    return worst / largest;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void time_fused(bench_result *result, mha_context *ctx, const arrays *a, const bench_shape *s, mha_type type)
{
    double ms[RUNS_MOST], begun = bench_now();
    int runs = 0;
    while (runs < 3 || (runs < RUNS_MOST && bench_now() - begun < SECONDS)) {
        double start = bench_now();
        run(ctx, a, s, type);
        ms[runs++] = 1e3 * (bench_now() - start);
    }
    qsort(ms, (size_t)runs, sizeof *ms, by_size);
    result->ms_best = ms[0];
    result->ms_median = ms[runs / 2];
    double flops = 4.0 * (double)(s->B * s->H * s->Tq) * (double)(s->Tk * s->D) * (s->causal ? 0.5 : 1.0);
    result->gflops = flops / result->ms_median * 1e-6;
}

/* The unfused loop reads and writes float32, whatever type is measured. */
static double time_unfused(mha_context *ctx, const arrays *a, const bench_shape *s)
{
    int64_t scores = s->B * s->H * s->Tq * s->Tk;
    float *buffer = scores > UNFUSED_MOST ? NULL : malloc((size_t)scores * sizeof *buffer);
    double best = INFINITY;
    if (!buffer) return NAN;
    for (int i = 0; i < UNFUSED_RUNS && (i == 0 || best < 2e3); i++) {
        double start = bench_now();
        bench_unfused(a->out, a->q, a->k, a->v, s, buffer, mha_context_threads(ctx));
        best = fmin(best, 1e3 * (bench_now() - start));
    }
    free(buffer);
    return best;
}

bool bench_forward(bench_result *result, mha_context *ctx, const bench_shape *shape, mha_type type, char error[200])
{
    arrays a = {0};
    bool done = fill(&a, shape, type);
    if (!done) snprintf(error, 200, "%s: not enough memory", shape->name);
    if (done && run(ctx, &a, shape, type)) {
        snprintf(error, 200, "%s: %s", shape->name, mha_context_error(ctx));
        done = false;
    }
    if (done) {
        result->max_error = sampled_error(&a, shape, type);
        time_fused(result, ctx, &a, shape, type);
        result->unfused_ms = time_unfused(ctx, &a, shape);
        result->scratch_bytes = mha_context_scratch(ctx);
    }
    release(&a);
    return done;
}
