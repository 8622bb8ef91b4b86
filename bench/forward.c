/* Forward: a check against the oracle on sampled rows, then the clock, then the unfused loop. */
#include "bench.h"
#include "ref.h"
#include <stdio.h>
#include <stdlib.h>

enum { SAMPLES = 24, UNFUSED_RUNS = 3 };
static const int64_t UNFUSED_MOST = INT64_C(1) << 29; /* scores beyond this many stay unmeasured: 2 GiB */

typedef struct forward {
    mha_context *ctx;
    const bench_shape *shape;
    bench_array q, k, v, out;
    mha_status status;
} forward;

static void run(void *arg)
{
    forward *f = arg;
    const bench_shape *s = f->shape;
    mha_attention_options options = MHA_ATTENTION_DEFAULTS;
    options.causal = s->causal;
    f->status = mha_attention_forward(f->ctx, mha_tensor_4d(f->out.typed, f->out.type, s->B, s->H, s->Tq, s->D), NULL,
                                      mha_tensor_4d(f->q.typed, f->q.type, s->B, s->H, s->Tq, s->D),
                                      mha_tensor_4d(f->k.typed, f->k.type, s->B, s->G, s->Tk, s->D),
                                      mha_tensor_4d(f->v.typed, f->v.type, s->B, s->G, s->Tk, s->D), &options);
}

/* The largest difference to the oracle over rows spread across the whole output, as a share of the largest |v|. */
static double sampled_error(const forward *f)
{
    const bench_shape *s = f->shape;
    int64_t rows = s->B * s->H * s->Tq, width = s->Tk * s->D;
    double *wide = malloc((size_t)(2 * width + 2 * s->D) * sizeof(double)), worst = 0, largest = 0;
    if (!wide) return INFINITY;
    double *k = wide, *v = k + width, *q = v + width, *out = q + s->D;
    for (int sample = 0; sample < SAMPLES; sample++) {
        int64_t row = (rows - 1) * sample / (SAMPLES - 1), bh = row / s->Tq, i = row % s->Tq;
        int64_t bg = bh / s->H * s->G + bh % s->H / (s->H / s->G);
        for (int64_t d = 0; d < s->D; d++) q[d] = (double)f->q.plain[row * s->D + d];
        for (int64_t e = 0; e < width; e++) {
            k[e] = (double)f->k.plain[bg * width + e];
            v[e] = (double)f->v.plain[bg * width + e];
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
            double error = fabs(bench_array_get(&f->out, row * s->D + d) - out[d]);
            if (!(error <= worst)) worst = error; /* a NaN stays, too */
        }
    }
    free(wide);
    return worst / largest;
}

/* The unfused loop reads and writes float32, whatever type is measured. */
static double time_unfused(const forward *f)
{
    const bench_shape *s = f->shape;
    int64_t scores = s->B * s->H * s->Tq * s->Tk;
    float *buffer = scores > UNFUSED_MOST ? NULL : malloc((size_t)scores * sizeof *buffer);
    double best = INFINITY;
    if (!buffer) return NAN;
    for (int i = 0; i < UNFUSED_RUNS && (i == 0 || best < 2e3); i++) {
        double start = bench_now();
        bench_unfused(f->out.plain, f->q.plain, f->k.plain, f->v.plain, s, buffer, mha_context_threads(f->ctx));
        double took = 1e3 * (bench_now() - start);
        if (took < best) best = took;
    }
    free(buffer);
    return best;
}

static void measure(bench_result *result, forward *f)
{
    const bench_shape *s = f->shape;
    result->max_error = sampled_error(f);
    bench_time(run, f, &result->ms_median, &result->ms_best);
    double flops = 4.0 * (double)(s->B * s->H * s->Tq) * (double)(s->Tk * s->D) * (s->causal ? 0.5 : 1.0);
    result->gflops = flops / result->ms_median * 1e-6;
    double bytes = 2.0 * (double)f->k.count * (double)mha_type_size(f->k.type);
    result->gbytes = bench_is_decode(s) ? bytes / result->ms_median * 1e-6 : 0;
    result->unfused_ms = time_unfused(f);
    result->scratch_bytes = mha_context_scratch(f->ctx);
}

bool bench_forward(bench_result *result, mha_context *ctx, const bench_shape *s, mha_type type, char error[200])
{
    forward f = {.ctx = ctx, .shape = s};
    int64_t queries = s->B * s->H * s->Tq * s->D, keys = s->B * s->G * s->Tk * s->D;
    bool done = bench_array_make(&f.q, queries, type, 1) && bench_array_make(&f.k, keys, type, 2) &&
                bench_array_make(&f.v, keys, type, 3) && bench_array_make(&f.out, queries, type, 0);
    if (!done) snprintf(error, 200, "%s: not enough memory", s->name);
    if (done) run(&f);
    if (f.status) snprintf(error, 200, "%s: %s", s->name, mha_context_error(ctx));
    done = done && !f.status;
    if (done) measure(result, &f);
    bench_array *all[] = {&f.q, &f.k, &f.v, &f.out};
    for (int i = 0; i < 4; i++) bench_array_free(all[i]);
    return done;
}
