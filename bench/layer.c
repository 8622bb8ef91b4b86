/* The multi-head layer, for inference: self-attention of a batch, with or without the weights of each head, or one step
 * with a cache. A sequence is checked against the oracle on a few of its rows, then the clock runs. There is no BLAS
 * peer: attention and product have their own; PyTorch's layer gets the same arrays. */
#include "bench.h"
#include "layer.h"
#include <stdio.h>
#include <stdlib.h>

enum { SAMPLES = 4 };

typedef struct layer_bench {
    const bench_setting *set;
    const bench_layer *shape;
    int64_t rows; /* of x in a sequence: T, or all that the cache holds and one more */
    mha_layer *layer;
    mha_cache *cache;
    float *parameters;
    bench_array x, out, weights;
    bench_array saved; /* the parameters in the type that is measured */
    mha_status status;
} layer_bench;

static mha_tensor inputs(const layer_bench *b, int64_t first, int64_t count)
{
    const bench_layer *s = b->shape;
    mha_tensor x = mha_tensor_3d((char *)b->x.typed + first * s->M * (int64_t)mha_type_size(b->x.type), b->x.type, s->B,
                                 count, s->M);
    x.stride[0] = b->rows * s->M;
    return x;
}

static mha_tensor output(const layer_bench *b)
{
    const bench_layer *s = b->shape;
    return mha_tensor_3d(b->out.typed, b->out.type, s->B, s->cached ? 1 : s->T, s->M);
}

static void run(void *arg)
{
    layer_bench *b = arg;
    const bench_layer *s = b->shape;
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    mha_layer_inputs in = {.query = inputs(b, 0, b->rows)};
    if (s->weights) extras.weights = mha_tensor_4d(b->weights.typed, b->weights.type, s->B, s->H, s->T, s->T);
    if (s->cached) {
        b->status = mha_cache_truncate(b->set->ctx, b->cache, -1, s->cached);
        if (!b->status)
            b->status = mha_cache_step(b->set->ctx, b->cache, b->layer, output(b), NULL, inputs(b, s->cached, 1), NULL);
        return;
    }
    b->status = mha_layer_forward(b->set->ctx, b->layer, output(b), &extras, &in, NULL, NULL);
}

/* ---- Making it -------------------------------------------------------------------------------------------------- */

static bool make_layer(layer_bench *b)
{
    mha_context *ctx = b->set->ctx;
    mha_layer_options options = MHA_LAYER_DEFAULTS;
    int64_t count = 0;
    options.width = b->shape->M;
    options.heads = b->shape->H;
    options.causal = b->shape->causal;
    options.compute = b->set->type == MHA_BFLOAT16 ? MHA_BFLOAT16 : MHA_FLOAT32;
    b->status = mha_layer_parameter_count(ctx, &count, &options);
    if (b->status || !bench_array_make(&b->saved, count, b->set->type, 3)) return false;
    bench_array_scale(&b->saved, exp2(-round(log2((double)options.width) / 2)));
    b->parameters = b->saved.plain; /* what the type made of them, so that all compute with the same numbers */
    b->status = mha_layer_create(ctx, &b->layer, &options, b->parameters);
    mha_layer_freeze(b->layer, true);
    return !b->status;
}

static bool fill_cache(layer_bench *b)
{
    const bench_layer *s = b->shape;
    mha_context *ctx = b->set->ctx;
    mha_tensor none = MHA_NO_TENSOR;
    if (!s->cached) return true;
    b->status = mha_cache_create(ctx, &b->cache, b->layer, s->B, b->rows, mha_layer_shape(b->layer)->compute);
    if (!b->status) b->status = mha_cache_append(ctx, b->cache, b->layer, inputs(b, 0, s->cached), none);
    return !b->status;
}

/* ---- Checking it ------------------------------------------------------------------------------------------------ */

static void widen(double *to, const float *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++) to[i] = (double)from[i];
}

