/* How time and memory of attention grow with T, H and D: fused, with the heads together or one after another; and
 * unfused, through the whole matrix of scores. Memory is what the library really asks its allocator for, on top of the
 * inputs and the result, and what the unfused way allocates. */
#include "bench.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const bench_way_names[BENCH_WAYS] = {"fused", "one_by_one", "unfused"};

/* Heads and width of the Transformer of 2017, over T; then over H and over D. */
const bench_size bench_sizes[] = {
    {'T', 64, 8, 64},    {'T', 128, 8, 64},   {'T', 256, 8, 64},  {'T', 512, 8, 64},   {'T', 1024, 8, 64},
    {'T', 2048, 8, 64},  {'T', 4096, 8, 64},  {'T', 8192, 8, 64}, {'T', 16384, 8, 64}, {'T', 32768, 8, 64},
    {'T', 65536, 8, 64}, {'H', 1024, 1, 64},  {'H', 1024, 2, 64}, {'H', 1024, 4, 64},  {'H', 1024, 8, 64},
    {'H', 1024, 16, 64}, {'H', 1024, 32, 64}, {'D', 1024, 8, 16}, {'D', 1024, 8, 32},  {'D', 1024, 8, 64},
    {'D', 1024, 8, 128}, {'D', 1024, 8, 256}, {'\0', 0, 0, 0},
};

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

typedef struct counter {
    size_t live, most;
} counter;

enum { HEADER = 64 }; /* bytes in front of a block, for its size */

static void *count_allocate(void *user, size_t bytes)
{
    counter *c = user;
    char *block = bytes <= SIZE_MAX - HEADER ? malloc(bytes + HEADER) : NULL;
    if (!block) return NULL;
    memcpy(block, &bytes, sizeof bytes);
    c->live += bytes;
    if (c->live > c->most) c->most = c->live;
    return block + HEADER;
}

static void count_release(void *user, void *memory)
{
    counter *c = user;
    char *block = (char *)memory - HEADER;
    size_t bytes;
    memcpy(&bytes, block, sizeof bytes);
    c->live -= bytes;
    free(block);
}

/* ---- The library ------------------------------------------------------------------------------------------------- */

typedef struct scaling {
    bench_setting set; /* whose context counts its memory */
    bench_size size;
    bench_array q, k, v, out, other; /* (1,H,T,D) each */
    mha_status status;
} scaling;

static mha_tensor heads(const scaling *s, const bench_array *a, int64_t first, int64_t count)
{
    int64_t head = s->size.T * s->size.D * (int64_t)mha_type_size(a->type);
    return mha_tensor_4d((char *)a->typed + first * head, a->type, 1, count, s->size.T, s->size.D);
}

static void attend(scaling *s, const bench_array *out, int64_t first, int64_t count)
{
    mha_status status =
        mha_attention_forward(s->set.ctx, heads(s, out, first, count), NULL, heads(s, &s->q, first, count),
                              heads(s, &s->k, first, count), heads(s, &s->v, first, count), NULL);
    if (status) s->status = status;
}

static void run_fused(void *arg)
{
    scaling *s = arg;
    attend(s, &s->out, 0, s->size.H);
}

static void run_one_by_one(void *arg)
{
    scaling *s = arg;
    for (int64_t h = 0; h < s->size.H; h++) attend(s, &s->other, h, 1);
}

/* Times one way with a context of its own, and counts what that asks for beyond itself. */
static bool measure(scaling *s, bench_growth *to, bench_way way, char error[200])
{
    counter memory = {0, 0};
    char why[200] = "";
    mha_context_options o = MHA_CONTEXT_DEFAULTS;
    o.threads = mha_context_threads(s->set.ctx);
    o.isa = mha_context_isa(s->set.ctx);
    o.allocator = (mha_allocator){count_allocate, count_release, &memory};
    o.error = why;
    o.error_size = sizeof why;
    mha_context *usual = s->set.ctx, *own = NULL;
    if (mha_context_create(&own, &o)) return snprintf(error, 200, "scaling: %.180s", why), false;
    size_t before = memory.live;
    s->set.ctx = own;
    to->ms[way] = bench_time_peer(&s->set, way == BENCH_FUSED ? run_fused : run_one_by_one, s);
    to->extra[way] = (double)(memory.most - before);
    if (s->status) snprintf(error, 200, "scaling: T %lld: %.150s", (long long)s->size.T, mha_context_error(own));
    s->set.ctx = usual;
    mha_context_free(own);
    return !s->status;
}

