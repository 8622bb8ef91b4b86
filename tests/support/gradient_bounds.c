/* The oracle's gradients, and how far a correct float32 computation may be from them.
 *
 * dout . out is taken from the `out` that the library's forward pass gave, rounded to its type, as the formulas of
 * mha.h say: so no error of `out` enters here, except where an engine made a float32 `out` from rounded weights: delta
 * may be that of `out` or the exact one there. Weights are those of a softmax whose scores have the errors of bounds.c.
 * With u = 2^-24, x_j = dw_j + dlse - dout . out, t_j = capped_j / softcap and the bounds of bounds.c, the errors are at
 * most about
 *
 *     w_j           W = bound of softmax_j
 *     x_j           X = u ((4 + E/2) (sum_e |dw terms| + sum_e |dout out|) + 4 |dlse| + 4 |x_j|)
 *     ds_j          S = W (|x_j| + X) + w_j X
 *     1 - t_j^2     C = o (2 |t_j| + o) + 4 u,   o = (bound of capped_j) / softcap
 *     dt_j          T = scale (S (1 - t_j^2 + C) + |ds_j| C)
 *
 * A sum of n terms, each with its error, loses r u of their absolute sum on top: r = 8 + sqrt(n)/2, as in bounds.c. */
#include "support/gradients.h"

#include <float.h>
#include <stdlib.h>

#define U 0x1p-24

/* What the sums over rows and keys start from. */
typedef struct bound {
    gradients *g;
    double *out;  /* (B,H,Tq,E) as the library gave it */
    double *dout; /* (B,H,Tq,E) */
    double *dlse; /* (B,H,Tq) or NULL */
    double *ds;   /* (B,H,Tq,Tk) */
    double scale, share;
    double rounded; /* what an engine's rounding of weights to 16 bits may cost, relative to them */
    double grown;   /* and of dS, which tensor cores compute from rounded weights */
    double coarse;  /* and below the normal range of float16 */
    double flushed; /* what it takes for zero: bfloat16 numbers below the normal range */
    double *most;   /* (B,G): what |dS K| is at most for |dO| = 1; where tensor cores sum dQ */
} bound;

/* One row meets one key. */
typedef struct pair {
    int64_t b, h, i, j, row, key, at; /* of (B,H,Tq), (B,G,Tk), (B,H,Tq,Tk) */
    double weight, weight_error;      /* before dropout */
    double kept;                      /* 1/(1 - dropout), or 0 */
} pair;

/* What may be lost below the normal range: by a product, and by a query that is scaled before it meets a key. Where no
 * pair counts there is no bound but zero. */
#define UNDERFLOW 1e-36
#define SUBNORMAL 0x1p-149

static double loss_of(double terms) { return (8 + sqrt(terms) / 2) * U; }

static double absolute_dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t d = 0; d < n; d++) sum += fabs(x[d] * y[d]);
    return sum;
}

/* ---- Where a pair counts ---------------------------------------------------------------------------------------- */

/* The flat index of (b,h,i,j) in an array of the sizes of the bias, whose missing axes and axes of size 1 repeat. */
static int64_t bias_index(const store *s, const pair *x)
{
    const int64_t full[4] = {x->b, x->h, x->i, x->j};
    int64_t index = 0;
    for (int a = 0; a < s->view.rank; a++) {
        int64_t own = s->view.size[a] == 1 ? 0 : full[4 - s->view.rank + a];
        index = index * s->view.size[a] + own;
    }
    return index;
}

static int64_t slope_index(const problem *p, int64_t b, int64_t h) { return p->c.alibi == 2 ? b * p->c.H + h : h; }

/* ---- Bounds ----------------------------------------------------------------------------------------------------- */

