/* Whether gradients are right.
 *
 * The oracle takes one head in full if that is not too long. Of longer heads, and of heads that share keys, samples
 * are checked. A row of dQ depends on its own row of P alone, so the oracle computes it as a problem of one row. A
 * row of dK or dV is a sum over all rows of queries, for which P needs the `lse` of each: that of the library is
 * taken, having been compared with the oracle's in the sampled rows. */
#include "backward.h"
#include "ref.h"
#include <stdlib.h>

static const int64_t ORACLE_MOST = INT64_C(1) << 27; /* Tq Tk D of a head that the oracle takes in full */
enum { SAMPLES = 12 };

static ref_attention problem(const bench_shape *s, double *const x[])
{
    return (ref_attention){.B = 1,
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
}

static void widen(double *to, const bench_array *from, int64_t first, int64_t count)
{
    for (int64_t i = 0; i < count; i++) to[i] = bench_array_get(from, first + i);
}

/* Errors and sizes as they come, for each gradient. */
typedef struct tally {
    double worst, largest;
} tally;

static void compare(tally *t, const bench_array *got, int64_t first, const double *want, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        t->worst = bench_worse(t->worst, fabs(bench_array_get(got, first + i) - want[i]));
        if (fabs(want[i]) > t->largest) t->largest = fabs(want[i]);
    }
}

/* ---- One head in full: the last of the last batch ----------------------------------------------------------------- */

static double head_error(const backward *b)
{
    const bench_shape *s = b->shape;
    int64_t rows = s->Tq * s->D, keys = s->Tk * s->D, size[ARRAYS] = {rows, keys, keys, rows, rows, rows, keys, keys};
    double *all = malloc((size_t)(4 * (rows + keys)) * sizeof *all), *x[ARRAYS], *next = all, worst = 0;
    if (!all) return NAN;
    for (int n = 0; n < ARRAYS; n++) {
        x[n] = next;
        next += size[n];
        if (n < DQ) widen(x[n], &b->a[n], b->a[n].count - size[n], size[n]);
    }
    ref_attention one = problem(s, x);
    ref_attention_backward(&one, &(ref_gradients){x[DOUT], NULL, x[OUT], .dq = x[DQ], .dk = x[DK], .dv = x[DV]});
    for (int n = DQ; n < ARRAYS; n++) {
        tally t = {0, 0};
        compare(&t, &b->a[n], b->a[n].count - size[n], x[n], size[n]);
        worst = bench_worse(worst, t.worst / t.largest);
    }
    free(all);
    return worst;
}

/* ---- Samples ------------------------------------------------------------------------------------------------------ */

/* The row of dQ, and the lse that the rows of dK and dV rely on. x has room for a row each, and Tk rows for K and V. */
static void check_row(tally *dq, tally *lse, const backward *b, int64_t row, double *const x[])
{
    const bench_shape *s = b->shape;
    int64_t i = row % s->Tq, keys = s->Tk * s->D, D = s->D, bg = row / s->Tq / (s->H / s->G);
    double want_lse;
    widen(x[Q], &b->a[Q], row * D, D);
    widen(x[OUT], &b->a[OUT], row * D, D);
    widen(x[DOUT], &b->a[DOUT], row * D, D);
    widen(x[K], &b->a[K], bg * keys, keys);
    widen(x[V], &b->a[V], bg * keys, keys);
    ref_attention one = problem(s, x);
    one.Tq = 1;
    one.align = REF_OFFSET;
    one.offsets = &i;
    ref_attention_forward(&one, &(ref_result){.lse = &want_lse});
    ref_attention_backward(&one, &(ref_gradients){x[DOUT], NULL, x[OUT], .dq = x[DQ]});
    compare(dq, &b->a[DQ], row * D, x[DQ], D);
    compare(lse, &b->lse, row, &want_lse, 1);
}

static double dot(const bench_array *a, int64_t i, const bench_array *b, int64_t j, int64_t D)
{
    double sum = 0;
    for (int64_t d = 0; d < D; d++) sum += bench_array_get(a, i * D + d) * bench_array_get(b, j * D + d);
    return sum;
}

/* dV_j = sum_i P_ij dO_i,  dK_j = scale sum_i P_ij (dO_i V_j - dO_i O_i) Q_i,  over the rows of all heads that share j */
static void check_key(tally *dk, tally *dv, const backward *b, int64_t key, double *const x[])
{
    const bench_shape *s = b->shape;
    int64_t D = s->D, rows = s->H / s->G * s->Tq, first = key / s->Tk * rows, j = key % s->Tk;
    double scale = 1 / sqrt((double)D);
    for (int64_t d = 0; d < D; d++) x[DK][d] = x[DV][d] = 0;
    for (int64_t i = first; i < first + rows; i++) {
        if (s->causal && j > i % s->Tq) continue;
        double p = exp(scale * dot(&b->a[Q], i, &b->a[K], key, D) - bench_array_get(&b->lse, i));
        double ds = p * (dot(&b->a[DOUT], i, &b->a[V], key, D) - dot(&b->a[DOUT], i, &b->a[OUT], i, D));
        for (int64_t d = 0; d < D; d++) {
            x[DV][d] += p * bench_array_get(&b->a[DOUT], i * D + d);
            x[DK][d] += scale * ds * bench_array_get(&b->a[Q], i * D + d);
        }
    }
    compare(dk, &b->a[DK], key * D, x[DK], D);
    compare(dv, &b->a[DV], key * D, x[DV], D);
}

static double sampled_error(const backward *b)
{
    const bench_shape *s = b->shape;
    int64_t rows = s->B * s->H * s->Tq, keys = s->B * s->G * s->Tk;
    double *all = malloc((size_t)((6 + 2 * s->Tk) * s->D) * sizeof *all), *x[ARRAYS], *next = all, worst = 0;
    tally t[4] = {{0}};
    if (!all) return NAN;
    for (int n = 0; n < ARRAYS; n++) {
        x[n] = next;
        next += (n == K || n == V ? s->Tk : 1) * s->D;
    }
    for (int64_t sample = 0; sample < SAMPLES; sample++) {
        check_row(&t[0], &t[1], b, (rows - 1) * sample / (SAMPLES - 1), x);
        check_key(&t[2], &t[3], b, (keys - 1) * sample / (SAMPLES - 1), x);
    }
    for (int n = 0; n < 4; n++) worst = bench_worse(worst, t[n].worst / t[n].largest);
    free(all);
    return worst;
}

double backward_error(const backward *b)
{
    const bench_shape *s = b->shape;
    return s->H == s->G && s->Tq * s->Tk * s->D <= ORACLE_MOST ? head_error(b) : sampled_error(b);
}