/* The largest difference to the oracle over some rows of the last sequence, as a share of the largest of them. */
static double sampled_error(const layer_bench *b)
{
    const bench_layer *s = b->shape;
    int64_t M = s->M, all = b->rows, Tq = s->cached ? 1 : s->T, samples = Tq < SAMPLES ? Tq : SAMPLES;
    double *x = malloc((size_t)(all * M + 2 * SAMPLES * M + b->saved.count) * sizeof *x), worst = 0, largest = 0;
    bool *sees = malloc((size_t)(s->H * samples * all));
    if (!x || !sees) {
        free(x);
        free(sees);
        return NAN;
    }
    double *q = x + all * M, *out = q + SAMPLES * M, *w = out + SAMPLES * M;
    const float *last = b->x.plain + (s->B - 1) * all * M;
    widen(x, last, all * M);
    widen(w, b->parameters, b->saved.count);
    for (int64_t n = 0; n < samples; n++) {
        int64_t i = s->cached ? all - 1 : (Tq - 1) * n / (SAMPLES - 1);
        widen(q + n * M, last + i * M, M);
    }
    const double *qkv = w, *bias = w + 3 * M * M, *wo = bias + 3 * M;
    ref_layer one = {.B = 1,
                     .Tq = samples,
                     .Tk = all,
                     .M = M,
                     .Mk = M,
                     .Mv = M,
                     .H = s->H,
                     .G = s->H,
                     .D = M / s->H,
                     .E = M / s->H,
                     .query = q,
                     .key = x,
                     .value = x,
                     .q_weight = qkv,
                     .k_weight = qkv + M * M,
                     .v_weight = qkv + 2 * M * M,
                     .q_bias = bias,
                     .k_bias = bias + M,
                     .v_bias = bias + 2 * M,
                     .out_weight = wo,
                     .out_bias = wo + M * M};
    one.attention = (ref_attention){.scale = NAN, .window_left = -1, .window_right = -1, .mask = sees};
    for (int64_t n = 0; n < s->H * samples * all; n++) /* samples stand at positions of their own */
        sees[n] = !s->causal || n % all <= (Tq - 1) * (n / all % samples) / (SAMPLES - 1);
    ref_layer_forward(&one, out, NULL, NULL);
    free(sees);
    for (int64_t n = 0; n < samples; n++) {
        int64_t i = (s->B - 1) * Tq + (s->cached ? 0 : (Tq - 1) * n / (SAMPLES - 1));
        for (int64_t m = 0; m < M; m++) {
            double want = out[n * M + m], error = fabs(bench_array_get(&b->out, i * M + m) - want);
            worst = bench_worse(worst, error);
            if (fabs(want) > largest) largest = fabs(want);
        }
    }
    free(x);
    return worst / largest;
}

/* ---- The measurement -------------------------------------------------------------------------------------------- */

static void measure(bench_result *result, layer_bench *b)
{
    const bench_layer *s = b->shape;
    double M = (double)s->M, rows = (double)(s->B * (s->cached ? 1 : s->T)), keys = (double)b->rows;
    double size = (double)mha_type_size(mha_layer_shape(b->layer)->compute);
    *result = (bench_result){.max_error = sampled_error(b), .peer_ms = NAN, .peer_error = NAN};
    bench_time(b->set, run, b, &result->ms_median, &result->ms_best);
    result->gflops = (8 * rows * M * M + (s->causal ? 2 : 4) * rows * keys * M) / result->ms_median * 1e-6;
    if (s->cached) result->gbytes = (4 * M * M + 2 * (double)s->B * keys * M) * size / result->ms_median * 1e-6;
    result->scratch_bytes = mha_context_scratch(b->set->ctx);
}

static bool save(const layer_bench *b, char error[200])
{
    const bench_layer *s = b->shape;
    int64_t M = s->M;
    mha_type type = b->set->type;
    char *at = b->saved.typed;
    int64_t size = (int64_t)mha_type_size(type);
    bench_saved all[] = {{"x", inputs(b, 0, b->rows)},
                         {"in_proj_weight", mha_tensor_2d(at, type, 3 * M, M)},
                         {"in_proj_bias", mha_tensor_1d(at + 3 * M * M * size, type, 3 * M)},
                         {"out_proj.weight", mha_tensor_2d(at + (3 * M * M + 3 * M) * size, type, M, M)},
                         {"out_proj.bias", mha_tensor_1d(at + (4 * M * M + 3 * M) * size, type, M)},
                         {"out", output(b)}};
    bench_about about = {.pass = "layer",
                         .shape = s->name,
                         .heads = s->H,
                         .weights = s->weights,
                         .cached = s->cached,
                         .causal = s->causal};
    return bench_save(b->set, about, all, 6, error);
}

static void release(layer_bench *b)
{
    mha_cache_free(b->cache);
    mha_layer_free(b->layer);
    bench_array_free(&b->x);
    bench_array_free(&b->out);
    bench_array_free(&b->weights);
    bench_array_free(&b->saved);
}

bool bench_layer_forward(bench_result *result, const bench_setting *set, const bench_layer *s, char error[200])
{
    layer_bench b = {.set = set, .shape = s, .rows = s->cached ? s->cached + 1 : s->T};
    int64_t Tq = s->cached ? 1 : s->T;
    bool done = bench_array_make(&b.x, s->B * b.rows * s->M, set->type, 1) &&
                bench_array_make(&b.out, s->B * Tq * s->M, set->type, 0) &&
                bench_array_make(&b.weights, s->weights ? s->B * s->H * s->T * s->T : 1, set->type, 0);
    done = done && make_layer(&b) && fill_cache(&b);
    if (!done) snprintf(error, 200, "%s: not enough memory", s->name);
    if (done) run(&b);
    if (b.status) snprintf(error, 200, "%s: %s", s->name, mha_context_error(set->ctx));
    done = done && !b.status;
    if (done) measure(result, &b);
    done = done && save(&b, error);
    release(&b);
    return done;
}