/* ---- The other way ----------------------------------------------------------------------------------------------- */

/* The matrix of scores of one head is all that it needs at least. */
static void measure_unfused(const scaling *s, bench_growth *to)
{
    const bench_size *z = &s->size;
    bench_shape shape = {"scaling", "", 1, z->H, z->H, z->T, z->T, z->D, false, false};
    double least = (double)z->T * (double)z->T * sizeof(float);
    size_t bytes = 0;
    if (!s->set.blas) return;
    to->extra[BENCH_UNFUSED] = least;
    if (least >= BENCH_SCORES_MOST) {
        to->too_large = true;
        return;
    }
    float *out = malloc((size_t)s->out.count * sizeof *out);
    bench_unfused u = {&s->set,         &shape,        .q = s->q.plain, .k = s->k.plain,
                       .v = s->v.plain, .to_out = out, .bytes = &bytes};
    if (out) to->ms[BENCH_UNFUSED] = bench_time_unfused(&u);
    if (bytes) to->extra[BENCH_UNFUSED] = (double)bytes;
    if (isfinite(to->ms[BENCH_UNFUSED])) to->error = bench_worse(to->error, bench_array_difference(&s->out, out));
    free(out);
}

/* The largest difference of the two ways through the library, as a share of the largest number. */
static double difference(const scaling *s)
{
    double worst = 0, largest = 0;
    for (int64_t n = 0; n < s->out.count; n++) {
        double x = bench_array_get(&s->out, n), y = bench_array_get(&s->other, n);
        worst = bench_worse(worst, fabs(x - y));
        if (fabs(y) > largest) largest = fabs(y);
    }
    return worst / largest;
}

bool bench_scaling(bench_growth *to, const bench_setting *set, const bench_size *size, char error[200])
{
    scaling s = {.set = *set, .size = *size};
    int64_t count = size->H * size->T * size->D;
    bench_shape shape = {"scaling", "", 1, size->H, size->H, size->T, size->T, size->D, false, false};
    *to = (bench_growth){.ms = {NAN, NAN, NAN}, .extra = {NAN, NAN, NAN}};
    to->arrays = 4.0 * (double)count * (double)mha_type_size(set->type);
    bool done = bench_array_make(&s.q, count, set->type, 1) && bench_array_make(&s.k, count, set->type, 2) &&
                bench_array_make(&s.v, count, set->type, 3) && bench_array_make(&s.out, count, set->type, 0) &&
                bench_array_make(&s.other, count, set->type, 0);
    if (!done) snprintf(error, 200, "scaling: T %lld: not enough memory", (long long)size->T);
    done = done && measure(&s, to, BENCH_FUSED, error) && measure(&s, to, BENCH_ONE_BY_ONE, error);
    if (done) {
        to->error = bench_worse(bench_forward_error(&shape, &s.q, &s.k, &s.v, &s.out), difference(&s));
        measure_unfused(&s, to);
    }
    bench_array *all[] = {&s.q, &s.k, &s.v, &s.out, &s.other};
    for (int n = 0; n < 5; n++) bench_array_free(all[n]);
    return done;
}

double bench_exponent(const double *x, const double *y, int count)
{
    double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (int i = 0; i < count; i++) {
        if (!(isfinite(x[i]) && isfinite(y[i]) && x[i] > 0 && y[i] > 0)) continue;
        double a = log(x[i]), b = log(y[i]);
        n++, sx += a, sy += b, sxx += a * a, sxy += a * b;
    }
    return n < 2 ? NAN : (n * sxy - sx * sy) / (n * sxx - sx * sx);
}
