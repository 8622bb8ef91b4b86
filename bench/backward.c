/* Backward: forward once, a check against the oracle, then the clock, then the peer. */
#include "backward.h"
#include "gpu.h"
#include <stdio.h>
#include <stdlib.h>

static mha_tensor view(const backward *b, int which)
{
    const bench_shape *s = b->shape;
    bool keys = which == K || which == V || which == DK || which == DV;
    return mha_tensor_4d(b->a[which].data, b->a[which].type, s->B, keys ? s->G : s->H, keys ? s->Tk : s->Tq, s->D);
}

static mha_tensor lse_view(const backward *b)
{
    return mha_tensor_3d(b->lse.data, MHA_FLOAT32, b->shape->B, b->shape->H, b->shape->Tq);
}

static mha_tensor softmax_view(const backward *b)
{
    return mha_tensor_4d(b->softmax.data, MHA_FLOAT32, b->shape->B, b->shape->H, b->shape->Tq, 2);
}

static void forward(backward *b)
{
    mha_attention_options options = MHA_ATTENTION_DEFAULTS;
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    options.causal = b->shape->causal;
    extras.lse = lse_view(b); /* for the peer and the check */
    extras.softmax = softmax_view(b);
    b->status = mha_attention_forward(b->set->ctx, view(b, OUT), &extras, view(b, Q), view(b, K), view(b, V), &options);
}

static void run(void *arg)
{
    backward *b = arg;
    mha_attention_options options = MHA_ATTENTION_DEFAULTS;
    mha_attention_gradients gradients = MHA_ATTENTION_NO_GRADIENTS;
    mha_tensor none = MHA_NO_TENSOR;
    options.causal = b->shape->causal;
    gradients.q = view(b, DQ);
    gradients.k = view(b, DK);
    gradients.v = view(b, DV);
    const mha_attention_saved saved = {view(b, Q), view(b, K), view(b, V), view(b, OUT), softmax_view(b)};
    b->status = mha_attention_backward(b->set->ctx, &gradients, &saved, view(b, DOUT), none, &options);
}

/* The peer reads and writes float32, whatever type is measured. */
static void measure_peer(bench_result *result, const backward *b)
{
    const bench_array *a = b->a;
    int64_t queries = a[DQ].count, keys = a[DK].count;
    bool plain = b->set->type == MHA_FLOAT32;
    float *all = b->set->blas ? malloc((size_t)(2 * queries + 2 * keys) * sizeof *all) : NULL, *out = all;
    if (!all) return;
    for (int64_t i = 0; !plain && i < queries; i++) out[i] = (float)bench_array_get(&a[OUT], i);
    bench_unfused u = {b->set, b->shape, .q = a[Q].plain, .k = a[K].plain, .v = a[V].plain, .dout = a[DOUT].plain};
    u.out = plain ? a[OUT].plain : out;
    u.lse = b->lse.plain;
    u.dq = all + queries;
    u.dk = u.dq + queries;
    u.dv = u.dk + keys;
    result->peer_ms = bench_time_unfused(&u);
    const float *got[] = {u.dq, u.dk, u.dv};
    for (int n = 0; isfinite(result->peer_ms) && n < 3; n++) {
        double here = bench_array_difference(&a[DQ + n], got[n]);
        result->peer_error = bench_worse(n ? result->peer_error : 0, here);
    }
    free(all);
}

static void measure(bench_result *result, backward *b)
{
    const bench_shape *s = b->shape;
    *result = (bench_result){.max_error = backward_error(b), .peer_ms = NAN, .peer_error = NAN};
    bench_time(b->set, run, b, &result->ms_median, &result->ms_best);
    double flops = 10.0 * (double)(s->B * s->H * s->Tq) * (double)(s->Tk * s->D) * (s->causal ? 0.5 : 1.0);
    result->gflops = flops / result->ms_median * 1e-6;
    result->mhz = b->set->gpu ? bench_gpu_clock(b->set->gpu) : 0;
    result->scratch_bytes = mha_context_scratch(b->set->ctx);
    measure_peer(result, b);
}

static bool save(const backward *b, char error[200])
{
    static const char *const names[ARRAYS] = {"q", "k", "v", "out", "dout", "dq", "dk", "dv"};
    bench_saved all[ARRAYS];
    for (int n = 0; n < ARRAYS; n++) {
        all[n] = (bench_saved){names[n], view(b, n)};
        all[n].tensor.data = b->a[n].typed;
    }
    return bench_save(b->set, (bench_about){.pass = "backward", .shape = b->shape->name, .causal = b->shape->causal},
                      all, ARRAYS, error);
}

static bool place(backward *b)
{
    bool done = bench_array_place(&b->lse, b->set, 1) && bench_array_place(&b->softmax, b->set, 1);
    for (int n = 0; n < ARRAYS; n++) done = done && bench_array_place(&b->a[n], b->set, 1);
    return done;
}

/* What the check and the file need. */
static bool fetch(backward *b)
{
    bool done = bench_array_fetch(&b->lse, b->set) && bench_array_fetch(&b->a[OUT], b->set);
    for (int n = DQ; n <= DV; n++) done = done && bench_array_fetch(&b->a[n], b->set);
    return done;
}

static bool work(bench_result *result, backward *b, char error[200])
{
    const char *name = b->shape->name;
    bool done = place(b);
    if (done) forward(b);
    if (done && !b->status) run(b);
    done = done && !b->status && fetch(b);
    if (!done) snprintf(error, 200, "%s: %s", name, mha_context_error(b->set->ctx));
    if (!done) return false;
    measure(result, b);
    if (isnan(result->ms_median)) snprintf(error, 200, "%s: %s", name, bench_gpu_error(b->set->gpu));
    return !isnan(result->ms_median) && save(b, error);
}

bool bench_backward(bench_result *result, const bench_setting *set, const bench_shape *s, char error[200])
{
    backward b = {.set = set, .shape = s};
    int64_t queries = s->B * s->H * s->Tq * s->D, keys = s->B * s->G * s->Tk * s->D;
    bool done = bench_array_make(&b.lse, s->B * s->H * s->Tq, MHA_FLOAT32, 0) &&
                bench_array_make(&b.softmax, s->B * s->H * s->Tq * 2, MHA_FLOAT32, 0);
    for (int n = 0; n < ARRAYS; n++) {
        bool long_one = n == K || n == V || n == DK || n == DV, input = n <= V || n == DOUT;
        done = bench_array_make(&b.a[n], long_one ? keys : queries, set->type, input ? (uint64_t)n + 1 : 0) && done;
    }
    if (!done) snprintf(error, 200, "%s: not enough memory", s->name);
    done = done && work(result, &b, error);
    bench_array_free(&b.lse);
    bench_array_free(&b.softmax);
    for (int n = 0; n < ARRAYS; n++) bench_array_free(&b.a[n]);
    return done;
}