/* x_j without dw_j, the absolute sum of its terms, and its error. */
static double common_of(const bound *s, int64_t row, double *error)
{
    int64_t E = s->g->p->c.E;
    const double *dout = s->dout + row * E, *out = s->out + row * E;
    double sum = s->dlse ? s->dlse[row] : 0;
    for (int64_t e = 0; e < E; e++) sum -= dout[e] * out[e];
    double dlse = s->dlse ? fabs(s->dlse[row]) : 0;
    *error = U * ((4 + (double)E / 2) * absolute_dot(dout, out, E) + 4 * dlse + 4 * fabs(sum));
    if (s->g->p->engine && s->g->p->out.view.type == MHA_FLOAT32) {
        double off = 0;
        for (int64_t e = 0; e < E; e++) off += dout[e] * (out[e] - s->g->p->want.out[row * E + e]);
        *error += fabs(off);
    }
    return sum;
}

static void bound_score(bound *s, const pair *x, double common, double common_error)
{
    gradients *g = s->g;
    const problem *p = g->p;
    int64_t D = p->c.D, E = p->c.E;
    const double *dout = s->dout + x->row * E, *v = p->ref.v + x->key * E;
    double dw = 0, absolute = 0, ds = s->ds[x->at], cap = p->ref.softcap;
    for (int64_t e = 0; e < E; e++) dw += dout[e] * v[e] * x->kept, absolute += fabs(dout[e] * v[e]);
    double dw_error = U * ((4 + (double)E / 2) * absolute * x->kept + 4 * fabs(dw + common));
    for (int64_t e = 0; s->flushed > 0 && e < E; e++) dw_error += s->flushed * (fabs(dout[e]) + fabs(v[e])) * x->kept;
    double X = dw_error + common_error;
    double S = x->weight_error * (fabs(dw + common) + X) + x->weight * X + UNDERFLOW;
    double flat = cap > 0 ? p->want.stage[REF_CAPPED][x->at] / cap : 0, slope = 1 - flat * flat;
    double off = cap > 0 ? p->allowed.scores[REF_CAPPED][x->at] / cap : 0;
    double C = cap > 0 ? off * (2 * fabs(flat) + off) + 4 * U : 0;
    double T = s->scale * (S * (slope + C) + fabs(ds) * C), t = s->scale * fabs(ds) * slope;
    T += s->grown * (t + T) + s->coarse * s->scale;
    double rows = (double)p->c.Tq * s->share, distance = fabs((double)(ref_position(&p->ref, x->b, x->i) - x->j));
    double of_k = T + loss_of((double)p->c.Tk) * t, of_q = T + loss_of(rows) * t, flushed = s->flushed * (t + T);
    double floor = fabs(ds) * slope * SUBNORMAL + flushed + UNDERFLOW;
    const double *q = p->ref.q + x->row * D, *k = p->ref.k + x->key * D;
    double *restrict dq = g->allowed[GRAD_Q] + x->row * D, *restrict dk = g->allowed[GRAD_K] + x->key * D;
    for (int64_t d = 0; d < D; d++) {
        dq[d] += of_k * fabs(k[d]) + flushed + UNDERFLOW;
        dk[d] = dk[d] + of_q * fabs(q[d]) + floor;
    }
    double all = (double)(p->c.B * p->c.Tq * p->c.Tk);
    if (p->bias.bytes) {
        int64_t n = bias_index(&p->bias, x);
        g->want[GRAD_BIAS][n] += ds;
        g->allowed[GRAD_BIAS][n] += S + loss_of(all * (double)p->c.H / (double)store_count(&p->bias)) * fabs(ds);
    }
    if (p->c.alibi) g->allowed[GRAD_SLOPES][slope_index(p, x->b, x->h)] += (S + loss_of(all) * fabs(ds)) * distance;
}

static void bound_value(const bound *s, const pair *x)
{
    int64_t E = s->g->p->c.E;
    double rows = (double)s->g->p->c.Tq * s->share;
    /* Weights are rounded before or after what dropout multiplies them by. */
    double coarse = s->coarse * fmax(1, x->kept);
    double error = (x->weight_error + (loss_of(rows) + s->rounded) * (x->weight + x->weight_error)) * x->kept + coarse;
    const double *dout = s->dout + x->row * E;
    double *restrict dv = s->g->allowed[GRAD_V] + x->key * E;
    for (int64_t e = 0; e < E; e++) dv[e] += error * fabs(dout[e]) + UNDERFLOW;
}

