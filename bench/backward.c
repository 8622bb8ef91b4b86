/* Backward: forward once, a check of one head against the oracle where that is affordable, then the clock, then
 * the peer, which checks the rest. */
#include "bench.h"
#include "ref.h"
#include <stdio.h>
#include <stdlib.h>

static const int64_t ORACLE_MOST = INT64_C(1) << 27; /* Tq Tk D of a head that the oracle takes in full */

enum { Q, K, V, OUT, DOUT, DQ, DK, DV, ARRAYS };

typedef struct backward {
    const bench_setting *set;
    const bench_shape *shape;
    bench_array a[ARRAYS], lse;
    mha_status status;
} backward;

static mha_tensor view(const backward *b, int which)
{
    const bench_shape *s = b->shape;
    bool keys = which == K || which == V || which == DK || which == DV;
    return mha_tensor_4d(b->a[which].typed, b->a[which].type, s->B, keys ? s->G : s->H, keys ? s->Tk : s->Tq, s->D);
}

static mha_tensor lse_view(const backward *b)
{
    return mha_tensor_3d(b->lse.typed, MHA_FLOAT32, b->shape->B, b->shape->H, b->shape->Tq);
}

static void forward(backward *b)
{
    mha_attention_options options = MHA_ATTENTION_DEFAULTS;
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    options.causal = b->shape->causal;
    extras.lse = lse_view(b);
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
    b->status = mha_attention_backward(b->set->ctx, &gradients, view(b, DOUT), none, view(b, OUT), lse_view(b),
                                       view(b, Q), view(b, K), view(b, V), &options);
}

/* The largest difference of a gradient in the last head, as a share of its largest number. */
static double difference(const bench_array *got, int64_t first, const double *want, int64_t count)
{
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < count; i++) {
        double error = fabs(bench_array_get(got, first + i) - want[i]);
        worst = bench_worse(worst, error);
        if (fabs(want[i]) > largest) largest = fabs(want[i]);
    }
    return worst / largest;
}

/* The last head of the last batch against the oracle; NAN where that would take too long. Query heads that share keys
 * are left to the tests. */
static double head_error(const backward *b)
{
    const bench_shape *s = b->shape;
    int64_t rows = s->Tq * s->D, keys = s->Tk * s->D, size[ARRAYS] = {rows, keys, keys, rows, rows, rows, keys, keys};
    double *x[ARRAYS] = {NULL}, worst = 0;
    if (s->H != s->G || s->Tq * keys > ORACLE_MOST) return NAN;
    bool done = true;
    for (int n = 0; n < ARRAYS; n++) {
        int64_t first = b->a[n].count - size[n];
        x[n] = malloc((size_t)size[n] * sizeof(double));
        done = done && x[n];
        for (int64_t i = 0; x[n] && n < DQ && i < size[n]; i++) x[n][i] = bench_array_get(&b->a[n], first + i);
    }
    ref_attention one = {.B = 1,
                         .H = 1,
                         .G = 1,
                         .Tq = s->Tq,
                         .Tk = s->Tk,
                         .D = s->D,
                         .E = s->D,
                         .q = x[Q],
                         .k = x[K],
                         .v = x[V],
                         .scale = NAN,
                         .causal = s->causal,
                         .window_left = -1,
                         .window_right = -1};
    ref_gradients gradients = {.dout = x[DOUT], .out = x[OUT], .dq = x[DQ], .dk = x[DK], .dv = x[DV]};
    if (done) ref_attention_backward(&one, &gradients);
    for (int n = DQ; done && n < ARRAYS; n++) {
        double here = difference(&b->a[n], b->a[n].count - size[n], x[n], size[n]);
        worst = bench_worse(worst, here);
    }
    for (int n = 0; n < ARRAYS; n++) free(x[n]);
    return done ? worst : NAN;
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
    run(b);
    *result = (bench_result){.max_error = head_error(b), .peer_ms = NAN, .peer_error = NAN};
    bench_time(b->set, run, b, &result->ms_median, &result->ms_best);
    double flops = 10.0 * (double)(s->B * s->H * s->Tq) * (double)(s->Tk * s->D) * (s->causal ? 0.5 : 1.0);
    result->gflops = flops / result->ms_median * 1e-6;
    result->scratch_bytes = mha_context_scratch(b->set->ctx);
    measure_peer(result, b);
}

static bool save(const backward *b, char error[200])
{
    static const char *const names[ARRAYS] = {"q", "k", "v", "out", "dout", "dq", "dk", "dv"};
    bench_saved all[ARRAYS];
    for (int n = 0; n < ARRAYS; n++) all[n] = (bench_saved){names[n], view(b, n)};
    return bench_save(b->set, (bench_about){"backward", b->shape->name, b->shape->causal}, all, ARRAYS, error);
}

bool bench_backward(bench_result *result, const bench_setting *set, const bench_shape *s, char error[200])
{
    backward b = {.set = set, .shape = s};
    int64_t queries = s->B * s->H * s->Tq * s->D, keys = s->B * s->G * s->Tk * s->D;
    bool done = bench_array_make(&b.lse, s->B * s->H * s->Tq, MHA_FLOAT32, 0);
    for (int n = 0; n < ARRAYS; n++) {
        bool long_one = n == K || n == V || n == DK || n == DV, input = n <= V || n == DOUT;
        done = bench_array_make(&b.a[n], long_one ? keys : queries, set->type, input ? (uint64_t)n + 1 : 0) && done;
    }
    if (!done) snprintf(error, 200, "%s: not enough memory", s->name);
    if (done) forward(&b);
    if (done && !b.status) measure(result, &b);
    if (b.status) snprintf(error, 200, "%s: %s", s->name, mha_context_error(set->ctx));
    done = done && !b.status && save(&b, error);
    bench_array_free(&b.lse);
    for (int n = 0; n < ARRAYS; n++) bench_array_free(&b.a[n]);
    return done;
}
