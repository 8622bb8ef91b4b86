/* Attention before anybody fuses it: the scores of a head as one product, their softmax, and a second product, each
 * through the whole (Tq,Tk) matrix in memory; backward with five products. What one writes with a good BLAS at hand,
 * and the measure that a fused kernel must beat.
 *
 * The peer gets every advantage that does not change its nature: the exponentials of this library; query heads that
 * share keys as rows of one product; a division by the sum at the width of D, not of Tk; `lse` in the backward pass, so
 * that P is one sweep over S. Under a causal mask the products still cover the whole square.
 *
 * Threads go one of two ways: heads side by side, each with one thread of the BLAS; or one head after another, with all
 * threads in each product and over the rows of the softmax. Which is faster depends on how many heads there are, how
 * large they are and on the caches, so both are timed and the faster one counts. */
#include "bench.h"
#include "cpu/isa/kernels.h"
#include <stdlib.h>
#include <unistd.h>

enum { LANES = MHA_BLOCK };

typedef struct unfused {
    const bench_unfused *u;
    const mha_kernels *kernels;
    int64_t groups, rows; /* key/value heads in all; rows of queries that share one */
    int64_t room;         /* floats of a task: one or two (rows,Tk), and one a row */
    float *buffers;
    int tasks;   /* that take heads side by side; 1: one head after another */
    int threads; /* of a product */
    mha_queue queue;
} unfused;

/* ---- Softmax --------------------------------------------------------------------------------------------------- */

static float largest_of(const float *x, int64_t n)
{
    float top[16], most = -INFINITY;
    int64_t i = 0;
    for (int l = 0; l < 16; l++) top[l] = -INFINITY;
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++) top[l] = x[i + l] > top[l] ? x[i + l] : top[l];
    for (; i < n; i++) top[0] = x[i] > top[0] ? x[i] : top[0];
    for (int l = 0; l < 16; l++) most = top[l] > most ? top[l] : most;
    return most;
}

static float sum_of(const float *x, int64_t n)
{
    float sum[16] = {0}, all = 0;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++) sum[l] += x[i + l];
    for (; i < n; i++) sum[0] += x[i];
    for (int l = 0; l < 16; l++) all += sum[l];
    return all;
}

/* row = exp(row - top) up to `seen`, 0 from there to Tk. A line of the kernel's lanes is a piece of the row here. */
static void exponentials(const mha_kernels *kernels, float *row, float top, int64_t seen, int64_t Tk)
{
    float tops[LANES], ones[LANES], last[LANES] = {0};
    int64_t whole = seen / LANES, left = seen % LANES;
    for (int l = 0; l < LANES; l++) tops[l] = top;
    for (int l = 0; l < LANES; l++) ones[l] = 1;
    kernels->weights(row, LANES, whole, LANES, tops, ones);
    for (int64_t l = 0; l < left; l++) last[l] = row[whole * LANES + l];
    if (left) kernels->weights(last, LANES, 1, LANES, tops, ones);
    for (int64_t l = 0; l < left; l++) row[whole * LANES + l] = last[l];
    for (int64_t j = seen; j < Tk; j++) row[j] = 0;
}

static int64_t keys_seen(const bench_shape *s, int64_t row) { return s->causal ? row % s->Tq + 1 : s->Tk; }

/* ---- A task for each share of the rows --------------------------------------------------------------------------- */

typedef struct sweep {
    unfused *f;
    int64_t group;
    float *scores; /* (rows,Tk), to weights */
    float *slopes; /* (rows,Tk), dP to dS; backward only */
    float *sums;   /* (rows); forward only */
} sweep;

static void sweep_row(const sweep *w, int64_t r)
{
    const bench_unfused *u = w->f->u;
    int64_t Tk = u->shape->Tk, D = u->shape->D, seen = keys_seen(u->shape, r), at = w->group * w->f->rows + r;
    float *p = w->scores + r * Tk, top = u->dout ? u->lse[at] : largest_of(p, seen), delta = 0;
    exponentials(w->f->kernels, p, top, seen, Tk);
    if (!u->dout) {
        w->sums[r] = sum_of(p, seen);
        return;
    }
    for (int64_t d = 0; d < D; d++) delta += u->dout[at * D + d] * u->out[at * D + d];
    float *ds = w->slopes + r * Tk;
    for (int64_t j = 0; j < Tk; j++) ds[j] = p[j] * (ds[j] - delta);
}

static void sweep_share(void *arg, int task)
{
    const sweep *w = arg;
    int64_t rows = w->f->rows, end = rows * (task + 1) / w->f->threads;
    for (int64_t r = rows * task / w->f->threads; r < end; r++) sweep_row(w, r);
}

static void sweep_rows(sweep *w) { mha_parallel_run(w->f->u->set->ctx, w->f->threads, sweep_share, w); }