static void bound_sink(const bound *s, int64_t h, int64_t row, double common, double common_error)
{
    const problem *p = s->g->p;
    if (!p->ref.sinks) return;
    double sink = p->ref.sinks[h], lse = p->want.lse[row], weight = exp(sink - lse);
    double off = p->allowed.lse[row] + U * (4 + 4 * fabs(sink) + 2 * fabs(sink - lse));
    double error = weight * expm1(off) * (fabs(common) + common_error) + weight * common_error;
    double terms = (double)(p->c.B * p->c.Tq);
    if (off > 0.5) error = INFINITY;
    s->g->allowed[GRAD_SINKS][h] += error + loss_of(terms) * fabs(weight * common) + UNDERFLOW;
}

/* dQ is summed in fixed point, with at least 26 bits for what a key head's numbers can make of it, one term for 128 keys. */
static void bound_sums(const bound *s, int64_t b, int64_t h, int64_t row)
{
    const attention_case *c = &s->g->p->c;
    const double *dout = s->dout + row * c->E;
    double most = s->most[b * c->G + h / (c->H / c->G)], terms = ceil((double)c->Tk / 128);
    double norm = sqrt(absolute_dot(dout, dout, c->E)) / (1 - (double)c->dropout);
    for (int64_t d = 0; d < c->D; d++)
        s->g->allowed[GRAD_Q][row * c->D + d] += terms * s->scale * norm * most * 0x1p-27;
}

/* Summed in float64: what may be off is the last rounding. */
static void add_worth(const bound *s, int64_t b, int64_t h, int64_t row)
{
    const attention_case *c = &s->g->p->c;
    for (int64_t e = 0; e < c->E; e++) {
        double term = s->dout[row * c->E + e] * s->out[row * c->E + e];
        s->g->want[GRAD_WORTH][b * c->H + h] += term;
        s->g->allowed[GRAD_WORTH][b * c->H + h] += 0x1p-45 * fabs(term) + UNDERFLOW;
    }
}

static void bound_row(bound *s, int64_t b, int64_t h, int64_t i)
{
    const problem *p = s->g->p;
    const ref_attention *a = &p->ref;
    pair x = {.b = b, .h = h, .i = i, .row = (b * a->H + h) * a->Tq + i};
    double common_error, common;
    if (p->want.lse[x.row] == -INFINITY) return;
    common = common_of(s, x.row, &common_error);
    add_worth(s, b, h, x.row);
    bound_sink(s, h, x.row, common, common_error);
    if (s->most) bound_sums(s, b, h, x.row);
    for (x.j = 0; x.j < a->Tk; x.j++) {
        if (!ref_visible(a, b, h, i, x.j)) continue;
        x.key = (b * a->G + h / (a->H / a->G)) * a->Tk + x.j;
        x.at = x.row * a->Tk + x.j;
        bool kept = ref_keeps(a->dropout, a->dropout_seed, a->dropout_stream + (uint64_t)b, h, i, x.j);
        x.kept = kept ? 1 / (1 - a->dropout) : 0;
        x.weight = p->want.stage[REF_SOFTMAX][x.at];
        x.weight_error = p->allowed.softmax[x.at] + 4 * U * x.weight;
        bound_score(s, &x, common, common_error);
        bound_value(s, &x);
    }
}

/* ---- The answer ------------------------------------------------------------------------------------------------- */

static double *dense(const problem *p, const store *s, int64_t width)
{
    int64_t n = 0;
    if (!s->bytes) return NULL;
    double *x = array(p->c.B * p->c.H * p->c.Tq * width, sizeof *x);
    for (int64_t b = 0; b < p->c.B; b++)
        for (int64_t h = 0; h < p->c.H; h++, n += (p->c.Tq - p->queries[b]) * width)
            for (int64_t i = 0; i < p->queries[b]; i++)
                for (int64_t d = 0; d < width; d++, n++)
                    x[n] = element_get(query_element(p, s, b, h, i, d), s->view.type);
    return x;
}

