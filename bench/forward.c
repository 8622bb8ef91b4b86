/* Forward: a check against the oracle on sampled rows, then the clock, then the peer. */
#include "bench.h"
#include "gpu.h"
#include "ref.h"
#include <stdio.h>
#include <stdlib.h>

enum { SAMPLES = 24 };

typedef struct forward {
    const bench_setting *set;
    const bench_shape *shape;
    bench_array q, k, v, out;
    int64_t turn; /* calls take the copies of keys and values in turn */
    mha_status status;
} forward;

static mha_tensor rows(const forward *f, const bench_array *a, const void *data)
{
    return mha_tensor_4d(data, a->type, f->shape->B, f->shape->H, f->shape->Tq, f->shape->D);
}

static mha_tensor keys(const forward *f, const bench_array *a, const void *data)
{
    return mha_tensor_4d(data, a->type, f->shape->B, f->shape->G, f->shape->Tk, f->shape->D);
}

/* The copy whose turn it is. */
static mha_tensor keys_now(const forward *f, const bench_array *a)
{
    int64_t bytes = a->count * (int64_t)mha_type_size(a->type);
    return keys(f, a, (const char *)a->data + f->turn % a->copies * bytes);
}

static void run(void *arg)
{
    forward *f = arg;
    mha_attention_options options = MHA_ATTENTION_DEFAULTS;
    options.causal = f->shape->causal;
    f->status = mha_attention_forward(f->set->ctx, rows(f, &f->out, f->out.data), NULL, rows(f, &f->q, f->q.data),
                                      keys_now(f, &f->k), keys_now(f, &f->v), &options);
    f->turn++;
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
    result->mhz = f->set->gpu ? bench_gpu_clock(f->set->gpu) : 0;
    result->scratch_bytes = mha_context_scratch(f->set->ctx);
    measure_peer(result, f);
}

static bool save(const forward *f, char error[200])
{
    bench_about about = {
        .pass = bench_is_decode(f->shape) ? "decode" : "forward", .shape = f->shape->name, .causal = f->shape->causal};
    bench_saved all[] = {{"q", rows(f, &f->q, f->q.typed)},
                         {"k", keys(f, &f->k, f->k.typed)},
                         {"v", keys(f, &f->v, f->v.typed)},
                         {"out", rows(f, &f->out, f->out.typed)}};
    return bench_save(f->set, about, all, 4, error);
}

/* As many copies of keys and values as a cache of the GPU cannot hold; a decoder reads other ones in every layer. */
static int64_t copies_of(const forward *f)
{
    static const int64_t enough = INT64_C(400) << 20;
    int64_t bytes = 2 * f->k.count * (int64_t)mha_type_size(f->k.type);
    return bench_is_decode(f->shape) ? enough / bytes + 1 : 1;
}

static bool place(forward *f)
{
    int64_t copies = copies_of(f);
    return bench_array_place(&f->q, f->set, 1) && bench_array_place(&f->k, f->set, copies) &&
           bench_array_place(&f->v, f->set, copies) && bench_array_place(&f->out, f->set, 1);
}

static bool work(bench_result *result, forward *f, char error[200])
{
    const char *name = f->shape->name;
    bool done = place(f);
    if (done) run(f);
    done = done && !f->status && bench_array_fetch(&f->out, f->set);
    if (!done) snprintf(error, 200, "%s: %s", name, mha_context_error(f->set->ctx));
    if (!done) return false;
    measure(result, f);
    if (isnan(result->ms_median)) snprintf(error, 200, "%s: %s", name, bench_gpu_error(f->set->gpu));
    return !isnan(result->ms_median) && save(f, error);
}

bool bench_forward(bench_result *result, const bench_setting *set, const bench_shape *s, char error[200])
{
    forward f = {.set = set, .shape = s};
    int64_t long_ones = s->B * s->G * s->Tk * s->D, others = s->B * s->H * s->Tq * s->D;
    bool done = bench_array_make(&f.q, others, set->type, 1) && bench_array_make(&f.k, long_ones, set->type, 2) &&
                bench_array_make(&f.v, long_ones, set->type, 3) && bench_array_make(&f.out, others, set->type, 0);
    if (!done) snprintf(error, 200, "%s: not enough memory", s->name);
    done = done && work(result, &f, error);
    bench_array *all[] = {&f.q, &f.k, &f.v, &f.out};
    for (int i = 0; i < 4; i++) bench_array_free(all[i]);
    return done;
}
