/* The gradients of attention in float64, one row at a time. With w the weights before dropout, w' those after it and s
 * the scores that go into the softmax, a row with the incoming gradients dout and dlse gives
 *
 *     dw_j   = dout . v_j / (1 - dropout) where kept, else 0
 *     ds_j   = w_j (dw_j - dout . out + dlse)                     the softmax; the sink's score moves like any other
 *     dbias_j = ds_j                                              dslope = -sum_j ds_j |p - j|
 *     dsink  = w_sink (0 - dout . out + dlse)                     it has no value, so its dw is 0
 *     dt_j   = ds_j scale (1 - (capped_j / softcap)^2)            by the product q . k_j; 1 - tanh^2 of the cap
 *     dq     = sum_j dt_j k_j      dk_j += dt_j q      dv_j += w'_j dout
 *
 * Sums run over the keys that the row sees and over nothing else: what is hidden may be NaN. */
#include "ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The forward pass that the gradients go back through. */
typedef struct pass {
    const ref_attention *a;
    const ref_gradients *g;
    double scale;
    const double *out, *lse;                  /* (B,H,Tq,E), (B,H,Tq) */
    const double *capped, *weights, *dropped; /* (B,H,Tq,Tk) */
} pass;

static double *zeros(int64_t count)
{
    double *memory = calloc((size_t)count + 1, sizeof *memory);
    if (!memory) abort();
    return memory;
}

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t d = 0; d < n; d++) sum += x[d] * y[d];
    return sum;
}

/* to += factor * x, where it is wanted. */
static void add(double *to, double factor, const double *x, int64_t n)
{
    for (int64_t d = 0; to && d < n; d++) to[d] += factor * x[d];
}

static double *row_of(double *array, int64_t row, int64_t width) { return array ? array + row * width : NULL; }

/* ---- One row ---------------------------------------------------------------------------------------------------- */

/* What the row (b,h,i) and the key j that it sees give each other; `common` is -dout . out + dlse. */
static void meet(const pass *s, int64_t b, int64_t h, int64_t i, int64_t j, double common)
{
    const ref_attention *a = s->a;
    const ref_gradients *g = s->g;
    int64_t row = (b * a->H + h) * a->Tq + i, key = (b * a->G + h / (a->H / a->G)) * a->Tk + j, at = row * a->Tk + j;
    const double *dout = g->dout + row * a->E;

    bool kept = ref_keeps(a->dropout, a->dropout_seed, a->dropout_stream + (uint64_t)b, h, i, j);
    double dw = kept ? dot(dout, a->v + key * a->E, a->E) / (1 - a->dropout) : 0;
    double ds = s->weights[at] * (dw + common);
    if (g->dbias) g->dbias[at] = ds;
    if (g->dslopes) g->dslopes[b * a->H + h] -= ds * fabs((double)(ref_position(a, b, i) - j));

    double flat = a->softcap > 0 ? s->capped[at] / a->softcap : 0;
    double dt = ds * s->scale * (1 - flat * flat);
    add(row_of(g->dq, row, a->D), dt, a->k + key * a->D, a->D);
    add(row_of(g->dk, key, a->D), dt, a->q + row * a->D, a->D);
    add(row_of(g->dv, key, a->E), s->dropped[at], dout, a->E);
}

static void go_back(const pass *s, int64_t b, int64_t h, int64_t i)
{
    const ref_attention *a = s->a;
    int64_t row = (b * a->H + h) * a->Tq + i;
    if (s->lse[row] == -INFINITY) return; /* sees no key */
    const double *out = s->g->out ? s->g->out : s->out;
    double common = -dot(s->g->dout + row * a->E, out + row * a->E, a->E);
    if (s->g->dlse) common += s->g->dlse[row];
    if (s->g->dsinks) s->g->dsinks[h] += exp(a->sinks[h] - s->lse[row]) * common;
    for (int64_t j = 0; j < a->Tk; j++)
        if (ref_visible(a, b, h, i, j)) meet(s, b, h, i, j, common);
}

/* ---- All rows --------------------------------------------------------------------------------------------------- */

static void clear(double *array, int64_t count)
{
    if (array) memset(array, 0, (size_t)count * sizeof *array);
}

static void start(const ref_attention *a, const ref_gradients *g)
{
    clear(g->dq, a->B * a->H * a->Tq * a->D);
    clear(g->dk, a->B * a->G * a->Tk * a->D);
    clear(g->dv, a->B * a->G * a->Tk * a->E);
    clear(g->dbias, a->B * a->H * a->Tq * a->Tk);
    clear(g->dslopes, a->B * a->H);
    clear(g->dsinks, a->H);
}

static ref_result run_forward(const ref_attention *a)
{
    int64_t rows = a->B * a->H * a->Tq;
    ref_result forward = {.out = zeros(rows * a->E), .lse = zeros(rows)};
    forward.stage[REF_CAPPED] = zeros(rows * a->Tk);
    forward.stage[REF_SOFTMAX] = zeros(rows * a->Tk);
    forward.stage[REF_DROPPED] = zeros(rows * a->Tk);
    ref_attention_forward(a, &forward);
    return forward;
}

static void free_forward(ref_result *forward)
{
    free(forward->out);
    free(forward->lse);
    for (int n = 0; n < REF_STAGES; n++) free(forward->stage[n]);
}

void ref_attention_backward(const ref_attention *a, const ref_gradients *g)
{
    ref_result forward = g->forward ? *g->forward : run_forward(a);
    pass s = {.a = a,
              .g = g,
              .scale = isnan(a->scale) ? 1 / sqrt((double)a->D) : a->scale,
              .out = forward.out,
              .lse = forward.lse,
              .capped = forward.stage[REF_CAPPED],
              .weights = forward.stage[REF_SOFTMAX],
              .dropped = forward.stage[REF_DROPPED]};
    start(a, g);
    for (int64_t b = 0; b < a->B; b++)
        for (int64_t h = 0; h < a->H; h++)
            for (int64_t i = 0; i < a->Tq; i++) go_back(&s, b, h, i);
    if (!g->forward) free_forward(&forward);
}