/* The largest norm of a value times the largest number of a key, for each head. */
static double *largest(const problem *p)
{
    const attention_case *c = &p->c;
    double *most = array(c->B * c->G, sizeof *most);
    for (int64_t n = 0; n < c->B * c->G; n++) {
        double norm = 0, number = 0;
        for (int64_t j = n * c->Tk; j < (n + 1) * c->Tk; j++) {
            double squares = absolute_dot(p->ref.v + j * c->E, p->ref.v + j * c->E, c->E);
            if (isfinite(squares)) norm = fmax(norm, sqrt(squares));
            for (int64_t d = 0; d < c->D; d++)
                if (isfinite(p->ref.k[j * c->D + d])) number = fmax(number, fabs(p->ref.k[j * c->D + d]));
        }
        most[n] = norm * number;
    }
    return most;
}

static void make_room(gradients *g)
{
    const problem *p = g->p;
    const attention_case *c = &p->c;
    int64_t rows = c->B * c->H * c->Tq, keys = c->B * c->G * c->Tk;
    const int64_t count[GRADS] = {
        rows * c->D, keys * c->D, keys * c->E, store_count(&p->bias), c->alibi == 2 ? c->B * c->H : c->H,
        c->H,        c->B * c->H};
    for (int n = 0; n < GRADS; n++) {
        free(g->want[n]);
        free(g->allowed[n]);
        g->want[n] = array(count[n], sizeof(double));
        g->allowed[n] = array(count[n], sizeof(double));
    }
}

void gradients_solve(gradients *g)
{
    problem *p = g->p;
    const attention_case *c = &p->c;
    bound s = {.g = g, .out = dense(p, &p->out, c->E), .dout = dense(p, &g->dout, c->E), .dlse = dense(p, &g->dlse, 1)};
    double *slopes = array(c->B * c->H, sizeof *slopes);
    s.ds = array(c->B * c->H * c->Tq * c->Tk, sizeof *s.ds);
    s.scale = isnan(p->ref.scale) ? 1 / sqrt((double)c->D) : fabs(p->ref.scale);
    s.share = c->G ? (double)(c->H / c->G) : 1;
    bool half = p->tensor_cores && g->dout.view.type == MHA_FLOAT16;
    bool brief = p->engine && g->dout.view.type == MHA_BFLOAT16;
    s.rounded = brief ? 0x1.02p-8 : half ? 0x1.02p-11 : 0;
    s.grown = p->tensor_cores ? 2 * s.rounded : s.rounded;
    s.coarse = half ? 0x1p-25 : 0;
    s.flushed = brief ? 0x1p-126 : 0;
    s.most = p->tensor_cores && (half || brief) ? largest(p) : NULL;
    if (!p->want.out) problem_solve(p);
    make_room(g);
    ref_gradients r = {
        .dout = s.dout, .dlse = s.dlse, .out = s.out, .forward = &p->want, .dbias = s.ds, .dslopes = slopes};
    r.dq = g->want[GRAD_Q];
    r.dk = g->want[GRAD_K];
    r.dv = g->want[GRAD_V];
    r.dsinks = c->sinks ? g->want[GRAD_SINKS] : NULL;
    ref_attention_backward(&p->ref, &r);
    for (int64_t b = 0; b < c->B; b++)
        for (int64_t h = 0; h < c->H; h++) {
            if (c->alibi) g->want[GRAD_SLOPES][slope_index(p, b, h)] += slopes[b * c->H + h];
            for (int64_t i = 0; i < p->queries[b]; i++) bound_row(&s, b, h, i);
            double *worth = &g->want[GRAD_WORTH][b * c->H + h];
            *worth = fabs(*worth);
            g->allowed[GRAD_WORTH][b * c->H + h] += 2 * U * *worth;
        }
    free(slopes);
    free(s.ds);
    free(s.most);
    free(s.out);
    free(s.dout);
    free(s.dlse);
}
