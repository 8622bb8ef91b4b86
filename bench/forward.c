/* Forward: a check against the oracle on sampled rows, then the clock, then the peer. */
#include "bench.h"
#include "ref.h"
#include <stdio.h>
#include <stdlib.h>

enum { SAMPLES = 24 };

typedef struct forward {
    const bench_setting *set;
    const bench_shape *shape;
    bench_array q, k, v, out;
    mha_status status;
} forward;

static mha_tensor rows(const forward *f, const bench_array *a)
{
    return mha_tensor_4d(a->typed, a->type, f->shape->B, f->shape->H, f->shape->Tq, f->shape->D);
}

static mha_tensor keys(const forward *f, const bench_array *a)
{
    return mha_tensor_4d(a->typed, a->type, f->shape->B, f->shape->G, f->shape->Tk, f->shape->D);
}

static void run(void *arg)
{
    forward *f = arg;
    mha_attention_options options = MHA_ATTENTION_DEFAULTS;
    options.causal = f->shape->causal;
    f->status = mha_attention_forward(f->set->ctx, rows(f, &f->out), NULL, rows(f, &f->q), keys(f, &f->k),
                                      keys(f, &f->v), &options);
}

double bench_forward_error(const bench_shape *s, const bench_array *q_all, const bench_array *k_all,
                           const bench_array *v_all, const bench_array *out_all)
{
    int64_t count = s->B * s->H * s->Tq, width = s->Tk * s->D;
    double *wide = malloc((size_t)(2 * width + 2 * s->D) * sizeof(double)), worst = 0, largest = 0;
    if (!wide) return INFINITY;
    double *k = wide, *v = k + width, *q = v + width, *out = q + s->D;
    for (int sample = 0; sample < SAMPLES; sample++) {
        int64_t row = (count - 1) * sample / (SAMPLES - 1), bh = row / s->Tq, i = row % s->Tq;
        int64_t bg = bh / s->H * s->G + bh % s->H / (s->H / s->G);
        for (int64_t d = 0; d < s->D; d++) q[d] = (double)q_all->plain[row * s->D + d];
        for (int64_t e = 0; e < width; e++) {
            k[e] = (double)k_all->plain[bg * width + e];
            v[e] = (double)v_all->plain[bg * width + e];
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
            double error = fabs(bench_array_get(out_all, row * s->D + d) - out[d]);
            worst = bench_worse(worst, error);
        }
    }
    free(wide);
    return worst / largest;
}

/* The peer reads and writes float32, whatever type is measured. */
static void measure_peer(bench_result *result, const forward *f)
{
    float *out = f->set->blas ? malloc((size_t)f->out.count * sizeof *out) : NULL;
    if (!out) return;
    bench_unfused u = {f->set, f->shape, .q = f->q.plain, .k = f->k.plain, .v = f->v.plain, .to_out = out};
    result->peer_ms = bench_time_unfused(&u);
    if (isfinite(result->peer_ms)) result->peer_error = bench_array_difference(&f->out, out);
    free(out);
}

static void measure(bench_result *result, forward *f)
{
    const bench_shape *s = f->shape;
    *result = (bench_result){
        .max_error = bench_forward_error(s, &f->q, &f->k, &f->v, &f->out), .peer_ms = NAN, .peer_error = NAN};
    bench_time(f->set, run, f, &result->ms_median, &result->ms_best);
    double flops = 4.0 * (double)(s->B * s->H * s->Tq) * (double)(s->Tk * s->D) * (s->causal ? 0.5 : 1.0);
    result->gflops = flops / result->ms_median * 1e-6;
    double bytes = 2.0 * (double)f->k.count * (double)mha_type_size(f->k.type);
    result->gbytes = bench_is_decode(s) ? bytes / result->ms_median * 1e-6 : 0;
    result->scratch_bytes = mha_context_scratch(f->set->ctx);
    measure_peer(result, f);
}

static bool save(const forward *f, char error[200])
{
    bench_about about = {
        .pass = bench_is_decode(f->shape) ? "decode" : "forward", .shape = f->shape->name, .causal = f->shape->causal};
    bench_saved all[] = {
        {"q", rows(f, &f->q)}, {"k", keys(f, &f->k)}, {"v", keys(f, &f->v)}, {"out", rows(f, &f->out)}};
    return bench_save(f->set, about, all, 4, error);
}

bool bench_forward(bench_result *result, const bench_setting *set, const bench_shape *s, char error[200])
{
    forward f = {.set = set, .shape = s};
    int64_t long_ones = s->B * s->G * s->Tk * s->D, others = s->B * s->H * s->Tq * s->D;
    bool done = bench_array_make(&f.q, others, set->type, 1) && bench_array_make(&f.k, long_ones, set->type, 2) &&
                bench_array_make(&f.v, long_ones, set->type, 3) && bench_array_make(&f.out, others, set->type, 0);
    if (!done) snprintf(error, 200, "%s: not enough memory", s->name);
    if (done) run(&f);
    if (f.status) snprintf(error, 200, "%s: %s", s->name, mha_context_error(set->ctx));
    done = done && !f.status;
    if (done) measure(result, &f);
    done = done && save(&f, error);
    bench_array *all[] = {&f.q, &f.k, &f.v, &f.out};
    for (int i = 0; i < 4; i++) bench_array_free(all[i]);
    return done;
}