/* ---- One key/value head with its queries ------------------------------------------------------------------------- */

static void forward_head(unfused *f, int64_t group, float *scores)
{
    const bench_shape *s = f->u->shape;
    const bench_blas *blas = f->u->set->blas;
    int64_t queries = group * f->rows * s->D, keys = group * s->Tk * s->D;
    float *out = f->u->to_out + queries, scale = 1.0f / sqrtf((float)s->D);
    sweep w = {.f = f, .group = group, .scores = scores, .sums = scores + f->rows * s->Tk};
    bench_multiply(blas, scores, false, true, f->rows, s->Tk, s->D, scale, f->u->q + queries, f->u->k + keys);
    sweep_rows(&w);
    bench_multiply(blas, out, false, false, f->rows, s->D, s->Tk, 1, scores, f->u->v + keys);
    for (int64_t r = 0; r < f->rows; r++)
        for (int64_t d = 0; d < s->D; d++) out[r * s->D + d] /= w.sums[r];
}

static void backward_head(unfused *f, int64_t group, float *p)
{
    const bench_unfused *u = f->u;
    const bench_blas *blas = u->set->blas;
    int64_t rows = f->rows, Tk = u->shape->Tk, D = u->shape->D, queries = group * rows * D, keys = group * Tk * D;
    float *ds = p + rows * Tk, scale = 1.0f / sqrtf((float)D);
    sweep w = {.f = f, .group = group, .scores = p, .slopes = ds};
    bench_multiply(blas, p, false, true, rows, Tk, D, scale, u->q + queries, u->k + keys);
    bench_multiply(blas, ds, false, true, rows, Tk, D, 1, u->dout + queries, u->v + keys);
    sweep_rows(&w);
    bench_multiply(blas, u->dv + keys, true, false, Tk, D, rows, 1, p, u->dout + queries);
    bench_multiply(blas, u->dk + keys, true, false, Tk, D, rows, scale, ds, u->q + queries);
    bench_multiply(blas, u->dq + queries, false, false, rows, D, Tk, scale, ds, u->k + keys);
}

static void take_heads(void *arg, int task)
{
    unfused *f = arg;
    int64_t group;
    while ((group = mha_queue_take(&f->queue)) >= 0) {
        if (f->u->dout) backward_head(f, group, f->buffers + task * f->room);
        else forward_head(f, group, f->buffers + task * f->room);
    }
}

static void run(void *arg)
{
    unfused *f = arg;
    atomic_store(&f->queue.next, 0);
    mha_parallel_run(f->u->set->ctx, f->tasks, take_heads, f);
}

/* ---- The clock --------------------------------------------------------------------------------------------------- */

/* Half of the machine's memory: the arrays need some, and so do others. */
static double most_floats(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? 0.5 * (double)pages * (double)size / sizeof(float) : INFINITY;
}

static bool fits(const unfused *f, int tasks) { return (double)tasks * (double)f->room <= most_floats(); }

/* Median milliseconds with so many heads side by side and so many threads in each; INFINITY if that cannot be had. */
static double time_way(unfused *f, int tasks, int threads)
{
    f->tasks = tasks;
    f->threads = threads;
    f->buffers = fits(f, tasks) ? malloc((size_t)tasks * (size_t)f->room * sizeof(float)) : NULL;
    if (!f->buffers) return INFINITY;
    size_t bytes = (size_t)tasks * (size_t)f->room * sizeof(float), *most = f->u->bytes;
    if (most && bytes > *most) *most = bytes;
    f->u->set->blas->set_threads(threads);
    double ms = bench_time_peer(f->u->set, run, f);
    free(f->buffers);
    return ms;
}

/* Loops have no threads of their own, so for them there is but one way. */
double bench_time_unfused(const bench_unfused *u)
{
    const bench_shape *s = u->shape;
    const bench_blas *blas = u->set->blas;
    if (!blas) return NAN;
    int threads = mha_context_threads(u->set->ctx);
    unfused f = {.u = u, .kernels = u->set->ctx->kernels, .groups = s->B * s->G, .rows = s->H / s->G * s->Tq};
    double flops = (u->dout ? 10.0 : 4.0) * (double)(f.groups * f.rows) * (double)(s->Tk * s->D);
    if (flops > blas->flops_most * threads) return NAN;
    f.room = (u->dout ? 2 : 1) * f.rows * s->Tk + f.rows;
    f.queue.count = f.groups;
    int side = threads < f.groups ? threads : (int)f.groups;
    double by_heads = time_way(&f, side, 1);
    double by_rows = threads > 1 && blas != bench_loops() ? time_way(&f, 1, threads) : INFINITY;
    double ms = by_heads < by_rows ? by_heads : by_rows;
    return isfinite(ms) ? ms : NAN;
}
